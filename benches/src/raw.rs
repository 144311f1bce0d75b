//! The machine's own limit: the same fan-out with no protocol at all.
//!
//! A member of the TCP measurement writes slices to every other in turn, walking through a ring the size of a
//! window, and keeps what it reads in fresh buffers for as long as a window: a protocol that retransmits has
//! to touch as much memory. What it gives counts as the protocols' figures do: bytes written (once, not once
//! per receiver) and bytes read. Of datagrams, which get lost, only those that were read count.

use std::collections::VecDeque;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::AsRawFd as _;
use std::process::Child;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use clap::{Args, ValueEnum};

use crate::lab::Lab;
use crate::tools::Lines;
use crate::{Common, Failure};

const PORT: u16 = 7500;
/// After the end, so that the last to end is measured under the same load as the first.
const RUN_ON: Duration = Duration::from_millis(300);
/// For all to be connected.
const START_WITHIN: Duration = Duration::from_secs(20);
/// Payload of a datagram that fits a packet of 1500 bytes.
const DATAGRAM: usize = 1472;
/// Datagrams given to the kernel at once, as many as a segmented send may hold.
const BURST: usize = 44;

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum RawWay {
    /// Streams.
    Tcp,
    /// One datagram a system call.
    Udp,
    /// Many datagrams a system call.
    UdpMany,
    /// Many datagrams in one buffer that is cut up as late as possible, and put together as early (GSO, GRO).
    UdpSegmented,
}

#[derive(Debug, Args)]
pub(crate) struct RawArgs {
    /// How
    #[arg(long, value_enum)]
    way: RawWay,
    /// This member's number, from 0
    #[arg(long)]
    rank: usize,
    /// How many of the members send, from number 0
    #[arg(long)]
    senders: usize,
    /// The members' addresses
    #[arg(long, value_delimiter = ',')]
    members: Vec<std::net::IpAddr>,
    /// Bytes of a slice
    #[arg(long)]
    slice: usize,
    /// Bytes of the ring
    #[arg(long)]
    ring: usize,
    #[arg(long)]
    warmup: u32,
    #[arg(long)]
    seconds: u32,
}

/// What to measure.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Raw {
    pub(crate) way: RawWay,
    pub(crate) senders: usize,
    pub(crate) slice: usize,
    pub(crate) ring: usize,
}

/// Bytes per second of each of the first `nodes` members.
pub(crate) fn measure(lab: &Lab, nodes: usize, raw: Raw, common: &Common) -> Result<Vec<f64>, Failure> {
    let result = rounds(lab, nodes, raw, common);
    lab.kill_all();
    result
}

fn rounds(lab: &Lab, nodes: usize, raw: Raw, common: &Common) -> Result<Vec<f64>, Failure> {
    let program = std::env::current_exe().map_err(|error| format!("cannot find this program: {error}"))?;
    let members: Vec<String> = (1..=nodes).map(|node| lab.ip(node)).collect();
    let way = raw
        .way
        .to_possible_value()
        .expect("no way is skipped")
        .get_name()
        .to_owned();
    let mut children: Vec<(Child, Lines)> = Vec::new();
    for rank in 0..nodes {
        let mut child = lab
            .command(rank + 1, &program)
            .args([
                "raw",
                "--way",
                &way,
                "--rank",
                &rank.to_string(),
                "--senders",
                &raw.senders.to_string(),
            ])
            .args([
                "--members",
                &members.join(","),
                "--slice",
                &raw.slice.to_string(),
                "--ring",
                &raw.ring.to_string(),
            ])
            .args([
                "--warmup",
                &common.warmup().to_string(),
                "--seconds",
                &common.seconds().to_string(),
            ])
            .spawn()
            .map_err(|error| format!("cannot start {}: {error}", program.display()))?;
        let lines = Lines::of(child.stdout.take().expect("stdout is a pipe"));
        children.push((child, lines));
    }
    for (_, lines) in &children {
        lines.find(START_WITHIN, "the raw members to be connected", |line| {
            (line == "ready").then_some(())
        })?;
    }
    for (child, _) in &mut children {
        let stdin = child.stdin.as_mut().expect("stdin is a pipe");
        stdin
            .write_all(b"go\n")
            .map_err(|error| format!("a raw member has ended: {error}"))?;
    }
    let mut rates = Vec::new();
    for (_, lines) in &children {
        let rate = |line: &str| line.strip_prefix("done ")?.parse::<f64>().ok();
        rates.push(lines.find(common.patience(), "the raw figures", rate)?);
    }
    for (child, _) in &mut children {
        // Killed with its namespace if it does not end.
        drop(child.stdin.take());
        let _ = child.wait();
    }
    Ok(rates)
}

/// One member of it: says `ready`, waits for a line, measures, says `done BYTES_PER_S`.
pub(crate) fn member(args: &RawArgs) -> Result<(), Failure> {
    let counters = Arc::new(Counters::default());
    let failed = |error: std::io::Error| format!("raw member {}: {error}", args.rank);
    let sender: Box<dyn FnOnce() + Send> = match args.way {
        RawWay::Tcp => tcp(args, &counters).map_err(failed)?,
        _ => udp(args, &counters).map_err(failed)?,
    };
    println!("ready");
    let mut line = String::new();
    std::io::stdin().read_line(&mut line).map_err(failed)?;
    if args.rank < args.senders {
        std::thread::spawn(sender);
    }
    std::thread::sleep(Duration::from_secs(args.warmup.into()));
    let (before, from) = (counters.sum(), Instant::now());
    std::thread::sleep(Duration::from_secs(args.seconds.into()));
    let rate = (counters.sum() - before) as f64 / from.elapsed().as_secs_f64();
    std::thread::sleep(RUN_ON);
    println!("done {rate}");
    counters.over.store(true, Relaxed);
    // Until all have counted: the others' connections would end otherwise.
    let _ = std::io::stdin().read_line(&mut line);
    std::process::exit(0);
}

#[derive(Default)]
struct Counters {
    written: AtomicU64,
    read: AtomicU64,
    over: AtomicBool,
}

impl Counters {
    fn sum(&self) -> u64 {
        self.written.load(Relaxed) + self.read.load(Relaxed)
    }
}

/// Connects all members with each other; readers run at once. Gives what the sending thread does.
fn tcp(args: &RawArgs, counters: &Arc<Counters>) -> std::io::Result<Box<dyn FnOnce() + Send>> {
    let listener = TcpListener::bind((args.members[args.rank], PORT))?;
    let mut streams = Vec::new();
    // Members with a lower number are dialled, those with a higher one dial.
    for peer in &args.members[..args.rank] {
        let deadline = Instant::now() + START_WITHIN;
        streams.push(loop {
            match TcpStream::connect((*peer, PORT)) {
                Ok(stream) => break stream,
                Err(error) if Instant::now() > deadline => return Err(error),
                Err(_) => std::thread::sleep(Duration::from_millis(20)),
            }
        });
    }
    for _ in args.rank + 1..args.members.len() {
        streams.push(listener.accept()?.0);
    }
    for stream in &streams {
        stream.set_nodelay(true)?;
        let (mut stream, counters) = (stream.try_clone()?, counters.clone());
        let (slice, keep) = (args.slice, args.ring / args.slice);
        std::thread::spawn(move || {
            let mut kept = VecDeque::new();
            loop {
                // Not zeroed first: the kernel writes into it.
                let mut buffer = Vec::with_capacity(slice);
                match (&mut stream).take(slice as u64).read_to_end(&mut buffer) {
                    Ok(0) | Err(_) => return,
                    Ok(read) => counters.read.fetch_add(read as u64, Relaxed),
                };
                kept.push_back(buffer);
                if kept.len() > keep {
                    kept.pop_front();
                }
            }
        });
    }
    let (counters, ring, slice) = (counters.clone(), vec![b'x'; args.ring], args.slice);
    Ok(Box::new(move || {
        let mut streams = streams;
        for part in ring.chunks_exact(slice).cycle() {
            for stream in &mut streams {
                // Fails when the others have ended.
                if counters.over.load(Relaxed) || stream.write_all(part).is_err() {
                    return;
                }
            }
            counters.written.fetch_add(part.len() as u64, Relaxed);
        }
    }))
}

/// A reader runs at once. Gives what the sending thread does: datagrams to each of the others in turn.
fn udp(args: &RawArgs, counters: &Arc<Counters>) -> std::io::Result<Box<dyn FnOnce() + Send>> {
    let socket = UdpSocket::bind((args.members[args.rank], PORT))?;
    let options = socket2::SockRef::from(&socket);
    options.set_recv_buffer_size(4 << 20)?;
    options.set_send_buffer_size(4 << 20)?;
    if args.way == RawWay::UdpSegmented {
        set_udp_option(&socket, libc::UDP_SEGMENT, DATAGRAM as libc::c_int)?;
        set_udp_option(&socket, libc::UDP_GRO, 1)?;
    }
    let (reader, counted) = (socket.try_clone()?, counters.clone());
    std::thread::spawn(move || {
        let mut buffer = vec![0; 65_536];
        while let Ok(read) = reader.recv(&mut buffer) {
            counted.read.fetch_add(read as u64, Relaxed);
        }
    });
    let peers: Vec<SocketAddr> = args.members.iter().map(|ip| SocketAddr::new(*ip, PORT)).collect();
    let (way, rank, counters) = (args.way, args.rank, counters.clone());
    Ok(Box::new(move || {
        let burst = vec![b'x'; DATAGRAM * BURST];
        let others: Vec<SocketAddr> = peers
            .iter()
            .enumerate()
            .filter(|(peer, _)| *peer != rank)
            .map(|(_, addr)| *addr)
            .collect();
        while !counters.over.load(Relaxed) {
            for peer in &others {
                // A full queue drops: only what arrives counts.
                match way {
                    RawWay::UdpSegmented => drop(socket.send_to(&burst, peer)),
                    RawWay::UdpMany => send_many(&socket, *peer, &burst),
                    _ => burst
                        .chunks(DATAGRAM)
                        .for_each(|datagram| drop(socket.send_to(datagram, peer))),
                }
            }
        }
    }))
}

fn set_udp_option(socket: &UdpSocket, option: libc::c_int, value: libc::c_int) -> std::io::Result<()> {
    // SAFETY: the descriptor is open for as long as `socket` is borrowed, and the pointer and length describe
    // `value`, which outlives the call.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_UDP,
            option,
            (&raw const value).cast(),
            size_of_val(&value) as libc::socklen_t,
        )
    };
    if result == 0 {
        Ok(())
    } else {
        Err(std::io::Error::last_os_error())
    }
}

/// One sendmmsg for the whole burst.
fn send_many(socket: &UdpSocket, peer: SocketAddr, burst: &[u8]) {
    let address = socket2::SockAddr::from(peer);
    let mut parts: Vec<libc::iovec> = burst
        .chunks(DATAGRAM)
        .map(|datagram| libc::iovec {
            iov_base: datagram.as_ptr().cast_mut().cast(),
            iov_len: datagram.len(),
        })
        .collect();
    let mut messages: Vec<libc::mmsghdr> = parts
        .iter_mut()
        .map(|part| {
            // SAFETY: a header of zeros is valid: no name, no parts, no control data.
            let mut message: libc::mmsghdr = unsafe { std::mem::zeroed() };
            message.msg_hdr.msg_name = address.as_ptr().cast_mut().cast();
            message.msg_hdr.msg_namelen = address.len();
            message.msg_hdr.msg_iov = part;
            message.msg_hdr.msg_iovlen = 1;
            message
        })
        .collect();
    // SAFETY: the headers point to `parts`, `address` and `burst`, all of which live beyond the call and are
    // only read.
    let sent = unsafe {
        libc::sendmmsg(
            socket.as_raw_fd(),
            messages.as_mut_ptr(),
            messages.len() as libc::c_uint,
            0,
        )
    };
    // Datagrams that the kernel does not take are lost, as on the wire.
    let _ = sent;
}
