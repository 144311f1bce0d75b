//! How a command reaches what carries it out: a session, a web hook of this host, a program.
//!
//! A program gets each argument as one element of its own, never as part of a line that something splits
//! again. Its environment is empty but for `PATH`, `ANTIPHON_VERB` and `ANTIPHON_FROM`; its standard input is
//! empty, its folder is `/`. What it prints is the reply. It runs in a process group of its own, which is
//! killed as a whole when the program ends, prints too much, or its time is over. A process that has left the
//! group (`setsid`) is not killed, and not waited for.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::{Pin, pin};
use std::process::Stdio;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use antiphon_api::blocks::{Code, Failure, Ran};
use bytes::Bytes;
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::header::{CONTENT_TYPE, HOST};
use hyper_util::rt::TokioIo;
use rustix::process::{Pid, Signal, kill_process_group};
use tokio::io::{AsyncRead, AsyncReadExt as _};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::counts::failure;
use crate::list::{Args, Hook, Verb, Word};

/// How much of what a program says of its failure is told.
const MAX_COMPLAINT_BYTES: usize = 1024;
/// For what a program printed last, once it has ended.
const LAST_WORDS_WITHIN: Duration = Duration::from_millis(100);
/// Where programs find others.
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// A command for what carries it out.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Request {
    /// What to do.
    pub verb: String,
    /// The node that asks.
    pub from: String,
    /// With what. All of it is as the list says.
    pub args: Args,
    /// When it came, so much time was left.
    pub time_left: Duration,
    /// A longer reply fails the command. By some ways it must be shorter.
    pub max_reply_bytes: usize,
}

/// What a handler makes of a request: a reply, or why there is none.
pub type Handled = Pin<Box<dyn Future<Output = Result<Bytes, NoReply>> + Send>>;
type Handler = Arc<dyn Fn(Request) -> Handled + Send + Sync>;

/// Why a handler gives no reply, which says whether the command ran.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NoReply {
    /// It ran, and this is its own error.
    Failed(Bytes),
    /// The program that serves the verb went with the command in its hands: it may have run.
    Gone,
    /// The program had gone before the command was handed to it: it did not run.
    NotHanded,
}

/// The handlers of verbs, each of which takes its requests by turns with others of the same verb.
#[derive(Default)]
pub(crate) struct Handlers {
    by_verb: Mutex<BTreeMap<String, Vec<(u64, Handler)>>>,
    last: AtomicU64,
}

/// A verb is served as long as this is there.
#[must_use = "dropped, it serves no more"]
pub struct Serving {
    handlers: Arc<Handlers>,
    verb: String,
    number: u64,
}

impl std::fmt::Debug for Serving {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Serving").field(&self.verb).finish()
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        let mut by_verb = self.handlers.by_verb();
        if let Some(handlers) = by_verb.get_mut(&self.verb) {
            handlers.retain(|(number, _)| *number != self.number);
            if handlers.is_empty() {
                by_verb.remove(&self.verb);
            }
        }
    }
}

impl Handlers {
    pub(crate) fn serve(self: &Arc<Self>, verb: &str, handler: Handler) -> Serving {
        let number = self.last.fetch_add(1, Ordering::Relaxed);
        self.by_verb()
            .entry(verb.to_owned())
            .or_default()
            .push((number, handler));
        Serving {
            handlers: self.clone(),
            verb: verb.to_owned(),
            number,
        }
    }

    /// The handler whose turn it is.
    fn next(&self, verb: &str) -> Option<Handler> {
        let mut by_verb = self.by_verb();
        let handlers = by_verb.get_mut(verb)?;
        handlers.rotate_left(1);
        handlers.last().map(|(_, handler)| handler.clone())
    }

    pub(crate) async fn deliver(&self, request: Request) -> Result<Bytes, Failure> {
        let Some(handler) = self.next(&request.verb) else {
            let reason = format!("no session serves {} at this node: try again later", request.verb);
            return Err(failure(Code::Unavailable, Ran::No, reason));
        };
        // In a task of its own: a handler that panics ends its own command alone. It ends with its time.
        let mut handling = JoinSet::new();
        handling.spawn(handler(request));
        let handled = handling.join_next().await;
        match handled.expect("there is one task") {
            Ok(Ok(reply)) => Ok(reply),
            Ok(Err(NoReply::Failed(error))) => Err(Failure {
                payload: Some(antiphon_api::Payload::from_bytes(&error)),
                ..failure(Code::Failed, Ran::Yes, "what serves the verb says that it failed")
            }),
            Ok(Err(NoReply::Gone)) => Err(failure(
                Code::Failed,
                Ran::Maybe,
                "the program that serves the verb went before it answered",
            )),
            Ok(Err(NoReply::NotHanded)) => Err(failure(
                Code::Unavailable,
                Ran::No,
                "the program that serves the verb went before the command was handed to it: try again",
            )),
            Err(_) => Err(failure(
                Code::Failed,
                Ran::Maybe,
                "what serves the verb ended before it answered",
            )),
        }
    }

    fn by_verb(&self) -> MutexGuard<'_, BTreeMap<String, Vec<(u64, Handler)>>> {
        self.by_verb.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// POSTs a command to a web server of this host. Redirections are not followed.
pub(crate) async fn post(hook: &Hook, request: &Request, most: usize) -> Result<Bytes, Failure> {
    let unreachable = |error: String| {
        let reason = format!("the web hook {hook} is not there: {error}");
        failure(Code::Unavailable, Ran::No, reason)
    };
    let cut = |error: String| {
        let reason = format!("the web hook {hook} did not answer: {error}");
        failure(Code::Failed, Ran::Maybe, reason)
    };
    let body = serde_json::json!({
        "verb": request.verb,
        "from": request.from,
        "args": request.args,
        "within_ms": u64::try_from(request.time_left.as_millis()).unwrap_or(u64::MAX),
    });
    let stream = TcpStream::connect(hook.addr).await;
    let stream = stream.map_err(|error| unreachable(error.to_string()))?;
    let shaken = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await;
    let (mut sender, connection) = shaken.map_err(|error| unreachable(error.to_string()))?;
    // Ends with the sender, also if this future is dropped.
    tokio::spawn(connection);
    let asked = hyper::Request::post(&hook.path)
        .header(HOST, hook.addr.to_string())
        .header(CONTENT_TYPE, "application/json")
        .body(Full::new(Bytes::from(body.to_string())))
        .map_err(|error| unreachable(error.to_string()))?;
    let response = sender
        .send_request(asked)
        .await
        .map_err(|error| cut(error.to_string()))?;
    let status = response.status();
    let body = Limited::new(response.into_body(), most).collect().await;
    let body = body.map_err(|error| {
        let reason = format!("the reply of the web hook {hook}: {error}; it may have {most} bytes");
        failure(Code::Failed, Ran::Maybe, reason)
    })?;
    match status.is_success() {
        true => Ok(body.to_bytes()),
        false => Err(Failure {
            payload: Some(antiphon_api::Payload::from_bytes(&body.to_bytes())),
            ..failure(
                Code::Failed,
                Ran::Yes,
                format!("the web hook {hook} answered {status}"),
            )
        }),
    }
}

/// Runs a program with a command's arguments.
pub(crate) async fn run(words: &[Word], verb: &Verb, request: &Request) -> Result<Bytes, Failure> {
    let words: Vec<String> = words
        .iter()
        .filter_map(|word| match word {
            Word::Literal(text) => Some(text.clone()),
            Word::Arg { arg } => request.args.get(arg).map(ToString::to_string),
        })
        .collect();
    let (program, arguments) = words
        .split_first()
        .expect("a list checks that a program has its path");
    let mut command = tokio::process::Command::new(program);
    command
        .args(arguments)
        .env_clear()
        .env("PATH", PATH)
        .env("ANTIPHON_VERB", &request.verb)
        .env("ANTIPHON_FROM", &request.from)
        .current_dir("/")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0)
        .kill_on_drop(true);
    let mut child = command.spawn().map_err(|error| {
        failure(
            Code::Failed,
            Ran::No,
            format!("{program} cannot be started: {error}"),
        )
    })?;
    // Dropped: its time is over, or it is done.
    let group = Group(child.id().and_then(|id| Pid::from_raw(id.cast_signed())));
    let most = verb.max_reply_bytes as usize;
    let (mut stdout, mut stderr) = (child.stdout.take(), child.stderr.take());
    let (mut reply, mut complaint) = (Vec::new(), Vec::new());
    let ended = {
        let reading = async {
            let mut printed = pin!(read(&mut stdout, &mut reply, most));
            let mut complained = pin!(drain(&mut stderr, &mut complaint));
            tokio::select! {
                too_much = &mut printed => {
                    if !too_much {
                        complained.await;
                    }
                    too_much
                }
                () = &mut complained => printed.await,
            }
        };
        let mut reading = pin!(reading);
        tokio::select! {
            // It has closed both, or said too much: then it is not waited for.
            too_much = &mut reading => match too_much {
                true => None,
                false => Some(child.wait().await),
            },
            ended = child.wait() => {
                // What it has left behind would hold its output open.
                drop(group);
                // One that has left the group does so still.
                match timeout(LAST_WORDS_WITHIN, &mut reading).await {
                    Ok(true) => None,
                    _ => Some(ended),
                }
            }
        }
    };
    let Some(ended) = ended else {
        let reason = format!("{program} printed more than {most} bytes, and was killed");
        return Err(failure(Code::Failed, Ran::Maybe, reason));
    };
    match ended {
        Ok(status) if status.success() => Ok(Bytes::from(reply)),
        Ok(status) => Err(Failure {
            payload: Some(antiphon_api::Payload::from_bytes(&complaint)),
            ..failure(Code::Failed, Ran::Yes, format!("{program} ended with {status}"))
        }),
        Err(error) => Err(failure(Code::Failed, Ran::Maybe, format!("{program}: {error}"))),
    }
}

/// Reads to the end; true: there is more than so many bytes, and the rest is not read.
async fn read(from: &mut Option<impl AsyncRead + Unpin>, into: &mut Vec<u8>, most: usize) -> bool {
    let Some(from) = from else { return false };
    while into.len() <= most {
        // What came before an error is there.
        if !from.read_buf(into).await.is_ok_and(|length| length > 0) {
            return false;
        }
    }
    true
}

/// Reads to the end, and keeps the beginning: a program may complain as much as it likes.
async fn drain(from: &mut Option<impl AsyncRead + Unpin>, into: &mut Vec<u8>) {
    let Some(from) = from else { return };
    let mut bytes = vec![0; MAX_COMPLAINT_BYTES];
    while let Ok(length @ 1..) = from.read(&mut bytes).await {
        let room = MAX_COMPLAINT_BYTES - into.len();
        into.extend_from_slice(&bytes[..length.min(room)]);
    }
}

/// The processes of a program, which end with it.
struct Group(Option<Pid>);

impl Drop for Group {
    fn drop(&mut self) {
        if let Some(group) = self.0 {
            // There may be none left.
            let _ = kill_process_group(group, Signal::KILL);
        }
    }
}
