//! `antiphon-bench resp`: connections that speak RESP with an agent or a redis-server, each the next requests
//! after the replies to the last ones, or at a pace. It ends with `done` and the figures.
//!
//! redis-benchmark measures one command at a time. This measures what it cannot: writes each of which is
//! followed by `WAIT`, and many connections that do little.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::{Args, ValueEnum};
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::Mutex;

use crate::Failure;
use crate::blocks::worker::load;
use crate::blocks::worker::words::Time;

/// The longest replies to the requests of one turn.
const MAX_REPLY_BYTES: usize = 1 << 20;

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Says {
    /// Reads keys.
    Get,
    /// Writes keys.
    Set,
    /// The same, and then `WAIT 1 0`: until a replica has what was written.
    SetWait,
}

#[derive(Debug, Args)]
pub(crate) struct RespArgs {
    /// What speaks RESP there
    #[arg(long)]
    addr: SocketAddr,
    #[arg(long, value_enum)]
    says: Says,
    /// How many connections
    #[arg(long)]
    connections: usize,
    /// How many requests of a connection are under way
    #[arg(long, default_value_t = 1)]
    pipeline: usize,
    /// Requests of each connection per second; as many as it can without
    #[arg(long)]
    pace: Option<u32>,
    /// Bytes of a value
    #[arg(long, default_value_t = 64)]
    bytes: usize,
    /// How many keys there are
    #[arg(long)]
    keys: u64,
    #[arg(long)]
    warmup_ms: u64,
    #[arg(long)]
    measured_ms: u64,
}

/// Measures.
pub(crate) fn run(args: &RespArgs) -> Result<(), Failure> {
    super::crowd::raise_open_files()?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| format!("cannot start a runtime: {error}"))?;
    let figures = runtime.block_on(measure(args))?;
    println!("done {}", json!(figures));
    Ok(())
}

async fn measure(args: &RespArgs) -> Result<crate::blocks::Figures, Failure> {
    let mut connections = Vec::new();
    for _ in 0..args.connections {
        connections.push(Mutex::new(Connection::open(args.addr).await?));
    }
    let connections = Arc::new(connections);
    let value = "x".repeat(args.bytes);
    let (says, pipeline, keys) = (args.says, args.pipeline.max(1), args.keys.max(1));
    let every = args
        .pace
        .map(|pace| Duration::from_secs_f64(1.0 / f64::from(pace.max(1))));
    // Not all at once.
    let offset = every.map_or(Duration::ZERO, |every| every / args.connections.max(1) as u32);
    let began = Instant::now();
    let one = move |task: usize, count: u64| {
        let (connections, value) = (connections.clone(), value.clone());
        async move {
            let mut connection = connections[task].lock().await;
            if let Some(every) = every {
                let due = began + offset * task as u32 + every * count as u32;
                tokio::time::sleep_until(due.into()).await;
            }
            let number = (task as u64).wrapping_mul(7919).wrapping_add(count) % keys;
            let from = Instant::now();
            let key = |index: usize| format!("key:{:012}", (number + index as u64) % keys);
            let mut text = String::new();
            for index in 0..pipeline {
                match says {
                    Says::Get => request(&mut text, &["GET", &key(index)]),
                    Says::Set | Says::SetWait => request(&mut text, &["SET", &key(index), &value]),
                }
            }
            if says == Says::SetWait {
                request(&mut text, &["WAIT", "1", "0"]);
            }
            connection.say(&text).await?;
            for _ in 0..pipeline {
                connection.reply().await?;
            }
            if says == Says::SetWait {
                let replicas = connection.reply().await?;
                if replicas != Some(1) {
                    return Err(format!("WAIT 1 says {replicas:?} replicas"));
                }
            }
            Ok(from.elapsed())
        }
    };
    let time = Time {
        warmup_ms: args.warmup_ms,
        measured_ms: args.measured_ms,
    };
    let mut figures = load::run_timed(args.connections, time, one).await?;
    if let Some(rate) = figures.get_mut("rate") {
        *rate *= pipeline as f64;
    }
    Ok(figures)
}

/// Appends a request.
fn request(text: &mut String, words: &[&str]) {
    use std::fmt::Write as _;
    // Writing to a string does not fail.
    let _ = write!(text, "*{}\r\n", words.len());
    for word in words {
        let _ = write!(text, "${}\r\n{word}\r\n", word.len());
    }
}

/// A connection.
pub(super) struct Connection {
    stream: TcpStream,
    bytes: Vec<u8>,
}

impl Connection {
    pub(super) async fn open(addr: SocketAddr) -> Result<Self, Failure> {
        let failed = |error: std::io::Error| format!("{addr}: {error}");
        let stream = TcpStream::connect(addr).await.map_err(failed)?;
        stream.set_nodelay(true).map_err(failed)?;
        Ok(Self {
            stream,
            bytes: Vec::new(),
        })
    }

    pub(super) async fn say(&mut self, text: &str) -> Result<(), Failure> {
        let written = self.stream.write_all(text.as_bytes()).await;
        written.map_err(|error| format!("cannot write a request: {error}"))
    }

    /// The next reply: a number if it is one.
    pub(super) async fn reply(&mut self) -> Result<Option<i64>, Failure> {
        loop {
            if let Some((length, number)) = reply(&self.bytes)? {
                self.bytes.drain(..length);
                return Ok(number);
            }
            if self.bytes.len() > MAX_REPLY_BYTES {
                return Err(format!("a reply has more than {MAX_REPLY_BYTES} bytes"));
            }
            match self.stream.read_buf(&mut self.bytes).await {
                Ok(0) => return Err("the connection ended".to_owned()),
                Ok(_) => {}
                Err(error) => return Err(format!("cannot read a reply: {error}")),
            }
        }
    }
}

/// A whole reply at the front: its length, and its number if it is one.
fn reply(bytes: &[u8]) -> Result<Option<(usize, Option<i64>)>, Failure> {
    let Some(end) = bytes.windows(2).position(|pair| pair == b"\r\n") else {
        return Ok(None);
    };
    let line = String::from_utf8_lossy(&bytes[..end]);
    let number = |text: &str| text.parse::<i64>().map_err(|_| format!("{line:?} is no reply"));
    match (line.get(..1), line.get(1..)) {
        (Some("+"), _) => Ok(Some((end + 2, None))),
        (Some(":"), Some(text)) => Ok(Some((end + 2, Some(number(text)?)))),
        (Some("$"), Some(text)) => {
            let length = usize::try_from(number(text)?);
            let whole = length.map_or(end + 2, |length| end + 2 + length + 2);
            Ok((bytes.len() >= whole).then_some((whole, None)))
        }
        _ => Err(format!("the reply is {line:?}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replies_are_cut_apart_and_errors_are_told() {
        assert_eq!(reply(b"+OK\r\n:1"), Ok(Some((5, None))));
        assert_eq!(reply(b":12\r\n+OK\r\n"), Ok(Some((5, Some(12)))));
        assert_eq!(reply(b"$3\r\nabc\r\n+"), Ok(Some((9, None))));
        assert_eq!(reply(b"$3\r\nabc\r"), Ok(None));
        assert_eq!(reply(b"$-1\r\n"), Ok(Some((5, None))));
        assert!(reply(b"-ERR no\r\n").is_err());
    }

    #[test]
    fn a_request_is_an_array_of_texts() {
        let mut text = String::new();
        request(&mut text, &["SET", "grüße", "x"]);
        assert_eq!(text, "*3\r\n$3\r\nSET\r\n$7\r\ngrüße\r\n$1\r\nx\r\n");
    }
}
