//! Counters, and ids that are given once.

use antiphon::{Cluster, Counters};
use antiphon_api::Command;
use antiphon_api::blocks::{Failure, Ran, Reply, Serial, Value};

use super::failure::{not_done, of_counting, of_replica};
use super::maps::until_of_no_use;
use super::worker::{Block, Job};

/// The table of all counters.
#[derive(Debug, Clone)]
pub(super) struct CounterBlock(Counters);

impl CounterBlock {
    pub(super) async fn join(cluster: Cluster, group: String) -> Result<Self, Failure> {
        let joined = cluster.counters(group).join().await;
        joined.map(Self).map_err(|error| of_replica(&error))
    }

    async fn reply(&self, command: &Command) -> Result<Reply, Failure> {
        match command {
            Command::Add(add) => {
                let counter = self.0.add(&add.counter, add.by).await;
                let counter = counter.map_err(|error| of_counting(&error))?;
                Ok(Reply {
                    value: Some(Value::Number(counter.value)),
                    version: Some(Serial(counter.version.0)),
                    ..Reply::default()
                })
            }
            Command::TakeIds(take) => {
                let ids = self.0.take_ids(take.count).await;
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
        until_of_no_use(self.0.table()).await
    }

    async fn leave(&self) {
        self.0.table().leave().await;
    }
}
