//! One node's commands: what it asks of peers, and what it does for them.

mod asking;
mod places;
mod serving;
mod windows;

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use antiphon::calls::{Calls, Config as CallsConfig};
use antiphon::{Cluster, ClusterEvent, ClusterKey, Member, NodeView, Order};
use antiphon_api::blocks::{Code, Failure, Ran};
use bytes::Bytes;
use tokio::sync::watch;
use tokio::task::JoinSet;

use self::places::Running;
use self::windows::Windows;
use crate::counts::{Counted, Counts, Side, failure};
use crate::deliver::Handlers;
use crate::envelope::{Signer, Way};
use crate::lane::{Lane, MAX_SENT};
use crate::list::{Args, List, ListError};
use crate::ways::udp::Datagrams;
use crate::ways::{Connections, Tls, is_of};

/// The group in which commands go over the cluster's own links.
pub const GROUP: &str = "block/commands";
/// The verb of those calls.
const CALL: &str = "peer";
/// Names of peers that were heard, before those that have gone are forgotten; more only of members.
const MAX_CONTACTS: usize = 1024;
/// Lanes, before those to peers that have gone are forgotten; more only to members.
const MAX_LANES: usize = 1024;
/// Commands that a node runs at a time.
pub const MAX_RUNNING: usize = 256;
/// Those of one peer among them.
pub const MAX_RUNNING_OF_ONE: usize = 64;
/// Calls of the library's way that a node serves at a time, as a gate has connections; more are refused. Far
/// more than run: those that find no place are answered at once, and so is what needs none.
const MAX_CALLS: usize = 1024;
/// Bytes of calls that wait to be sent: all that may be under way to some 70 peers that take none.
const MAX_UNSENT_BYTES: usize = 256 << 20;
/// How long a command of a node that has just joined may wait for the view in which it is a member.
const VIEW_WITHIN: Duration = Duration::from_secs(1);
/// Then it is looked for again.
const ASK_AGAIN: Duration = Duration::from_millis(20);
/// The reply to what makes the node leave goes first.
const LEAVE_AFTER: Duration = Duration::from_millis(200);
/// How long a command that was just joined waits until the group of the library's way is there.
const JOIN_WITHIN: Duration = Duration::from_secs(10);

/// What a node's commands are made of.
#[derive(Debug)]
pub struct Config {
    /// The file of the list.
    pub list: PathBuf,
    /// The cluster's key, by which commands are signed unless the list has keys of its own.
    pub key: Option<ClusterKey>,
    /// Certificates, for HTTPS.
    pub tls: Option<Tls>,
}

pub(crate) struct Node {
    cluster: Cluster,
    cluster_name: String,
    pub(crate) name: String,
    path: PathBuf,
    key: Option<ClusterKey>,
    tls: Option<Tls>,
    active: Mutex<Arc<Active>>,
    /// The view that this node is in, if it is in one.
    view: watch::Receiver<Option<Arc<NodeView>>>,
    calls: watch::Receiver<Option<Calls>>,
    lanes: Mutex<HashMap<(String, Way), Arc<Peer>>>,
    datagrams: Datagrams,
    windows: Mutex<Windows>,
    pub(crate) handlers: Arc<Handlers>,
    running: Running,
    tasks: Mutex<JoinSet<()>>,
    stopped: AtomicBool,
    pub(crate) counts: Counts,
    contacts: Mutex<BTreeMap<String, Instant>>,
    pub(crate) leave: watch::Sender<bool>,
}

impl fmt::Debug for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Node")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

/// A list, and what commands are signed with as long as it holds.
#[derive(Debug)]
pub(crate) struct Active {
    pub(crate) list: List,
    /// The first one signs.
    signers: Vec<Signer>,
}

impl Active {
    pub(crate) fn read(path: &std::path::Path, key: Option<&ClusterKey>) -> Result<Self, ListError> {
        let list = List::read(path)?;
        let mut signers = Vec::new();
        for file in &list.key_files {
            let key = antiphon::config::read_key(file).map_err(|error| ListError(error.to_string()))?;
            if let Some(warning) = key.warning {
                return Err(ListError(warning));
            }
            signers.push(Signer::new(&key.key));
        }
        if signers.is_empty() {
            let key = key.ok_or_else(|| {
                let reason = "commands are signed, and neither the cluster has a key (`--key-file`) nor the list (`key-files = […]`)";
                ListError(format!("{}: {reason}", path.display()))
            })?;
            signers.push(Signer::new(key));
        }
        Ok(Self { list, signers })
    }
}

/// A peer by one way.
#[derive(Debug)]
struct Peer {
    lane: Arc<Lane>,
    connections: Connections,
}

/// What a gate does with an envelope.
#[derive(Debug)]
pub(crate) enum Served {
    /// The signed reply.
    Reply(Bytes),
    /// It had come before, or nobody can say: whatever is answered would be taken for the answer to the
    /// first. The connection ends.
    Seen,
    /// It is not for this node, or not from one that has the key. The connection ends.
    Forged,
}

/// What one peer is asked.
#[derive(Clone)]
pub(crate) struct Task {
    pub(crate) verb: String,
    pub(crate) args: Args,
    pub(crate) way: Way,
    pub(crate) reply: bool,
    pub(crate) until: tokio::time::Instant,
}

impl Node {
    pub(crate) fn start(cluster: Cluster, config: Config) -> Result<Arc<Self>, ListError> {
        let active = Active::read(&config.list, config.key.as_ref())?;
        let (views, view) = watch::channel(cluster.view());
        let (joined, calls) = watch::channel(None);
        let node = Arc::new(Self {
            cluster_name: cluster.observer().settings().cluster.clone(),
            name: cluster.name().to_owned(),
            path: config.list,
            key: config.key,
            tls: config.tls,
            active: Mutex::new(Arc::new(active)),
            view,
            calls,
            lanes: Mutex::default(),
            datagrams: Datagrams::default(),
            windows: Mutex::default(),
            handlers: Arc::default(),
            running: Running::default(),
            tasks: Mutex::default(),
            stopped: AtomicBool::new(false),
            counts: Counts::default(),
            contacts: Mutex::default(),
            leave: watch::Sender::new(false),
            cluster: cluster.clone(),
        });
        let watched = cluster.clone();
        node.spawn(async move {
            let mut events = watched.events();
            while let Some(event) = events.next().await {
                match event {
                    ClusterEvent::View(view) => drop(views.send_replace(Some(view))),
                    // Each incarnation begins in no view. If it is in one by now, that is told next.
                    ClusterEvent::Expelled { .. } | ClusterEvent::Incarnation(_)
                        if watched.view().is_none() =>
                    {
                        drop(views.send_replace(None));
                    }
                    // A new stream begins with the present view.
                    ClusterEvent::Overrun => events = watched.events(),
                    _ => {}
                }
            }
            views.send_replace(None);
        });
        let weak = Arc::downgrade(&node);
        node.spawn(async move {
            // Refused or closed: the node ends, or the group is another's and the way is not there.
            let Ok(group) = cluster.group(GROUP).order(Order::Total).join().await else {
                return;
            };
            let calls = Calls::with_config(group, calls_config());
            let served = calls.serve_bytes(CALL, move |request| {
                let node = weak.upgrade();
                async move {
                    match node {
                        Some(node) => match node.serve(&request.payload, &[Way::Library], None).await {
                            Served::Reply(reply) => Ok(reply),
                            Served::Seen | Served::Forged => Err(Bytes::from_static(b"no reply")),
                        },
                        None => Err(Bytes::from_static(b"it leaves")),
                    }
                }
            });
            if served.is_ok() {
                joined.send_replace(Some(calls));
                // The membership is the handle's.
                std::future::pending::<()>().await;
            }
        });
        Ok(node)
    }

    /// Unless the node stops: then it is dropped.
    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        let mut tasks = self.tasks();
        if self.has_stopped() {
            return;
        }
        while tasks.try_join_next().is_some() {}
        tasks.spawn(task);
    }

    /// Ends all that runs: programs are killed with their groups.
    pub(crate) fn stop(&self) {
        let mut tasks = self.tasks();
        self.stopped.store(true, Ordering::Relaxed);
        tasks.abort_all();
    }

    /// Whether it takes no commands any more.
    fn has_stopped(&self) -> bool {
        self.stopped.load(Ordering::Relaxed)
    }

    pub(crate) fn tls(&self) -> Option<&Tls> {
        self.tls.as_ref()
    }

    pub(crate) fn active(&self) -> Arc<Active> {
        self.active.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Reads the list again. One that is not right changes nothing.
    pub(crate) fn reload(&self) -> Result<u64, ListError> {
        let active = Active::read(&self.path, self.key.as_ref())?;
        let version = active.list.version;
        *self.active.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(active);
        Ok(version)
    }

    /// The members of the present view.
    pub(crate) fn members(&self) -> Vec<String> {
        let view = self.view.borrow();
        let mut names: Vec<_> = view
            .iter()
            .flat_map(|view| &view.members)
            .map(|member| member.name.clone())
            .collect();
        // Where a node was started again, its former start may be there still.
        names.sort_unstable();
        names.dedup();
        names
    }

    fn is_member(&self, name: &str) -> bool {
        let view = self.view.borrow();
        view.iter()
            .flat_map(|view| &view.members)
            .any(|member| member.name == name)
    }

    /// Why a node that is no member is not asked.
    fn no_member(&self, name: &str) -> String {
        match self.view.borrow().is_some() {
            true => format!("{name} is no member of the cluster now"),
            false => format!(
                "{} is in no view of the cluster now: ask again once it is a member",
                self.name
            ),
        }
    }

    /// The member of a name: of two starts of it, the later one.
    fn member(&self, name: &str) -> Option<Member> {
        let view = self.view.borrow();
        view.as_ref()?
            .members
            .iter()
            .rev()
            .find(|member| member.name == name)
            .cloned()
    }

    /// A member of the view has said something that is signed as it must be.
    fn heard(&self, member: &str) {
        let mut contacts = self.contacts();
        contacts.insert(member.to_owned(), Instant::now());
        if contacts.len() > MAX_CONTACTS {
            let there = self.members();
            contacts.retain(|name, _| there.contains(name));
        }
    }

    /// Whether this node is in a primary view.
    pub(crate) fn is_primary(&self) -> bool {
        self.view.borrow().as_ref().is_some_and(|view| view.is_primary())
    }

    pub(crate) fn is_members(&self, ip: IpAddr) -> bool {
        let view = self.view.borrow();
        view.iter()
            .flat_map(|view| &view.members)
            .any(|member| is_of(member, ip))
    }

    fn count(&self, side: Side, peer: &str, verb: &str, result: &Result<Option<Bytes>, Failure>) {
        let result = match result {
            Ok(Some(_)) => Counted::Done,
            Ok(None) => Counted::Sent,
            Err(failure) => Counted::of(failure.code),
        };
        self.counts.count(side, Some(peer), Some(verb), result);
    }

    fn refused(&self, active: &Active, refusal: &crate::list::Refusal) -> Failure {
        let reason = format!(
            "the list of {} (version {}): {refusal}",
            self.name, active.list.version
        );
        failure(Code::Refused, Ran::No, reason)
    }

    pub(crate) fn status(&self) -> crate::Status {
        let lanes = self.lanes();
        let mut queues: Vec<_> = lanes
            .iter()
            .map(|((peer, way), of)| of.lane.status(peer, *way))
            .collect();
        queues.sort_by(|a, b| (&a.peer, a.way).cmp(&(&b.peer, b.way)));
        let contacts = self.contacts();
        let ago = |at: &Instant| u64::try_from(at.elapsed().as_millis()).unwrap_or(u64::MAX);
        let active = self.active();
        crate::Status {
            list: active.list.version,
            verbs: active.list.verbs().map(|verb| verb.name.clone()).collect(),
            queues,
            last_contact_ms: contacts
                .iter()
                .map(|(peer, at)| (peer.clone(), ago(at)))
                .collect(),
            counts: self.counts.all(),
        }
    }

    fn lanes(&self) -> MutexGuard<'_, HashMap<(String, Way), Arc<Peer>>> {
        self.lanes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn tasks(&self) -> MutexGuard<'_, JoinSet<()>> {
        self.tasks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn contacts(&self) -> MutexGuard<'_, BTreeMap<String, Instant>> {
        self.contacts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What bounds commands is counted here, by peers and verbs: at the sender in lanes, and at the receiver in
/// `Running`. So no call waits for one of another peer.
fn calls_config() -> CallsConfig {
    CallsConfig {
        max_running: MAX_CALLS,
        max_queued: 0,
        // Peers that do not answer fill their own lanes, and not what there is for all of them.
        max_in_flight: MAX_LANES * MAX_SENT,
        max_unsent_bytes: MAX_UNSENT_BYTES,
        ..CallsConfig::default()
    }
}

fn now_ms() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(now.as_millis()).unwrap_or(u64::MAX)
}
