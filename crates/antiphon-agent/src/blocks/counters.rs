//! Counters, and ids that are given once.

use antiphon::replicated::counters::{self, Done, Refused};
use antiphon::replicated::{CountingError, WriteError};
use antiphon::{Cluster, Counters};
use antiphon_api::Command;
use antiphon_api::blocks::{Failure, Ran, Reply, Serial, Value};

use super::begun::Copies;
use super::failure::{not_done, of_counting, of_replica, of_write};
use super::maps::until_of_no_use;
use super::worker::{Block, Job};

/// The table of all counters.
#[derive(Debug, Clone)]
pub(super) struct CounterBlock {
    counters: Counters,
    copies: Copies,
}

impl CounterBlock {
    pub(super) async fn join(cluster: Cluster, group: String, copies: Copies) -> Result<Self, Failure> {
        let started = cluster.counters(group.clone()).start().await;
        let counters = started.map_err(|error| of_replica(&error))?;
        copies.keep_status(group, counters.table().watch_status());
        let joined = counters.table().joined().await;
        joined.map_err(|error| of_replica(&error))?;
        copies.keep_counters(counters.clone());
        Ok(Self { counters, copies })
    }

    async fn reply(&self, command: &Command) -> Result<Reply, Failure> {
        match command {
            Command::Add(add) => {
                let name = add.counter.as_str().into();
                let command = counters::Command::Add { name, by: add.by };
                counted(self.counters.table().write(command).await)
            }
            Command::TakeIds(take) => {
                let ids = self.counters.take_ids(take.count).await;
                let ids = ids.map_err(|error| of_counting(&error))?;
                Ok(Reply {
                    first: Some(Serial(ids.start)),
                    ..Reply::default()
                })
            }
            other => unreachable!("nothing that is asked of counters: {other:?}"),
        }
    }
}

/// What is replied to an addition.
pub(super) fn counted(added: Result<Result<Done, Refused>, WriteError>) -> Result<Reply, Failure> {
    let done = added.map_err(|error| of_write(&error))?;
    let counter = match done.map_err(|refused| of_counting(&CountingError::Refused(refused)))? {
        Done::Counter(counter) => counter,
        // It was an addition.
        Done::Block(_) => None,
    };
    Ok(Reply {
        value: Some(Value::Number(counter.map_or(0, |counter| counter.value))),
        version: counter.map(|counter| Serial(counter.version.0)),
        ..Reply::default()
    })
}

impl Block for CounterBlock {
    fn begin(&self, job: Job) -> impl Future<Output = ()> + Send + 'static {
        let this = self.clone();
        async move {
            let Job {
                mut operation,
                command,
                ..
            } = job;
            let done = operation.wait(Ran::Maybe, this.reply(&command)).await;
            let reply = done.and_then(|done| done).unwrap_or_else(not_done);
            operation.reply(reply).await;
        }
    }

    async fn ended(&self) -> Failure {
        until_of_no_use(self.counters.table()).await
    }

    async fn leave(&self) {
        self.copies.forget_counters();
        self.counters.table().leave().await;
    }
}
