//! One task for each source, and how often it looks.

use std::sync::Arc;
use std::time::Duration;

use antiphon_core::Hints;
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::board::{Board, Finds, Place};
use super::multicast::Air;
use super::resolver::Resolver;
use super::source::{Kind, Source};
use super::{dns, file, multicast};

/// Without a cluster, a source is asked this often.
const SEEKING: Duration = Duration::from_secs(1);
/// In a cluster.
const SETTLED: Duration = Duration::from_secs(30);
/// After failures the pause doubles up to here while there is no cluster.
const AFTER_FAILURES: Duration = Duration::from_secs(8);

/// Between half of it and half more.
pub(super) fn jitter(base: Duration) -> Duration {
    // Without entropy all nodes would look at the same instants, which does no harm.
    let random = getrandom::u32().unwrap_or(u32::MAX / 2);
    base / 2 + base.mul_f64(f64::from(random) / f64::from(u32::MAX))
}

/// How long to rest between two looks.
#[derive(Debug, Clone)]
pub(super) struct Pace {
    settled: watch::Receiver<bool>,
    failures: u32,
}

impl Pace {
    /// The pause after a look that failed or not.
    pub(super) fn next(&mut self, failed: bool) -> Duration {
        self.failures = if failed {
            self.failures.saturating_add(1)
        } else {
            0
        };
        let base = match *self.settled.borrow() {
            true => SETTLED,
            false => (SEEKING * (1 << self.failures.min(3))).min(AFTER_FAILURES),
        };
        jitter(base)
    }

    /// Whether the node is in a primary view.
    pub(super) fn settled(&self) -> bool {
        *self.settled.borrow()
    }

    /// Rests; not longer when the node loses its cluster meanwhile.
    pub(super) async fn rest(&mut self, failed: bool) {
        let pause = self.next(failed);
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            () = self.lost() => {}
        }
    }

    /// Waits until the node is in no primary view any more; for ever if it is in none now.
    ///
    /// # Cancel safety
    /// Nothing is lost if the future is dropped.
    pub(super) async fn lost(&mut self) {
        if !self.settled() || self.settled.wait_for(|settled| !settled).await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

/// What a node was told to look at, checked.
#[derive(Debug)]
pub(crate) struct Sources {
    pub(crate) nodes: Vec<Source>,
    pub(crate) locators: Vec<Source>,
    pub(crate) resolver: Resolver,
    pub(crate) air: Option<Air>,
}

impl Sources {
    pub(crate) fn is_empty(&self) -> bool {
        self.nodes.is_empty() && self.locators.is_empty()
    }
}

/// The tasks of a node's sources. Dropped, they end.
#[derive(Debug)]
pub(crate) struct Tasks {
    hints: watch::Receiver<Hints>,
    settled: watch::Sender<bool>,
    _tasks: JoinSet<()>,
}

impl Tasks {
    /// Starts to look. Must be called on a tokio runtime.
    pub(crate) fn start(sources: Sources, board: &Arc<Board>) -> Self {
        let settled = watch::Sender::new(false);
        let mut tasks = JoinSet::new();
        let mut air = sources.air;
        let both = (sources.nodes.into_iter().map(|source| (source, Finds::Nodes))).chain(
            sources
                .locators
                .into_iter()
                .map(|source| (source, Finds::Locators)),
        );
        for (source, finds) in both {
            let name = match finds {
                Finds::Nodes => source.to_string(),
                Finds::Locators => format!("locator {source}"),
            };
            let place = board.place(name, finds);
            let pace = Pace {
                settled: settled.subscribe(),
                failures: 0,
            };
            let resolver = sources.resolver.clone();
            match source.0 {
                Kind::Fixed(addr) => place.is(addr),
                kind @ (Kind::Dns { .. } | Kind::Srv { .. }) => {
                    tasks.spawn(dns::run(kind, resolver, place, pace));
                }
                Kind::File { path, port } => {
                    tasks.spawn(file::run(path, port, resolver, place, pace));
                }
                Kind::Own { said, .. } => {
                    tasks.spawn(own(said, place));
                }
                Kind::Multicast { .. } => {
                    if let Some(air) = air.take() {
                        tasks.spawn(multicast::run(air, place, pace));
                    }
                }
            }
        }
        Self {
            hints: board.hints(),
            settled,
            _tasks: tasks,
        }
    }

    /// Waits for news.
    ///
    /// # Cancel safety
    /// Nothing is lost if the future is dropped.
    pub(crate) async fn changed(&mut self) -> Hints {
        if self.hints.changed().await.is_err() {
            // All sources are fixed, and have said what they had to say.
            std::future::pending::<()>().await;
        }
        self.hints.borrow_and_update().clone()
    }

    /// What is found now.
    pub(crate) fn hints(&mut self) -> Hints {
        self.hints.borrow_and_update().clone()
    }

    /// Whether the node is in a primary view: then it looks less often.
    pub(crate) fn settle(&self, settled: bool) {
        self.settled
            .send_if_modified(|known| std::mem::replace(known, settled) != settled);
    }
}

/// What the application says.
async fn own(mut said: watch::Receiver<super::Said>, place: Place) {
    loop {
        let now = said.borrow_and_update().clone();
        match now.problem {
            None if now.words == 0 => {}
            None => place.found(now.nodes),
            Some(problem) => place.partly(now.nodes, problem),
        }
        if said.changed().await.is_err() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn looks_are_frequent_without_a_cluster_and_rare_in_one_and_never_in_step() {
        let settled = watch::Sender::new(false);
        let mut pace = Pace {
            settled: settled.subscribe(),
            failures: 0,
        };
        let mut pauses: Vec<Duration> = (0..20).map(|_| pace.next(false)).collect();
        assert!(
            pauses
                .iter()
                .all(|pause| (500..=1500).contains(&pause.as_millis())),
            "{pauses:?}"
        );
        pauses.sort();
        pauses.dedup();
        assert!(pauses.len() > 10, "{pauses:?}");
        let after: Vec<Duration> = (0..10).map(|_| pace.next(true)).collect();
        assert!(
            after.iter().all(|pause| *pause <= Duration::from_secs(12)) && after[9] >= Duration::from_secs(4)
        );
        settled.send_replace(true);
        assert!(pace.next(false) >= Duration::from_secs(15));
    }

    #[tokio::test(start_paused = true)]
    async fn a_node_that_loses_its_cluster_looks_at_once() {
        let settled = watch::Sender::new(true);
        let mut pace = Pace {
            settled: settled.subscribe(),
            failures: 0,
        };
        let soon = Duration::from_secs(1);
        assert!(
            tokio::time::timeout(soon, pace.lost()).await.is_err(),
            "it has one"
        );
        let waits = tokio::spawn(async move { pace.lost().await });
        tokio::task::yield_now().await;
        settled.send_replace(false);
        tokio::time::timeout(soon, waits)
            .await
            .expect("it has lost it")
            .unwrap();
    }
}
