//! Requests of this program to members, and of members to this program.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use antiphon::calls::{Call, Calls, CallsError, Refusal, Replies, Rule, Target};
use antiphon::{Cluster, Incarnation, Order};
use antiphon_api::blocks::{self, Code, Failure, Ran, Reply, Span, To, Word};
use antiphon_api::{Command, Payload};
use bytes::Bytes;

use super::desk::{Desk, Operation, too_late};
use super::failure::{not_done, of_call, of_member};
use super::worker::{Block, Job};

/// A call's time unless it says another.
pub(super) const WITHIN: Span = Span(Duration::from_secs(10));
/// For so long a node that has just joined waits to hear which members serve a verb.
const HEAR_WITHIN: Duration = Duration::from_secs(1);
const ASK_AGAIN: Duration = Duration::from_millis(20);

/// The nodes that call each other in one group.
#[derive(Debug, Clone)]
pub(super) struct CallBlock {
    desk: Arc<Desk>,
    name: Arc<str>,
    calls: Calls,
}

impl CallBlock {
    pub(super) async fn join(
        cluster: Cluster,
        desk: Arc<Desk>,
        group: String,
        name: String,
    ) -> Result<Self, Failure> {
        // Any order would do; this one is the same at all nodes, whatever they say of their own groups.
        let group = cluster.group(group).order(Order::Total).join().await;
        let group = group.map_err(|error| {
            let code = match error {
                antiphon::Error::GroupRefused { .. } => Code::Refused,
                _ => Code::Unavailable,
            };
            Failure::nothing_done(code, error.to_string())
        })?;
        let calls = Calls::new(group);
        // It reads its first view a moment later, and nobody can be called before.
        while calls.members().is_empty() {
            tokio::time::sleep(ASK_AGAIN).await;
        }
        Ok(Self {
            desk,
            name: name.into(),
            calls,
        })
    }

    fn serve(&self, verb: &str) -> Result<Reply, Failure> {
        let (desk, group) = (self.desk.clone(), self.name.to_string());
        let handler = move |request| desk.clone().ask(group.clone(), request);
        let served = self.calls.serve_bytes(verb, handler);
        served.map_err(|refusal| of_call(&CallsError::Refused(refusal)))?;
        Ok(Reply::default())
    }

    async fn call(&self, call: blocks::Call, payload: Bytes, left: Duration) -> Reply {
        let (target, rule) = match &call.to {
            To::Word(Word::All) => (Target::All, Rule::Each),
            To::Word(Word::Any) => (Target::Any, Rule::First),
            To::Names(names) => match self.members(names) {
                Ok(members) => (Target::Members(members), Rule::Each),
                Err(failure) => return not_done(failure),
            },
        };
        let call = Call {
            target,
            verb: call.verb,
            payload,
            rule,
            deadline: left,
            within: None,
        };
        match self.call_when_heard(call).await {
            Ok(Replies { replies, failures }) => {
                let nobody = replies.is_empty();
                let mut reply = self.told(replies, failures);
                if nobody {
                    let ran = reply.failures.values().map(|failure| failure.ran);
                    let ran = ran.max_by_key(|ran| *ran as u8).unwrap_or(Ran::No);
                    let reason = "no member that was called answered: `failures` says why each";
                    reply.error = Some(Failure {
                        ran,
                        ..Failure::nothing_done(Code::Failed, reason)
                    });
                }
                reply
            }
            Err(error) => {
                let failure = of_call(&error);
                let mut reply = match error {
                    CallsError::Failed(error) => self.told(error.replies, error.failures),
                    CallsError::Refused(_) => Reply::default(),
                };
                reply.error = Some(failure);
                reply
            }
        }
    }

    /// Members tell a new one which verbs they serve, and a call to any of them waits for that; so does one
    /// of a member that is between two memberships.
    async fn call_when_heard(&self, call: Call) -> Result<Replies, CallsError> {
        let begun = tokio::time::Instant::now();
        loop {
            let refused = match self.calls.call(call.clone()).await {
                Err(refused @ CallsError::Refused(Refusal::NotServed | Refusal::NotMember)) => refused,
                other => return other,
            };
            if begun.elapsed() >= HEAR_WITHIN.min(call.deadline) {
                return Err(refused);
            }
            tokio::time::sleep(ASK_AGAIN).await;
        }
    }

    fn members(&self, names: &[String]) -> Result<Vec<Incarnation>, Failure> {
        let members = self.calls.members();
        let of_name = |name: &String| {
            // Where a node was started again, its latest start.
            let member = members.iter().rev().find(|member| member.name == *name);
            member.map(|member| member.incarnation).ok_or_else(|| {
                let reason = format!(
                    "the group has no member {name}: nothing was sent; wait until it serves or calls there"
                );
                Failure::nothing_done(Code::Unavailable, reason)
            })
        };
        names.iter().map(of_name).collect()
    }

    fn told(
        &self,
        replies: Vec<(Incarnation, Bytes)>,
        failures: Vec<(Incarnation, antiphon::calls::Failure)>,
    ) -> Reply {
        let replies = replies.iter();
        let replies = replies.map(|(from, reply)| (self.desk.name(*from), Payload::from_bytes(reply)));
        let failures = failures.iter();
        let failures = failures.map(|(from, failure)| (self.desk.name(*from), of_member(failure)));
        Reply {
            replies: Some(replies.collect::<BTreeMap<_, _>>()),
            failures: failures.collect(),
            ..Reply::default()
        }
    }

    async fn do_call(self, call: blocks::Call, payload: Bytes, mut operation: Operation) {
        let left = operation.time_left().unwrap_or(WITHIN.0);
        if left.is_zero() {
            let failure = too_late(operation.within());
            operation.reply(not_done(failure)).await;
            return;
        }
        let done = operation.wait(Ran::Maybe, self.call(call, payload, left)).await;
        operation.reply(done.unwrap_or_else(not_done)).await;
    }
}

impl Block for CallBlock {
    fn begin(&self, job: Job) -> impl Future<Output = ()> + Send + 'static {
        let this = self.clone();
        async move {
            let Job {
                operation,
                command,
                data,
            } = job;
            match command {
                Command::Call(call) => this.do_call(call, data, operation).await,
                Command::Serve(serve) => {
                    let served = this.serve(&serve.verb);
                    operation.reply(served.unwrap_or_else(not_done)).await;
                }
                other => unreachable!("nothing that is asked of a group of calls: {other:?}"),
            }
        }
    }

    /// It ends with the node alone.
    async fn ended(&self) -> Failure {
        std::future::pending().await
    }

    async fn leave(&self) {
        self.calls.clone().leave().await;
    }
}
