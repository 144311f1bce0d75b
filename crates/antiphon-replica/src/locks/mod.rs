//! Replicated locks: exclusive, shared, or permits of a semaphore, first come, first served, with fencing
//! tokens.
//!
//! ```text
//!             granted at once                        released, lost, handed over
//! acquire ──┬───────────────────────────► holds ───────────────────────────────► (forgotten)
//!           │                               ▲
//!           └─► waits (in the order) ───────┘ granted: it is first, and there are enough permits
//!                 └─► timed out, abandoned, member departed
//! ```
//! **A lock is a semaphore.** A shared holder takes one permit, the exclusive holder takes all. Each name has
//! one size while it is in use.
//!
//! **First come, first served.** The order of the group is the order of the queue. No claim overtakes a
//! waiting one, also where there would be permits for it: a shared claim behind a waiting exclusive one
//! waits, so that shared holders that follow each other starve nobody. A claim that does not wait is refused
//! where others wait. Only a holder can change the order, by handing the lock over to a waiter of its choice.
//!
//! **Owners** are clients of members. An owner holds or waits for a lock once: a lock is not re-entrant. When
//! a member departs, all its claims end at that point of the order, and the lock goes to the next waiter in
//! the same step: no lease has to run out. The departed member may not know yet that it is out of the group.
//! Therefore:
//!
//! **Fencing tokens.** Each grant has a [`Token`] that is greater than all tokens given before. The counter
//! belongs to the table, not to the lock: a lock without holders and waiters is forgotten, and when its name
//! is used again, the next token is still greater than its former ones. A table that is founded anew begins
//! above the former one, since tokens begin with the time of founding; for that, founders' clocks must not go
//! back (the page of `serials.rs` has the proof). Tokens are safe under the policy `majority`. Under `any`
//! two components can grant one lock twice.
//!
//! **Leadership** is an exclusive lock with a name of its own ([`leadership`]). Candidates wait for it; the
//! leader hands it over with [`Command::transfer`], to a candidate that waits, so that no leadership ends
//! where nobody wants it.
//!
//! | what ends | what happens |
//! |---|---|
//! | a holder's member | the lock is lost and goes to the next waiter in the same step |
//! | a waiter's member | its place in the queue is gone; the next one may be granted |
//! | the group's leader | agreed time stands still: a wait takes longer, nothing is granted twice |
//! | all members | the table is gone; the next one gives higher tokens |

mod command;
mod lock;
mod state;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use antiphon_core::wire::Incarnation;
pub use command::{
    Cause, Command, Done, Event, MAX_NAME_BYTES, Mode, Name, Owner, Refused, Token, Wait, What,
};
use lock::Place;
pub use lock::{Claim, Lock};
pub use state::State;

use crate::state::{ByEntry, Restoring, restore};
use crate::{AgreedTime, At, Change, Machine, RestoreError};

/// The name of the lock that the leader of this name holds.
pub fn leadership(name: &str) -> Name {
    format!("leader of {name}").into()
}

/// The bounds of a table, the same at all members: they are part of its definition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// The most locks that are held or waited for at once. Default 65,536.
    pub max_locks: u32,
    /// The most holders and waiters of all locks together. Default 262,144.
    pub max_claims: u32,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            max_locks: 1 << 16,
            max_claims: 1 << 18,
        }
    }
}

/// The table of all locks.
#[derive(Debug, Clone)]
pub struct LockTable {
    options: Options,
    state: State,
    /// By their tokens, the locks that are held.
    held: BTreeMap<Token, Name>,
    /// By their owners, the locks that are held or waited for.
    owned: BTreeSet<(Owner, Name)>,
    /// By when they time out, and their tickets, the locks that are waited for.
    deadlines: BTreeMap<(AgreedTime, u64), Name>,
    restoring: Restoring,
}

impl LockTable {
    /// A table without locks.
    pub fn new(options: Options) -> Self {
        let mut table = Self {
            options,
            state: State::new("".into()),
            held: BTreeMap::new(),
            owned: BTreeSet::new(),
            deadlines: BTreeMap::new(),
            restoring: Restoring::default(),
        };
        table.state.definition = table.definition().into();
        table
    }

    /// The locks as they are now, to read them.
    pub fn state(&self) -> &State {
        &self.state
    }

    fn acquire(
        &mut self,
        at: At,
        name: Name,
        mut claim: Claim,
        size: u32,
        wait: Wait,
        events: &mut Vec<Event>,
    ) -> Result<Done, Refused> {
        if !(1..=MAX_NAME_BYTES).contains(&name.len()) {
            return Err(Refused::Name {
                bytes: name.len() as u64,
            });
        }
        let lock = self.state.lock(&name);
        match lock.and_then(|lock| lock.place(claim.owner)) {
            Some(Place::Holds(token)) => return Err(Refused::Holds { token }),
            Some(Place::Waits(_)) => return Err(Refused::Waits),
            None => {}
        }
        if let Some(lock) = lock.filter(|lock| lock.total() != size) {
            return Err(Refused::OtherSize { used: lock.size() });
        }
        let Options {
            max_locks,
            max_claims,
        } = self.options;
        if lock.is_none() && self.state.locks.len() >= max_locks as usize {
            return Err(Refused::TooManyLocks { max_locks });
        }
        if self.state.claims >= max_claims as usize {
            return Err(Refused::TooManyClaims { max_claims });
        }
        // A claim that would fit behind waiters that do not fit yet waits too: it would starve them.
        let first = |lock: &Lock| lock.queue().is_empty() || planted!(OvertakeWaiters);
        let at_once = lock.is_none_or(|lock| first(lock) && claim.permits <= lock.free());
        if at_once {
            let token = self.grant(at, &name, size, claim, events);
            return token.map(Done::Granted).ok_or(Refused::Exhausted);
        }
        claim.deadline = match wait {
            Wait::Try | Wait::WithinMs(0) => return Err(Refused::Busy),
            Wait::WithinMs(millis) => Some(AgreedTime {
                millis: self.state.now.millis.saturating_add(millis),
            }),
            Wait::Forever => None,
        };
        if let Some(deadline) = claim.deadline {
            self.deadlines.insert((deadline, at.index), name.clone());
        }
        self.owned.insert((claim.owner, name.clone()));
        self.state.put(&name, size, Place::Waits(at.index), claim);
        Ok(Done::Waiting)
    }

    /// Nothing is granted when all tokens have been given.
    fn grant(
        &mut self,
        at: At,
        name: &Name,
        size: u32,
        mut claim: Claim,
        events: &mut Vec<Event>,
    ) -> Option<Token> {
        let token = Token(self.state.tokens.next(at.founded)?);
        claim.deadline = None;
        self.owned.insert((claim.owner, name.clone()));
        self.state.put(name, size, Place::Holds(token), claim);
        self.held.insert(token, name.clone());
        events.push(Event {
            name: name.clone(),
            owner: claim.owner,
            what: What::Granted(token),
        });
        Some(token)
    }

    /// Ends a claim, in all indexes.
    fn end(&mut self, name: &Name, place: Place) -> Option<Claim> {
        let claim = self.state.end(name, place)?;
        self.owned.remove(&(claim.owner, name.clone()));
        match (place, claim.deadline) {
            (Place::Holds(token), _) => drop(self.held.remove(&token)),
            (Place::Waits(ticket), Some(deadline)) => drop(self.deadlines.remove(&(deadline, ticket))),
            (Place::Waits(_), None) => {}
        }
        Some(claim)
    }

    /// Grants the lock to all whose turn it is.
    fn promote(&mut self, at: At, name: &Name, events: &mut Vec<Event>) {
        while let Some(lock) = self.state.lock(name)
            && let Some((ticket, claim)) = lock.next()
            && self.state.tokens.last() < u64::MAX
        {
            let size = lock.total();
            self.end(name, Place::Waits(ticket));
            self.grant(at, name, size, claim, events);
        }
    }

    /// The lock and the claim that a client of this member holds with this token.
    fn held_by(&self, from: Incarnation, token: Token) -> Result<(Name, Claim), Refused> {
        let name = self.held.get(&token).ok_or(Refused::NotHeld { token })?;
        let lock = self.state.lock(name).ok_or(Refused::NotHeld { token })?;
        let claim = lock.holder(token).filter(|claim| claim.owner.member == from);
        Ok((name.clone(), *claim.ok_or(Refused::NotHeld { token })?))
    }

    fn release(
        &mut self,
        at: At,
        from: Incarnation,
        token: Token,
        events: &mut Vec<Event>,
    ) -> Result<Done, Refused> {
        let (name, claim) = self.held_by(from, token)?;
        self.end(&name, Place::Holds(token));
        events.push(Event {
            name: name.clone(),
            owner: claim.owner,
            what: What::Released(token),
        });
        self.promote(at, &name, events);
        Ok(Done::Ended)
    }

    fn abandon(
        &mut self,
        at: At,
        name: &Name,
        owner: Owner,
        events: &mut Vec<Event>,
    ) -> Result<Done, Refused> {
        let place = self.state.lock(name).and_then(|lock| lock.place(owner));
        let Some(place @ Place::Waits(_)) = place else {
            return Err(Refused::WaitsNot);
        };
        self.end(name, place);
        self.promote(at, name, events);
        Ok(Done::Ended)
    }

    fn hand_over(
        &mut self,
        at: At,
        from: Incarnation,
        token: Token,
        (to, client): (Incarnation, Option<u64>),
        events: &mut Vec<Event>,
    ) -> Result<Done, Refused> {
        let (name, claim) = self.held_by(from, token)?;
        let lock = self.state.lock(&name).ok_or(Refused::NotHeld { token })?;
        let wanted = |waiter: &Claim| {
            waiter.owner.member == to && client.is_none_or(|client| client == waiter.owner.client)
        };
        let successor = lock.queue().iter().find(|(_, waiter)| wanted(waiter));
        let (ticket, successor) = successor
            .map(|(ticket, waiter)| (*ticket, *waiter))
            .ok_or(Refused::NoSuccessor)?;
        let (size, free) = (lock.total(), lock.free() + claim.permits);
        if successor.permits > free {
            return Err(Refused::TooMuch {
                wanted: successor.permits,
                free,
            });
        }
        if self.state.tokens.last() == u64::MAX {
            return Err(Refused::Exhausted);
        }
        self.end(&name, Place::Waits(ticket));
        self.end(&name, Place::Holds(token));
        events.push(Event {
            name: name.clone(),
            owner: claim.owner,
            what: What::Lost(token, Cause::HandedOver(successor.owner)),
        });
        let granted = self.grant(at, &name, size, successor, events);
        self.promote(at, &name, events);
        granted.map(Done::Granted).ok_or(Refused::Exhausted)
    }

    /// Ends these claims of owners that are gone. Gives the locks that others may get now.
    fn end_all(
        &mut self,
        gone: Vec<(Owner, Name)>,
        cause: impl Fn(Owner) -> Cause,
        events: &mut Vec<Event>,
    ) -> BTreeSet<Name> {
        let mut ending: BTreeMap<Name, Vec<Place>> = BTreeMap::new();
        for (owner, name) in gone {
            let place = self.state.lock(&name).and_then(|lock| lock.place(owner));
            ending.entry(name).or_default().extend(place);
        }
        for (name, places) in &mut ending {
            // What is held is lost in the order in which it was granted.
            places.sort_unstable();
            for place in places {
                if let Some(claim) = self.end(name, *place)
                    && let Place::Holds(token) = *place
                {
                    events.push(Event {
                        name: name.clone(),
                        owner: claim.owner,
                        what: What::Lost(token, cause(claim.owner)),
                    });
                }
            }
        }
        ending.into_keys().collect()
    }

    /// Time has come so far: ends the waiting of all that have waited long enough. Gives the locks that
    /// others may get now.
    fn time_out(&mut self, at: At, events: &mut Vec<Event>) -> BTreeSet<Name> {
        self.state.now = self.state.now.max(at.time);
        let mut waited_for = BTreeSet::new();
        while let Some(first) = self.deadlines.first_entry()
            && first.key().0 <= self.state.now
        {
            let ((_, ticket), name) = first.remove_entry();
            if let Some(claim) = self.end(&name, Place::Waits(ticket)) {
                events.push(Event {
                    name: name.clone(),
                    owner: claim.owner,
                    what: What::TimedOut,
                });
            }
            waited_for.insert(name);
        }
        waited_for
    }

    fn promote_all(&mut self, at: At, names: BTreeSet<Name>, events: &mut Vec<Event>) {
        for name in names {
            self.promote(at, &name, events);
        }
    }
}

impl Machine for LockTable {
    type Command = Command;
    type Reply = Result<Done, Refused>;
    type Event = Event;
    type Snapshot = ByEntry<State, Name>;

    fn apply(&mut self, at: At, from: Incarnation, command: Command, events: &mut Vec<Event>) -> Self::Reply {
        self.timeout(at, events);
        // What is held by a member that is gone would be released by no change of members.
        if !self.state.members.contains(&from) {
            return Err(Refused::NoMember);
        }
        let owner = |client| Owner { member: from, client };
        match command {
            Command::Acquire {
                name,
                client,
                mode,
                wait,
            } => {
                let (permits, size) = mode.permits()?;
                let claim = Claim {
                    owner: owner(client),
                    permits,
                    deadline: None,
                };
                self.acquire(at, name, claim, size, wait, events)
            }
            Command::Abandon { name, client } => self.abandon(at, &name, owner(client), events),
            Command::Release { token } => self.release(at, from, token, events),
            Command::HandOver { token, to, client } => self.hand_over(at, from, token, (to, client), events),
            Command::Forget { client } => {
                // Each guard that is dropped comes here: among many locks it must find its own at once.
                let gone = self.owned.range((owner(client), Name::from(""))..);
                let gone = gone.take_while(|(of, _)| *of == owner(client)).cloned().collect();
                let left = self.end_all(gone, |_| Cause::Forgotten, events);
                self.promote_all(at, left, events);
                Ok(Done::Ended)
            }
        }
    }

    fn members(&mut self, at: At, change: &Change, events: &mut Vec<Event>) {
        let members: BTreeSet<_> = change.members.iter().copied().collect();
        // A member that left and came back in one change is new: what it held before, it gave up.
        let again: BTreeSet<_> = change.joined.iter().chain(&change.gone).copied().collect();
        self.state.set_members(members.clone());
        let departed = !planted!(KeepLocksOfDeparted);
        let gone =
            |owner: Owner| departed && (!members.contains(&owner.member) || again.contains(&owner.member));
        let gone = self
            .owned
            .iter()
            .filter(|(owner, _)| gone(*owner))
            .cloned()
            .collect();
        // All that goes is gone before anything is granted: no lock goes to a waiter that departed or is too
        // late.
        let cause = |owner: Owner| match owner.member {
            member if change.left.contains(&member) => Cause::Left,
            member if change.diverged.contains(&member) => Cause::Diverged,
            _ => Cause::Crashed,
        };
        let mut left = self.end_all(gone, cause, events);
        left.extend(self.time_out(at, events));
        self.promote_all(at, left, events);
    }

    fn deadline(&self) -> Option<AgreedTime> {
        self.deadlines
            .first_key_value()
            .map(|((deadline, _), _)| *deadline)
    }

    fn timeout(&mut self, at: At, events: &mut Vec<Event>) {
        let left = self.time_out(at, events);
        self.promote_all(at, left, events);
    }

    fn snapshot(&self) -> Self::Snapshot {
        ByEntry::new(self.state.clone())
    }

    fn restore(&mut self, state: &[u8], complete: bool) -> Result<usize, RestoreError> {
        restore(self, state, complete)
    }

    fn serial(&self) -> Option<u64> {
        Some(self.state.tokens.last())
    }

    fn digest(&self) -> Option<u64> {
        Some(self.state.digest())
    }

    fn definition(&self) -> String {
        let Options {
            max_locks,
            max_claims,
        } = &self.options;
        format!("locks 1: max_locks {max_locks}, max_claims {max_claims}")
    }
}
