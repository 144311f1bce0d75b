//! A simulated host, and the process of one node on it.
//!
//! All tasks of the process, the driver's and those of the tester, are polled through here: not while the
//! process is stopped, and never again once it has ended.

use std::fmt;
use std::net::SocketAddr;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, SystemTime};

use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::Sleep;

use super::ground::{Ground, lock};
use crate::cluster::ClusterShared;
use crate::{ClusterEvent, Examined, GroupStatus, Observer, inspection};

/// The time of day at which each world begins, in seconds of Unix time: 2024-01-01 00:00 UTC.
const EPOCH_UNIX_S: u64 = 1_704_067_200;
/// How long a node is given to say what it waits for.
const ANSWER_WITHIN: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(crate) struct Machine {
    pub(super) name: String,
    pub(super) addr: SocketAddr,
    ground: Arc<Ground>,
    process: Mutex<Process>,
}

/// What runs there now.
#[derive(Debug, Default)]
struct Process {
    tasks: Vec<Arc<Task>>,
    stopped_until: Option<Duration>,
    node: Option<Observer>,
}

/// A future that can be taken away from the runtime.
struct Task {
    /// `None` once it is over.
    future: Mutex<Option<Pin<Box<dyn Future<Output = ()> + Send>>>>,
    /// Of the runtime's task that polls it.
    waker: Mutex<Option<Waker>>,
    killed: AtomicBool,
}

impl Machine {
    pub(super) fn new(name: &str, addr: SocketAddr, ground: Arc<Ground>) -> Self {
        Self {
            name: name.to_owned(),
            addr,
            ground,
            process: Mutex::default(),
        }
    }

    pub(crate) fn micros(&self) -> u64 {
        u64::try_from(self.ground.now().as_micros()).unwrap_or(u64::MAX)
    }

    pub(crate) fn time_of_day(&self) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs(EPOCH_UNIX_S) + self.ground.now()
    }

    pub(crate) fn draw(&self) -> u64 {
        self.ground.weather.draw()
    }

    /// Runs the driver of a node, and logs what that tells.
    pub(crate) fn run_node(
        self: &Arc<Self>,
        node: Arc<ClusterShared>,
        driver: impl Future<Output = ()> + Send + 'static,
    ) {
        let mut events = node.hub().subscribe();
        let (ground, name) = (self.ground.clone(), self.name.clone());
        tokio::spawn(async move {
            while let Some(event) = events.next().await {
                ground.log(&format!("{name}: {}", line(&event)));
            }
            ground.log(&format!("{name}: has stopped"));
        });
        lock(&self.process).node = Some(Observer::of(node));
        self.start(driver);
    }

    /// Runs a task of the tester's.
    pub(super) fn spawn<T: Send + 'static>(
        self: &Arc<Self>,
        task: impl Future<Output = T> + Send + 'static,
    ) -> JoinHandle<Option<T>> {
        let (result, done) = oneshot::channel();
        self.start(async move {
            // The task that waited for it may be gone.
            let _ = result.send(task.await);
        });
        tokio::spawn(async move { done.await.ok() })
    }

    pub(crate) fn start(self: &Arc<Self>, future: impl Future<Output = ()> + Send + 'static) {
        let task = Arc::new(Task {
            future: Mutex::new(Some(Box::pin(future))),
            waker: Mutex::default(),
            killed: AtomicBool::new(false),
        });
        lock(&self.process).tasks.push(task.clone());
        let machine = self.clone();
        let rest = None;
        tokio::spawn(Polled { machine, task, rest });
    }

    /// Its kernel closes what it had open: lifelines end with a FIN. Only then are its handles closed, and
    /// nothing of it runs in between.
    pub(super) fn kill(&self) {
        self.ground.weather.network().kill(self.addr);
        self.ground.log(&format!("{}: is killed", self.name));
        self.end();
    }

    pub(super) fn power_off(&self) {
        self.ground.weather.power_off(self.addr);
        self.ground.log(&format!("{}: loses power", self.name));
        self.end();
    }

    pub(super) fn pause(&self, length: Duration) {
        let mut process = lock(&self.process);
        // Otherwise its next start would be paused.
        if process.tasks.is_empty() {
            return;
        }
        let until = self.ground.now().saturating_add(length);
        self.ground
            .log(&format!("{}: is paused for {length:?}", self.name));
        process.stopped_until = process.stopped_until.max(Some(until));
    }

    /// Drops all tasks of the process.
    pub(super) fn end(&self) {
        let process = std::mem::take(&mut *lock(&self.process));
        for task in process.tasks {
            task.killed.store(true, Ordering::Release);
            // One that is being polled, and so ends itself here, is dropped when that returns.
            let future = task.future.try_lock().ok().and_then(|mut future| future.take());
            drop(future);
            if let Some(waker) = lock(&task.waker).take() {
                waker.wake();
            }
        }
    }

    /// Until when it is stopped, as time since the beginning.
    fn stopped_until(&self) -> Option<Duration> {
        let until = lock(&self.process).stopped_until?;
        (self.ground.now() < until).then_some(until)
    }

    /// For people: what keeps it from going on.
    pub(super) async fn waits_for(&self) -> String {
        let Some(node) = lock(&self.process).node.clone() else {
            return "does not run".to_owned();
        };
        if let Some(until) = self.stopped_until() {
            return format!("is paused until {until:?}");
        }
        match tokio::time::timeout(ANSWER_WITHIN, node.examine()).await {
            Err(_) => "does not answer".to_owned(),
            Ok(Err(_)) => "has stopped".to_owned(),
            Ok(Ok(examined)) => waits(&examined),
        }
    }
}

/// A task of a process, as the runtime polls it.
struct Polled {
    machine: Arc<Machine>,
    task: Arc<Task>,
    /// While the process is stopped.
    rest: Option<Pin<Box<Sleep>>>,
}

impl Future for Polled {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let task = self.task.clone();
        if task.killed.load(Ordering::Acquire) {
            return Poll::Ready(());
        }
        *lock(&task.waker) = Some(cx.waker().clone());
        while let Some(until) = self.machine.stopped_until() {
            let wait = until.saturating_sub(self.machine.ground.now());
            let rest = self.rest.insert(Box::pin(tokio::time::sleep(wait)));
            if rest.as_mut().poll(cx).is_pending() {
                return Poll::Pending;
            }
        }
        self.rest = None;
        let mut future = lock(&task.future);
        let Some(polled) = future.as_mut() else {
            return Poll::Ready(());
        };
        let polled = std::panic::catch_unwind(AssertUnwindSafe(|| polled.as_mut().poll(cx)));
        if matches!(polled, Ok(Poll::Pending)) && !task.killed.load(Ordering::Acquire) {
            return Poll::Pending;
        }
        if let Err(panic) = polled {
            self.machine.ground.panic(panic);
        }
        let over = future.take();
        drop(future);
        drop(over);
        let mut process = lock(&self.machine.process);
        process.tasks.retain(|other| !Arc::ptr_eq(other, &task));
        Poll::Ready(())
    }
}

impl fmt::Debug for Task {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Task")
    }
}

fn line(event: &ClusterEvent) -> String {
    match event {
        ClusterEvent::View(view) => {
            let names: Vec<&str> = view.members.iter().map(|member| member.name.as_str()).collect();
            let kind = if view.is_primary() {
                "primary"
            } else {
                "not primary"
            };
            format!("view {} of {} ({kind})", view.id, names.join(" "))
        }
        ClusterEvent::Lease { held: true } => "believes in its view".to_owned(),
        ClusterEvent::Lease { held: false } => "no majority answers".to_owned(),
        event => format!("{event:?}"),
    }
}

fn waits(examined: &Examined) -> String {
    let status = &examined.status;
    let mut waits = match &examined.inspection.state {
        inspection::State::Seeking(looking) => {
            let names = looking.candidates.iter().map(|(name, ..)| name.as_str());
            let found: Vec<&str> = names.collect();
            format!("for a cluster: missing {:?}, found {found:?}", looking.missing)
        }
        inspection::State::Seated(seated) => {
            let mut text = match &status.view {
                Some(view) => line(&ClusterEvent::View(view.clone())),
                None => "a view".to_owned(),
            };
            if !seated.quorum {
                text += "; for a majority";
            }
            if !seated.leased {
                text += "; for its lease";
            }
            text
        }
        state => format!("{state:?}"),
    };
    for group in &status.groups {
        let GroupStatus {
            name,
            unread_events,
            pending_sends,
            ..
        } = group;
        waits += &match &group.view {
            None => format!("; for a first view of group {name:?}"),
            Some(_) => {
                format!(
                    "; group {name:?}: {unread_events} events unread, {pending_sends} sent without a fate"
                )
            }
        };
    }
    waits
}
