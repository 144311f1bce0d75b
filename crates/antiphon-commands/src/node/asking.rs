//! What a node asks of its peers: from the queue to the reply.

use std::sync::Arc;
use std::time::Duration;

use antiphon::calls::{
    Call, Calls, CallsError, MAX_CALL_BYTES, Refusal, Replies as CallReplies, Rule, Target,
};
use antiphon::{Incarnation, Member, NodeView};
use antiphon_api::Payload;
use antiphon_api::blocks::{Code, Failure, Ran};
use bytes::Bytes;
use tokio::time::timeout;

use super::{ASK_AGAIN, CALL, GROUP, JOIN_WITHIN, MAX_LANES, Node, Peer, Task, VIEW_WITHIN, now_ms};
use crate::counts::{Counted, Side, failure};
use crate::envelope::{Asked, MAX_COMMAND_BYTES, Outcome, Signer, Way, signature};
use crate::lane::{Lane, Open};
use crate::list::Args;
use crate::ways::{Connections, Endpoint, Lost, MAX_DATAGRAM, source};

impl Node {
    /// Puts a command into a peer's queue; what comes of it is told when it is over.
    pub(crate) fn hand_over(
        self: &Arc<Self>,
        to: &str,
        task: Task,
        told: impl FnOnce(Result<Bytes, Failure>) + Send + 'static,
    ) {
        let (node, to) = (self.clone(), to.to_owned());
        if to == self.name && !self.has_stopped() {
            self.spawn(async move { told(node.ask_self(task).await) });
            return;
        }
        let refused = if self.has_stopped() {
            Some(format!("{} stops", self.name))
        } else {
            // Whatever names a program thinks of, there are lanes to members alone.
            (!self.is_member(&to)).then(|| self.no_member(&to))
        };
        if let Some(reason) = refused {
            let result = Err(failure(Code::Unavailable, Ran::No, reason));
            self.counts
                .count(Side::Asked, None, Some(&task.verb), Counted::Unavailable);
            return told(result);
        }
        let peer = self.peer(&to, task.way);
        match peer.lane.enter(weight(&task.args)) {
            Ok(waiting) => self.spawn(async move {
                let verb = task.verb.clone();
                // What it needs to ask is made when it runs, and not when it is handed over.
                let result = Box::pin(node.ask(&to, &peer, task, waiting)).await;
                node.count(Side::Asked, &to, &verb, &result);
                told(result.map(|reply| reply.unwrap_or_default()));
            }),
            Err(age) => {
                let reason = format!(
                    "the queue to {to} by {} is full, and its oldest command waits for {} ms: try again later, or another way",
                    task.way.word(),
                    age.as_millis()
                );
                let result = Err(failure(Code::Unavailable, Ran::No, reason));
                self.count(Side::Asked, &to, &task.verb, &result);
                told(result.map(|_: Option<Bytes>| Bytes::new()));
            }
        }
    }

    fn peer(&self, to: &str, way: Way) -> Arc<Peer> {
        let mut lanes = self.lanes();
        if lanes.len() >= MAX_LANES {
            let there = self.members();
            lanes.retain(|(name, _), peer| there.contains(name) || Arc::strong_count(peer) > 1);
        }
        let peer = lanes.entry((to.to_owned(), way)).or_insert_with(|| {
            Arc::new(Peer {
                lane: Arc::new(Lane::new(way)),
                connections: Connections::default(),
            })
        });
        peer.clone()
    }

    /// Asks one peer, and waits for what comes of it: none if no reply is wanted.
    async fn ask(
        &self,
        to: &str,
        peer: &Peer,
        task: Task,
        waiting: crate::lane::Waiting,
    ) -> Result<Option<Bytes>, Failure> {
        let unavailable = |reason: String| failure(Code::Unavailable, Ran::No, reason);
        let until = task.until;
        let late = |ran, what: &str| {
            let reason = format!("{to} {what} in the command's time: give it more, or see whether it lives");
            failure(Code::Timeout, ran, reason)
        };
        let place = tokio::time::timeout_at(until, peer.lane.places.clone().acquire_owned()).await;
        drop(waiting);
        // Places that are free because of a deadline are so at that of others, too.
        let is_over = tokio::time::Instant::now() >= until;
        let (Ok(Ok(_place)), false) = (place, is_over) else {
            peer.lane.count_late();
            return Err(late(Ran::No, "was not ready for it"));
        };
        let active = self.active();
        let allowed = active.list.allows(&self.name, to, &task.verb, &task.args);
        allowed.map_err(|refusal| self.refused(&active, &refusal))?;
        let mut member = None;
        let open = peer.lane.number(|| {
            member = self.member(to);
            Some((self.cluster.incarnation(), member.as_ref()?.incarnation))
        });
        let member = member.ok_or_else(|| unavailable(self.no_member(to)))?;
        let open = open.ok_or_else(|| {
            unavailable(format!(
                "a command to {to} is so far behind the others that no more can be numbered"
            ))
        })?;
        let within = until.saturating_duration_since(tokio::time::Instant::now());
        let asked = Asked {
            cluster: self.cluster_name.clone(),
            from: self.name.clone(),
            from_incarnation: open.between.0.to_string(),
            to: to.to_owned(),
            to_incarnation: member.incarnation.to_string(),
            way: task.way,
            number: open.number,
            sent_ms: now_ms(),
            within_ms: u64::try_from(within.as_millis()).unwrap_or(u64::MAX),
            reply: task.reply,
            list: active.list.version,
            verb: task.verb,
            args: task.args,
        };
        let signer = &active.signers[0];
        let envelope = signer.sign_command(&asked);
        let most = match task.way {
            Way::Library => MAX_CALL_BYTES,
            Way::Udp => MAX_DATAGRAM,
            _ => MAX_COMMAND_BYTES,
        };
        if envelope.len() > most {
            let reason = format!(
                "it has {} bytes with its signature, and by {} at most {most}: make it shorter, or take another way",
                envelope.len(),
                task.way.word()
            );
            return Err(failure(Code::Refused, Ran::No, reason));
        }
        let carried = tokio::select! {
            carried = self.carry(&member, peer, task.way, &envelope, task.reply, within) => carried,
            () = self.departed(member.incarnation) => {
                let reason = format!("{to} left the cluster, or was removed, before it answered");
                return Err(failure(Code::Unknown, Ran::Maybe, reason));
            }
            () = tokio::time::sleep_until(until) => return Err(late(Ran::Maybe, "did not answer")),
        };
        self.read_reply(to, signer, &envelope, carried, open)
    }

    fn read_reply(
        &self,
        to: &str,
        signer: &Signer,
        envelope: &[u8],
        carried: Result<Option<Bytes>, Lost>,
        _open: Open,
    ) -> Result<Option<Bytes>, Failure> {
        let unknown = |reason: String| failure(Code::Unknown, Ran::Maybe, reason);
        let reply = match carried {
            Ok(Some(reply)) => reply,
            Ok(None) => return Ok(None),
            Err(Lost::NotSent(reason)) => {
                let reason = format!("{to} cannot be reached: {reason}");
                return Err(failure(Code::Unavailable, Ran::No, reason));
            }
            Err(Lost::Sent(reason)) => return Err(unknown(format!("no answer of {to}: {reason}"))),
        };
        let answered = signer
            .read_reply(&reply)
            .ok()
            .filter(|answered| answered.of == signature(envelope));
        let answered =
            answered.ok_or_else(|| unknown(format!("the answer of {to} is not signed as it must be")))?;
        self.heard(to);
        match answered.outcome {
            Outcome::Done(Payload::File { .. } | Payload::Behind { .. }) => {
                Err(unknown(format!("the answer of {to} does not have what it says")))
            }
            Outcome::Done(payload) => payload.into_bytes().map(Some).map_err(unknown),
            Outcome::Failed(failure) => Err(failure),
            Outcome::Taken => Ok(None),
        }
    }

    /// Carries an envelope to a peer. Dropped, it waits for no answer any more.
    async fn carry(
        &self,
        member: &Member,
        peer: &Peer,
        way: Way,
        envelope: &Bytes,
        reply: bool,
        within: Duration,
    ) -> Result<Option<Bytes>, Lost> {
        let gate = || {
            let missing = || Lost::NotSent("it has no gate for commands (`--commands-listen`)".to_owned());
            Endpoint::of(member).ok_or_else(missing)
        };
        match way {
            // A call would wait for a majority until its time is over, and nobody could say whether it ran.
            Way::Library if !self.is_primary() => Err(Lost::NotSent(
                "the library's way needs a majority, and there is none: take another way".to_owned(),
            )),
            Way::Library => {
                let calls = self.calls(within).await?;
                self.call(&calls, member.incarnation, envelope.clone(), within)
                    .await
                    .map(Some)
            }
            Way::Udp => {
                let to = gate()?.addr;
                let from = self.member(&self.name).and_then(|us| source(&us, to));
                self.datagrams.ask(from, to, envelope, reply).await
            }
            Way::Https | Way::HttpsKept if !gate()?.tls => Err(Lost::NotSent(
                "its gate has no certificate, so it cannot be asked by HTTPS".to_owned(),
            )),
            _ => {
                let to = gate()?;
                let tls = self.tls.as_ref();
                peer.connections
                    .exchange(way, &to, tls, envelope.clone())
                    .await
                    .map(Some)
            }
        }
    }

    /// The group of the library's way, which a node joins when it starts.
    async fn calls(&self, within: Duration) -> Result<Calls, Lost> {
        let mut calls = self.calls.clone();
        let joined = timeout(within.min(JOIN_WITHIN), calls.wait_for(Option::is_some)).await;
        let missing = || Lost::NotSent(format!("this node is not in the group {GROUP} yet"));
        let joined = joined.map_err(|_| missing())?.map_err(|_| missing())?;
        joined.clone().ok_or_else(missing)
    }

    async fn call(
        &self,
        calls: &Calls,
        to: Incarnation,
        envelope: Bytes,
        within: Duration,
    ) -> Result<Bytes, Lost> {
        let call = Call {
            target: Target::Members(vec![to]),
            verb: CALL.to_owned(),
            payload: envelope,
            rule: Rule::Each,
            // The command's own time ends it first, and says so.
            deadline: within + Duration::from_secs(1),
            within: None,
        };
        let lost = |ran: antiphon::calls::Ran, reason: String| match ran {
            antiphon::calls::Ran::No => Lost::NotSent(reason),
            _ => Lost::Sent(reason),
        };
        // A peer that has just started comes into the group a moment after it is in the view.
        let begun = tokio::time::Instant::now();
        while !calls.members().iter().any(|member| member.incarnation == to)
            && begun.elapsed() < VIEW_WITHIN.min(within)
        {
            tokio::time::sleep(ASK_AGAIN).await;
        }
        match call_when_heard(calls, call).await {
            Ok(CallReplies {
                mut replies,
                failures,
            }) => match replies.pop() {
                Some((_, reply)) => Ok(reply),
                None => {
                    let failed = failures.into_iter().next();
                    let (_, failed) = failed.ok_or_else(|| Lost::Sent("nobody answered".to_owned()))?;
                    Err(lost(failed.ran(), format!("{failed:?}")))
                }
            },
            Err(CallsError::Failed(error)) => {
                // Of one member that was asked, its own failure says more.
                let ran = error
                    .failures
                    .first()
                    .map_or(error.ran, |(_, failed)| failed.ran());
                Err(lost(ran, error.to_string()))
            }
            Err(error) => Err(lost(error.ran(), error.to_string())),
        }
    }

    /// Returns when a start of a peer is not in the view any more. A node that is in no view itself does not
    /// know: it waits for the answer.
    async fn departed(&self, peer: Incarnation) {
        let mut view = self.view.clone();
        let is_there = |view: &Option<Arc<NodeView>>| view.as_ref().is_none_or(|view| view.contains(peer));
        if view.wait_for(|view| !is_there(view)).await.is_err() {
            // The node has ended: then its tasks do.
            std::future::pending::<()>().await;
        }
    }
}

/// Members tell a new one what they serve, and a call to any of them waits for that.
async fn call_when_heard(calls: &Calls, call: Call) -> Result<CallReplies, CallsError> {
    let begun = tokio::time::Instant::now();
    loop {
        let refused = match calls.call(call.clone()).await {
            Err(refused @ CallsError::Refused(Refusal::NotServed | Refusal::NotMember)) => refused,
            other => return other,
        };
        if begun.elapsed() >= VIEW_WITHIN.min(call.deadline) {
            return Err(refused);
        }
        tokio::time::sleep(ASK_AGAIN).await;
    }
}

/// About how many bytes the arguments of a command keep.
fn weight(args: &Args) -> usize {
    let of = |value: &crate::list::Value| match value {
        crate::list::Value::Text(text) => text.len(),
        _ => 8,
    };
    100 + args
        .iter()
        .map(|(name, value)| name.len() + of(value))
        .sum::<usize>()
}
