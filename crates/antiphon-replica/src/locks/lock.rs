//! One lock: its holders and its queue.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{Mode, Owner, Token};
use crate::AgreedTime;
use crate::digest::part;

/// A lock or semaphore that is held or waited for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lock {
    /// All permits: of a lock more than can be taken by shared holders.
    size: u32,
    taken: u32,
    holders: BTreeMap<Token, Claim>,
    /// By the place of the order at which they asked: first come, first served.
    queue: BTreeMap<u64, Claim>,
    /// An owner holds or waits once.
    owners: BTreeMap<Owner, Place>,
}

/// What an owner holds or waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Claim {
    /// The owner.
    pub owner: Owner,
    /// The permits: see [`Claim::mode`].
    pub(super) permits: u32,
    /// How long a waiter waits; nothing for a holder, and for waiting without end.
    pub deadline: Option<AgreedTime>,
}

/// Where an owner's claim is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Place {
    Holds(Token),
    Waits(u64),
}

impl Lock {
    pub(super) fn new(size: u32) -> Self {
        Self {
            size,
            taken: 0,
            holders: BTreeMap::new(),
            queue: BTreeMap::new(),
            owners: BTreeMap::new(),
        }
    }

    /// How many permits the semaphore has; `None` for a lock.
    pub fn size(&self) -> Option<u32> {
        (self.size != Mode::LOCK).then_some(self.size)
    }

    /// The holders in the order in which the lock was granted to them.
    pub fn holders(&self) -> impl Iterator<Item = (Token, &Claim)> {
        self.holders.iter().map(|(token, claim)| (*token, claim))
    }

    /// The waiters, the next one first.
    pub fn waiters(&self) -> impl Iterator<Item = &Claim> {
        self.queue.values()
    }

    pub(super) fn holder(&self, token: Token) -> Option<&Claim> {
        self.holders.get(&token)
    }

    /// How much a holder or waiter of this lock has or wants.
    pub fn mode(&self, claim: &Claim) -> Mode {
        match (self.size, claim.permits) {
            (Mode::LOCK, Mode::LOCK) => Mode::Exclusive,
            (Mode::LOCK, _) => Mode::Shared,
            (of, take) => Mode::Permits { take, of },
        }
    }

    pub(super) fn total(&self) -> u32 {
        self.size
    }

    pub(super) fn free(&self) -> u32 {
        self.size - self.taken
    }

    pub(super) fn is_unused(&self) -> bool {
        self.owners.is_empty()
    }

    pub(super) fn queue(&self) -> &BTreeMap<u64, Claim> {
        &self.queue
    }

    pub(super) fn place(&self, owner: Owner) -> Option<Place> {
        self.owners.get(&owner).copied()
    }

    /// The waiter whose turn it is, if there are enough permits for it. No waiter overtakes another one.
    pub(super) fn next(&self) -> Option<(u64, Claim)> {
        let (ticket, claim) = self.queue.first_key_value()?;
        (claim.permits <= self.free()).then_some((*ticket, *claim))
    }

    pub(super) fn put(&mut self, place: Place, claim: Claim) {
        self.owners.insert(claim.owner, place);
        match place {
            Place::Holds(token) => {
                assert!(
                    claim.permits <= self.free(),
                    "{token}: more permits than there are"
                );
                self.taken += claim.permits;
                self.holders.insert(token, claim);
            }
            Place::Waits(ticket) => drop(self.queue.insert(ticket, claim)),
        }
    }

    pub(super) fn end(&mut self, place: Place) -> Option<Claim> {
        let claim = match place {
            Place::Holds(token) => {
                let claim = self.holders.remove(&token)?;
                self.taken -= claim.permits;
                claim
            }
            Place::Waits(ticket) => self.queue.remove(&ticket)?,
        };
        self.owners.remove(&claim.owner);
        Some(claim)
    }

    /// The hash of a claim of the lock with this name.
    pub(super) fn digest(&self, name: &str, place: Place, claim: &Claim) -> u64 {
        let (kind, number) = match place {
            Place::Holds(token) => (0, token.0),
            Place::Waits(ticket) => (1, ticket),
        };
        let (from, until) = claim.deadline.map_or((0, 0), |time| (1, time.millis));
        let member = claim.owner.member.0;
        let numbers = [
            kind,
            number,
            u64::from(self.size),
            u64::from(claim.permits),
            from,
            until,
            member as u64,
            (member >> 64) as u64,
            claim.owner.client,
        ];
        part(&[name.as_bytes()], &numbers)
    }
}
