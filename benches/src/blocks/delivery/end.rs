//! `antiphon-bench end`: a node that commands others and is commanded, by the library's public API alone. It
//! is told what to do on its standard input, a JSON object a line, and says `done` and the figures of each.

use std::collections::BTreeMap;
use std::io::{BufRead as _, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use antiphon::Cluster;
use antiphon_api::commands::{Value, Way};
use antiphon_commands::gate::Gate;
use antiphon_commands::{Command, Commands, Config, Replies, Tls, To};
use bytes::Bytes;
use clap::Args;
use hdrhistogram::Histogram;
use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};
use serde_json::json;
use tokio::sync::mpsc;

use crate::Failure;
use crate::blocks::Figures;
use crate::blocks::worker::load;
use crate::blocks::worker::words::Time;

/// Of the text of a command, and of the reply.
pub(super) const TEXT_BYTES: usize = 64;
/// Of a message without any protocol: about what an envelope has.
const RAW_BYTES: usize = 400;
/// Commands that are handed over before their ends are awaited. A queue takes 1024.
const BURST: usize = 64;
/// Between two commands without a reply, so that they do not wait for each other.
const APART: Duration = Duration::from_micros(300);
/// Between two looks at whether something is there.
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// For a message without any protocol: by UDP it may be lost.
const RAW_WITHIN: Duration = Duration::from_millis(500);

/// The list of every node.
pub(super) const LIST: &str = r#"version = 1

[[verb]]
name = "ping"
from = "all"
to = "all"
deliver = "session"
within = "2s"
max-running = 64
args.text = { type = "text", max-bytes = 1000 }

[[verb]]
name = "notice"
from = "all"
to = "all"
deliver = "session"
within = "2s"
max-running = 64
args.sent = { type = "integer", min = 0, max = 9223372036854775807 }
args.text = { type = "text", max-bytes = 1000 }
"#;

#[derive(Debug, Args)]
pub(crate) struct EndArgs {
    #[arg(long)]
    name: String,
    #[arg(long)]
    bind: SocketAddr,
    #[arg(long, value_delimiter = ',')]
    seeds: Vec<SocketAddr>,
    /// How many nodes there are
    #[arg(long)]
    members: usize,
    /// Where commands come in
    #[arg(long)]
    gate: SocketAddr,
    /// Where messages without any protocol come in, and are sent back
    #[arg(long)]
    raw: SocketAddr,
    #[arg(long)]
    key_file: PathBuf,
    #[arg(long)]
    list: PathBuf,
    #[arg(long, requires = "certificate_key", requires = "authority")]
    certificate: Option<PathBuf>,
    #[arg(long)]
    certificate_key: Option<PathBuf>,
    #[arg(long)]
    authority: Option<PathBuf>,
    #[arg(long)]
    threads: usize,
}

/// What it is told to do.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) enum Ask {
    /// Command a peer, the next one after the reply.
    Ping { way: Way, to: String, time: Time },
    /// Command a peer, without replies.
    Notice { way: Way, to: String, time: Time },
    /// Tell how long those took that came without replies since it was asked last.
    Arrived,
    /// Hand commands over, many at a time.
    HandOver { way: Way, to: String, time: Time },
    /// Command peers at a rate, whatever the others do; what the silent one does is not counted.
    Paced {
        way: Way,
        to: Vec<String>,
        silent: String,
        per_second: u32,
        time: Time,
    },
    /// Send a message without any protocol, the next one after it came back.
    Raw {
        udp: bool,
        server: SocketAddr,
        time: Time,
    },
}

/// Does what it is told until its standard input ends.
pub(crate) fn run(args: EndArgs) -> Result<(), Failure> {
    let mut runtime = match args.threads {
        0 | 1 => tokio::runtime::Builder::new_current_thread(),
        _ => tokio::runtime::Builder::new_multi_thread(),
    };
    if args.threads > 1 {
        runtime.worker_threads(args.threads);
    }
    let runtime = runtime
        .enable_all()
        .build()
        .map_err(|error| format!("cannot start a runtime: {error}"))?;
    serve_raw(args.raw).map_err(|error| format!("{}: {error}", args.raw))?;
    let (asking, asked) = mpsc::channel(16);
    std::thread::spawn(move || {
        for line in std::io::stdin().lock().lines().map_while(Result::ok) {
            match serde_json::from_str(&line) {
                // Fails only when this process is about to end.
                Ok(ask) => _ = asking.blocking_send(ask),
                Err(error) => eprintln!("antiphon-bench end: {line:?}: {error}"),
            }
        }
        std::process::exit(0);
    });
    // A task like the node's: what a runtime blocks on itself is woken by way of the system.
    let lived = runtime.spawn(live(args, asked));
    runtime
        .block_on(lived)
        .unwrap_or_else(|error| Err(format!("the load ended by itself: {error}")))
}

async fn live(args: EndArgs, mut asked: mpsc::Receiver<Ask>) -> Result<(), Failure> {
    let gate = Gate::bind(args.gate)
        .await
        .map_err(|error| format!("{}: {error}", args.gate))?;
    let key = std::fs::read_to_string(&args.key_file)
        .map_err(|error| format!("{}: {error}", args.key_file.display()))?;
    let key = antiphon::ClusterKey::parse(&key).map_err(|error| error.to_string())?;
    let tls = match (&args.certificate, &args.certificate_key, &args.authority) {
        (Some(certificate), Some(private), Some(authority)) => {
            Some(Tls::read(certificate, private, authority).map_err(|error| error.to_string())?)
        }
        _ => None,
    };
    let (name, value) = gate.metadata(tls.is_some());
    let cluster = Cluster::builder("bench")
        .name(args.name.clone())
        .bind(args.bind)
        .seeds(args.seeds.clone())
        .metadata(name, value)
        .key(key.clone())
        .join()
        .await
        .map_err(|error| error.to_string())?;
    let config = Config {
        list: args.list.clone(),
        key: Some(key),
        tls,
    };
    let commands = Commands::start(cluster.clone(), config, Some(gate)).map_err(|error| error.to_string())?;
    let arrived = Arc::new(Mutex::new(load::histogram()?));
    let _ping = commands.serve("ping", |request| {
        let text = request.args.get("text").map(ToString::to_string);
        Box::pin(async move { Ok(Bytes::from(text.unwrap_or_default())) })
    });
    let counted = arrived.clone();
    let _notice = commands.serve("notice", move |request| {
        let counted = counted.clone();
        Box::pin(async move {
            if let Some(Value::Integer(sent)) = request.args.get("sent") {
                let took = clock_ns().saturating_sub(*sent);
                let took = Duration::from_nanos(u64::try_from(took).unwrap_or_default());
                load::record(&mut lock(&counted), took);
            }
            Ok(Bytes::new())
        })
    });
    while cluster
        .view()
        .is_none_or(|view| view.members.len() < args.members)
    {
        tokio::time::sleep(LOOK_EVERY).await;
    }
    until_answered(&commands, args.members).await;
    println!("ready");
    while let Some(ask) = asked.recv().await {
        let figures = match ask {
            Ask::Ping { way, to, time } => ping(&commands, way, to, time).await?,
            Ask::Notice { way, to, time } => notice(&commands, way, to, time).await?,
            Ask::Arrived => {
                let mut arrived = lock(&arrived);
                if arrived.is_empty() {
                    return Err("no command came without a reply".to_owned());
                }
                let figures = load::figures(&arrived, Duration::from_secs(1));
                arrived.reset();
                figures
            }
            Ask::HandOver { way, to, time } => hand_over(&commands, way, to, time).await?,
            Ask::Paced {
                way,
                to,
                silent,
                per_second,
                time,
            } => paced(&commands, way, to, silent, per_second, time).await?,
            Ask::Raw { udp, server, time } => tokio::task::spawn_blocking(move || raw(udp, server, time))
                .await
                .map_err(|error| error.to_string())??,
        };
        println!("done {}", json!(figures));
    }
    Ok(())
}

/// Returns when each node answers by the library's way: until then not all are in its group.
async fn until_answered(commands: &Commands, members: usize) {
    loop {
        let command = ping_command(Way::Library, To::All);
        if let Ok(handed) = commands.hand_over(command)
            && handed.replies().await.replies.len() == members
        {
            return;
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

fn ping_command(way: Way, to: To) -> Command {
    Command {
        verb: "ping".to_owned(),
        args: BTreeMap::from([("text".to_owned(), text())]),
        to,
        way,
        reply: true,
        within: None,
    }
}

fn notice_command(way: Way, to: &str) -> Command {
    Command {
        verb: "notice".to_owned(),
        args: BTreeMap::from([
            ("sent".to_owned(), Value::Integer(clock_ns())),
            ("text".to_owned(), text()),
        ]),
        to: To::Nodes(vec![to.to_owned()]),
        way,
        reply: false,
        within: None,
    }
}

fn text() -> Value {
    Value::Text("x".repeat(TEXT_BYTES))
}

/// What came of a command to one peer.
fn of_one(replies: &Replies) -> Result<(), Failure> {
    match (replies.replies.len(), replies.failures.values().next()) {
        (1, None) => Ok(()),
        (_, Some(failure)) => Err(failure.reason.clone()),
        (replies, None) => Err(format!("{replies} replies of one peer")),
    }
}

async fn ping(commands: &Commands, way: Way, to: String, time: Time) -> Result<Figures, Failure> {
    let commands = commands.clone();
    let one = move |_, _| {
        let (commands, to) = (commands.clone(), To::Nodes(vec![to.clone()]));
        async move {
            let handed = commands.hand_over(ping_command(way, to));
            let replies = handed.map_err(|failure| failure.reason)?.replies().await;
            of_one(&replies).map_err(|reason| format!("{}: {reason}", way.word()))
        }
    };
    load::run(1, time, one).await
}

async fn notice(commands: &Commands, way: Way, to: String, time: Time) -> Result<Figures, Failure> {
    let commands = commands.clone();
    let one = move |_, _| {
        let (commands, to) = (commands.clone(), to.clone());
        async move {
            let handed = commands.hand_over(notice_command(way, &to));
            let replies = handed.map_err(|failure| failure.reason)?.replies().await;
            tokio::time::sleep(APART).await;
            of_one(&replies)
        }
    };
    load::run(1, time, one).await
}

async fn hand_over(commands: &Commands, way: Way, to: String, time: Time) -> Result<Figures, Failure> {
    let mut latencies = load::histogram()?;
    let from = Instant::now() + time.warmup();
    let until = from + time.measured();
    while Instant::now() < until {
        let mut under_way = Vec::with_capacity(BURST);
        for _ in 0..BURST {
            let command = notice_command(way, &to);
            let began = Instant::now();
            let handed = commands.hand_over(command);
            let took = began.elapsed();
            under_way.push(handed.map_err(|failure| failure.reason)?);
            if began >= from {
                load::record(&mut latencies, took);
            }
        }
        for handed in under_way {
            of_one(&handed.replies().await)?;
        }
    }
    Ok(load::figures(&latencies, time.measured()))
}

async fn paced(
    commands: &Commands,
    way: Way,
    to: Vec<String>,
    silent: String,
    per_second: u32,
    time: Time,
) -> Result<Figures, Failure> {
    let counted = Arc::new(Mutex::new((load::histogram()?, 0u32)));
    let from = Instant::now() + time.warmup();
    let until = from + time.measured();
    let every = Duration::from_secs(1) / per_second.max(1);
    let mut under_way = tokio::task::JoinSet::new();
    let mut due = Instant::now();
    while due < until {
        tokio::time::sleep_until(due.into()).await;
        for peer in &to {
            let command = ping_command(way, To::Nodes(vec![peer.clone()]));
            let (began, counts) = (Instant::now(), *peer != silent && due >= from);
            let handed = commands.hand_over(command);
            let counted = counted.clone();
            under_way.spawn(async move {
                let done = match handed {
                    Ok(handed) => of_one(&handed.replies().await),
                    Err(failure) => Err(failure.reason),
                };
                if counts {
                    let mut counted = lock(&counted);
                    load::record(&mut counted.0, began.elapsed());
                    counted.1 += u32::from(done.is_err());
                }
            });
        }
        while under_way.try_join_next().is_some() {}
        due += every;
    }
    while under_way.join_next().await.is_some() {}
    let counted = lock(&counted);
    let mut figures = load::figures(&counted.0, time.measured());
    figures.insert("failed".to_owned(), f64::from(counted.1));
    Ok(figures)
}

fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The clock that all processes of this machine share.
fn clock_ns() -> i64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec * 1_000_000_000 + now.tv_nsec
}

/// Sends messages without any protocol back, in threads of its own.
fn serve_raw(bind: SocketAddr) -> std::io::Result<()> {
    let (listener, socket) = (TcpListener::bind(bind)?, UdpSocket::bind(bind)?);
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            std::thread::spawn(move || {
                let mut message = [0; RAW_BYTES];
                let _ = stream.set_nodelay(true);
                while stream.read_exact(&mut message).is_ok() && stream.write_all(&message).is_ok() {}
            });
        }
    });
    std::thread::spawn(move || {
        let mut message = [0; RAW_BYTES];
        while let Ok((length, from)) = socket.recv_from(&mut message) {
            let _ = socket.send_to(&message[..length], from);
        }
    });
    Ok(())
}

fn raw(udp: bool, server: SocketAddr, time: Time) -> Result<Figures, Failure> {
    let failed = |error: std::io::Error| format!("{server}: {error}");
    let mut message = [b'x'; RAW_BYTES];
    let mut once: Box<dyn FnMut() -> std::io::Result<()>> = match udp {
        true => {
            let socket = UdpSocket::bind("0.0.0.0:0").map_err(failed)?;
            socket.connect(server).map_err(failed)?;
            socket.set_read_timeout(Some(RAW_WITHIN)).map_err(failed)?;
            Box::new(move || {
                socket.send(&message)?;
                socket.recv(&mut message).map(drop)
            })
        }
        false => {
            let mut stream = TcpStream::connect(server).map_err(failed)?;
            stream.set_nodelay(true).map_err(failed)?;
            Box::new(move || {
                stream.write_all(&message)?;
                stream.read_exact(&mut message)
            })
        }
    };
    let mut latencies: Histogram<u64> = load::histogram()?;
    let from = Instant::now() + time.warmup();
    let until = from + time.measured();
    while Instant::now() < until {
        let began = Instant::now();
        match once() {
            Err(error) if udp && error.kind() == std::io::ErrorKind::WouldBlock => continue,
            done => done.map_err(failed)?,
        }
        if began >= from {
            load::record(&mut latencies, began.elapsed());
        }
    }
    Ok(load::figures(&latencies, time.measured()))
}
