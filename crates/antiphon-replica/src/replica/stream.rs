//! What the group's stream does: to the state where there is one, to what is held elsewhere.

use std::collections::BTreeSet;

use antiphon_core::wire::Incarnation;
use antiphon_core::{GroupView, Time};

use super::agreed::{Agreed, Transfer};
use super::format::{self, Body, Member, Ordered, Point, Seen};
use super::heard::{Heard, Known};
use super::held::{Held, Item, ViewItem};
use super::{Clock, Event, Failure, Phase, Replica};
use crate::{AgreedTime, Change, Machine};

/// Timeouts of the machine at one item of the stream. The rest comes with the next stamp.
const MAX_TIMEOUTS: usize = 1024;
/// What a joiner applies in one turn of what it holds, so that the owner gets to other work in between.
pub(super) const MAX_CATCH_UP: usize = 1024;

impl<M: Machine> Replica<M> {
    /// This member's first view: it founds, or waits.
    pub(super) fn first_view(&mut self, now: Time, view: &GroupView) {
        let founding = view.members.iter().all(|member| view.joined.contains(member))
            && view.left.is_empty()
            && view.crashed.is_empty();
        let older = view.members.iter().filter(|member| !view.joined.contains(member));
        let serving: Vec<Member> = match view.members.first() {
            Some(founder) if founding => vec![(*founder).into()],
            _ => older.map(|member| (*member).into()).collect(),
        };
        if founding && serving == [self.me] {
            self.found(now);
            return;
        }
        // In a later view any of them may be a joiner itself.
        let founder = serving.first().filter(|_| founding);
        let known = founder.map(|founder| Known::founded(*founder, self.point));
        self.wait(Heard::new(serving.into_iter().collect(), self.point, known));
        self.tell_heard();
        self.announce_loss();
    }

    /// This member has no state of what was delivered up to here, and waits for one.
    fn wait(&mut self, heard: Heard) {
        let mut held = Held::new(self.config.held_bytes, self.config.spill_bytes);
        held.forget(self.point);
        self.phase = Phase::Waiting {
            held,
            incoming: None,
            heard,
        };
    }

    /// Planted mistakes: this member gives up its state here, as if no other had one.
    pub(super) fn give_up(&mut self) {
        self.reset(Phase::Outside);
        self.wait(Heard::new(BTreeSet::new(), self.point, None));
        self.announce_loss();
    }

    /// This member founds the state here.
    fn found(&mut self, now: Time) {
        self.machine = (self.make)();
        let founded = self.clock_ms.max(u64::from(self.number) * 1000);
        // A state that was before in this view is another one.
        let view = format::hash(&(self.view_hash, self.point));
        self.agreed = Agreed::found(self.me, self.view.clone(), self.point, founded, view);
        if let (Some(seen), Some(serial)) = (self.seen, self.machine.serial()) {
            self.agreed.rise(seen, serial, self.config.agreed);
        }
        self.clock = Some(Clock::start(now, self.agreed.time));
        self.phase = Phase::Serving;
        self.events.push_back(Event::Synced);
        let members = incarnations(&self.view);
        self.tell_machine(Change {
            joined: members.clone(),
            members,
            ..Change::default()
        });
        self.tell_members();
        self.settle(now);
    }

    pub(super) fn handle_item(&mut self, now: Time, item: Item) {
        let point = self.point;
        match &mut self.phase {
            Phase::Outside | Phase::Gone => {}
            Phase::Serving => self.apply(now, point, item),
            Phase::CatchingUp { held, .. } => {
                held.push(point, item);
                self.check_held();
                self.catch_up(now);
            }
            Phase::Waiting { .. } | Phase::Diverged(_) => {
                self.hear(now, &item);
                if let Phase::Waiting { held, heard, .. } = &mut self.phase
                    && !heard.lost
                {
                    held.push(point, item);
                    self.check_held();
                }
                self.announce_loss();
            }
        }
    }

    /// Without a state: what an item says about those that have one.
    fn hear(&mut self, now: Time, item: &Item) {
        match item {
            Item::View(view) => self.hear_view(view),
            Item::Message { sender, payload } => {
                let body = format::decode::<Ordered<'_>>(payload).map(|message| message.body);
                match body {
                    Some(Body::Synced { source, point, .. }) => {
                        if let Phase::Waiting { heard, .. } | Phase::Diverged(heard) = &mut self.phase {
                            heard.hear_synced(self.point, *sender, source, point);
                        }
                        self.hear_serving(*sender);
                    }
                    Some(Body::Differs { point }) => self.hear_differs(*sender, point),
                    Some(Body::Lost { point }) if self.view.first() == Some(sender) => self.hear_lost(point),
                    Some(Body::Founded { point }) if self.view.first() == Some(sender) => {
                        self.hear_founded(now, *sender, point)
                    }
                    // What makes no sense is named by those that apply it.
                    _ => {}
                }
            }
        }
        self.tell_heard();
    }

    fn hear_view(&mut self, view: &ViewItem) {
        for member in &view.gone {
            self.hear_gone(*member, self.point);
            if let Phase::Waiting { heard, .. } | Phase::Diverged(heard) = &mut self.phase {
                heard.differed.remove(member);
            }
        }
        if let Phase::Waiting { heard, .. } | Phase::Diverged(heard) = &mut self.phase {
            heard.hear_view(self.point, view);
            // The new members have not heard it.
            heard.said &= view.joined.is_empty();
        }
    }

    /// This member serves no more. R19: of what it gave nothing is used, for another member's state is
    /// another point's, and other bytes. But an offer may be ahead of the stream: one of a later point is one
    /// of a state that was founded anew.
    ///
    /// What is held stays. The next source begins at the point where the others gave this one up: that is
    /// here if it is gone, but earlier if it had diverged before.
    fn hear_gone(&mut self, member: Member, said: Point) {
        if let Phase::Waiting { incoming, .. } = &mut self.phase
            && incoming
                .as_ref()
                .is_some_and(|incoming| incoming.source == member && incoming.point <= said)
        {
            *incoming = None;
        }
        if let Phase::Waiting { heard, .. } | Phase::Diverged(heard) = &mut self.phase {
            heard.serving.remove(&member);
        }
    }

    /// The same; and what it said of its state before may still come. But this word may have waited at its
    /// sender for so long that the sender has founded the state anew since: it was said twice, as after a
    /// suspension, and `Founded` came in between.
    fn hear_differs(&mut self, member: Member, said: Point) {
        let (Phase::Waiting { heard, .. } | Phase::Diverged(heard)) = &self.phase else {
            return;
        };
        let founded = heard.is_founded_after(said);
        if founded == Some(true) {
            return;
        }
        self.hear_gone(member, said);
        if let Phase::Waiting { heard, .. } | Phase::Diverged(heard) = &mut self.phase {
            heard.differed.insert(member, said);
            heard.hear_differs(self.point, member, said);
            // Where that is not known, the only member that may have founded may serve, if it may have
            // founded since.
            if founded.is_none() && said < heard.founded && self.view.first() == Some(&member) {
                heard.serving.insert(member);
            }
        }
    }

    fn hear_serving(&mut self, member: Member) {
        if let Phase::Waiting { heard, .. } | Phase::Diverged(heard) = &mut self.phase {
            heard.serving.insert(member);
            heard.news = self.point;
            (heard.lost, heard.said) = (false, false);
        }
    }

    /// `Lost` may have waited at its sender for so long that it is not true any more: it counts if nothing
    /// else was heard since, and if it was said to this member, not to those of an earlier view.
    fn hear_lost(&mut self, said: Point) {
        let point = self.point;
        if let Phase::Waiting {
            held,
            incoming: None,
            heard,
        } = &mut self.phase
            && !heard.lost
            && said >= heard.news
        {
            heard.lost = true;
            heard.serving.clear();
            heard.hear_lost(point);
            // Whoever has the state some day gives it to this member of a later point.
            held.forget(point);
            self.events.push_back(Event::StateLost);
        }
    }

    /// It counts if no member serves; so say the most senior member, which sent it, and members that have the
    /// state of a source that is gone.
    fn hear_founded(&mut self, now: Time, founder: Member, said: Point) {
        let none = match &self.phase {
            Phase::Waiting { heard, .. } | Phase::Diverged(heard) => heard.serving.is_empty(),
            _ => false,
        };
        if founder == self.me && none {
            self.found(now);
            return;
        }
        match &mut self.phase {
            // What came of a state before is void; this word may come after the offer of the new one.
            Phase::Waiting { incoming, .. } if none => {
                incoming.take_if(|offer| offer.point < said);
            }
            Phase::Diverged(_) if none => self.wait(Heard::new(BTreeSet::new(), self.point, None)),
            _ => {}
        }
        if founder != self.me {
            if let Phase::Waiting { heard, .. } | Phase::Diverged(heard) = &mut self.phase {
                heard.hear_founded(self.point, founder, &self.view);
            }
            self.hear_serving(founder);
        }
    }

    /// Says that no member serves, if it is this member's part to say so.
    fn announce_loss(&mut self) {
        let leads = self.view.first() == Some(&self.me);
        if let Phase::Waiting { heard, .. } | Phase::Diverged(heard) = &mut self.phase
            && leads
            && heard.serving.is_empty()
            && !heard.said
        {
            heard.said = true;
            self.queue.push_back(if self.config.found_anew {
                Body::Founded { point: self.point }
            } else {
                Body::Lost { point: self.point }
            });
        }
    }

    fn check_held(&mut self) {
        let (Phase::Waiting { held, .. } | Phase::CatchingUp { held, .. }) = &self.phase else {
            return;
        };
        if !held.is_over() || planted!(self, HoldWithoutBound) {
            return;
        }
        let (held, spilled) = (held.bytes(), held.spilled_bytes());
        let (limit, spill_limit) = (self.config.held_bytes, self.config.spill_bytes);
        self.events.push_back(Event::Overrun {
            held,
            limit,
            spilled,
            spill_limit,
        });
        self.go(format!(
            "state-overrun: {} bytes were delivered before the state was here: {held} are held in memory (at most \
             {limit}), {spilled} in the file (at most {spill_limit})",
            held as u64 + spilled
        ));
    }

    /// Applies what is held, as much as fits into one turn; then says that this member is up to date.
    pub(super) fn catch_up(&mut self, now: Time) {
        for _ in 0..MAX_CATCH_UP {
            let Phase::CatchingUp {
                source,
                point,
                held,
                said,
            } = &mut self.phase
            else {
                return;
            };
            if let Some((point, item)) = held.pop() {
                self.apply(now, point, item);
                continue;
            }
            if !held.is_empty() {
                // It is in the file.
                return;
            }
            if !*said {
                *said = true;
                self.queue.push_back(Body::Synced {
                    source: *source,
                    point: *point,
                    seen: self.seen,
                });
                self.tell_members();
            }
            return;
        }
    }

    /// Applies an item to the state.
    fn apply(&mut self, now: Time, point: Point, item: Item) {
        if let Item::View(view) = &item {
            self.agreed.next_view(view.hash);
        }
        self.agreed.point = point;
        match item {
            Item::View(view) => self.apply_view(view),
            Item::Message { sender, payload } => match format::decode(&payload) {
                Some(message) => self.apply_message(now, sender, message),
                None => self.ignore(sender, "an ordered message of a replica"),
            },
        }
        self.settle(now);
    }

    fn apply_view(&mut self, view: ViewItem) {
        for member in &view.gone {
            self.requests.forget(*member);
        }
        // A member that has diverged was said to be gone.
        let diverged = &self.agreed.diverged;
        let known = |members: &[Member]| -> Vec<Incarnation> {
            let known = members.iter().filter(|member| !diverged.contains(member));
            known.map(|member| (*member).into()).collect()
        };
        let (gone, left) = (known(&view.gone), known(&view.left));
        if planted!(ForgetWhenOneLeaves) && !view.left.is_empty() {
            return self.give_up();
        }
        self.agreed.view(view.members, &view.gone, &view.joined);
        self.tell_machine(Change {
            members: self.agreed.able(),
            joined: incarnations(&view.joined),
            gone,
            left,
            diverged: Vec::new(),
        });
        self.tell_members();
    }

    fn apply_message(&mut self, now: Time, sender: Member, message: Ordered<'_>) {
        let counts = self.agreed.serving.contains(&sender);
        if let Some(stamp) = message.stamp.filter(|_| counts) {
            self.agreed.time = if planted!(self, TimeGoesBack) {
                stamp
            } else {
                stamp.max(self.agreed.time)
            };
            if let Some(clock) = &mut self.clock {
                clock.hear(now, stamp);
            }
            self.fire();
        }
        match message.body {
            Body::Command {
                request,
                all,
                command,
            } => self.apply_command(sender, request, all, &command),
            Body::Barrier { upto } if sender == self.me => {
                for answer in self.requests.barrier(upto) {
                    self.answer(answer);
                }
            }
            Body::Synced { source, point, seen } => self.apply_synced(now, sender, source, point, seen),
            Body::Digest { round, digest } => self.agreed.rounds.say(sender, round, digest),
            Body::Tick if sender == self.me => self.ticking = false,
            Body::Leaving if self.agreed.serving.contains(&sender) => {
                self.agreed.leaving.insert(sender);
            }
            // G28: what this member has is not what all members begin with from here on.
            // Asked of the view at this place of the stream: what is held is applied after later views came.
            Body::Founded { .. }
                if self.agreed.serving.is_empty() && self.agreed.members.first() == Some(&sender) =>
            {
                self.go("state-superseded: the state was founded anew before this member served".to_owned());
            }
            // `Lost`: this member has the state, and is about to say so.
            Body::Barrier { .. }
            | Body::Differs { .. }
            | Body::Tick
            | Body::Leaving
            | Body::Founded { .. }
            | Body::Lost { .. } => {}
        }
    }

    fn apply_command(&mut self, sender: Member, request: u64, all: bool, command: &[u8]) {
        let Some(command) = format::decode(command) else {
            self.ignore(sender, "a command of this machine");
            if sender == self.me
                && let Some(answer) = self.requests.fail(request, Failure::NotApplied)
            {
                self.answer(answer);
            }
            return;
        };
        let at = self.agreed.step();
        self.agreed.commands += 1;
        let mut events = Vec::new();
        let reply = self.machine.apply(at, sender.into(), command, &mut events);
        self.tell_events(at, events);
        if sender == self.me {
            let none = planted!(self, AnswerBeforeAll);
            let Self {
                me, requests, agreed, ..
            } = self;
            let others = agreed.serving.iter().copied();
            let others = others.filter(|member| member != me && !none);
            if let Some(answer) = requests.delivered(request, at, reply, others) {
                self.answer(answer);
            }
        } else if all && matches!(self.phase, Phase::Serving) {
            self.requests.owe(sender, request);
        }
        let commands = self.agreed.commands;
        if self.compares && commands.is_multiple_of(self.config.digest_every) {
            self.agreed.rounds.begin(commands, self.agreed.serving.clone());
            if matches!(self.phase, Phase::Serving) {
                self.queue.push_back(Body::Digest {
                    round: commands,
                    digest: self.machine.digest(),
                });
            }
        }
    }

    fn apply_synced(&mut self, now: Time, sender: Member, source: Member, point: Point, seen: Option<Seen>) {
        let right = self.agreed.synced(sender, source, point);
        if right {
            if let Some(seen) = seen.filter(|_| !planted!(self, ForgetWhatWasSeen)) {
                self.rise(now, seen);
            }
            self.tell_members();
        }
        match &self.phase {
            Phase::CatchingUp { held, said: true, .. } if sender == self.me && right => {
                assert!(
                    held.is_empty(),
                    "G28: it said that it is up to date, and holds more"
                );
                self.phase = Phase::Serving;
                self.events.push_back(Event::Synced);
            }
            Phase::CatchingUp { .. } if sender == self.me => {
                self.go("state-refused: the state that this member was given does not count".to_owned());
            }
            _ => {}
        }
    }

    /// Numbers and time never go back for a member that has seen these.
    fn rise(&mut self, now: Time, mut seen: Seen) {
        if planted!(self, KeepTheTime) {
            seen.time = AgreedTime::default();
        }
        let may_be_undone = self.config.agreed && !planted!(self, TakeUndoneForEarlier);
        let serial = self.machine.serial();
        if serial.is_some_and(|serial| self.agreed.rise(seen, serial, may_be_undone)) {
            // This member counts on from there.
            if let Some(clock) = &mut self.clock {
                clock.hear(now, self.agreed.time);
            }
            self.tell_machine(Change {
                members: self.agreed.able(),
                ..Change::default()
            });
        }
    }

    /// What follows from anything that was applied.
    fn settle(&mut self, now: Time) {
        if !matches!(self.phase, Phase::Serving | Phase::CatchingUp { .. }) {
            return;
        }
        self.fire();
        self.close_rounds();
        while let Some(answer) = self.requests.written() {
            self.answer(answer);
        }
        let new = self.agreed.assign();
        let mine = |(_, transfer): &&(Member, Transfer)| {
            transfer.source == self.me && matches!(self.phase, Phase::Serving)
        };
        let joiners: Vec<Member> = new.iter().filter(mine).map(|(joiner, _)| *joiner).collect();
        self.sources.begin(&joiners, &self.agreed, &self.machine);
        self.sources.keep(self.me, &self.agreed.transfers);
        self.tick(now);
        self.leave_if_safe(now);
    }

    /// The machine's deadlines up to the agreed time.
    fn fire(&mut self) {
        for _ in 0..MAX_TIMEOUTS {
            if self
                .machine
                .deadline()
                .is_none_or(|deadline| deadline > self.agreed.time)
            {
                return;
            }
            let at = self.agreed.step();
            let mut events = Vec::new();
            self.machine.timeout(at, &mut events);
            self.tell_events(at, events);
        }
    }

    /// Names the members whose digests differ.
    fn close_rounds(&mut self) {
        while let Some((commands, differ)) = self.agreed.rounds.close(&self.agreed.members) {
            self.events.extend(differ.iter().map(|member| Event::Diverged {
                member: (*member).into(),
                commands,
            }));
            for member in differ {
                // This member may be the one before.
                if !matches!(self.phase, Phase::Serving | Phase::CatchingUp { .. }) {
                    return;
                }
                self.agreed.diverge(member);
                self.requests.wait_no_more(member);
                self.tell_members();
                if member != self.me {
                    // What it held goes to others: it cannot give it back.
                    self.tell_machine(Change {
                        members: self.agreed.able(),
                        gone: vec![member.into()],
                        diverged: vec![member.into()],
                        ..Change::default()
                    });
                }
                self.part_with(member);
            }
        }
    }

    /// This member's state is wrong.
    fn part_with(&mut self, diverged: Member) {
        match &self.phase {
            Phase::CatchingUp { source, .. } if *source == diverged => {
                self.go("state-refused: the member that gave the state has diverged".to_owned());
            }
            Phase::Serving if diverged == self.me => {
                let known = Known::from(&self.agreed);
                let heard = Heard::new(known.synced.clone(), self.point, Some(known));
                let leaving = self.leave_by.is_some();
                self.reset(Phase::Diverged(heard));
                self.queue.push_back(Body::Differs { point: self.point });
                if leaving {
                    self.go("left".to_owned());
                }
                self.announce_loss();
            }
            _ => {}
        }
    }

    /// Whether it is this member's part to say that a deadline has come.
    pub(super) fn leads(&self) -> bool {
        matches!(self.phase, Phase::Serving) && self.agreed.leader() == Some(self.me)
    }

    /// Lets all know that a deadline of the machine has come.
    pub(super) fn tick(&mut self, now: Time) {
        let due = self.clock.is_some_and(|clock| {
            let deadline = self.machine.deadline();
            deadline.is_some_and(|deadline| deadline <= clock.read(now))
        });
        if due && self.leads() && !self.ticking && !self.suspended && !planted!(NobodyTicks) {
            self.ticking = true;
            self.queue.push_back(Body::Tick);
        }
    }

    /// R3: the last member that has the state does not leave while a joiner waits for it, if time allows.
    pub(super) fn leave_if_safe(&mut self, now: Time) {
        let Some(leave_by) = self.leave_by else { return };
        let Agreed { serving, leaving, .. } = &self.agreed;
        let others = serving.iter().any(|member| !leaving.contains(member));
        let safe = leaving.contains(&self.me) && (others || self.agreed.unsynced().next().is_none());
        if safe || now >= leave_by || planted!(self, LeaveWithTheState) {
            self.go("left".to_owned());
        }
    }

    fn tell_machine(&mut self, change: Change) {
        let at = self.agreed.step();
        let mut events = Vec::new();
        self.machine.members(at, &change, &mut events);
        self.tell_events(at, events);
    }

    fn tell_events(&mut self, at: crate::At, events: Vec<M::Event>) {
        let serving = matches!(self.phase, Phase::Serving) || planted!(self, ShowCatchingUp);
        let events = events.into_iter();
        self.events
            .extend(events.map(|event| Event::Machine { at, serving, event }));
    }

    /// Which members have the state. What a joiner held says less than it has told, until all is applied.
    fn tell_members(&mut self) {
        if let Phase::CatchingUp { held, .. } = &self.phase
            && !held.is_empty()
        {
            return;
        }
        let Agreed { members, serving, .. } = &self.agreed;
        let members = members
            .iter()
            .map(|member| ((*member).into(), serving.contains(member)));
        self.events.push_back(Event::Members {
            members: members.collect(),
        });
    }

    /// The same at a member without the state, as far as it knows.
    pub(super) fn tell_heard(&mut self) {
        let all = planted_in_tests!(self, ShowAllThatMayServe);
        if let Phase::Waiting {
            incoming: Some(incoming),
            heard,
            ..
        } = &mut self.phase
            && let Some(agreed) = incoming.agreed()
            // The state may be ahead of the stream.
            && agreed.point <= self.point
            && !heard.is_known_at(agreed.point)
        {
            heard.know(agreed.into());
        }
        if let Phase::Waiting { heard, .. } | Phase::Diverged(heard) = &mut self.phase
            && let Some(mut members) = heard.members(&self.view)
        {
            for (member, synced) in &mut members {
                *synced |= all && heard.serving.contains(&Member::from(*member));
            }
            self.events.push_back(Event::Members { members });
        }
    }
}

fn incarnations(members: &[Member]) -> Vec<Incarnation> {
    members.iter().map(|member| (*member).into()).collect()
}
