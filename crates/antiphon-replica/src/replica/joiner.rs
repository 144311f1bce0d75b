//! The joiner's side of a transfer: the state as it comes. What it holds meanwhile is in `held`.
//!
//! A new machine takes the state chunk by chunk, out of the message that brought it where it can, so what is
//! kept of the bytes is what the machine has not taken. If the source is lost, the machine goes with it.

use twox_hash::XxHash3_64;

use super::agreed::Agreed;
use super::clock::Clock;
use super::format::{self, Member, Point};
use crate::{Machine, RestoreError};

/// No group has applied so much.
const MAX_COUNT: u64 = u64::MAX >> 1;
/// What all members agree on is no longer: it has a few words for each member.
const MAX_AGREED_BYTES: usize = 4 << 20;

/// The state as it comes.
pub(super) struct Incoming<M> {
    pub(super) source: Member,
    pub(super) point: Point,
    pub(super) clock: Clock,
    /// About, until it is complete.
    bytes: u64,
    /// What the source has under way at most.
    budget: u64,
    received: u64,
    /// Of all that was received.
    check: u64,
    /// What was received and not taken.
    rest: Vec<u8>,
    /// So much must be here before the machine is asked again: what it wants more of is not read anew with
    /// each chunk.
    asks_at: usize,
    agreed: Option<Agreed>,
    machine: M,
    complete: bool,
    /// What the source was told.
    told: u64,
}

/// What a source says of the state that follows.
pub(super) struct Offer {
    pub(super) source: Member,
    pub(super) point: Point,
    pub(super) clock: Clock,
    pub(super) bytes: u64,
    pub(super) budget: u64,
}

impl<M: Machine> Incoming<M> {
    /// For a machine as it was made.
    pub(super) fn new(offer: Offer, machine: M) -> Self {
        Self {
            source: offer.source,
            point: offer.point,
            clock: offer.clock,
            bytes: offer.bytes,
            budget: offer.budget,
            received: 0,
            check: 0,
            rest: Vec::new(),
            asks_at: 0,
            agreed: None,
            machine,
            complete: false,
            told: 0,
        }
    }

    pub(super) fn received(&self) -> u64 {
        self.received
    }

    /// What all members agreed on at its point, which comes first.
    pub(super) fn agreed(&self) -> Option<&Agreed> {
        self.agreed.as_ref()
    }

    /// Bytes of the state, about until it is complete.
    pub(super) fn bytes(&self) -> u64 {
        if self.complete {
            self.received
        } else {
            self.bytes.max(self.received)
        }
    }

    /// Takes a chunk; an empty one is the last. Whether that was it.
    pub(super) fn chunk(&mut self, offset: u64, check: u64, chunk: &[u8]) -> Result<bool, Damage> {
        if offset != self.received || self.complete {
            return Err(Damage::Misplaced);
        }
        self.check = XxHash3_64::oneshot_with_seed(self.check, chunk);
        if self.check != check {
            return Err(Damage::Altered);
        }
        self.received += chunk.len() as u64;
        self.complete = chunk.is_empty();
        if self.rest.is_empty() {
            let taken = self.take(chunk)?;
            self.rest.extend_from_slice(&chunk[taken..]);
        } else {
            self.rest.extend_from_slice(chunk);
            if self.rest.len() < self.asks_at && !self.complete {
                return Ok(false);
            }
            let rest = std::mem::take(&mut self.rest);
            let taken = self.take(&rest)?;
            self.rest = rest;
            self.rest.drain(..taken);
        }
        self.asks_at = self.rest.len() + self.rest.len() / 2;
        Ok(self.complete)
    }

    /// How much of what is here is taken.
    fn take(&mut self, here: &[u8]) -> Result<usize, Damage> {
        let mut taken = 0;
        if self.agreed.is_none() {
            let Some((agreed, rest)) = format::decode_first::<Agreed>(here) else {
                let possible = !self.complete && here.len() < MAX_AGREED_BYTES;
                return if possible { Ok(0) } else { Err(Damage::Unreadable) };
            };
            if agreed.point != self.point {
                return Err(Damage::Misplaced);
            }
            // This member counts on from them.
            if agreed.index.max(agreed.commands) > MAX_COUNT {
                return Err(Damage::Unreadable);
            }
            self.agreed = Some(agreed);
            taken = here.len() - rest.len();
        }
        let rest = &here[taken..];
        let by_machine = self.machine.restore(rest, self.complete)?;
        if by_machine > rest.len() || self.complete && by_machine < rest.len() {
            return Err(Damage::Refused(RestoreError {
                reason: format!("the machine took {by_machine} of the last {} bytes", rest.len()),
            }));
        }
        Ok(taken + by_machine)
    }

    /// What came, when it is complete.
    pub(super) fn finish(self) -> Option<(Agreed, M)> {
        Some((self.agreed.filter(|_| self.complete)?, self.machine))
    }

    /// How much is here, if the source is to know.
    pub(super) fn untold(&self) -> Option<u64> {
        let news = self.received - self.told;
        (news >= (self.budget / 4).max(1)).then_some(self.received)
    }

    pub(super) fn told(&mut self, bytes: u64) {
        self.told = bytes;
    }
}

/// What is wrong with a state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Damage {
    Misplaced,
    Altered,
    Unreadable,
    /// By the machine.
    Refused(RestoreError),
}

impl From<RestoreError> for Damage {
    fn from(error: RestoreError) -> Self {
        Self::Refused(error)
    }
}
