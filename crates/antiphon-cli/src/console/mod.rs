//! `antiphon members`, `why` and `view`: questions to a node that runs on this host; `recover`: an operator's
//! word to it.
//!
//! ```text
//!   place::running() ─► which node?  ─► one question ─► answer ─► show: for people │ --json: as it came
//!     --node, --cluster, --console choose
//! ```
//! Each command connects to a node's console ([`antiphon_agent::console`]), asks and ends. It keeps nothing,
//! and only `recover` changes anything. If a node cannot be asked, the command names it and says what to do.
//! `view --watch` ends with the node, at the first signal, or when nobody reads its output. What it was told
//! by then is written first, unless a second signal comes. All others end by a signal at once. A connection
//! that is cut without the node's last word is a failure.

pub(crate) mod args;
mod recover;
mod show;

use std::collections::VecDeque;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::time::Duration;

use antiphon_agent::console::{Answered, Client, ClientError, place};
use antiphon_api::console::{Answer, Question};
use antiphon_core::text::{in_json, in_lines, on_one_line};
use serde_json::Value;
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::exit::{Exit, Failed, complain};
use super::signals::Signals;
use antiphon_agent::stdio::stdout::{self, LAST_LINES_WITHIN, Stdout};
use args::{AskArgs, MembersArgs, RecoverArgs, ViewArgs, WhyArgs};

/// Runs `antiphon members`.
pub(crate) fn members(args: &MembersArgs) -> Result<Exit, Failed> {
    ask(&args.ask, Question::Members {}, |answer| match answer {
        Answer::Members(members) => Some(show::members(members)),
        _ => None,
    })
}

/// Runs `antiphon why`.
pub(crate) fn why(args: &WhyArgs) -> Result<Exit, Failed> {
    let question = Question::Why {
        node: args.name.clone(),
    };
    ask(&args.ask, question, |answer| match answer {
        Answer::Why(why) => Some(show::why(why)),
        _ => None,
    })
}

/// Runs `antiphon view`.
pub(crate) fn view(args: &ViewArgs) -> Result<Exit, Failed> {
    block_on(follow(args))
}

/// Runs `antiphon recover`.
pub(crate) fn recover(args: &RecoverArgs) -> Result<Exit, Failed> {
    block_on(recover::run(args))
}

fn ask(
    args: &AskArgs,
    question: Question,
    shown: impl Fn(&Answer) -> Option<String>,
) -> Result<Exit, Failed> {
    block_on(async {
        let mut client = choose(args).await?;
        let told = client.ask(&question).await.map_err(failed)?;
        let text = shown(&readable(&told)?).ok_or_else(astray)?;
        let text = match args.json {
            true => in_json(&told.line),
            false => in_lines(&text),
        };
        Ok(print(&text).map_or(Exit::StdoutClosed, |()| Exit::Success))
    })
}

async fn follow(args: &ViewArgs) -> Result<Exit, Failed> {
    // A signal is how a watcher is ended. It cuts off an answer that has an end: then the process ends by the
    // signal, so that nobody takes what was written for the whole answer.
    let mut signals = match args.watch {
        true => Some(Signals::new().map_err(|error| Failed::cannot("handle signals", &error))?),
        false => None,
    };
    let (stdout, writer) = stdout::start_watched(io::stdout())
        .map_err(|error| Failed::run(format!("standard output: {error}")))?;
    let (told, is_ended) = tokio::select! {
        told = tell(args, &stdout) => (told, false),
        () = stdout.closed() => return Ok(Exit::StdoutClosed),
        () = signalled(&mut signals) => (Ok(None), true),
    };
    drop(stdout);
    // What the node has told is written, but ending the command does not wait for its reader for
    // long.
    let patience = match is_ended {
        true => LAST_LINES_WITHIN,
        false => Duration::MAX,
    };
    let written = tokio::select! {
        written = timeout(patience, writer.written()) => written,
        () = signalled(&mut signals) => return Ok(Exit::Success),
    };
    if let Ok(false) = written {
        return Ok(Exit::StdoutClosed);
    }
    if let Some(last) = told? {
        complain!("antiphon: {last}");
    }
    Ok(Exit::Success)
}

/// Returns at a signal, if signals are caught.
async fn signalled(signals: &mut Option<Signals>) {
    match signals {
        Some(signals) => drop(signals.next().await),
        None => std::future::pending().await,
    }
}

/// What is asked for, to its end; and what to say about that.
async fn tell(args: &ViewArgs, stdout: &Stdout) -> Result<Option<String>, Failed> {
    let mut client = choose(&args.ask).await?;
    let question = Question::Views { watch: args.watch };
    client.begin(&question).await.map_err(failed)?;
    // A user may want only the last of the past events. Where the past ends, the node's next answer tells.
    let mut past = VecDeque::new();
    let mut is_past = true;
    loop {
        let told = next(&mut client, is_past).await.map_err(|error| match error {
            ClientError::Ended => cut_off(&client),
            other => failed(other),
        })?;
        let (answer, line) = (readable(&told)?, told.line);
        let is_over = matches!(answer, Answer::End {});
        match answer {
            Answer::Happened(happened) => {
                past.push_back(match args.ask.json {
                    true => in_json(&line),
                    false => in_lines(&happened.to_string()),
                });
                if let Some(last) = args.last.filter(|_| is_past) {
                    if past.len() > usize::from(last) {
                        past.pop_front();
                    }
                    continue;
                }
            }
            Answer::Now {} => is_past = false,
            Answer::End {} => {}
            // Of a newer node.
            Answer::Unknown => continue,
            _ => return Err(astray()),
        }
        for line in past.drain(..) {
            stdout.print(line).await;
        }
        if is_over {
            return Ok(args
                .watch
                .then(|| format!("the node {} has ended", name_of(&client))));
        }
    }
}

/// Past events come at once, new ones whenever they happen.
async fn next(client: &mut Client, is_past: bool) -> Result<Answered, ClientError> {
    match is_past {
        true => client.answer().await,
        false => client.next().await,
    }
}

/// A node says that it ends, and what it was asked for is told to the end.
fn cut_off(client: &Client) -> Failed {
    Failed::run(format!(
        "the connection to {} was cut: the node was killed or ended at once, or nothing of what it said was read for long",
        name_of(client)
    ))
}

/// An answer made safe for people to read: its texts come from the node, and from all nodes that it heard.
pub(crate) fn readable(told: &Answered) -> Result<Answer, Failed> {
    let line = serde_json::from_str(&told.line).map(on_one_line_each);
    let answer = line.and_then(serde_json::from_value);
    answer.map_err(|error| Failed::run(format!("the answer is not understood: {error}")))
}

fn on_one_line_each(value: Value) -> Value {
    match value {
        Value::String(text) => Value::String(on_one_line(&text)),
        Value::Array(all) => all.into_iter().map(on_one_line_each).collect(),
        Value::Object(fields) => fields
            .into_iter()
            .map(|(key, value)| (on_one_line(&key), on_one_line_each(value)))
            .collect(),
        other => other,
    }
}

fn name_of(client: &Client) -> String {
    on_one_line(&client.hello().node)
}

/// Prints a text that is safe to show.
fn print(text: &str) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    writeln!(stdout, "{text}")?;
    stdout.flush()
}

/// Runs a future on this thread.
pub(crate) fn block_on<T>(future: impl Future<Output = Result<T, Failed>>) -> Result<T, Failed> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Failed::cannot("start", &error))?;
    let result = runtime.block_on(future);
    // If a name is still being looked up when the command no longer waits for it, that holds up nothing.
    runtime.shutdown_background();
    result
}

fn astray() -> Failed {
    Failed::run("the node answered something else than it was asked")
}

fn failed(error: ClientError) -> Failed {
    Failed::run(error.to_string())
}

/// Connects to the one node that is meant.
async fn choose(args: &AskArgs) -> Result<Client, Failed> {
    if let Some(path) = args.console.as_deref().filter(|path| *path != Path::new("none")) {
        let client = Client::connect(path).await.map_err(|error| {
            Failed::run(format!(
                "{error}; is the node running, and started with that --console?"
            ))
        })?;
        // The path may come from the environment, and what is asked for is another node.
        return match is_meant(args, &client) {
            true => Ok(client),
            false => Err(another(args, &client)),
        };
    }
    let (named, others) = sockets(args.cluster.as_deref(), args.node.as_deref());
    // Those of other names are shown if none is meant, and are waited for no longer than the others.
    let mut others = pin!(async {
        tokio::time::sleep(OTHERS_AFTER).await;
        heard(ask_each(others)).await
    });
    let mut named = pin!(heard(ask_each(named)));
    let mut known = None;
    let (clients, mute) = loop {
        tokio::select! {
            found = &mut named => break found,
            found = &mut others, if known.is_none() => known = Some(found),
        }
    };
    let (mut wanted, astray): (Vec<Client>, Vec<Client>) =
        clients.into_iter().partition(|client| is_meant(args, client));
    if wanted.len() > 1 {
        let list: Vec<String> = wanted.iter().map(describe).collect();
        return Err(Failed::usage(format!(
            "several nodes run here; choose one with --node (and --cluster), or --console:\n{}",
            list.join("\n")
        )));
    }
    match wanted.pop() {
        Some(client) => {
            // One of these may be the node that was meant.
            for (path, error) in &mute {
                let why = cannot_be_asked(path, error);
                complain!("antiphon: {} is asked; {why}", name_of(&client));
            }
            Ok(client)
        }
        None => {
            let (mut answering, _) = match known {
                Some(known) => known,
                None => others.await,
            };
            answering.extend(astray);
            Err(Failed::run(nobody(args, &answering, &mute)))
        }
    }
}

/// Whether this is the node that is asked for, as far as that was said.
fn is_meant(args: &AskArgs, client: &Client) -> bool {
    let hello = client.hello();
    let is = |wanted: &Option<String>, name: &String| wanted.as_ref().is_none_or(|wanted| wanted == name);
    is(&args.node, &hello.node) && is(&args.cluster, &hello.cluster)
}

/// What to tell the user if another node listens at the path that was given.
fn another(args: &AskArgs, client: &Client) -> Failed {
    let hello = client.hello();
    let wanted = match (&args.node, &args.cluster) {
        (Some(node), Some(cluster)) => format!("{node} of cluster {cluster}"),
        (Some(node), None) => node.clone(),
        (None, cluster) => format!("a node of cluster {}", cluster.as_deref().unwrap_or("?")),
    };
    Failed::usage(format!(
        "at {} listens {} of cluster {}, and not {wanted}: nothing was asked, and nothing was changed. Give --console (or ANTIPHON_CONSOLE) of that node, or leave it out",
        client.path().display(),
        on_one_line(&hello.node),
        on_one_line(&hello.cluster)
    ))
}

/// A console at which a node listens that cannot be asked: it is silent, or refuses.
pub(crate) type Mute = (PathBuf, ClientError);

/// The nodes of this user that answer, and the consoles of those that cannot be asked. If a socket's name
/// shows that its node has another cluster or name, the command does not wait for that node: it may be
/// stopped.
pub(crate) async fn running(cluster: Option<&str>, node: Option<&str>) -> (Vec<Client>, Vec<Mute>) {
    heard(ask_each(sockets(cluster, node).0)).await
}

/// The consoles whose nodes may have this cluster and name, as far as their own names tell, and the others.
fn sockets(cluster: Option<&str>, node: Option<&str>) -> (Vec<PathBuf>, Vec<PathBuf>) {
    let may_be = |path: &PathBuf| place::may_be(path, cluster, node);
    place::running().into_iter().partition(may_be)
}

/// Connects to all of them at once.
fn ask_each(paths: Vec<PathBuf>) -> JoinSet<Result<Client, Mute>> {
    let mut asked = JoinSet::new();
    for path in paths {
        asked.spawn(async move { Client::connect(&path).await.map_err(|error| (path, error)) });
    }
    asked
}

async fn heard(mut asked: JoinSet<Result<Client, Mute>>) -> (Vec<Client>, Vec<Mute>) {
    let (mut clients, mut mute) = (Vec::new(), Vec::new());
    while let Some(asked) = asked.join_next().await {
        match asked {
            Ok(Ok(client)) => clients.push(client),
            Ok(Err((path, error @ (ClientError::Silent { .. } | ClientError::Refused(_))))) => {
                mute.push((path, error));
            }
            // A node that ended meanwhile, or a socket that is not ours.
            _ => {}
        }
    }
    clients.sort_by(|one, other| one.path().cmp(other.path()));
    (clients, mute)
}

fn describe(client: &Client) -> String {
    let hello = client.hello();
    let line = format!(
        "  --node {} --cluster {}   at {}, process {}, --console {}",
        hello.node,
        hello.cluster,
        hello.addrs.first().map_or("?", String::as_str),
        hello.pid,
        client.path().display()
    );
    on_one_line(&line)
}

/// A node that lives has answered by then, and those of other names need not be asked.
const OTHERS_AFTER: Duration = Duration::from_millis(200);
/// Nodes named at most: a user who means none of them has mistyped, or asks on another host.
const OTHERS_SHOWN: usize = 20;

/// What to tell the user if no node answers, or if none of the nodes that answer is meant.
fn nobody(args: &AskArgs, others: &[Client], mute: &[Mute]) -> String {
    let which = match (&args.node, &args.cluster) {
        (Some(node), Some(cluster)) => format!("no node called {node} of cluster {cluster} answers here"),
        (Some(node), None) => format!("no node called {node} answers here"),
        (None, Some(cluster)) => format!("no node of cluster {cluster} answers here"),
        (None, None) => "no node answers here".to_owned(),
    };
    if !others.is_empty() {
        let mut text = match mute {
            [] => format!("{which}, but these do:"),
            mute => format!("{which}:{}\nThese answer:", listed(mute)),
        };
        for other in others.iter().take(OTHERS_SHOWN) {
            text.push('\n');
            text.push_str(&describe(other));
        }
        if others.len() > OTHERS_SHOWN {
            text.push_str(&format!("\n  and {} others", others.len() - OTHERS_SHOWN));
        }
        return text;
    }
    if !mute.is_empty() {
        return format!("{which}:{}", listed(mute));
    }
    let places: Vec<String> = place::directories()
        .iter()
        .map(|directory| directory.display().to_string())
        .collect();
    // Root is answered by all, and must not walk into directories that others fill.
    let as_root = match rustix::process::geteuid().is_root() {
        true => {
            ", or as root with --console and the path of its socket, in /run/user/UID/antiphon or /tmp/antiphon-UID"
        }
        false => "",
    };
    let mut text = format!(
        "{which} (looked in {}). Start one with `antiphon node`; ask as the user who runs it{as_root}; or, if it was started with --console PATH, give the same here. `antiphon doctor` says why a node does not come up",
        places.join(", ")
    );
    for problem in place::problems() {
        text.push_str(&format!(
            "\n  {problem}: a node that runs has no console there, and cannot be asked"
        ));
    }
    text
}

fn listed(mute: &[Mute]) -> String {
    mute.iter()
        .map(|(path, error)| format!("\n  {}", cannot_be_asked(path, error)))
        .collect()
}

/// Why the node that listens there cannot be asked.
fn cannot_be_asked(path: &Path, error: &ClientError) -> String {
    match error {
        ClientError::Refused(_) => format!("a node listens at {} and says: {error}", path.display()),
        silent => silent.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_shown_of_an_answer_moves_no_cursor_and_forges_no_line() {
        let line = r#"{"answer":"why","asked":"a","node":"b\u001b[2J","verdict":"member","text":"b is\na member\u0007","facts":[{"kind":"x\u009b","accusers":[],"text":"\r\nok"}]}"#;
        let told = Answered {
            answer: serde_json::from_str(line).unwrap(),
            line: line.to_owned(),
        };
        let Answer::Why(why) = readable(&told).unwrap() else {
            panic!("another answer");
        };
        assert_eq!(
            show::why(&why),
            "b is\\na member\\u{7}\n  \\r\\nok\n  (as a knows it)"
        );
    }
}
