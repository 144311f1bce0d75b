//! The task of one block: joins it, and begins what is asked of it in the order of the lines.

use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use antiphon_api::Command;
use antiphon_api::blocks::Failure;
use bytes::Bytes;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::desk::Operation;
use super::failure::{leaving, not_done};
use crate::ready::{Patience, Readiness};

/// How often the worker looks for cancelled and late operations among those that wait for the join, and
/// whether the node can join at all.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// What is asked of a block.
#[derive(Debug)]
pub(super) struct Job {
    pub(super) operation: Operation,
    pub(super) command: Command,
    /// The value or payload that the command brought.
    pub(super) data: Bytes,
}

impl Job {
    /// The program itself has said for how long it waits.
    fn says_how_long(&self) -> bool {
        match &self.command {
            Command::Lock(lock) => lock.within.is_some(),
            Command::Call(call) => call.within.is_some(),
            _ => false,
        }
    }

    /// Replies in a task of its own: the session may be slow, and others wait for the block. The worker waits
    /// for these tasks before it ends, or replies would be lost when the node leaves.
    fn refuse(self, failure: Failure, tasks: &mut JoinSet<()>) {
        tasks.spawn(async move { drop(self.operation.reply(not_done(failure)).await) });
    }
}

/// A block that this node has joined.
pub(super) trait Block: Send + Sync + 'static {
    /// Does what is asked and replies. Its first poll gives the request its place among the others.
    fn begin(&self, job: Job) -> impl Future<Output = ()> + Send + 'static;

    /// Returns, with the reason, when this node is of no use to the block any more.
    fn ended(&self) -> impl Future<Output = Failure> + Send;

    /// Leaves in order.
    fn leave(&self) -> impl Future<Output = ()> + Send;
}

/// Runs until the jobs end, or the block does.
pub(super) async fn run<B: Block>(
    join: impl Future<Output = Result<B, Failure>>,
    mut jobs: mpsc::UnboundedReceiver<Job>,
    readiness: Arc<Readiness>,
) {
    let mut tasks = JoinSet::new();
    let mut waiting = Vec::new();
    let joined = {
        let mut join = pin!(join);
        let mut patience = Patience::default();
        loop {
            let hopeless = patience.look(&readiness);
            waiting = drop_those_over(waiting, hopeless.as_ref(), &mut tasks);
            while tasks.try_join_next().is_some() {}
            tokio::select! {
                biased;
                joined = &mut join => break joined,
                job = jobs.recv() => match job {
                    Some(job) => waiting.push(job),
                    None => break Err(leaving()),
                },
                () = tokio::time::sleep(LOOK_EVERY) => {}
            }
        }
    };
    let block = match joined {
        Ok(block) => block,
        Err(failure) => {
            refuse_all(waiting, jobs, &failure, &mut tasks);
            while tasks.join_next().await.is_some() {}
            return;
        }
    };
    for job in waiting {
        begin(&block, job, &mut tasks).await;
    }
    let failure = {
        let mut ended = pin!(block.ended());
        loop {
            tokio::select! {
                biased;
                failure = &mut ended => break failure,
                job = jobs.recv() => match job {
                    Some(job) => begin(&block, job, &mut tasks).await,
                    None => break leaving(),
                },
                Some(_) = tasks.join_next() => {}
            }
        }
    };
    // Another worker is started when the jobs are closed, and may join again only after this.
    block.leave().await;
    refuse_all(Vec::new(), jobs, &failure, &mut tasks);
    while tasks.join_next().await.is_some() {}
}

/// Polls the operation once here, so that it begins before the next one does. The poll is outside the
/// runtime's budget: a task that has done much without a pause would have its poll put off.
async fn begin<B: Block>(block: &B, job: Job, tasks: &mut JoinSet<()>) {
    let mut work = Box::pin(block.begin(job));
    let once = std::future::poll_fn(|cx| Poll::Ready(work.as_mut().poll(cx).is_ready()));
    let done = tokio::task::unconstrained(once).await;
    if !done {
        tasks.spawn(work);
    }
}

/// `hopeless`: the node has not been ready for a while, and why. None of these has begun.
fn drop_those_over(waiting: Vec<Job>, hopeless: Option<&Failure>, tasks: &mut JoinSet<()>) -> Vec<Job> {
    let mut still = Vec::with_capacity(waiting.len());
    for mut job in waiting {
        let hopeless = hopeless.filter(|_| !job.says_how_long() && job.operation.has_waited());
        match job.operation.is_over().or_else(|| hopeless.cloned()) {
            Some(failure) => job.refuse(failure, tasks),
            None => still.push(job),
        }
    }
    still
}

fn refuse_all(
    waiting: Vec<Job>,
    mut jobs: mpsc::UnboundedReceiver<Job>,
    failure: &Failure,
    tasks: &mut JoinSet<()>,
) {
    jobs.close();
    for job in waiting {
        job.refuse(failure.clone(), tasks);
    }
    while let Ok(job) = jobs.try_recv() {
        job.refuse(failure.clone(), tasks);
    }
}
