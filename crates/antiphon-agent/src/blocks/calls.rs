//! Requests of this program to members, and of members to this program.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use antiphon::calls::{Call, Calls, CallsError, Refusal, Replies, Rule, Target};
use antiphon::{Cluster, Incarnation, Order};
use antiphon_api::blocks::{self, Code, Failure, Ran, Reply, Span, To, Word};
use antiphon_api::{Command, Payload};
use bytes::Bytes;

use super::desk::{Desk, Operation};
use super::failure::{not_done, of_all, of_call, of_member};
use super::worker::{Block, Job};

/// A call's time unless it says another.
pub(super) const WITHIN: Span = Span(Duration::from_secs(10));
/// How long a node that has just joined waits to hear which members serve a verb.
const HEAR_WITHIN: Duration = Duration::from_secs(1);
const ASK_AGAIN: Duration = Duration::from_millis(20);

/// The nodes that call each other in one group.
#[derive(Debug, Clone)]
pub(super) struct CallBlock {
    name: Arc<str>,
    calls: Calls,
    served: Arc<Mutex<BTreeMap<String, Servers>>>,
}

/// The sessions that serve a verb. Each request is for one of them, by turns.
#[derive(Debug, Default)]
struct Servers {
    sessions: Vec<Arc<Desk>>,
    turn: usize,
}

impl Servers {
    fn next(&mut self) -> Option<Arc<Desk>> {
        self.sessions.retain(|session| !session.is_over());
        self.turn = self.turn.wrapping_add(1);
        let count = self.sessions.len().max(1);
        self.sessions.get(self.turn % count).cloned()
    }
}

impl CallBlock {
    pub(super) async fn join(cluster: Cluster, group: String, name: String) -> Result<Self, Failure> {
        // Any order would do. This one is the same at all nodes, whatever each says of its own groups.
        let group = cluster.group(group).order(Order::Total).join().await;
        let group = group.map_err(|error| {
            let code = match error {
                antiphon::Error::GroupRefused { .. } => Code::Refused,
                _ => Code::Unavailable,
            };
            Failure::nothing_done(code, error.to_string())
        })?;
        let calls = Calls::new(group);
        // It reads its first view a moment later, and no member can be called before.
        while calls.members().is_empty() {
            tokio::time::sleep(ASK_AGAIN).await;
        }
        Ok(Self {
            name: name.into(),
            calls,
            served: Arc::default(),
        })
    }

    /// This session serves the verb from here on, until it is over.
    fn serve(&self, verb: &str, desk: &Arc<Desk>) -> Result<Reply, Failure> {
        let mut served = self.served();
        if !served.contains_key(verb) {
            let (servers, group, of) = (self.served.clone(), self.name.to_string(), verb.to_owned());
            let handler = move |request| {
                let mut servers = servers.lock().unwrap_or_else(PoisonError::into_inner);
                let desk = servers.get_mut(&of).and_then(Servers::next);
                let group = group.clone();
                async move {
                    match desk {
                        Some(desk) => desk.ask(group, request).await,
                        None => {
                            request.give_up(false);
                            Err(Bytes::new())
                        }
                    }
                }
            };
            let begun = self.calls.serve_bytes(verb, handler);
            begun.map_err(|refusal| of_call(&CallsError::Refused(refusal)))?;
        }
        let sessions = &mut served.entry(verb.to_owned()).or_default().sessions;
        if !sessions.iter().any(|other| Arc::ptr_eq(other, desk)) {
            sessions.push(desk.clone());
            let (block, verb, desk) = (self.clone(), verb.to_owned(), desk.clone());
            tokio::spawn(async move {
                desk.until_over().await;
                block.stop_serving(&verb, &desk);
            });
        }
        Ok(Reply::default())
    }

    fn stop_serving(&self, verb: &str, desk: &Arc<Desk>) {
        let mut served = self.served();
        let Some(servers) = served.get_mut(verb) else {
            return;
        };
        servers.sessions.retain(|other| !Arc::ptr_eq(other, desk));
        if servers.sessions.is_empty() {
            served.remove(verb);
            self.calls.stop_serving(verb);
        }
    }

    fn served(&self) -> MutexGuard<'_, BTreeMap<String, Servers>> {
        self.served.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn call(&self, desk: &Desk, call: blocks::Call, payload: Bytes, left: Duration) -> Reply {
        let (target, rule) = match &call.to {
            To::Word(Word::All) => (Target::All, Rule::Each),
            To::Word(Word::Any) => (Target::Any, Rule::First),
            To::Names(names) => match self.members(names) {
                Ok(members) => (Target::Members(members), Rule::Each),
                Err(failure) => return not_done(failure),
            },
        };
        let within = call.request.map(|number| desk.request(number, &self.name));
        let within = match within.transpose() {
            Ok(within) => within,
            Err(failure) => return not_done(failure),
        };
        let call = Call {
            target,
            verb: call.verb,
            payload,
            rule,
            deadline: left,
            within,
        };
        match self.call_when_heard(call).await {
            Ok(Replies { replies, failures }) => {
                let nobody = replies.is_empty();
                let mut reply = told(desk, replies, failures);
                if nobody {
                    let reason = "no member that was called answered: `failures` says why each";
                    reply.error = Some(of_all(&reply.failures, reason));
                }
                reply
            }
            Err(error) => {
                let failure = of_call(&error);
                let mut reply = match error {
                    CallsError::Failed(error) => told(desk, error.replies, error.failures),
                    CallsError::Refused(_) => Reply::default(),
                };
                reply.error = Some(failure);
                reply
            }
        }
    }

    /// Members tell a new member which verbs they serve, and its call to any of them waits for that. So does
    /// the call of a member that is between two memberships.
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

    async fn do_call(self, call: blocks::Call, payload: Bytes, mut operation: Operation) {
        let left = operation.time_left().unwrap_or(WITHIN.0);
        if left.is_zero() {
            let failure = operation.too_late();
            operation.reply(not_done(failure)).await;
            return;
        }
        let desk = operation.desk().clone();
        let done = operation
            .wait(Ran::Maybe, self.call(&desk, call, payload, left))
            .await;
        let mut reply = done.unwrap_or_else(not_done);
        if let Some(failure) = reply.error.as_mut()
            && failure.code == Code::Timeout
            && let Some(why) = operation.why_not_ready()
            && !failure.reason.contains(&why)
        {
            failure.reason = format!("not all that were called answered in the time: {why}");
        }
        operation.reply(reply).await;
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
                    let served = this.serve(&serve.verb, operation.desk());
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

/// What came of a call, by the members' names.
fn told(
    desk: &Desk,
    replies: Vec<(Incarnation, Bytes)>,
    failures: Vec<(Incarnation, antiphon::calls::Failure)>,
) -> Reply {
    let replies = replies.iter();
    let replies = replies.map(|(from, reply)| (desk.name(*from), Payload::from_bytes(reply)));
    let failures = failures.iter();
    let failures = failures.map(|(from, failure)| (desk.name(*from), of_member(failure)));
    Reply {
        replies: Some(replies.collect::<BTreeMap<_, _>>()),
        failures: failures.collect(),
        ..Reply::default()
    }
}
