//! What a node does for its peers: from the envelope to the signed reply.

use std::collections::HashSet;
use std::net::IpAddr;
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use antiphon::calls::MAX_CALL_BYTES;
use antiphon::{Member, NodeView};
use antiphon_api::Payload;
use antiphon_api::blocks::{Code, Failure, Ran};
use bytes::Bytes;
use tokio::time::timeout;

use super::{Active, LEAVE_AFTER, Node, Served, Task, VIEW_WITHIN, now_ms};
use crate::counts::{Counted, Side, failure};
use crate::deliver::{Request, post, run};
use crate::envelope::{Answered, Asked, MAX_SIGNED_REPLY_BYTES, Outcome, Signer, Unreadable, Way, signature};
use crate::list::{Args, Deliver, MAX_WITHIN, NodeVerb, Verb};
use crate::ways::{MAX_DATAGRAM, addresses, is_of};

impl Node {
    /// What this node is asked by itself: by its list, and no way.
    pub(super) async fn ask_self(&self, mut task: Task) -> Result<Bytes, Failure> {
        let active = self.active();
        let checked = active
            .list
            .check(&self.name, &self.name, &task.verb, &mut task.args);
        let verb = checked.map_err(|refusal| self.refused(&active, &refusal))?;
        let left = task.until.saturating_duration_since(tokio::time::Instant::now());
        let result = self.carry_out(&verb, &self.name, task.args, left).await;
        let counted = result.clone().map(Some);
        self.count(Side::Served, &self.name, &task.verb, &counted);
        result
    }

    /// Serves an envelope that came by one of these ways, by UDP from this address.
    pub(crate) async fn serve(
        self: &Arc<Self>,
        envelope: &[u8],
        ways: &[Way],
        from: Option<IpAddr>,
    ) -> Served {
        // Its number is not taken, so nothing can be said of it.
        if self.has_stopped() {
            return Served::Seen;
        }
        let active = self.active();
        let forged = || {
            self.counts.count(Side::Served, None, None, Counted::Forged);
            Served::Forged
        };
        let mut read = Err(Unreadable::Forged);
        let mut opened = &active.signers[0];
        for signer in &active.signers {
            read = signer.read_command(envelope);
            opened = signer;
            if !matches!(read, Err(Unreadable::Forged)) {
                break;
            }
        }
        let Ok(asked) = read else { return forged() };
        if asked.cluster != self.cluster_name || asked.to != self.name || !ways.contains(&asked.way) {
            return forged();
        }
        match self.take(&asked) {
            Taken::Fresh => {}
            Taken::OfAnother => return forged(),
            Taken::Seen => {
                self.counts
                    .count(Side::Served, Some(&asked.from), None, Counted::Replayed);
                return Served::Seen;
            }
        }
        // From here on its number is taken, so whatever is answered is the only answer to it.
        let result = self.admit(&active, &asked, from).await;
        let result = match result {
            Ok(None) => {
                self.counts
                    .count(Side::Served, Some(&asked.from), None, Counted::Forged);
                return Served::Seen;
            }
            Ok(Some((verb, args, left))) => {
                let (node, by) = (self.clone(), asked.from.clone());
                // The peer may go: what it has begun is done.
                let (tell, told) = tokio::sync::oneshot::channel();
                self.spawn(async move {
                    let result = node.carry_out(&verb, &by, args, left).await;
                    node.count(Side::Served, &by, &verb.name, &result.clone().map(Some));
                    let _ = tell.send(result);
                });
                if !asked.reply {
                    return self.answer(&active, opened, envelope, &asked, Outcome::Taken);
                }
                told.await.unwrap_or_else(|_| {
                    Err(failure(
                        Code::Unknown,
                        Ran::Maybe,
                        "the node stops before it is done",
                    ))
                })
            }
            Err(failed) => {
                let known = active.list.verb(&asked.verb).is_ok();
                let verb = known.then_some(asked.verb.as_str());
                self.counts
                    .count(Side::Served, Some(&asked.from), verb, Counted::of(failed.code));
                Err(failed)
            }
        };
        let outcome = match result {
            Ok(reply) => Outcome::Done(Payload::from_bytes(&reply)),
            Err(failed) => Outcome::Failed(failed),
        };
        self.answer(&active, opened, envelope, &asked, outcome)
    }

    fn answer(
        &self,
        active: &Active,
        signer: &Signer,
        envelope: &[u8],
        asked: &Asked,
        outcome: Outcome,
    ) -> Served {
        let mut answered = Answered {
            of: signature(envelope).to_owned(),
            list: active.list.version,
            outcome,
        };
        let signed = signer.sign_reply(&answered);
        let most = match asked.way {
            Way::Library => MAX_CALL_BYTES,
            Way::Udp => MAX_DATAGRAM,
            _ => MAX_SIGNED_REPLY_BYTES,
        };
        if signed.len() <= most {
            return Served::Reply(signed);
        }
        let ran = match &answered.outcome {
            Outcome::Failed(failed) => failed.ran,
            _ => Ran::Yes,
        };
        let reason = format!(
            "its reply has {} bytes with its signature, and by {} at most {most}: take another way",
            signed.len(),
            asked.way.word()
        );
        answered.outcome = Outcome::Failed(failure(Code::Failed, ran, reason));
        Served::Reply(signer.sign_reply(&answered))
    }

    /// Takes the number of a command that is signed as it must be.
    fn take(&self, asked: &Asked) -> Taken {
        let mut windows = self.windows.lock().unwrap_or_else(PoisonError::into_inner);
        let us = self.cluster.incarnation();
        if asked.to_incarnation != us.to_string() {
            return Taken::OfAnother;
        }
        let there = || -> HashSet<String> {
            let view = self.view.borrow();
            let members = view.iter().flat_map(|view| &view.members);
            members.map(|member| member.incarnation.to_string()).collect()
        };
        let from = (asked.from_incarnation.clone(), asked.way);
        match windows.take(us, from, asked.number, Instant::now(), there) {
            true => Taken::Fresh,
            false => Taken::Seen,
        }
    }

    /// Whether a command may run: the verb, its arguments, and how much time it has. None: no answer at all.
    async fn admit(
        &self,
        active: &Active,
        asked: &Asked,
        from: Option<IpAddr>,
    ) -> Result<Option<(Arc<Verb>, Args, Duration)>, Failure> {
        // First of all: a datagram from elsewhere is not even told that it is late.
        let member = self.sender(asked).await;
        if let Some(seen) = from
            && member.as_ref().is_none_or(|member| !is_of(member, seen))
        {
            let known: Vec<_> = member.iter().flat_map(addresses).collect();
            tracing::debug!(
                target: "antiphon::commands", from = %asked.from, %seen, ?known,
                "a command came by UDP from an address that its sender does not have"
            );
            return Ok(None);
        }
        if member.is_none() {
            let reason = format!("{} is no member in the view of {}", asked.from, self.name);
            return Err(failure(Code::Unavailable, Ran::No, reason));
        }
        // No command has more time, whatever it says: the windows forget one that is so old.
        let within = Duration::from_millis(asked.within_ms).min(MAX_WITHIN);
        let millis = |time: Duration| i128::try_from(time.as_millis()).unwrap_or_default();
        let (now, skew_ms) = (now_ms(), millis(active.list.clock_skew));
        let elapsed = i128::from(now) - i128::from(asked.sent_ms);
        let left = millis(within) + skew_ms - elapsed;
        if elapsed < -skew_ms || left <= 0 {
            let reason = format!(
                "it was sent at {} ms by the clock of {} and came at {now} ms by that of {}: it is late, or the clocks differ by more than {skew_ms} ms",
                asked.sent_ms, asked.from, self.name
            );
            return Err(failure(Code::Refused, Ran::No, reason));
        }
        self.heard(&asked.from);
        let mut args = asked.args.clone();
        let checked = active.list.check(&asked.from, &self.name, &asked.verb, &mut args);
        let verb = checked.map_err(|refusal| self.refused(active, &refusal))?;
        let left = Duration::from_millis(u64::try_from(left).unwrap_or_default());
        let left = left.min(within).min(verb.within);
        Ok(Some((verb, args, left)))
    }

    /// The member that sent a command. It may have joined a moment ago, in a view that comes here next.
    async fn sender(&self, asked: &Asked) -> Option<Member> {
        let find = |view: &Option<Arc<NodeView>>| {
            let members = &view.as_ref()?.members;
            let is = |member: &&Member| {
                member.name == asked.from && member.incarnation.to_string() == asked.from_incarnation
            };
            members.iter().find(is).cloned()
        };
        let mut view = self.view.clone();
        let seen = timeout(VIEW_WITHIN, view.wait_for(|view| find(view).is_some())).await;
        seen.ok()?.ok().and_then(|view| find(&view))
    }

    /// Does what a command says, unless there is no place for it.
    async fn carry_out(
        &self,
        verb: &Arc<Verb>,
        from: &str,
        args: Args,
        left: Duration,
    ) -> Result<Bytes, Failure> {
        if verb.primary && !self.is_primary() {
            let reason = format!("{} is in no primary view, which {} needs", self.name, verb.name);
            return Err(failure(Code::Unavailable, Ran::No, reason));
        }
        if let Deliver::Node(does) = verb.deliver {
            return Ok(self.node_does(does));
        }
        let _place = self.running.place(verb, from)?;
        let most = verb.max_reply_bytes as usize;
        let request = Request {
            verb: verb.name.clone(),
            from: from.to_owned(),
            args,
            time_left: left,
            max_reply_bytes: most,
        };
        let done = async {
            match &verb.deliver {
                Deliver::Session => self.handlers.deliver(request).await,
                Deliver::Hook(hook) => post(hook, &request, most).await,
                Deliver::Program(words) => run(words, verb, &request).await,
                Deliver::Node(_) => unreachable!("done above"),
            }
        };
        let reply = timeout(left, done).await.unwrap_or_else(|_| {
            let reason = format!("{} was not done within {} ms", verb.name, left.as_millis());
            Err(failure(Code::Timeout, Ran::Maybe, reason))
        })?;
        match reply.len() <= most {
            true => Ok(reply),
            false => Err(failure(
                Code::Failed,
                Ran::Yes,
                format!("its reply has more than {most} bytes"),
            )),
        }
    }

    fn node_does(&self, does: NodeVerb) -> Bytes {
        let json = match does {
            NodeVerb::Members => serde_json::json!({ "members": self.members() }),
            NodeVerb::Status => serde_json::to_value(self.status()).unwrap_or_default(),
            NodeVerb::Leave => {
                let leave = self.leave.clone();
                self.spawn(async move {
                    tokio::time::sleep(LEAVE_AFTER).await;
                    leave.send_replace(true);
                });
                serde_json::json!({ "leaves": self.name })
            }
        };
        Bytes::from(json.to_string())
    }
}

enum Taken {
    Fresh,
    Seen,
    OfAnother,
}
