//! What direct messages do: the state comes, a joiner or a writer hears how far others are.

use antiphon_core::Time;
use antiphon_core::wire::Incarnation;

use super::clock::Clock;
use super::format::{self, Member, Point, Told};
use super::held::Held;
use super::joiner::{Damage, Incoming, Offer};
use super::source::shortened;
use super::{Event, Phase, Replica};
use crate::Machine;

impl<M: Machine> Replica<M> {
    /// A member told this one something, in the view that both are in.
    pub fn handle_told(&mut self, now: Time, from: Incarnation, payload: &[u8]) {
        self.resume();
        let from = Member::from(from);
        if matches!(self.phase, Phase::Outside | Phase::Gone) || !self.view.contains(&from) {
            return;
        }
        match format::decode(payload) {
            Some(Told::Offer {
                point,
                definition,
                bytes,
                budget,
                time,
            }) => {
                let offer = Offer {
                    source: from,
                    point,
                    clock: Clock::start(now, time),
                    bytes,
                    budget,
                };
                self.handle_offer(offer, definition);
            }
            Some(Told::Chunk {
                point,
                offset,
                check,
                bytes,
            }) => self.handle_chunk(now, from, point, |incoming| incoming.chunk(offset, check, bytes)),
            Some(Told::Received { point, bytes }) => {
                if !self.sources.received(now, from, point, bytes) {
                    self.ignore(from, "a count of what was sent");
                }
            }
            Some(Told::Failed { point, reason }) => self.handle_failed(from, point, &reason),
            Some(Told::Applied { upto }) => {
                if !self.requests.applied(from, upto) {
                    self.ignore(from, "the number of a command of this member");
                }
                while let Some(answer) = self.requests.written() {
                    self.answer(answer);
                }
            }
            None => self.ignore(from, "a direct message of a replica"),
        }
    }

    /// What is told comes in no earlier view than it was told in (G44), and no member has the state of a view
    /// that it has not had. An offer of a later one would make this member wait for ever.
    fn is_to_come(&self, point: Point) -> bool {
        point.view > self.point.view
    }

    /// An offer counts if its point is later than that of any before: that of a source which the others have
    /// given up may come late.
    fn handle_offer(&mut self, offer: Offer, definition: &str) {
        if self.is_to_come(offer.point) {
            self.ignore(offer.source, "the state of a view that this member has had");
            return;
        }
        let Phase::Waiting {
            held,
            incoming,
            heard,
        } = &mut self.phase
        else {
            return;
        };
        if offer.point < held.after()
            || heard.is_void(offer.source, offer.point)
            || incoming
                .as_ref()
                .is_some_and(|former| offer.point <= former.point)
        {
            return;
        }
        let source = Incarnation::from(offer.source);
        if definition != self.definition {
            let reason = format!(
                "the group replicates \"{definition}\" (says {source}), this member \"{}\"",
                self.definition
            );
            self.events.push_back(Event::Refused {
                reason: reason.clone(),
            });
            self.go(format!("state-refused: {reason}"));
            return;
        }
        if !planted!(self, KeepOldHeld) {
            held.forget(offer.point);
        }
        heard.lost = false;
        heard.serving.insert(offer.source);
        *incoming = Some(Box::new(Incoming::new(offer, (self.make)())));
    }

    /// It counts as an offer would, and it may follow that.
    fn handle_failed(&mut self, source: Member, point: Point, reason: &str) {
        if self.is_to_come(point) {
            self.ignore(source, "the state of a view that this member has had");
            return;
        }
        let Phase::Waiting {
            held,
            incoming,
            heard,
        } = &self.phase
        else {
            return;
        };
        let other =
            |former: &Incoming<M>| point < former.point || point == former.point && source != former.source;
        if point < held.after() || heard.is_void(source, point) || incoming.as_deref().is_some_and(other) {
            return;
        }
        let source = Incarnation::from(source);
        let reason = shortened(reason).to_owned();
        self.events.push_back(Event::SourceFailed {
            source,
            reason: reason.clone(),
        });
        self.go(format!(
            "state-refused: {source} cannot write the state: {reason}"
        ));
    }

    fn handle_chunk(
        &mut self,
        now: Time,
        from: Member,
        point: Point,
        take: impl FnOnce(&mut Incoming<M>) -> Result<bool, Damage>,
    ) {
        let Phase::Waiting {
            incoming: Some(incoming),
            ..
        } = &mut self.phase
        else {
            return;
        };
        if incoming.source != from || incoming.point != point {
            return;
        }
        let complete = match take(incoming) {
            Ok(complete) => complete,
            Err(damage) => return self.damaged(from, damage),
        };
        let (bytes, limit) = (incoming.received(), self.config.max_state_bytes);
        let progress = Event::Progress {
            bytes,
            total: incoming.bytes(),
            source: from.into(),
        };
        if bytes > limit {
            let source = Incarnation::from(from);
            return self.fail_restore(format!(
                "state-refused: the state of {source} has more bytes than max_state_bytes, {limit}"
            ));
        }
        if let Some(Event::Progress { .. }) = self.events.back() {
            self.events.pop_back();
        }
        self.events.push_back(progress);
        self.tell_heard();
        if complete {
            self.restored(now);
        }
    }

    fn damaged(&mut self, source: Member, damage: Damage) {
        let source = Incarnation::from(source);
        let what = match damage {
            Damage::Misplaced => "it is not the part that comes next",
            Damage::Altered => "its bytes are not those that its checksum was made of",
            Damage::Unreadable => "it cannot be decoded",
            Damage::Refused(error) => {
                return self.fail_restore(format!("state-refused: the state of {source}: {error}"));
            }
        };
        self.fail_restore(format!("state-damaged: in what {source} sent, {what}"));
    }

    fn fail_restore(&mut self, reason: String) {
        self.events.push_back(Event::RestoreFailed {
            reason: reason.clone(),
        });
        self.go(reason);
    }

    /// All of the state is here.
    fn restored(&mut self, now: Time) {
        let Phase::Waiting { held, incoming, .. } = &mut self.phase else {
            return;
        };
        let Some(incoming) = incoming.take() else { return };
        let (source, point, clock) = (incoming.source, incoming.point, incoming.clock);
        let mut held: Held = std::mem::take(held);
        let Some((agreed, machine)) = incoming.finish() else {
            return;
        };
        self.machine = machine;
        self.agreed = agreed;
        self.clock = Some(clock);
        if planted!(self, DropHeld) {
            held.pop();
        }
        self.phase = Phase::CatchingUp {
            source,
            point,
            held,
            said: false,
        };
        self.catch_up(now);
    }
}
