//! `antiphon-bench client`: a program that speaks JSON lines with an agent over its Unix socket.
//!
//! It is told what to do as `peers/cpg_client.c` is, and counts as that does: messages that come are counted
//! and not looked into. It writes messages many at a time, without ids, so none is replied to; when the agent
//! takes no more, it waits in `write`. Each message is a line, or with `--bundles` many are.
//!
//! ```text
//!   run SIZE WARMUP_S SECONDS SENDS     -> done DELIVERED SECONDS
//!   ask WARMUP_MS MEASURED_MS COMMAND   -> done {"p50_us":…,"p99_us":…,"rate":…}
//!   tell WARMUP_MS MEASURED_MS COMMAND  -> done {"p50_us":…,"p99_us":…,"rate":…}
//! ```
//! `ask` says one command again and again, the next one after the reply. `tell` says one that has no reply,
//! at a pace, and measures how long that takes it. It prints "members N" at each view. With `--serve` it is
//! told nothing: it answers commands of a verb with their text.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use clap::Args;
use serde_json::{Value, json};

use crate::Failure;
use crate::blocks::worker::load;
use crate::blocks::worker::words::Time;

/// Bytes written at once.
const BATCH_BYTES: usize = 32 << 10;
const READ_BYTES: usize = 256 << 10;
/// After the end, so that the last to end is measured under the same load as the first.
const RUN_ON: Duration = Duration::from_millis(300);
/// For a reply.
const REPLY_WITHIN: Duration = Duration::from_secs(10);
const GROUP: &str = "bench";
/// The most messages of a bundle.
const MAX_BUNDLE: usize = 4096;
/// How the line of a message begins.
const MESSAGE: &[u8] = br#"{"event":"message""#;
/// How the line of a bundle begins, and what is before the lengths of its payloads.
const BUNDLE: &[u8] = br#"{"event":"bundle""#;
const BYTES: &[u8] = br#""payloads":{"bytes":["#;

#[derive(Debug, Args)]
pub(crate) struct ClientArgs {
    /// The agent's Unix socket
    #[arg(long)]
    socket: PathBuf,
    /// Join no group: replies are all that comes
    #[arg(long)]
    alone: bool,
    /// Send messages in bundles, as bytes behind a line, and take them so
    #[arg(long)]
    bundles: bool,
    /// Serve this verb until the standard input ends
    #[arg(long, value_name = "VERB", requires = "alone")]
    serve: Option<String>,
}

/// Does what it is told until its standard input ends.
pub(crate) fn run(args: &ClientArgs) -> Result<(), Failure> {
    let failed = |error: std::io::Error| format!("{}: {error}", args.socket.display());
    let stream = UnixStream::connect(&args.socket).map_err(failed)?;
    if args.alone {
        stream.set_read_timeout(Some(REPLY_WITHIN)).map_err(failed)?;
    }
    let delivered = Arc::new(AtomicU64::new(0));
    let (reader, counter) = (stream.try_clone().map_err(failed)?, delivered.clone());
    let replies = match args.alone {
        true => Replies::Own(BufReader::new(reader)),
        false => {
            let (tell, replies) = channel();
            std::thread::spawn(move || {
                let why = read(reader, &counter, &tell);
                // What it is told to do goes on without an agent no more.
                println!("failed the agent's connection ended: {why}");
                std::process::exit(1);
            });
            Replies::OfThread(replies)
        }
    };
    let mut client = Client {
        stream,
        delivered,
        replies,
        bundles: args.bundles,
        last: 0,
    };
    match args.alone {
        true => drop(client.ask(&json!({"hello": {}}))?),
        false => drop(
            client.ask(&json!({"join": {"group": GROUP, "bundles": args.bundles, "bytes": args.bundles}}))?,
        ),
    }
    if let Some(verb) = &args.serve {
        client.ask(&json!({"serve_command": {"verb": verb}}))?;
        println!("ready");
        return client.serve();
    }
    println!("ready");
    for line in std::io::stdin().lock().lines().map_while(Result::ok) {
        let words: Vec<&str> = line.splitn(4, ' ').collect();
        let numbers: Vec<u64> = line.split(' ').filter_map(|word| word.parse().ok()).collect();
        match (words[0], words.as_slice(), numbers.as_slice()) {
            ("run", _, [size, warmup, seconds, sends]) => {
                client.run(*size as usize, *warmup, *seconds, *sends > 0)?;
            }
            ("ask" | "tell", [word, warmup, measured, command], _) => {
                let number = |word: &str| word.parse().map_err(|_| format!("{word} is no number"));
                let time = Time {
                    warmup_ms: number(warmup)?,
                    measured_ms: number(measured)?,
                };
                let command = serde_json::from_str(command).map_err(|error| error.to_string())?;
                match *word {
                    "ask" => client.ask_again_and_again(command, time)?,
                    _ => client.tell_at_a_pace(&command, time)?,
                }
            }
            _ => eprintln!("antiphon-bench client: {line:?} makes no sense"),
        }
    }
    Ok(())
}

/// Between two commands that are told.
const PACE: Duration = Duration::from_millis(1);

struct Client {
    stream: UnixStream,
    delivered: Arc<AtomicU64>,
    replies: Replies,
    bundles: bool,
    last: u64,
}

/// Where replies come from.
enum Replies {
    /// A thread that counts messages, too.
    OfThread(Receiver<Value>),
    /// This one's reading, when nothing else comes: no thread has to be woken.
    Own(BufReader<UnixStream>),
}

impl Replies {
    fn next(&mut self) -> Option<Value> {
        match self {
            Replies::OfThread(replies) => replies.recv_timeout(REPLY_WITHIN).ok(),
            Replies::Own(reader) => loop {
                let mut line = String::new();
                reader.read_line(&mut line).ok().filter(|length| *length > 0)?;
                let event: Value = serde_json::from_str(&line).ok()?;
                if event["event"] == "reply" {
                    return Some(event);
                }
            },
        }
    }
}

impl Client {
    fn run(&mut self, size: usize, warmup: u64, seconds: u64, sends: bool) -> Result<(), Failure> {
        let over = Arc::new(AtomicBool::new(false));
        let sending = match sends {
            true => {
                let stream = self.stream.try_clone().map_err(|error| error.to_string())?;
                let over = over.clone();
                let batch = batch(size, self.bundles);
                Some(std::thread::spawn(move || send(stream, &batch, &over)))
            }
            false => None,
        };
        std::thread::sleep(Duration::from_secs(warmup));
        let (before, from) = (self.delivered.load(Relaxed), Instant::now());
        std::thread::sleep(Duration::from_secs(seconds));
        let (after, took) = (self.delivered.load(Relaxed), from.elapsed());
        std::thread::sleep(RUN_ON);
        over.store(true, Relaxed);
        // It ends when the agent has taken its last batch.
        let sent = sending.map(|sending| sending.join());
        if let Some(Ok(Err(error))) = sent {
            return Err(format!("cannot write to the agent: {error}"));
        }
        println!("done {} {}", after - before, took.as_secs_f64());
        Ok(())
    }

    /// Says a command with an id, and waits for the reply to it.
    fn ask(&mut self, command: &Value) -> Result<Value, Failure> {
        self.last += 1;
        let mut command = command.clone();
        if let Some((_, fields)) = command
            .as_object_mut()
            .and_then(|object| object.iter_mut().next())
        {
            fields["id"] = json!(self.last);
        }
        let line = format!("{command}\n");
        let said = self.stream.write_all(line.as_bytes());
        said.map_err(|error| format!("cannot write to the agent: {error}"))?;
        let reply = self.replies.next();
        let reply = reply.ok_or_else(|| format!("no reply to {command}"))?;
        match (&reply["id"], &reply["error"]) {
            (id, Value::Null) if *id == json!(self.last) => Ok(reply),
            _ => Err(format!("{command}: {reply}")),
        }
    }

    /// Answers commands with their text until this process ends.
    fn serve(&mut self) -> Result<(), Failure> {
        std::thread::spawn(|| {
            for _ in std::io::stdin().lock().lines().map_while(Result::ok) {}
            std::process::exit(0);
        });
        let Replies::Own(reader) = &mut self.replies else {
            return Err("it reads in another thread".to_owned());
        };
        let failed = |error: std::io::Error| format!("the agent's connection: {error}");
        // It may be long until the first command comes.
        self.stream.set_read_timeout(None).map_err(failed)?;
        let mut line = String::new();
        while reader.read_line(&mut line).map_err(failed)? > 0 {
            let event: Value = serde_json::from_str(&line).map_err(|error| error.to_string())?;
            if event["event"] == "command" {
                let answer =
                    json!({"answer": {"request": event["request"], "payload": event["args"]["text"]}});
                let said = self.stream.write_all(format!("{answer}\n").as_bytes());
                said.map_err(failed)?;
            }
            line.clear();
        }
        Err("the agent's connection ended".to_owned())
    }

    fn ask_again_and_again(&mut self, command: Value, time: Time) -> Result<(), Failure> {
        let mut latencies = load::histogram()?;
        let from = Instant::now() + time.warmup();
        let until = from + time.measured();
        while Instant::now() < until {
            let began = Instant::now();
            self.ask(&command)?;
            if began >= from {
                load::record(&mut latencies, began.elapsed());
            }
        }
        let figures = load::figures(&latencies, time.measured());
        println!("done {}", json!(figures));
        Ok(())
    }
}

impl Client {
    /// Says a command that is replied to only if it failed, which ends this.
    fn tell_at_a_pace(&mut self, command: &Value, time: Time) -> Result<(), Failure> {
        let line = format!("{command}\n");
        let mut latencies = load::histogram()?;
        let mut due = Instant::now();
        let from = due + time.warmup();
        let until = from + time.measured();
        while due < until {
            std::thread::sleep(due.saturating_duration_since(Instant::now()));
            let began = Instant::now();
            let said = self.stream.write_all(line.as_bytes());
            let took = began.elapsed();
            said.map_err(|error| format!("cannot write to the agent: {error}"))?;
            if began >= from {
                load::record(&mut latencies, took);
            }
            due += PACE;
        }
        // A reply to one of them comes before this one, and is none to it.
        self.ask(&json!({"members": {}}))?;
        let figures = load::figures(&latencies, time.measured());
        println!("done {}", json!(figures));
        Ok(())
    }
}

/// Messages to write at once, as lines or as one bundle.
fn batch(size: usize, bundles: bool) -> Vec<u8> {
    let payload = "x".repeat(size);
    if bundles {
        let count = (BATCH_BYTES / size.max(1)).clamp(1, MAX_BUNDLE);
        let payloads = json!({"bytes": vec![size; count]});
        let line = json!({"send_bundle": {"group": GROUP, "payloads": payloads}});
        return format!("{line}\n{}", payload.repeat(count)).into_bytes();
    }
    let line = format!("{}\n", json!({"send": {"group": GROUP, "payload": payload}}));
    line.repeat((BATCH_BYTES / line.len()).max(1)).into_bytes()
}

/// Writes as many messages as the agent takes.
fn send(mut stream: UnixStream, batch: &[u8], over: &AtomicBool) -> std::io::Result<()> {
    while !over.load(Relaxed) {
        stream.write_all(batch)?;
    }
    Ok(())
}

/// The lengths of the messages that stand behind the line of a bundle.
fn lengths(line: &[u8]) -> impl Iterator<Item = usize> {
    let begin = memchr::memmem::find(line, BYTES);
    let lengths = begin.map_or(&b""[..], |begin| &line[begin + BYTES.len()..]);
    let end = memchr::memchr(b']', lengths).unwrap_or(0);
    let digit = |byte: &u8| usize::from(byte.wrapping_sub(b'0'));
    let number = move |digits: &[u8]| digits.iter().fold(0, |number, byte| number * 10 + digit(byte));
    lengths[..end].split(|byte| *byte == b',').map(number)
}

/// Reads what the agent says until its end, and why it ended.
fn read(mut stream: UnixStream, delivered: &AtomicU64, replies: &Sender<Value>) -> String {
    let mut buffer = vec![0; READ_BYTES];
    // The beginning of a line whose end has not come.
    let mut rest: Vec<u8> = Vec::new();
    // Bytes behind the last line.
    let mut behind_line: usize = 0;
    loop {
        let length = match stream.read(&mut buffer) {
            Ok(0) => return "it closed it".to_owned(),
            Ok(length) => length,
            Err(error) => return error.to_string(),
        };
        let (mut bytes, mut messages) = (&buffer[..length], 0);
        loop {
            let skipped = behind_line.min(bytes.len());
            (bytes, behind_line) = (&bytes[skipped..], behind_line - skipped);
            let Some(end) = memchr::memchr(b'\n', bytes) else {
                break;
            };
            let (line, behind) = bytes.split_at(end + 1);
            bytes = behind;
            let whole = match rest.is_empty() {
                true => line,
                false => {
                    rest.extend_from_slice(line);
                    &rest[..]
                }
            };
            if whole.starts_with(MESSAGE) {
                messages += 1;
            } else if whole.starts_with(BUNDLE) {
                for length in lengths(whole) {
                    messages += 1;
                    behind_line += length;
                }
            } else {
                heard(whole, replies);
            }
            rest.clear();
        }
        rest.extend_from_slice(bytes);
        delivered.fetch_add(messages, Relaxed);
    }
}

/// Something that is no message.
fn heard(line: &[u8], replies: &Sender<Value>) {
    let Ok(event) = serde_json::from_slice::<Value>(line) else {
        return;
    };
    match event["event"].as_str() {
        Some("view") => println!("members {}", event["members"].as_array().map_or(0, Vec::len)),
        // Fails only when this process is about to end.
        Some("reply") => drop(replies.send(event)),
        _ => eprintln!("antiphon-bench client: the agent says {event}"),
    }
}
