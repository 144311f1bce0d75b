//! The running node's tasks: one for node events, one for each group, one that obeys stdin.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use antiphon::{
    Cluster, ClusterEvent, ClusterEvents, Error, Group, GroupOptions, GroupSender, Incarnation,
    MAX_PAYLOAD_BYTES, MAX_TELL_BYTES, Scope, SendError, TellError, View,
};
use antiphon_api::command::{self, ScopeName};
use antiphon_api::{Command, Event, MAX_LINE_BYTES, Payload};
use tokio::sync::{Semaphore, mpsc, oneshot, watch};
use tokio::task::{JoinSet, block_in_place};
use tokio::time::timeout;

use super::fates::{Fate, Fates, Ledger, Pending, Resolved, Right, await_fate, resolve};
use super::files::{Files, Large, LargeOnes};
use super::printer::Printer;
use super::roster;
use super::spool::{Spool, check_file};
use super::stdin::Input;
use super::stdout::LAST_LINES_WITHIN;
use crate::hub::{self, Hub};
use crate::outlet::Outlet;
use crate::{Names, told};

/// Accepted messages with a fate that is not known yet; beyond that the next send waits.
const MAX_PENDING_RECEIPTS: usize = 4096;
/// Tells to one member with a fate that is not known or not printed; beyond that the next one is refused, or
/// waits if it says so. Each member has its own: one that takes nothing holds up no tell to another.
const MAX_PENDING_TELLS: usize = 1 << 15;
/// Bytes of such tells to all members of all groups, each with [`TASK_BYTES`] for the task that awaits its
/// fate. Many members that take nothing hold up tells to others, too.
const MAX_PENDING_IN_ALL: usize = 256 << 20;
const TASK_BYTES: usize = 1 << 10;
/// Bytes that wait here for one member, beside what it has room for; beyond that the same. A burst to a
/// member that reads is not to be refused.
const MAX_WAITING_TELLS: usize = 8 << 20;
/// Files that wait to be sent; beyond that stdin is not read on.
const MAX_LARGE: usize = 16;
/// Events of a group taken at once.
const BATCH: usize = 256;
/// How long the line of stdin that is being obeyed may take before the node leaves. A line that takes longer
/// waits for the cluster or for the reader of stdout, and is answered while the node leaves.
const PRESENT_LINE_WITHIN: Duration = Duration::from_millis(200);
/// How often a node that has left waits [`LAST_LINES_WITHIN`] for a disk to which it writes large payloads.
const MAX_WAITS_FOR_DISK: u32 = 5;

/// Why a node that was not asked to leave has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// The cluster refused it for good.
    Refused,
    /// Its driver is gone.
    Stopped,
}

/// The groups that a node joins.
#[derive(Debug, Clone)]
pub struct Groups {
    /// Their names. The first is where lines of a person, and sends without a group, go.
    pub names: Vec<String>,
    /// The options of each.
    pub options: GroupOptions,
    /// What to tell of a node that forms for ever, if its settings may be the reason.
    pub hint: Option<&'static str>,
}

/// The tasks of a running node.
#[derive(Debug)]
pub struct Session {
    cluster: Cluster,
    printer: Printer,
    names: Arc<Mutex<Names>>,
    /// In the order of the settings: the first is where human lines and sends without a group go.
    senders: Vec<Sender>,
    hub: Hub,
    events: JoinSet<Option<Ended>>,
    /// Files that stdin has named.
    files: Files,
    spool: Arc<Spool>,
    /// None at a node that does not obey stdin.
    stdin: Option<Stdin>,
}

/// What the session knows of its task that obeys stdin.
#[derive(Debug)]
struct Stdin {
    own: Arc<hub::Session>,
    /// Tells the task to take no further line.
    stop: Option<oneshot::Sender<()>>,
    /// Closed by the task behind its last line.
    answered: watch::Receiver<()>,
}

/// One group's sending side.
#[derive(Debug)]
struct Sender {
    group: String,
    sender: GroupSender,
    receipts: mpsc::Sender<Pending>,
    /// Where the fates of tells go: none of them waits for that of a message.
    fates: mpsc::WeakSender<Resolved>,
    breaks: Arc<AtomicU64>,
    /// Large payloads, which take long to be read and taken: small messages pass them.
    large: mpsc::Sender<Large>,
    /// The most bytes of a payload.
    largest: u64,
    /// The group's present view, from when its line is printed.
    view: watch::Receiver<Option<Arc<View>>>,
}

impl Session {
    /// Joins the groups and starts to print. This program is a session of its own at the hub.
    ///
    /// # Errors
    /// The group that cannot be joined, and why. The node runs on.
    pub async fn start(
        hub: Hub,
        events: ClusterEvents,
        groups: &Groups,
        printer: Printer,
        spool: Arc<Spool>,
    ) -> Result<Self, (String, Error)> {
        let names = hub.names().clone();
        let mut session = Self {
            cluster: hub.cluster().clone(),
            printer,
            names,
            senders: Vec::new(),
            hub,
            events: JoinSet::new(),
            files: Files::default(),
            spool,
            stdin: None,
        };
        let (shown, view_shown) = watch::channel(0);
        session.events.spawn(print_node_events(
            session.cluster.clone(),
            events,
            shown,
            session.names.clone(),
            session.printer.clone(),
            groups.hint,
        ));
        for name in &groups.names {
            let group = session.cluster.group(name).options(groups.options).start().await;
            let group = match group {
                Ok(group) => group,
                // The cluster refused the node before it could join its groups: its events say why it ended.
                Err(Error::Closed) => break,
                Err(other) => return Err((name.clone(), other)),
            };
            let (receipts, pending) = mpsc::channel(MAX_PENDING_RECEIPTS);
            let breaks = Arc::new(AtomicU64::new(0));
            let (large, waiting) = mpsc::channel(MAX_LARGE);
            let (view_known, view) = watch::channel(None);
            let large_ones = LargeOnes {
                group: name.clone(),
                sender: group.sender(),
                receipts: receipts.clone(),
                breaks: breaks.clone(),
                printer: session.printer.clone(),
                files: session.files.clone(),
            };
            tokio::spawn(large_ones.send_all(waiting));
            let (resolved, fates) = resolve(pending, name.clone(), session.printer.clone());
            let sender = Sender {
                group: name.clone(),
                sender: group.sender(),
                receipts,
                fates,
                breaks: breaks.clone(),
                large,
                largest: u64::from(groups.options.max_object_bytes).max(MAX_PAYLOAD_BYTES as u64),
                view,
            };
            session.senders.push(sender);
            session.events.spawn(print_group_events(
                group,
                view_shown.clone(),
                view_known,
                resolved,
                breaks,
                session.printer.clone(),
                session.spool.clone(),
            ));
        }
        Ok(session)
    }

    /// Carries out what stdin says, from now on, and says when it asks to leave.
    pub fn obey(&mut self, mut input: mpsc::Receiver<Input>, leave: mpsc::Sender<()>) {
        let Ok(own) = self.hub.open(Outlet::Printed(self.printer.clone()), true) else {
            unreachable!("the node's own program is its first session");
        };
        let own = Arc::new(own);
        let mut obeying = Obeying {
            own: own.clone(),
            cluster: self.cluster.clone(),
            printer: self.printer.clone(),
            senders: std::mem::take(&mut self.senders),
            files: self.files.clone(),
            tickets: BTreeMap::new(),
            tells: BTreeMap::new(),
            rights: Rights::default(),
        };
        let (stop, mut stopped) = oneshot::channel();
        let (answering, answered) = watch::channel(());
        tokio::spawn(async move {
            loop {
                let input = tokio::select! {
                    biased;
                    _ = &mut stopped => break,
                    input = input.recv() => input,
                };
                let Some(input) = input else { break };
                if obeying.obey(input).await == Asked::Leave {
                    // The receiver lives as long as the node.
                    let _ = leave.send(()).await;
                    break;
                }
            }
            drop((input, answering));
            // The end of stdin changes nothing: the senders stay, or the groups would be left.
            std::future::pending::<()>().await;
        });
        self.stdin = Some(Stdin {
            own,
            stop: Some(stop),
            answered,
        });
    }

    /// Returns when the node has ended without being asked to.
    pub async fn ended(&mut self) -> Ended {
        while let Some(finished) = self.events.join_next().await {
            if let Ok(Some(ended)) = finished {
                return ended;
            }
        }
        Ended::Stopped
    }

    /// Before the node leaves: takes no further line of stdin, and sends the files that were taken. It takes
    /// a few seconds at most.
    pub async fn stop(&mut self) {
        let Some(stdin) = &mut self.stdin else { return };
        stdin.stop();
        let _ = timeout(PRESENT_LINE_WITHIN, stdin.answered()).await;
        self.files.settle().await;
    }

    /// Behind leaving: waits until all that happened before is printed. A reader that does not read is waited
    /// for no longer than [`LAST_LINES_WITHIN`].
    pub async fn finish(&mut self) {
        for _ in 0..MAX_WAITS_FOR_DISK {
            let all = timeout(LAST_LINES_WITHIN, self.printed()).await;
            if all.is_ok() || !self.spool.is_writing() {
                return;
            }
        }
    }

    async fn printed(&mut self) {
        while self.events.join_next().await.is_some() {}
        let Some(stdin) = &mut self.stdin else { return };
        stdin.answered().await;
        self.files.settled().await;
        stdin.own.finish().await;
    }
}

impl Stdin {
    fn stop(&mut self) {
        if let Some(stop) = self.stop.take() {
            // Fails only when the task takes no more lines already.
            let _ = stop.send(());
        }
    }

    /// Returns when no line is taken any more, and the last one is answered.
    async fn answered(&mut self) {
        // Nothing is ever sent: it returns when the sender is dropped.
        let _ = self.answered.changed().await;
    }
}

/// Prints what happens to the node, and notes the number of the latest primary view that was printed.
async fn print_node_events(
    cluster: Cluster,
    mut events: ClusterEvents,
    shown: watch::Sender<u32>,
    names: Arc<Mutex<Names>>,
    printer: Printer,
    mut hint: Option<&str>,
) -> Option<Ended> {
    let mut left = false;
    while let Some(event) = events.next().await {
        // The reader of stdout was behind by thousands of events: the next ones begin with the present state.
        if matches!(event, ClusterEvent::Overrun) {
            events = cluster.events();
            continue;
        }
        left |= matches!(event, ClusterEvent::Left);
        let view = match &event {
            ClusterEvent::View(view) if view.is_primary() => Some(view.number),
            _ => None,
        };
        let refused = matches!(event, ClusterEvent::Refused { fatal: true, .. });
        let mut line = {
            let mut names = names.lock().unwrap_or_else(PoisonError::into_inner);
            if let ClusterEvent::View(view) = &event {
                names.learn(view);
            }
            told::cluster_event(&event, &names)
        };
        // That the node left is the last line, behind those of its groups.
        if line != Event::Left {
            match &mut line {
                Event::Forming { reason, .. } if reason.is_none() => *reason = hint.map(str::to_owned),
                // A member never founds again, whatever is given.
                Event::NodeView { .. } => hint = None,
                _ => {}
            }
            printer.print(&line).await;
        }
        if let Some(number) = view {
            shown.send_replace(number);
        }
        if refused {
            return Some(Ended::Refused);
        }
    }
    (!left).then_some(Ended::Stopped)
}

/// Prints a group's events, and the fates of messages that its events do not tell.
///
/// A message of this node that was delivered shows in the stream. A receipt is printed only for one that was
/// not, or that was pending at a break, where the stream alone leaves its fate open.
async fn print_group_events(
    mut group: Group,
    mut view_shown: watch::Receiver<u32>,
    view_known: watch::Sender<Option<Arc<View>>>,
    fates: Fates,
    breaks: Arc<AtomicU64>,
    printer: Printer,
    spool: Arc<Spool>,
) -> Option<Ended> {
    let name = group.name().to_owned();
    let Fates {
        mut resolved,
        not_over,
    } = fates;
    let mut batch = Vec::with_capacity(BATCH);
    let mut ledger = Ledger::default();
    loop {
        tokio::select! {
            // Events first: a break shows before the fates that it decided.
            biased;
            taken = group.next_batch(&mut batch, BATCH) => {
                if taken == 0 {
                    break;
                }
                for event in batch.drain(..) {
                    if matches!(event, antiphon::Event::Suspended | antiphon::Event::Resync { .. }) {
                        breaks.fetch_add(1, Ordering::Relaxed);
                    }
                    // A group's view stands behind the node view that it is made under. Once no node views
                    // are printed any more, nothing is waited for.
                    if let antiphon::Event::View(view) = &event {
                        let _ = view_shown.wait_for(|shown| *shown >= view.id.number).await;
                        view_known.send_replace(Some(view.clone()));
                    }
                    let large = matches!(&event, antiphon::Event::Message(message) if message.payload.len() > MAX_PAYLOAD_BYTES);
                    let translate = || told::group_event(&name, &event, &spool);
                    let line = if large { block_in_place(translate) } else { translate() };
                    printer.print(&line).await;
                    match &event {
                        antiphon::Event::Message(message) => message.ticket.into_iter().for_each(|mine| ledger.shows(mine)),
                        antiphon::Event::Resync { .. } => {
                            for line in ledger.gives_up(&name) {
                                printer.print(&line).await;
                            }
                        }
                        _ => {}
                    }
                }
            }
            Some(fate) = resolved.recv() => {
                if let Some(line) = ledger.settles(fate, &name, breaks.load(Ordering::Relaxed)) {
                    printer.print(&line).await;
                }
            }
        }
    }
    // The end decides what is still open. The fates come behind the last event, as behind any other break.
    drop(not_over);
    let rest = async {
        while let Some(fate) = resolved.recv().await {
            if let Some(line) = ledger.settles(fate, &name, breaks.load(Ordering::Relaxed)) {
                printer.print(&line).await;
            }
        }
        for line in ledger.gives_up(&name) {
            printer.print(&line).await;
        }
    };
    let _ = timeout(LAST_LINES_WITHIN, rest).await;
    None
}

/// Whether a line of stdin asked to leave.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Asked {
    Nothing,
    Leave,
}

/// What answers a line of stdin at once.
enum Reply {
    Event(Box<Event>),
    /// For people.
    Text(String),
}

/// The task that obeys stdin.
struct Obeying {
    cluster: Cluster,
    printer: Printer,
    senders: Vec<Sender>,
    own: Arc<hub::Session>,
    files: Files,
    /// Messages accepted so far, by group.
    tickets: BTreeMap<String, u64>,
    /// The same of what single members were told.
    tells: BTreeMap<String, u64>,
    rights: Rights,
}

/// How many more tells may have a fate that is not known or not printed: by group and member; and of how many
/// bytes in all.
#[derive(Debug)]
struct Rights {
    each: BTreeMap<(String, Incarnation), Arc<Semaphore>>,
    all: Arc<Semaphore>,
}

impl Default for Rights {
    fn default() -> Self {
        Self {
            each: BTreeMap::new(),
            all: Arc::new(Semaphore::new(MAX_PENDING_IN_ALL)),
        }
    }
}

impl Rights {
    /// Those of a member of this view. Members that are in no view any more are forgotten.
    fn of(&mut self, group: &str, view: &View, member: Incarnation) -> Arc<Semaphore> {
        let key = (group.to_owned(), member);
        if let Some(rights) = self.each.get(&key) {
            return rights.clone();
        }
        let here = |wanted: Incarnation| view.members.iter().any(|member| member.incarnation == wanted);
        self.each.retain(|(of, member), _| of != group || here(*member));
        let rights = Arc::new(Semaphore::new(MAX_PENDING_TELLS));
        self.each.insert(key, rights.clone());
        rights
    }

    /// One of a member's, and so many bytes of all; none if it may not wait and there is none.
    async fn take(&self, of: Arc<Semaphore>, bytes: usize, waits: bool) -> Option<Right> {
        let (all, bytes) = (self.all.clone(), u32::try_from(bytes + TASK_BYTES).ok()?);
        if waits {
            // Never closed.
            return Some([
                of.acquire_owned().await.ok()?,
                all.acquire_many_owned(bytes).await.ok()?,
            ]);
        }
        Some([
            of.try_acquire_owned().ok()?,
            all.try_acquire_many_owned(bytes).ok()?,
        ])
    }
}

impl Obeying {
    async fn obey(&mut self, input: Input) -> Asked {
        let line = match input {
            Input::Line(line) if line.iter().all(u8::is_ascii_whitespace) => return Asked::Nothing,
            Input::Line(line) => line,
            Input::TooLong => {
                let reason = format!("the line is longer than {MAX_LINE_BYTES} bytes; it was skipped");
                self.reply(refuse(&reason)).await;
                return Asked::Nothing;
            }
        };
        let request = if self.printer.is_json() {
            self.parse_json(&line)
        } else {
            self.parse_human(&line)
        };
        match request {
            Ok(Command::Leave(command::Leave { group: None, .. })) => return Asked::Leave,
            Ok(request) => {
                if let Some(line) = self.carry_out(request).await {
                    self.printer.print(&line).await;
                }
            }
            Err(reply) => self.reply(reply).await,
        }
        Asked::Nothing
    }

    fn parse_json(&self, line: &[u8]) -> Result<Command, Reply> {
        let line = std::str::from_utf8(line).map_err(|error| refuse(&format!("not UTF-8 ({error})")))?;
        Command::parse(line).map_err(Reply::Event)
    }

    /// `/why NAME`, `/view`, `/leave`; anything else is sent, `//x` as `/x`.
    fn parse_human(&self, line: &[u8]) -> Result<Command, Reply> {
        let send = |payload| {
            Command::Send(command::Send {
                scope: None,
                group: None,
                payload: Payload::from_bytes(payload),
                safe: false,
                id: None,
            })
        };
        let Some(command) = line.strip_prefix(b"/") else {
            return Ok(send(line));
        };
        let words = String::from_utf8_lossy(command);
        let (word, rest) = words.trim_end().split_once(' ').unwrap_or((words.trim_end(), ""));
        match (word, rest.trim()) {
            ("leave", "") => Ok(Command::Leave(command::Leave::default())),
            ("why", node) if !node.is_empty() => Ok(Command::Why(command::AskWhy {
                node: node.to_owned(),
            })),
            ("view", "") => match self.cluster.view() {
                Some(view) => Err(Reply::Text(roster::of(&view))),
                None => Err(refuse("this node is in no cluster now")),
            },
            _ if command.starts_with(b"/") => Ok(send(command)),
            _ => Err(refuse(
                "commands are /why NAME, /view and /leave; //text sends /text",
            )),
        }
    }

    async fn reply(&self, reply: Reply) {
        match reply {
            Reply::Event(line) => self.printer.print(&line).await,
            Reply::Text(text) => self.printer.print_text(text).await,
        }
    }

    /// Whether a message is for a group that this node is in itself, and not as a client.
    fn is_own(&self, group: Option<&str>) -> bool {
        let own = |name| self.senders.iter().any(|sender| sender.group == name);
        group.is_none_or(|name| own(name) || !self.own.has_joined(name))
    }

    /// Carries a request out; the line says what came of it, if anything must be said.
    async fn carry_out(&mut self, request: Command) -> Option<Event> {
        let echo = request.to_value();
        let result = match request {
            Command::Send(send) if self.is_own(send.group.as_deref()) => self.send(send, &echo).await,
            Command::Tell(tell) => self.tell(tell).await,
            Command::Fault(command::Fault { block }) => {
                self.cluster.block(block).await.map_err(NotSent::senseless)
            }
            Command::Leave(command::Leave { group: None, .. }) => Ok(()),
            operation => {
                self.own.obey(operation).await;
                return None;
            }
        };
        match result {
            Ok(()) => None,
            Err(NotSent::Refused { group, reason }) => Some(Event::Refused {
                group: Some(group),
                reason,
                fatal: false,
                request: Some(echo),
            }),
            Err(NotSent::Senseless(reason)) => Some(Event::Error {
                reason,
                request: echo,
            }),
        }
    }

    async fn tell(&mut self, request: command::Tell) -> Result<(), NotSent> {
        let sender = find(&self.senders, request.group.as_deref())?;
        let view = sender.view.borrow().clone();
        let found = view.as_ref().and_then(|view| {
            // Where a node was started again, its latest start.
            let mut members = view.members.iter().rev();
            members
                .find(|member| member.name == request.to)
                .map(|member| (view, member.incarnation))
        });
        let Some((view, member)) = found else {
            return Err(NotSent::Refused {
                group: sender.group.clone(),
                reason: format!("the group's present view has no member {}", request.to),
            });
        };
        if let Payload::File { file, .. } = &request.payload {
            check_file(Path::new(file), MAX_TELL_BYTES as u64).map_err(NotSent::Senseless)?;
        }
        let payload = block_in_place(|| request.payload.into_bytes()).map_err(NotSent::Senseless)?;
        let rights = self.rights.of(&sender.group, view, member);
        let right = self.rights.take(rights, payload.len(), request.wait).await;
        let told = match right {
            None => Err(TellError::Full),
            Some(_) if request.wait => sender.sender.tell(member, payload).await,
            Some(_) => sender.sender.try_tell_up_to(member, payload, MAX_WAITING_TELLS),
        };
        let receipt = told.map_err(|error| NotSent::Refused {
            group: sender.group.clone(),
            reason: match error {
                TellError::NotPrimary => format!("not primary: {error}"),
                TellError::NotMember => format!("not a member: {error}"),
                TellError::Full => format!(
                    "{} has no room: {MAX_WAITING_TELLS} bytes or {MAX_PENDING_TELLS} tells wait for it, or {MAX_PENDING_IN_ALL} bytes for all members; tell it again later, or with \"wait\":true",
                    request.to
                ),
                other => other.to_string(),
            },
        })?;
        let ticket = self.tells.entry(sender.group.clone()).or_default();
        *ticket += 1;
        let pending = Pending {
            ticket: *ticket,
            breaks: 0,
            receipt: Fate::Told(request.to, receipt, right),
        };
        // None only when the group is over and nobody prints fates any more.
        if let Some(fates) = sender.fates.upgrade() {
            let (group, printer) = (sender.group.clone(), self.printer.clone());
            tokio::spawn(await_fate(pending, fates, group, printer));
        }
        Ok(())
    }

    async fn send(&mut self, request: command::Send, echo: &serde_json::Value) -> Result<(), NotSent> {
        let sender = find(&self.senders, request.group.as_deref())?;
        let ticket = self.tickets.entry(sender.group.clone()).or_default();
        if let Payload::File { file, .. } = &request.payload {
            check_file(Path::new(file), sender.largest).map_err(NotSent::Senseless)?;
            *ticket += 1;
            let large = Large {
                ticket: *ticket,
                payload: request.payload,
                safe: request.safe,
                echo: echo.clone(),
                file: self.files.take(),
            };
            // Fails only when the node ends.
            let _ = sender.large.send(large).await;
            return Ok(());
        }
        let payload = request.payload.into_bytes().map_err(NotSent::Senseless)?;
        let breaks = sender.breaks.load(Ordering::Relaxed);
        let scoped = request.scope.as_ref().map(|scope| match scope {
            ScopeName::Number(number) => Scope(*number),
            ScopeName::Name(name) => Scope::named(name),
        });
        let scoped = scoped.map(|scope| sender.sender.in_scope(scope));
        let way = scoped.as_ref().unwrap_or(&sender.sender);
        let sent = if request.safe {
            way.send_safe_bytes(payload).await.map(Fate::Safe)
        } else {
            way.send_bytes(payload).await.map(Fate::Delivered)
        };
        let receipt = sent.map_err(|error| NotSent::of(&sender.group, error))?;
        *ticket += 1;
        // Fails only when the group is over and nobody prints fates any more.
        let _ = sender
            .receipts
            .send(Pending {
                ticket: *ticket,
                breaks,
                receipt,
            })
            .await;
        Ok(())
    }
}

/// The group that a request names, or the first one.
fn find<'a>(senders: &'a [Sender], group: Option<&str>) -> Result<&'a Sender, NotSent> {
    let sender = match group {
        None => senders.first(),
        Some(group) => senders.iter().find(|sender| sender.group == group),
    };
    sender.ok_or_else(|| {
        let joined: Vec<&str> = senders.iter().map(|sender| sender.group.as_str()).collect();
        NotSent::Senseless(match joined.as_slice() {
            [] => "this node is in no group; start it with --group".to_owned(),
            joined => format!(
                "this node is not in that group, only in {}; start it with --group",
                joined.join(", ")
            ),
        })
    })
}

/// Why a message was not sent.
pub(super) enum NotSent {
    /// The request makes no sense to this node.
    Senseless(String),
    /// The group does not take it now.
    Refused { group: String, reason: String },
}

impl NotSent {
    fn senseless(error: Error) -> Self {
        NotSent::Senseless(error.to_string())
    }

    pub(super) fn of(group: &str, error: SendError) -> Self {
        NotSent::Refused {
            group: group.to_owned(),
            reason: match error {
                SendError::NotPrimary => format!("not primary: {error}"),
                SendError::NotMember => format!("not a member: {error}"),
                other => other.to_string(),
            },
        }
    }
}

fn refuse(reason: &str) -> Reply {
    Reply::Event(Box::new(Event::Error {
        reason: reason.to_owned(),
        request: serde_json::Value::Null,
    }))
}
