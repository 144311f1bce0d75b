//! What the group delivers.

use std::collections::BTreeSet;
use std::time::Duration;

use antiphon_core::wire::Incarnation;
use antiphon_core::{GroupView, Outcome, Parting, TellOutcome, Time};
use bytes::Bytes;

use super::caller::Taken;
use super::format::{self, Answer, Request, ToAll, Told};
use super::outputs::{Line, Word};
use super::server::Incoming;
use super::{CallId, Calls, Failure, MAX_CALL_BYTES, MAX_DEADLINE, MAX_VERB_BYTES, RequestId, Why};

impl Calls {
    /// The group has a new view.
    pub fn handle_view(&mut self, now: Time, view: &GroupView) {
        self.expire(now);
        let is_new = |member: &Incarnation| view.joined.contains(member);
        let goes = |member: &Incarnation| !view.members.contains(member) || is_new(member);
        let gone: Vec<_> = self.lines.keys().copied().filter(goes).collect();
        self.view.clone_from(&view.members);
        let mut touched = BTreeSet::new();
        for member in &gone {
            touched.extend(self.depart(*member, &parting(view, *member)));
        }
        // No call ends before all of them are known to be gone: it names each with its cause.
        for number in touched {
            self.settle(number);
        }
        for member in gone {
            let requests = self.server.gone(member);
            if !planted!(RunForTheDeparted) {
                self.cancel_requests(requests);
            }
        }
        self.server.forget(|caller| view.members.contains(&caller));
        for member in view.members.iter().filter(|member| **member != self.me) {
            let announce = !self.server.verbs().is_empty();
            self.lines.entry(*member).or_insert_with(|| Line::new(announce));
        }
        self.begin();
    }

    /// The group delivered a message to all. Also those of this member itself.
    pub fn handle_message(&mut self, now: Time, sender: Incarnation, payload: &Bytes) {
        self.expire(now);
        match format::decode(payload) {
            Some(ToAll::Request(request)) if is_possible(&request) => {
                self.take_to_all(now, sender, payload, request);
            }
            _ => self.ignore(sender, "a request to all"),
        }
        self.begin();
    }

    /// A member told this one something.
    pub fn handle_told(&mut self, now: Time, from: Incarnation, payload: &Bytes) {
        self.expire(now);
        if !self.lines.contains_key(&from) {
            return self.ignore(from, "a message of a member of the view");
        }
        match format::decode(payload) {
            Some(Told::Request(request)) if is_possible(&request) => {
                let id = self.request(from, request.number);
                if self.server.is_new(id) && !self.server.is_open(id) {
                    self.take_if_owed(now, id, incoming(now, payload, &request));
                } else {
                    self.ignore(from, "a request with a new number");
                }
            }
            Some(Told::Cancel { number, all }) => {
                let id = self.request(from, number);
                if self.server.is_open(id) {
                    self.cancel_requests(vec![id]);
                } else if all {
                    self.server.remember_cancel(id);
                }
            }
            Some(Told::Reply {
                number,
                load,
                micros,
                answer,
            }) => {
                let planted = planted!(MixUpReplies).then(|| self.caller.oldest_for(from));
                let number = planted.flatten().unwrap_or(number);
                let result = match answer {
                    Answer::Reply(bytes) => Ok(payload.slice_ref(bytes)),
                    Answer::Error(bytes) => Err(Failure::Error(payload.slice_ref(bytes))),
                    Answer::Busy => Err(Failure::Busy),
                    Answer::NoSuchVerb => Err(Failure::NoSuchVerb),
                    Answer::TooDeep => Err(Failure::TooDeep),
                    Answer::Lost => Err(Failure::ReplyLost),
                    Answer::GivenUp { may_have_run } => Err(Failure::GivenUp { may_have_run }),
                };
                let round_trip = match self.take_reply(now, number, from, result) {
                    Taken::After(waited) => Some(waited.saturating_sub(Duration::from_micros(micros))),
                    Taken::Late => None,
                    Taken::Nonsense => return self.ignore(from, "a reply to what it was asked"),
                };
                self.peers.answered(from, load, round_trip);
            }
            Some(Told::Serving { load, verbs }) => self.peers.serves(from, load, &verbs),
            _ => self.ignore(from, "a request, a cancellation, a reply or a list of verbs"),
        }
        self.begin();
    }

    /// What became of the request of a call to this member. It may come before or after the view without the
    /// member. To be handed in for each [`Output::Tell`](super::Output::Tell) that wants it.
    pub fn handle_tell_receipt(&mut self, now: Time, to: Incarnation, call: CallId, outcome: TellOutcome) {
        self.expire(now);
        self.caller.fate(call.0, to, outcome);
        self.settle(call.0);
    }

    /// What became of a call to all that the group did not deliver here: the primary was lost, or this member
    /// removed.
    pub fn handle_receipt(&mut self, now: Time, call: CallId, outcome: Outcome) {
        self.expire(now);
        if !planted!(WaitForTheUndelivered) {
            self.events.extend(self.caller.not_delivered(call.0, outcome));
        }
    }

    /// This member was removed, leaves, or is back as a fresh incarnation: calls end, handlers are
    /// cancelled, the next view is its first.
    pub fn handle_resync(&mut self, now: Time, me: Incarnation) {
        self.expire(now);
        for number in self.caller.all() {
            self.end(number, Why::MembershipEnded);
        }
        self.cancel_requests(self.server.all());
        self.caller.forget_sent();
        self.server.forget(|_| false);
        self.to_all.clear();
        self.lines.clear();
        self.peers.clear();
        self.view.clear();
        self.me = me;
    }

    /// A view is without this member, or it begins anew. Gives the calls that waited for it.
    fn depart(&mut self, member: Incarnation, parting: &Parting) -> Vec<u64> {
        if let Some(line) = self.lines.remove(&member) {
            for word in line.words {
                if let Word::Request(number) = word {
                    self.caller.dropped(number);
                }
            }
        }
        self.peers.gone(member);
        if planted!(self, WaitForTheDeparted) {
            return Vec::new();
        }
        self.caller.parted(member, parting)
    }

    fn take_to_all(&mut self, now: Time, sender: Incarnation, payload: &Bytes, request: Request<'_>) {
        let id = self.request(sender, request.number);
        if self.server.is_open(id) {
            return self.ignore(sender, "a request with a new number");
        }
        if sender != self.me {
            if !self.server.was_cancelled(id) {
                self.take_if_owed(now, id, incoming(now, payload, &request));
            }
            return;
        }
        if !self.caller.delivered(id.number, &self.view) {
            // Now it is known which members have it, or will.
            let number = id.number;
            for line in self.lines.values_mut() {
                line.words.push_back(Word::Cancel { number, all: true });
            }
            return;
        }
        self.take(now, id, incoming(now, payload, &request));
        self.settle(id.number);
    }

    /// Takes a request of another member, unless that does not read its replies.
    fn take_if_owed(&mut self, now: Time, id: RequestId, request: Incoming) {
        let unsent = self.lines.get(&id.from).map_or(0, Line::replies);
        if self.server.open_of(id.from) + unsent >= self.config.max_owed {
            self.dropped += 1;
            return;
        }
        self.take(now, id, request);
    }
}

fn is_possible(request: &Request<'_>) -> bool {
    request.number > 0 && request.verb.len() <= MAX_VERB_BYTES && request.payload.len() <= MAX_CALL_BYTES
}

fn incoming(now: Time, bytes: &Bytes, request: &Request<'_>) -> Incoming {
    let left = Duration::from_millis(request.millis).min(MAX_DEADLINE);
    Incoming {
        depth: request.depth,
        deadline: now + left,
        verb: request.verb.to_owned(),
        payload: bytes.slice_ref(request.payload),
    }
}

/// Why a member of the view before is not in this one.
fn parting(view: &GroupView, member: Incarnation) -> Parting {
    match view.causes.iter().find(|(removed, _)| *removed == member) {
        Some((_, cause)) => Parting::Removed(cause.clone()),
        None if view.left.contains(&member) => Parting::Left,
        None => Parting::Crashed,
    }
}
