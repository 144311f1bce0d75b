//! When a node without a view has heard enough to take part in a founding.
//!
//! ```text
//!   started ── Seek ──► all asked nodes have answered, or are not there ──► votes, and may found at once
//!                  └──► some have not, or sources may name others ── a while ──► the same
//!   asked for a vote before that: the question is kept, and answered then
//! ```
//! Silence of a node says nothing before the node had the time to answer. A node that has just been started
//! may have voted in its last life, for a cluster that is there. A member's word must reach it before it
//! votes again.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use antiphon_wire::Incarnation;
use antiphon_wire::membership::SlotMessage;

use crate::Time;
use crate::membership::context::Context;
use crate::membership::seek::founding::Candidate;
use crate::membership::seek::founding::is_candidate;
use crate::membership::seek::{MAX_CANDIDATES, Seeking, founding};

impl Seeking {
    /// Whether this node gives no vote yet, because the nodes that it asks have had no time to answer. A
    /// proposer waits for them anyway. Otherwise a seed that was started again after it had voted may vote a
    /// second time, for a proposer that has not heard of the cluster either, before a member can tell it.
    pub(crate) fn is_unsure(&self, cx: &Context, now: Time) -> bool {
        self.is_new(cx, now) && !self.accounted(cx, now)
    }

    /// A message of the founding slot: a vote, or a question for one.
    pub(crate) fn hear_founder(
        &mut self,
        cx: &mut Context,
        now: Time,
        sender: Incarnation,
        message: SlotMessage,
    ) {
        // A promise and an acceptance are votes. And to choose or decide a value here would be against what
        // this node knows.
        if self.abstains(cx, now) {
            return self.unanswered.clear();
        }
        let mut known = self.candidates.values();
        let candidate = known.find(|candidate| candidate.incarnation == sender);
        let Some(addr) = candidate.map(|candidate| candidate.record.addr) else {
            return;
        };
        if self.is_unsure(cx, now) {
            // If the question were dropped, it would come again only a while later. There are at most as many
            // senders as there are and were candidates.
            let room = self.unanswered.len() < MAX_CANDIDATES || self.unanswered.contains_key(&sender);
            let asks = matches!(message, SlotMessage::Prepare { .. } | SlotMessage::Accept { .. });
            if asks && room {
                self.unanswered.insert(sender, message);
            }
            return;
        }
        self.unanswered.remove(&sender);
        let fresh = self.fresh(cx);
        if let Some(founding) = &mut self.founding {
            founding.handle(cx, now, &self.candidates, fresh, (sender, addr), message);
        }
        self.tell_clash(cx, now);
    }

    /// A node that was asked for a vote before it could give one answers as soon as it can.
    pub(crate) fn answer_late(&mut self, cx: &mut Context, now: Time) {
        if self.unanswered.is_empty() || self.is_unsure(cx, now) {
            return;
        }
        for (sender, message) in std::mem::take(&mut self.unanswered) {
            self.hear_founder(cx, now, sender, message);
        }
    }

    /// Whether this node need not wait for any other. Where sources may name others, it says nothing in the
    /// beginning that all named nodes are there. Two nodes that are started again beside a member, and find
    /// each other by multicast, know each other within a millisecond, and the member's word takes a quarter
    /// of a second.
    pub(crate) fn accounted(&self, cx: &Context, now: Time) -> bool {
        let fresh = self.fresh(cx);
        let may_grow = cx.contacts.may_grow() && !planted!(TrustTheFirstNamed);
        !(may_grow && self.is_new(cx, now)) && all_accounted(cx, now, &self.candidates, fresh)
    }

    /// Whether it has asked, since it had looked at all sources, for less time than members may take to
    /// answer.
    fn is_new(&self, cx: &Context, now: Time) -> bool {
        let Some(since) = self.since else {
            return true;
        };
        let asks_since = cx.contacts.heard_all().map_or(since, |heard| heard.max(since));
        now.since(asks_since) < founding::wait(&cx.config.profile)
    }
}

/// Whether each node that is asked is a candidate or is not there, and each locator has answered or is not
/// there.
fn all_accounted(
    cx: &Context,
    now: Time,
    candidates: &BTreeMap<SocketAddr, Candidate>,
    fresh: Duration,
) -> bool {
    let mut asked = cx.contacts.asked();
    asked.extend(founding::seeds_of(&cx.config));
    let heard = |addr: &SocketAddr| is_candidate(cx, now, candidates, fresh, addr);
    cx.contacts.all_accounted(now, &cx.config.profile, asked, heard)
}
