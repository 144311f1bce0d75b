//! Ports that are taken for one another: a node's, and an agent's for programs.

use std::fmt;
use std::io;

/// So much of what a stranger says tells whether it is an agent.
pub(super) const TELLING_BYTES: usize = 64;

/// Whether an agent answers so at its port for programs, where it is dialled as a node.
pub fn is_of_an_agent(said: &[u8]) -> bool {
    said.starts_with(b"{\"event\":\"refused\"")
}

/// What was dialled as a node is an agent's port for programs.
#[derive(Debug)]
struct AgentPort;

impl fmt::Display for AgentPort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("this is the port of an agent for programs")
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

#[cfg(test)]
mod tests {
    use super::*;

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
