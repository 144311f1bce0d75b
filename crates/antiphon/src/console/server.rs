//! The node's side: a task that listens, and one for each client.
//!
//! ```text
//!   Listening ── client, of this user, and room ──► Serving: hello, then question ─► answers, one after the other
//!       │                                              │ silent for long, reads nothing for long, ends, node ends
//!       └── others: one error line, and the end        └─► gone
//! ```

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use rustix::process::geteuid;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{OwnedSemaphorePermit, oneshot};
use tokio::time::{MissedTickBehavior, interval, timeout};

use super::Names;
use super::answers::{self, Doubts};
use super::place::{self, Socket};
use super::protocol::{
    Answer, Hello, LineBuffer, MAX_ANSWER_BYTES, MAX_CLIENTS, MAX_QUESTION_BYTES, MAX_QUESTIONS, Problem,
    Question, VERSION,
};
use super::recovering;
use crate::cluster::{ClusterShared, Command, Examined};
use crate::{ClusterEvent, ClusterEvents, RecoveryError};

/// A client that asks nothing for this long is sent away.
const ASK_WITHIN: Duration = Duration::from_secs(30);
/// A client that does not take an answer within this time is given up.
const READ_WITHIN: Duration = Duration::from_secs(10);
/// How often a watched node is looked at for suspicions: they are no events, since nothing is decided by them.
const LOOK_EVERY: Duration = Duration::from_millis(250);
/// After an error of `accept`.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// What a console tells of the node's settings.
#[derive(Debug, Clone)]
pub(crate) struct Facts {
    pub(crate) seeds: Vec<String>,
    pub(crate) keyed: bool,
    pub(crate) profile: String,
    /// Components that go on apart take epochs of their own, as an operator's word does.
    pub(crate) goes_on_apart: bool,
}

/// A console that listens and is not served yet.
#[derive(Debug)]
pub(crate) struct Server {
    listener: UnixListener,
    socket: Socket,
}

impl Server {
    /// Listens at the default place. Must be called on a tokio runtime.
    pub(crate) fn listen(cluster: &str, node: &str) -> io::Result<Self> {
        Self::of(place::listen(cluster, node)?)
    }

    /// Listens at this path.
    pub(crate) fn listen_at(path: &std::path::Path) -> io::Result<Self> {
        Self::of(place::listen_at(path)?)
    }

    fn of((listener, socket): (std::os::unix::net::UnixListener, Socket)) -> io::Result<Self> {
        Ok(Self {
            listener: UnixListener::from_std(listener)?,
            socket,
        })
    }

    /// Where it listens.
    pub(crate) fn path(&self) -> PathBuf {
        self.socket.path().to_owned()
    }

    /// Serves a node until it ends. The file goes with the node, whatever becomes of this task.
    pub(crate) fn serve(self, shared: Arc<ClusterShared>, facts: Facts) {
        shared.keep_until_closed(Box::new(self.socket));
        let desk = Arc::new(Desk { shared, facts });
        tokio::spawn(accept(self.listener, desk));
    }
}

async fn accept(listener: UnixListener, desk: Arc<Desk>) {
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = desk.shared.closed() => return,
        };
        match accepted {
            Ok((stream, _)) => {
                let place = desk.shared.guest();
                tokio::spawn(Client::new(stream).meet(desk.clone(), place));
            }
            Err(error) => {
                tracing::warn!(target: "antiphon::console", %error, "cannot accept a client");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

/// What answers: the node's handles.
struct Desk {
    shared: Arc<ClusterShared>,
    facts: Facts,
}

impl Desk {
    fn hello(&self) -> Answer {
        Answer::Hello(Hello {
            v: VERSION,
            cluster: self.shared.cluster.clone(),
            node: self.shared.name.clone(),
            addrs: self.shared.addrs.iter().map(ToString::to_string).collect(),
            pid: std::process::id(),
            build: env!("CARGO_PKG_VERSION").to_owned(),
        })
    }

    async fn ask<T>(&self, command: impl FnOnce(oneshot::Sender<T>) -> Command) -> Result<T, Gone> {
        let (reply, answer) = oneshot::channel();
        self.shared
            .commands
            .send(command(reply))
            .await
            .map_err(|_| Gone)?;
        tokio::select! {
            answer = answer => answer.map_err(|_| Gone),
            () = self.shared.closed() => Err(Gone),
        }
    }

    async fn examine(&self) -> Result<Box<Examined>, Gone> {
        self.ask(|reply| Command::Examine { reply }).await
    }

    async fn recovery(&self) -> Result<Answer, Gone> {
        let (node, cluster) = (&self.shared.name, &self.shared.cluster);
        let shown = self.ask(|reply| Command::Recovery { reply }).await?;
        Ok(match shown {
            Ok(shown) => recovering::told(node, cluster, &shown),
            Err(reason) => recovering::refused(&reason),
        })
    }

    /// Does what was shown, if what is named here is what would be shown now.
    async fn recover(&self, lineage: &str, view: &str) -> Result<Answer, Gone> {
        let (node, cluster) = (&self.shared.name, &self.shared.cluster);
        let shown = match self.ask(|reply| Command::Recovery { reply }).await? {
            Ok(shown) => shown,
            Err(reason) => return Ok(recovering::refused(&reason)),
        };
        if (
            shown.lineage.to_string().as_str(),
            shown.view.to_string().as_str(),
        ) != (lineage, view)
        {
            return Ok(recovering::refused(&RecoveryError::Changed));
        }
        let done = self.ask(|reply| Command::Recover { shown, reply }).await?;
        Ok(match done {
            Ok(new) => {
                tracing::warn!(target: "antiphon::console", %node, left = lineage, view, "an operator had this node go on alone");
                recovering::done(node, cluster, &new)
            }
            Err(reason) => recovering::refused(&reason),
        })
    }
}

/// The client, or the node, is not there any more.
struct Gone;

/// One client.
struct Client {
    stream: UnixStream,
    lines: LineBuffer,
}

impl Client {
    fn new(stream: UnixStream) -> Self {
        Self {
            stream,
            lines: LineBuffer::new(MAX_QUESTION_BYTES),
        }
    }

    /// Serves a client if it may be served.
    async fn meet(mut self, desk: Arc<Desk>, place: Option<OwnedSemaphorePermit>) {
        let own = geteuid().as_raw();
        let problem = match self.stream.peer_cred() {
            Ok(theirs) if theirs.uid() != own && theirs.uid() != 0 => Some(problem(
                "forbidden",
                format!("only user {own}, who runs this node, and root may ask it"),
            )),
            Err(error) => Some(problem(
                "forbidden",
                format!("it cannot be seen who asks: {error}"),
            )),
            Ok(_) if place.is_none() => Some(problem(
                "busy",
                format!(
                    "{MAX_CLIENTS} clients are being served, no more at a time: end one of them, or try again"
                ),
            )),
            Ok(_) => None,
        };
        match problem {
            // It is told why, or is gone already.
            Some(problem) => drop(self.say(&problem).await),
            None => drop(self.serve(&desk).await),
        }
    }

    async fn serve(&mut self, desk: &Desk) -> Result<(), Gone> {
        self.say(&desk.hello()).await?;
        for _ in 0..MAX_QUESTIONS {
            let line = match timeout(ASK_WITHIN, self.line(desk)).await {
                Ok(line) => line?,
                Err(_) => {
                    let reason = format!("no question for {} s", ASK_WITHIN.as_secs());
                    return self.say(&problem("too-slow", reason)).await;
                }
            };
            let Some(line) = line else {
                let reason = format!("a question has at most {MAX_QUESTION_BYTES} bytes");
                return self.say(&problem("too-long", reason)).await;
            };
            match Question::parse(&line) {
                Ok(question) => self.answer(desk, question).await?,
                Err(problem) => self.say(&Answer::Error(problem)).await?,
            }
        }
        Ok(())
    }

    async fn answer(&mut self, desk: &Desk, question: Question) -> Result<(), Gone> {
        let answer = match question {
            Question::Views { watch } => return self.views(desk, watch).await,
            Question::Recovery {} => desk.recovery().await,
            Question::Recover { lineage, view } => desk.recover(&lineage, &view).await,
            Question::Status {} => desk
                .examine()
                .await
                .map(|examined| Answer::Status(Box::new(answers::status(&examined, &desk.facts)))),
            Question::Members {} => desk.examine().await.map(|examined| {
                let (history, _) = desk.shared.hub().history();
                Answer::Members(Box::new(answers::members(
                    &examined,
                    &desk.facts,
                    &answers::names(&history),
                )))
            }),
            Question::Why { node } => match desk.examine().await {
                Ok(examined) => {
                    let name = node.clone();
                    let report = desk.ask(|reply| Command::Why { name, reply }).await;
                    report.map(|report| {
                        let (history, _) = desk.shared.hub().history();
                        Answer::Why(Box::new(answers::why(&report, &examined, &history)))
                    })
                }
                Err(gone) => Err(gone),
            },
        };
        match answer {
            Ok(answer) => self.say(&answer).await,
            Err(Gone) => {
                self.say(&problem("stopped", "the node has ended".to_owned()))
                    .await
            }
        }
    }

    /// Tells what happened, and, if that is wanted, what happens until the client or the node ends.
    async fn views(&mut self, desk: &Desk, watch: bool) -> Result<(), Gone> {
        let (history, events) = desk.shared.hub().history();
        let names = answers::names(&history);
        for noted in &history {
            if let Some(happened) = answers::happened(noted, &names) {
                self.say(&Answer::Happened(Box::new(happened))).await?;
            }
        }
        if !watch {
            return self.say(&Answer::End {}).await;
        }
        self.say(&Answer::Now {}).await?;
        self.follow(desk, events, names).await
    }

    /// Tells what happens as it comes.
    async fn follow(&mut self, desk: &Desk, mut events: ClusterEvents, mut names: Names) -> Result<(), Gone> {
        let mut doubts = Doubts::default();
        let mut looks = interval(LOOK_EVERY);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                event = events.next() => {
                    let Some(event) = event else {
                        return self.say(&Answer::End {}).await;
                    };
                    if let ClusterEvent::Overrun = event {
                        let reason = "more happened than this client has read".to_owned();
                        return self.say(&problem("too-slow", reason)).await;
                    }
                    if let ClusterEvent::View(view) = &event {
                        names.learn(view);
                    }
                    if let Some(happened) = answers::happened(&answers::now(event), &names) {
                        self.say(&Answer::Happened(Box::new(happened))).await?;
                    }
                }
                _ = looks.tick() => {
                    let Ok(examined) = desk.examine().await else { continue };
                    for happened in doubts.follow(&examined, &names) {
                        self.say(&Answer::Happened(Box::new(happened))).await?;
                    }
                }
                // Whatever a watching client says is a question for later; its end is the end.
                more = self.read_more() => more?,
            }
        }
    }

    /// The next line; none if it is too long.
    async fn line(&mut self, desk: &Desk) -> Result<Option<Vec<u8>>, Gone> {
        loop {
            match self.lines.pop() {
                Ok(Some(line)) => return Ok(Some(line)),
                Ok(None) => {}
                Err(_) => return Ok(None),
            }
            tokio::select! {
                more = self.read_more() => more?,
                () = desk.shared.closed() => return Err(Gone),
            }
        }
    }

    /// Reads what there is, waiting for it.
    ///
    /// # Cancel safety
    /// Nothing is lost.
    async fn read_more(&mut self) -> Result<(), Gone> {
        let mut bytes = [0; 1024];
        match self.stream.read(&mut bytes).await {
            Ok(0) | Err(_) => Err(Gone),
            Ok(read) => {
                self.lines.push(&bytes[..read]);
                // A watching client whose questions nobody pops must not fill the memory.
                match self.lines.len() > 2 * MAX_QUESTION_BYTES {
                    true => Err(Gone),
                    false => Ok(()),
                }
            }
        }
    }

    async fn say(&mut self, answer: &Answer) -> Result<(), Gone> {
        let mut line = serde_json::to_vec(answer).map_err(|_| Gone)?;
        if line.len() > MAX_ANSWER_BYTES {
            let reason = format!(
                "the answer has {} bytes, more than {MAX_ANSWER_BYTES}",
                line.len()
            );
            line = serde_json::to_vec(&problem("too-long", reason)).map_err(|_| Gone)?;
        }
        line.push(b'\n');
        match timeout(READ_WITHIN, self.stream.write_all(&line)).await {
            Ok(Ok(())) => Ok(()),
            _ => Err(Gone),
        }
    }
}

fn problem(code: &str, reason: String) -> Answer {
    Answer::Error(Problem {
        code: code.to_owned(),
        reason,
    })
}
