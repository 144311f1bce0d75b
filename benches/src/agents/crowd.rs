//! `antiphon-bench crowd`: many connections, each of which says one thing, is replied to, and says no more.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use clap::Args;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::Failure;

/// For a reply.
const REPLY_WITHIN: Duration = Duration::from_secs(30);

#[derive(Debug, Args)]
pub(crate) struct CrowdArgs {
    #[arg(long)]
    addr: SocketAddr,
    #[arg(long)]
    connections: usize,
    /// JSON lines in place of RESP
    #[arg(long)]
    lines: bool,
}

/// Opens them, says `ready`, and holds them until its standard input ends.
pub(crate) fn run(args: &CrowdArgs) -> Result<(), Failure> {
    raise_open_files()?;
    let word: &[u8] = match args.lines {
        true => b"{\"hello\":{\"id\":1}}\n",
        false => b"*1\r\n$4\r\nPING\r\n",
    };
    let mut connections = Vec::new();
    for number in 1..=args.connections {
        let failed = |error: std::io::Error| format!("connection {number} to {}: {error}", args.addr);
        let mut stream = TcpStream::connect(args.addr).map_err(failed)?;
        stream.set_read_timeout(Some(REPLY_WITHIN)).map_err(failed)?;
        stream.write_all(word).map_err(failed)?;
        let mut reply = [0; 512];
        let length = stream.read(&mut reply).map_err(failed)?;
        let reply = String::from_utf8_lossy(&reply[..length]);
        if !(reply.starts_with("+PONG") || reply.contains("\"welcome\"")) {
            return Err(format!("connection {number} is told {reply:?}"));
        }
        connections.push(stream);
    }
    println!("ready");
    let mut line = String::new();
    // Ends with the benchmark.
    let _ = std::io::stdin().read_line(&mut line);
    drop(connections);
    Ok(())
}

/// As many open files as this process may have.
pub(super) fn raise_open_files() -> Result<(), Failure> {
    let limit = getrlimit(Resource::Nofile);
    let most = Rlimit {
        current: limit.maximum,
        ..limit
    };
    setrlimit(Resource::Nofile, most).map_err(|error| format!("cannot open many files: {error}"))
}
