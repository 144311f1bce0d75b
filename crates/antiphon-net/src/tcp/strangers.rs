//! Ports that are taken for one another: a node's, and an agent's for programs.

use std::fmt;
use std::io;
use std::time::Duration;

use antiphon_wire::frame::MAX_FRAME_BYTES;
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;

/// So much of what a stranger says tells whether it is an agent.
pub(super) const TELLING_BYTES: usize = 64;

/// What an address is at which programs are served, behind the address.
pub const IS_AN_AGENTS_PORT: &str = "is the port of an agent for programs (--listen)";
/// And what to do with a seed that names it.
pub const GIVE_THE_NODES_PORT: &str = "give the node's own address (--bind), by default port 7400";

/// Whether an agent answers so at its port for programs, where it is dialled as a node.
pub fn is_of_an_agent(said: &[u8]) -> bool {
    said.starts_with(b"{\"event\":\"refused\"")
}

/// What was dialled as a node is an agent's port for programs.
#[derive(Debug)]
struct AgentPort;

impl fmt::Display for AgentPort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "this {IS_AN_AGENTS_PORT}")
    }
}

impl std::error::Error for AgentPort {}

/// The error of a connection on which this was said, though it only receives.
pub(super) fn unexpected(said: &[u8]) -> io::Error {
    match is_of_an_agent(said) {
        true => io::Error::new(io::ErrorKind::InvalidData, AgentPort),
        false => io::Error::new(
            io::ErrorKind::InvalidData,
            "a byte on a connection that only receives",
        ),
    }
}

/// Whether a connection has failed for that.
pub(super) fn is_agent_port(error: &io::Error) -> bool {
    error.get_ref().is_some_and(|error| error.is::<AgentPort>())
}

macro_rules! no_agent {
    () => {
        "this is a port for nodes: programs connect to an agent's --listen"
    };
}
/// What a program is told, in what it speaks itself.
const IN_HTTP: &str = concat!(
    "HTTP/1.1 421 Misdirected Request\r\nContent-Type: text/plain\r\nContent-Length: 66\r\nConnection: close\r\n\r\n",
    no_agent!(),
    "\n"
);
const IN_JSON: &str = concat!(
    r#"{"event":"refused","group":null,"reason":""#,
    no_agent!(),
    r#"","fatal":true}"#,
    "\n"
);
const IN_RESP: &str = concat!("-ERR ", no_agent!(), "\r\n");
/// How long a program may take to read that, and to go.
const PART_WITHIN: Duration = Duration::from_secs(1);
/// Of what it says meanwhile, so many times [`UNREAD_BYTES`] are read at most.
const MAX_READS: usize = 64;
const UNREAD_BYTES: usize = 1024;

/// What to tell a connection that begins so, if it is one of a program that takes this port for an agent's.
/// Of no frame is the length before it that of such a beginning.
pub(super) fn answer_to(first: &[u8]) -> Option<&'static str> {
    let first = first.first_chunk::<4>()?;
    if u32::from_le_bytes(*first) as usize <= MAX_FRAME_BYTES {
        return None;
    }
    match first {
        [b'{', ..] => Some(IN_JSON),
        [b'*', ..] => Some(IN_RESP),
        b"GET " | b"POST" | b"PUT " | b"DELE" | b"HEAD" | b"OPTI" => Some(IN_HTTP),
        _ => None,
    }
}

/// Tells a program that, and gives it some time to read it.
pub(super) async fn part(stream: &mut TcpStream, answer: &str) {
    let parting = async {
        stream.write_all(answer.as_bytes()).await?;
        stream.shutdown().await?;
        // A socket that is closed with something unread takes the answer away.
        for _ in 0..MAX_READS {
            stream.readable().await?;
            if has_ended(stream)? {
                break;
            }
        }
        io::Result::Ok(())
    };
    // It has read the answer, or is gone.
    let _ = tokio::time::timeout(PART_WITHIN, parting).await;
}

/// Forgets what is there. Whether there will be no more.
fn has_ended(stream: &TcpStream) -> io::Result<bool> {
    match stream.try_read(&mut [0; UNREAD_BYTES]) {
        Ok(length) => Ok(length == 0),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(false),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_answered_in_what_it_speaks_and_a_frame_is_never_taken_for_one() {
        let answer = |said: &str| answer_to(said.as_bytes()).map(|answer| &answer[..4]);
        assert_eq!(answer("GET / HTTP/1.1\r\n\r\n"), Some("HTTP"));
        assert_eq!(answer("POST"), Some("HTTP"));
        assert_eq!(answer("{\"hello\":{}}\n"), Some("{\"ev"));
        assert_eq!(answer("*1\r\n$4\r\nPING\r\n"), Some("-ERR"));
        for other in ["", "{", "GET", "GETS", "SSH-2.0-x", "ZZZZ"] {
            assert_eq!(answer(other), None, "{other}");
        }
        for length in [u32::from(b'{'), u32::from(b'*'), MAX_FRAME_BYTES as u32] {
            assert_eq!(answer_to(&length.to_le_bytes()), None);
        }
        let (_, body) = IN_HTTP.split_once("\r\n\r\n").unwrap();
        assert!(IN_HTTP.contains(&format!("Content-Length: {}\r\n", body.len())));
        assert!(is_of_an_agent(IN_JSON.as_bytes()));
    }

    #[test]
    fn an_agent_is_known_by_how_it_refuses() {
        let refused: &[u8] = br#"{"event":"refused","group":null,"reason":"this is the port"}"#;
        assert!(is_agent_port(&unexpected(refused)));
        for other in [
            b"ATPN".as_slice(),
            b"",
            b"{\"event\"",
            b"HTTP/1.1 400 Bad Request",
        ] {
            assert!(!is_agent_port(&unexpected(other)));
        }
    }
}
