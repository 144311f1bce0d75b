//! Requests to members of a group, and their answers: to one, several, any one, or all of them.
//!
//! ```text
//!  caller                                                          server
//!  call ─► queued ─► sent ─► delivered ── Request ──► queued ─► running ─► answered
//!            │         │         │                       │          │          │
//!  Ended ◄───┴─────────┴─────────┴── Reply ──────────────┼──────────┼──────────┘
//!            deadline, cancel, departure ── Cancel ──────┴──────────┴─► Cancelled
//! ```
//! A request to named members is a direct message to each; a request to all is one message to the group, in
//! any order that the group has. Replies are direct messages. [`Calls`] is one member's part of both sides,
//! without I/O and without a clock: `caller` has its calls, `server` the requests of others, `peers`
//! what is known about other members.
//!
//! # Messages
//! | message | from | to | says |
//! |---|---|---|---|
//! | `Request` | caller | one member, or the group | number, depth, milliseconds left, verb, payload |
//! | `Cancel` | caller | one member | the answer is not wanted any more |
//! | `Reply` | server | caller | the answer, its load, how long it took |
//! | `Serving` | server | each member | all verbs that it serves; to new members, and when that changes |
//!
//! # What holds
//! - **A handler runs at most once for a call.** Nothing is ever sent again here: the group delivers what it
//!   takes once (G9, G44). A server refuses a number of a caller that does not rise.
//! - **Each call ends once**: when its rule holds or cannot hold any more, at its deadline, when it is
//!   cancelled, or with the membership.
//! - **A departure ends at once what waits for that member**, with its cause: with the view without it, and
//!   the receipt of the request that comes with that view. What such a member had answered before counts.
//! - **A failure says whether the handler ran** ([`Failure::ran`]). It did not: the request was not sent, or
//!   not delivered, or the server refused it. It may have: the request was delivered, or nobody can say.
//! - **A call to all asks the members of the view in which it is delivered.** All members deliver it in the
//!   same view, so this is known at its delivery here, also if the sender's view was another one.
//! - **A rule says when the caller goes on, not what runs.** A call that ended by its rule goes on to be sent
//!   and to run. A call that was cancelled or met its deadline is taken out of the queue, and the members
//!   that may have it are told.
//! - **The deadline travels as the time that is left**, so clocks need not agree. A server counts from its
//!   delivery, and so never cancels before the caller.
//!
//! # Bounds
//! Servers never stop reading: a request that finds no place and no room in the queue is answered `Busy` at
//! once. So replies and cancellations are never behind something that waits for a handler. Calls that have
//! not ended are bounded at the caller. A server keeps no more for one caller than [`Config::max_owed`]
//! requests and [`Config::max_reply_bytes`] of replies.
//!
//! # Calls within handlers
//! A handler of A calls B, whose handler calls A, while all places of A are taken by such handlers: if the
//! last call waited for a place, all would wait for each other. So a call names the request that it is made
//! within, and has its depth plus 1. Every bound that a request could wait for exists once for each depth:
//! places, queue, calls under way. A request then waits for handlers of its own depth alone; these wait for
//! greater depths alone; and a handler at [`Config::max_depth`] may not call. So no circle of waiting exists,
//! and as long as handlers themselves end, all do. At most `max_depth + 1` times `max_running` handlers run.
//!
//! A call within a request has no later deadline than that request, and is cancelled with it.
//!
//! # Who dies when
//! | who | when | then |
//! |---|---|---|
//! | the caller | before a request is delivered | nobody has it, or some members of a call to all |
//! | the caller | later | the view without it cancels the request at its servers |
//! | a server | before the request is sent | not delivered: did not run |
//! | a server | sent | its receipt says: not delivered, or may have run |
//! | a server | running | may have run |
//! | what runs the handler, at a server that lives | before it has the request, or later | did not run, or may have run |
//! | a server | it has told its reply | the reply comes before the view; or it is lost with the server: may have run |
//! | a server of a call to all | before that is delivered here | it is not asked |
//! | the primary is lost | any time | calls wait for its return, their deadlines, or the end of the membership |
//! | this member is removed, leaves, or comes back | any time | its calls end, and its handlers are cancelled |

/// Whether this mistake was planted here: never, except in the simulator and, those that name the calls, in
/// tests of this crate.
macro_rules! planted {
    ($mistake:ident) => {{
        #[cfg(feature = "planted")]
        let planted = antiphon_core::planted::is(antiphon_core::planted::Bug::$mistake);
        #[cfg(not(feature = "planted"))]
        let planted = false;
        planted
    }};
    ($calls:expr, $mistake:ident) => {{
        #[cfg(test)]
        let planted = $calls.planted == Some($crate::calls::tests::Planted::$mistake);
        #[cfg(not(test))]
        let planted = planted!($mistake);
        planted
    }};
}

mod caller;
mod config;
mod event;
mod format;
mod inputs;
mod outputs;
mod peers;
mod server;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use antiphon_core::Time;
use antiphon_core::wire::Incarnation;
use bytes::Bytes;

pub use self::config::{Config, MAX_CALL_BYTES, MAX_DEADLINE, MAX_VERB_BYTES, MAX_VERBS};
pub use self::event::{
    AnswerError, Call, CallError, CallId, Event, Failure, Output, Ran, Refusal, Replies, RequestId, Rule,
    Target, Why,
};

use self::caller::{Caller, New};
use self::outputs::{Line, Word};
use self::peers::Peers;
use self::server::{Incoming, Not, Server};

/// One member's calls and the requests that it serves.
///
/// The owner hands in what the group delivers, in its order, with the present time, which never goes back.
/// After each batch of inputs it calls [`outputs`](Self::outputs) and takes [`events`](Self::poll_event); the
/// same when the group below has room again. It calls [`handle_timeout`](Self::handle_timeout) when
/// [`poll_timeout`](Self::poll_timeout) says so. While the primary is lost nothing else is needed: the group
/// takes nothing, and deadlines pass.
pub struct Calls {
    me: Incarnation,
    config: Config,
    /// By seniority.
    view: Vec<Incarnation>,
    caller: Caller,
    server: Server,
    peers: Peers,
    /// Calls to all that are to be sent.
    to_all: VecDeque<u64>,
    /// What each other member of the view is to be told.
    lines: BTreeMap<Incarnation, Line>,
    events: VecDeque<Event>,
    malformed: u64,
    dropped: u64,
    #[cfg(test)]
    planted: Option<tests::Planted>,
}

impl Calls {
    /// The calls of the member `me`, before its first view.
    ///
    /// They are numbered from the present time on, in microseconds: who leaves a group and joins it again may
    /// still be told the answer to an earlier call, and no later one may have its number.
    pub fn new(me: Incarnation, now: Time, config: Config) -> Self {
        let begun = if planted!(BeginNumbersAgain) {
            0
        } else {
            now.as_micros()
        };
        Self {
            me,
            config,
            view: Vec::new(),
            caller: Caller::new(begun),
            server: Server::new(),
            peers: Peers::default(),
            to_all: VecDeque::new(),
            lines: BTreeMap::new(),
            events: VecDeque::new(),
            malformed: 0,
            dropped: 0,
            #[cfg(test)]
            planted: None,
        }
    }

    /// From here on requests for this verb come as [`Event::Request`].
    ///
    /// # Errors
    /// [`Refusal::VerbTooLong`], [`Refusal::TooManyVerbs`].
    pub fn serve(&mut self, verb: &str) -> Result<(), Refusal> {
        if verb.len() > MAX_VERB_BYTES {
            return Err(Refusal::VERB_TOO_LONG);
        }
        if self.server.serve(verb)? {
            self.lines.values_mut().for_each(|line| line.announce = true);
        }
        Ok(())
    }

    /// No request for this verb begins from here on. What runs, runs on.
    pub fn stop_serving(&mut self, now: Time, verb: &str) {
        self.expire(now);
        let Some(refused) = self.server.stop_serving(verb) else {
            return;
        };
        self.lines.values_mut().for_each(|line| line.announce = true);
        for (id, finished) in refused {
            self.reply(now, id, finished.received, Err(Failure::NoSuchVerb));
        }
        self.begin();
    }

    /// Asks members. What becomes of it comes as [`Event::Ended`].
    ///
    /// # Errors
    /// The call was not taken, and nothing happened. [`Refusal::NotServed`] also if the member that serves
    /// the verb has not told this one yet.
    pub fn call(&mut self, now: Time, call: Call) -> Result<CallId, Refusal> {
        self.expire(now);
        let (depth, latest) = self.check(&call)?;
        let members = self.members(&call)?;
        let deadline = now + call.deadline;
        let new = New {
            depth,
            deadline: latest.map_or(deadline, |latest| latest.min(deadline)),
            within: call.within,
            verb: call.verb.clone(),
            payload: call.payload.clone(),
            rule: call.rule,
        };
        let deadline = new.deadline;
        let number = self.caller.open(now, new, members.as_ref(), self.me);
        match members {
            None => self.to_all.push_back(number),
            Some(members) => {
                for member in &members {
                    // This member itself has no line.
                    self.say(*member, Word::Request(number));
                }
                if members.contains(&self.me) {
                    let request = Incoming {
                        depth,
                        deadline,
                        verb: call.verb,
                        payload: call.payload,
                    };
                    self.take(now, self.request(self.me, number), request);
                }
            }
        }
        self.begin();
        Ok(CallId(number))
    }

    /// Ends a call, if it has not ended. The members that may have it are told.
    pub fn cancel(&mut self, now: Time, call: CallId) {
        self.expire(now);
        if self.caller.is_pending(call.0) {
            self.end(call.0, Why::Cancelled);
        }
        self.begin();
    }

    /// Answers a request: with a reply, or with the application's error.
    ///
    /// # Errors
    /// [`AnswerError`]; after `TooLarge` the request still waits for an answer.
    pub fn answer(
        &mut self,
        now: Time,
        request: RequestId,
        answer: Result<Bytes, Bytes>,
    ) -> Result<(), AnswerError> {
        self.expire(now);
        let (Ok(payload) | Err(payload)) = &answer;
        if payload.len() > MAX_CALL_BYTES {
            let limit = MAX_CALL_BYTES;
            return Err(AnswerError::TooLarge { limit });
        }
        self.finish(now, request, answer.map_err(Failure::Error))
    }

    /// What was to run a request has gone, and there will be no answer. The caller is told so, and whether
    /// the request may have run.
    ///
    /// # Errors
    /// [`AnswerError::RequestOver`].
    pub fn give_up(&mut self, now: Time, request: RequestId, may_have_run: bool) -> Result<(), AnswerError> {
        self.expire(now);
        let may_have_run = may_have_run && !planted!(DenyThatItBegan);
        self.finish(now, request, Err(Failure::GivenUp { may_have_run }))
    }

    fn finish(
        &mut self,
        now: Time,
        request: RequestId,
        result: Result<Bytes, Failure>,
    ) -> Result<(), AnswerError> {
        let finished = self.server.finish(request).ok_or(AnswerError::RequestOver)?;
        self.reply(now, request, finished.received, result);
        self.begin();
        Ok(())
    }

    /// Time has come to [`poll_timeout`](Self::poll_timeout).
    pub fn handle_timeout(&mut self, now: Time) {
        self.expire(now);
        self.begin();
    }

    /// When to call [`handle_timeout`](Self::handle_timeout).
    pub fn poll_timeout(&self) -> Option<Time> {
        let of_calls = self.caller.next_deadline();
        let of_calls = of_calls.filter(|_| !planted!(self, WaitPastItsTime));
        let of_requests = self.server.next_deadline();
        let of_requests = of_requests.filter(|_| !planted!(RunPastItsTime));
        of_calls.into_iter().chain(of_requests).min()
    }

    /// The next event.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// Requests that are running or waiting here.
    pub fn load(&self) -> u32 {
        self.server.load()
    }

    /// Messages of peers that were ignored because they made no sense.
    pub fn malformed(&self) -> u64 {
        self.malformed
    }

    /// Requests that were dropped because their caller does not read its replies ([`Config::max_owed`]).
    pub fn dropped(&self) -> u64 {
        self.dropped
    }

    /// Depth of the call, and the last moment that it may take.
    fn check(&self, call: &Call) -> Result<(u8, Option<Time>), Refusal> {
        if self.view.is_empty() {
            return Err(Refusal::NotMember);
        }
        if call.verb.len() > MAX_VERB_BYTES {
            return Err(Refusal::VERB_TOO_LONG);
        }
        if call.payload.len() > MAX_CALL_BYTES {
            return Err(Refusal::TOO_LARGE);
        }
        if call.deadline > MAX_DEADLINE {
            return Err(Refusal::DeadlineTooLong);
        }
        let (depth, latest) = match call.within {
            None => (0, None),
            Some(request) => {
                let (depth, latest) = self.server.running(request).ok_or(Refusal::RequestOver)?;
                // Where depths are counted in vain, nothing is too deep.
                (depth.saturating_add(1), Some(latest))
            }
        };
        if depth > self.config.max_depth {
            return Err(Refusal::TooDeep);
        }
        let depth = if planted!(self, NoDepths) { 0 } else { depth };
        let bytes = self.caller.unsent_bytes() + call.payload.len();
        if self.caller.in_flight(depth) >= self.config.max_in_flight || bytes > self.config.max_unsent_bytes {
            return Err(Refusal::Full);
        }
        Ok((depth, latest))
    }

    /// The members that are asked; `None`: all.
    fn members(&self, call: &Call) -> Result<Option<BTreeSet<Incarnation>>, Refusal> {
        let members: BTreeSet<_> = match &call.target {
            Target::Member(member) => BTreeSet::from([*member]),
            Target::Members(members) => members.iter().copied().collect(),
            Target::Any => BTreeSet::from([self.any(&call.verb)?]),
            Target::All => {
                let possible = call.rule != Rule::Count(0);
                return possible.then_some(None).ok_or(Refusal::Impossible);
            }
        };
        if let Some(stranger) = members.iter().find(|member| !self.view.contains(member)) {
            return Err(Refusal::NoSuchMember(*stranger));
        }
        let possible = match call.rule {
            Rule::Count(count) => (1..=members.len()).contains(&count),
            Rule::First | Rule::Majority | Rule::All | Rule::Each => !members.is_empty(),
        };
        possible.then_some(Some(members)).ok_or(Refusal::Impossible)
    }

    /// The member that is asked if any one may be.
    fn any(&self, verb: &str) -> Result<Incarnation, Refusal> {
        let waiting = self.caller.waiting_for();
        let cost = |member: Incarnation| {
            if member == self.me {
                return (self.server.load(), Duration::ZERO);
            }
            let (told, distance) = self.peers.cost(member);
            // Its word is old: it has at least what this member waits for.
            let mine = waiting.get(&member).copied().unwrap_or(0);
            (told.max(mine), distance)
        };
        let serves = |member: &Incarnation| match *member {
            me if me == self.me => self.server.verbs().contains(verb),
            member => self.peers.does_serve(member, verb),
        };
        let servers = self.view.iter().copied().filter(serves);
        // By rank where the rest is equal.
        servers
            .min_by_key(|member| cost(*member))
            .ok_or(Refusal::NotServed)
    }

    fn request(&self, from: Incarnation, number: u64) -> RequestId {
        RequestId { from, number }
    }

    /// A request has come, from here or from another member.
    fn take(&mut self, now: Time, id: RequestId, request: Incoming) {
        if let Err(not) = self.server.take(now, &self.config, id, request) {
            let failure = match not {
                Not::Busy if planted!(DropInSilence) => return,
                Not::Busy => Failure::Busy,
                Not::NoSuchVerb => Failure::NoSuchVerb,
                Not::TooDeep => Failure::TooDeep,
            };
            self.reply(now, id, now, Err(failure));
        }
    }

    /// Handlers that have a place begin.
    fn begin(&mut self) {
        let events = &mut self.events;
        self.server.begin(&self.config, |event| events.push_back(event));
    }

    /// Answers a request that is not open any more.
    fn reply(&mut self, now: Time, id: RequestId, received: Time, result: Result<Bytes, Failure>) {
        let took = now.since(received);
        if id.from == self.me {
            self.take_reply(now, id.number, self.me, result);
            return;
        }
        let max_reply_bytes = self.config.max_reply_bytes;
        if let Some(line) = self.lines.get_mut(&id.from) {
            line.reply(id.number, took, result, max_reply_bytes);
        }
    }

    /// An answer has come, from here or from another member.
    fn take_reply(
        &mut self,
        now: Time,
        number: u64,
        from: Incarnation,
        result: Result<Bytes, Failure>,
    ) -> caller::Taken {
        let taken = self.caller.reply(now, number, from, result);
        self.settle(number);
        taken
    }

    /// Ends the call if its rule holds, or cannot hold any more.
    fn settle(&mut self, number: u64) {
        self.events.extend(self.caller.settle(number));
    }

    /// What is due at this time happens before anything else does at it.
    fn expire(&mut self, now: Time) {
        for number in self.caller.expired(now) {
            if !planted!(self, WaitPastItsTime) {
                self.end(number, Why::Deadline);
            }
        }
        for id in self.server.expired(now) {
            if !planted!(RunPastItsTime) {
                self.cancel_requests(vec![id]);
            }
        }
    }

    /// Ends a call before its rule does.
    fn end(&mut self, number: u64, why: Why) {
        let own = self.end_call(number, why);
        self.cancel_requests(own.into_iter().collect());
    }

    /// Gives the request of the call at this member itself.
    fn end_call(&mut self, number: u64, why: Why) -> Option<RequestId> {
        let (event, leftover) = self.caller.end(number, why)?;
        let Some(event) = event else {
            // The rest that was still to be sent of it is not sent any more.
            self.lines.values_mut().for_each(|line| line.forget(number));
            return None;
        };
        #[cfg(test)]
        let event = tests::planted_event(self.planted, event);
        self.events.push_back(event);
        if leftover.unsent_to_all {
            self.to_all.retain(|other| *other != number);
        }
        for member in leftover.queued {
            if let Some(line) = self.lines.get_mut(&member) {
                line.forget(number);
            }
        }
        let mut own = None;
        for member in leftover.running {
            if member == self.me {
                own = Some(self.request(member, number));
            } else if why != Why::MembershipEnded && !planted!(self, CancelInSilence) {
                let all = leftover.to_all;
                self.say(member, Word::Cancel { number, all });
            }
        }
        own
    }

    /// The handlers of these requests are to stop, and with them the calls that were made within.
    fn cancel_requests(&mut self, mut requests: Vec<RequestId>) {
        while let Some(request) = requests.pop() {
            if self.server.cancel(request) {
                self.events.push_back(Event::Cancelled { request });
            }
            for number in self.caller.within(request) {
                requests.extend(self.end_call(number, Why::Cancelled));
            }
        }
    }

    /// Tells a member something, if it is one.
    fn say(&mut self, to: Incarnation, word: Word) {
        if let Some(line) = self.lines.get_mut(&to) {
            line.words.push_back(word);
        }
    }

    fn ignore(&mut self, from: Incarnation, what: &'static str) {
        self.malformed += 1;
        self.events.push_back(Event::Malformed { from, what });
    }
}
