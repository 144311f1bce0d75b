//! The node's side: a task that listens, and one for each client.
//!
//! ```text
//!   Listening ── client, of this user, and room ──► Serving: hello, then question ─► answers, one after the other
//!       │                                              │ silent for long, reads nothing for long, ends, node ends,
//!       │                                              │ or its place is given to a newcomer while it asks nothing
//!       └── others: one error line, and the end        └─► gone
//! ```
//! If all places are taken, a newcomer gets that of the client which has asked nothing for the longest time:
//! so connections that are open and silent keep out nobody. A process that may open no more files still
//! answers: it keeps one file back for that.

use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use antiphon::{ClusterEvent, ClusterEvents, Error, Guest, Lack, Observer, RecoveryError};
use antiphon_api::console::{
    Answer, Hello, MAX_ANSWER_BYTES, MAX_CLIENTS, MAX_QUESTION_BYTES, MAX_QUESTIONS, Problem, Question,
    VERSION,
};
use antiphon_api::{LineBuffer, Told};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::geteuid;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::Notify;
use tokio::time::{MissedTickBehavior, interval, timeout};

use super::answers::{self, Doubts};
use super::place::{self, Socket};
use super::recovering;
use crate::{Names, told};

const _: () = assert!(
    MAX_CLIENTS == antiphon::MAX_GUESTS,
    "each client is a guest of the node"
);

/// A client that asks nothing for this long is sent away.
const ASK_WITHIN: Duration = Duration::from_secs(30);
/// A client that does not take an answer within this time is given up.
const READ_WITHIN: Duration = Duration::from_secs(10);
/// How often the console looks for suspicions while a client watches: they are no events, since nothing is
/// decided by them.
const LOOK_EVERY: Duration = Duration::from_millis(250);
/// A client that asks nothing for this long may lose its place to a newcomer. A client that means to ask does
/// so at once.
const MAY_BE_IDLE: Duration = Duration::from_millis(250);
/// After this long the log says again that no client can be accepted.
const COMPLAIN_EVERY: Duration = Duration::from_secs(60);
/// After an error of `accept`.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// A console that listens. Nobody is answered before it serves a node.
#[derive(Debug)]
pub struct Console {
    listener: UnixListener,
    socket: Socket,
    /// Opened before the node starts, since the node may take all files that the process may open.
    spare: Arc<Spare>,
}

impl Console {
    /// Listens at the default place, where `antiphon members`, `why`, `view` and `doctor` find the node. Must
    /// be called on a tokio runtime.
    ///
    /// # Errors
    /// The place cannot be used: it is not this user's, is open to others, or cannot be written.
    pub fn listen(cluster: &str, node: &str) -> io::Result<Self> {
        Self::of(place::listen(cluster, node)?)
    }

    /// Listens at this path, which must not exist, or be a socket at which nobody listens.
    ///
    /// # Errors
    /// Another node listens there, or the directory cannot be written.
    pub fn listen_at(path: &Path) -> io::Result<Self> {
        Self::of(place::listen_at(path)?)
    }

    fn of((listener, socket): (std::os::unix::net::UnixListener, Socket)) -> io::Result<Self> {
        let spare = Arc::new(Spare::default());
        spare.keep();
        Ok(Self {
            listener: UnixListener::from_std(listener)?,
            socket,
            spare,
        })
    }

    /// Where it listens.
    pub fn path(&self) -> PathBuf {
        self.socket.path().to_owned()
    }

    /// Serves a node until it ends. The file goes with the node, whatever becomes of the task that serves.
    pub fn serve(self, node: Observer) {
        node.keep_until_closed(self.socket);
        let desk = Arc::new(Desk {
            node,
            idle: Mutex::default(),
        });
        tokio::spawn(accept(self.listener, desk, self.spare));
    }
}

async fn accept(listener: UnixListener, desk: Arc<Desk>, spare: Arc<Spare>) {
    let mut complained: Option<Instant> = None;
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = desk.node.closed() => return,
        };
        match accepted {
            Ok((stream, _)) => {
                let (client, desk, spare) = (Client::new(stream), desk.clone(), spare.clone());
                tokio::spawn(async move {
                    client.meet(desk).await;
                    spare.keep();
                });
            }
            Err(error) if Lack::of(&error).is_some() && spare.give() => {}
            Err(error) => {
                if complained.is_none_or(|at| at.elapsed() >= COMPLAIN_EVERY) {
                    complained = Some(Instant::now());
                    tracing::warn!(target: "antiphon::console", %error, "cannot accept a client");
                }
                tokio::time::sleep(ACCEPT_PAUSE).await;
                spare.keep();
            }
        }
    }
}

/// A file that is open so that another one can be: for a client that comes when the process may open no more
/// files. Then it is needed most.
#[derive(Debug, Default)]
struct Spare(Mutex<Option<File>>);

impl Spare {
    /// Closes it. Whether it was there.
    fn give(&self) -> bool {
        lock(&self.0).take().is_some()
    }

    /// Opens it again, if there is one to open.
    fn keep(&self) {
        let mut file = lock(&self.0);
        if file.is_none() {
            *file = File::open("/dev/null").ok();
        }
    }
}

/// What answers.
struct Desk {
    node: Observer,
    /// The places of clients that ask nothing just now; the client that has asked nothing for the longest
    /// time first.
    idle: Mutex<VecDeque<(Instant, Arc<Place>)>>,
}

/// A client's place while it asks nothing: it may be taken away.
struct Place {
    guest: Mutex<Option<Guest>>,
    taken: Notify,
}

impl Desk {
    /// A place for a newcomer: a free one, or that of the client that has asked nothing for the longest time.
    fn place(&self) -> Option<Guest> {
        if let Some(free) = self.node.guest() {
            return Some(free);
        }
        let mut idle = lock(&self.idle);
        let (since, _) = idle.front()?;
        if since.elapsed() < MAY_BE_IDLE {
            return None;
        }
        let (_, place) = idle.pop_front()?;
        place.taken.notify_one();
        lock(&place.guest).take()
    }

    /// A client waits for its next question: meanwhile its place may be taken.
    fn lend(&self, guest: Guest) -> Arc<Place> {
        let place = Arc::new(Place {
            guest: Mutex::new(Some(guest)),
            taken: Notify::new(),
        });
        lock(&self.idle).push_back((Instant::now(), place.clone()));
        place
    }

    /// The client asks, or goes: its place is its own again, unless a newcomer has it.
    fn claim(&self, place: &Arc<Place>) -> Option<Guest> {
        lock(&self.idle).retain(|(_, other)| !Arc::ptr_eq(other, place));
        lock(&place.guest).take()
    }

    fn hello(&self) -> Answer {
        let settings = self.node.settings();
        Answer::Hello(Hello {
            v: VERSION,
            cluster: settings.cluster.clone(),
            node: settings.name.clone(),
            addrs: self.node.addrs().iter().map(ToString::to_string).collect(),
            pid: std::process::id(),
            build: env!("CARGO_PKG_VERSION").to_owned(),
        })
    }

    async fn recovery(&self) -> Result<Answer, Error> {
        let settings = self.node.settings();
        let shown = self.node.recovery().await?;
        Ok(recovering::told(&settings.name, &settings.cluster, &shown))
    }

    /// Does what was shown, if what is named here is what would be shown now, with no warning more.
    async fn recover(
        &self,
        lineage: &str,
        view: &str,
        quorum: bool,
        may_fork: bool,
    ) -> Result<Answer, Error> {
        let settings = self.node.settings();
        let shown = self.node.recovery().await?;
        if (
            shown.lineage.to_string().as_str(),
            shown.view.to_string().as_str(),
        ) != (lineage, view)
            || shown.warns_of_more(quorum, may_fork)
        {
            return Err(Error::NotRecovered(RecoveryError::Changed));
        }
        let new = self.node.recover(shown).await?;
        let node = &settings.name;
        tracing::warn!(target: "antiphon::console", %node, left = lineage, view, "an operator had this node go on alone");
        Ok(recovering::done(node, &settings.cluster, &new))
    }

    async fn status(&self) -> Result<Answer, Error> {
        let examined = self.node.examine().await?;
        let status = answers::status(&examined, self.node.settings());
        Ok(Answer::Status(Box::new(status)))
    }

    async fn members(&self) -> Result<Answer, Error> {
        let examined = self.node.examine().await?;
        let (history, _) = self.node.history();
        let members = answers::members(&examined, self.node.settings(), &answers::names(&history));
        Ok(Answer::Members(Box::new(members)))
    }

    async fn why(&self, name: String) -> Result<Answer, Error> {
        let examined = self.node.examine().await?;
        let report = self.node.why(name).await?;
        let (history, _) = self.node.history();
        Ok(Answer::Why(Box::new(answers::why(&report, &examined, &history))))
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

    /// Serves a client if it may be served. Only a client that may ask takes a place.
    async fn meet(mut self, desk: Arc<Desk>) {
        let own = geteuid().as_raw();
        let problem = match self.stream.peer_cred() {
            Ok(theirs) if theirs.uid() != own && theirs.uid() != 0 => problem(
                "forbidden",
                format!("only user {own}, who runs this node, and root may ask it"),
            ),
            Err(error) => problem("forbidden", format!("it cannot be seen who asks: {error}")),
            Ok(_) => match desk.place() {
                Some(guest) => return drop(self.serve(&desk, guest).await),
                None => problem(
                    "busy",
                    format!(
                        "{MAX_CLIENTS} clients are being served, no more at a time, and none of them is idle: end one of them, or try again"
                    ),
                ),
            },
        };
        // It is told why, or is gone already.
        drop(self.say(&problem).await);
    }

    async fn serve(&mut self, desk: &Desk, mut guest: Guest) -> Result<(), Gone> {
        self.say(&desk.hello()).await?;
        for _ in 0..MAX_QUESTIONS {
            let place = desk.lend(guest);
            let asked = tokio::select! {
                asked = timeout(ASK_WITHIN, self.line(desk)) => Some(asked),
                () = place.taken.notified() => None,
            };
            let kept = desk.claim(&place);
            let (Some(asked), Some(kept)) = (asked, kept) else {
                let reason = "another client needs this place, and nothing was asked here".to_owned();
                return self.say(&problem("busy", reason)).await;
            };
            guest = kept;
            let line = match asked {
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
            // A process that was stopped finds questions of clients that have given up long ago. What a
            // client asked to be done it has told its person since: that it is not known, and to look.
            Question::Recover { .. } if has_gone(&self.stream) => return Err(Gone),
            Question::Recover {
                lineage,
                view,
                quorum,
                may_fork,
            } => desk.recover(&lineage, &view, quorum, may_fork).await,
            Question::Status {} => desk.status().await,
            Question::Members {} => desk.members().await,
            Question::Why { node } => desk.why(node).await,
            _ => Ok(problem("malformed", "no such question".to_owned())),
        };
        match answer {
            Ok(answer) => self.say(&answer).await,
            Err(Error::NotRecovered(reason)) => self.say(&recovering::refused(&reason)).await,
            Err(_) => {
                self.say(&problem("stopped", "the node has ended".to_owned()))
                    .await
            }
        }
    }

    /// Tells what happened, and, if that is wanted, what happens until the client or the node ends.
    async fn views(&mut self, desk: &Desk, watch: bool) -> Result<(), Gone> {
        let (history, events) = desk.node.history();
        let names = answers::names(&history);
        for noted in &history {
            let told = told::noted(noted, &names);
            self.say(&Answer::Happened(Box::new(told))).await?;
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
                    let told = Told::now(told::cluster_event(&event, &names));
                    self.say(&Answer::Happened(Box::new(told))).await?;
                }
                _ = looks.tick() => {
                    let Ok(examined) = desk.node.examine().await else { continue };
                    for told in doubts.follow(&examined, &names) {
                        self.say(&Answer::Happened(Box::new(told))).await?;
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
                () = desk.node.closed() => return Err(Gone),
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
                // Nobody takes the questions of a watching client from here: they must not fill the memory.
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

/// Whether the client reads no answer any more. One that only says no more still reads.
fn has_gone(stream: &UnixStream) -> bool {
    // Hang-ups are told of without being asked for.
    let mut asked = [PollFd::new(stream, PollFlags::empty())];
    poll(&mut asked, Some(&Timespec::default())).is_ok_and(|gone| gone > 0)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn problem(code: &str, reason: String) -> Answer {
    Answer::Error(Problem {
        code: code.to_owned(),
        reason,
    })
}
