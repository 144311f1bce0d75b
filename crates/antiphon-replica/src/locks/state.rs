//! The locks at one point, for readers and for joiners. A clone is cheap, and does not change when the table
//! does.

use std::collections::BTreeSet;
use std::sync::Arc;

use antiphon_core::wire::Incarnation;

use super::lock::Place;
use super::{Claim, Lock, LockTable, MAX_NAME_BYTES, Name, Options, Owner, Token};
use crate::digest::{Sum, part};
use crate::ordered::Ordered;
use crate::serials::Serials;
use crate::state::{Entries, Reader, Restore, Restoring, Stop, Writer, ensure, write_after};
use crate::{AgreedTime, RestoreError};

/// The locks at one point.
#[derive(Debug, Clone)]
pub struct State {
    pub(super) locks: Ordered<Name, Arc<Lock>>,
    pub(super) members: Arc<BTreeSet<Incarnation>>,
    pub(super) tokens: Serials,
    /// The agreed time up to which things have been done. It never goes back.
    pub(super) now: AgreedTime,
    pub(super) claims: usize,
    digest: Sum,
    pub(super) definition: Arc<str>,
}

impl State {
    pub(super) fn new(definition: Arc<str>) -> Self {
        Self {
            locks: Ordered::new(),
            members: Arc::default(),
            tokens: Serials::default(),
            now: AgreedTime::default(),
            claims: 0,
            digest: Sum::default(),
            definition,
        }
    }

    /// A lock that is held or waited for.
    pub fn lock(&self, name: &str) -> Option<&Lock> {
        self.locks.get(name).map(Arc::as_ref)
    }

    /// All locks that are held or waited for, by their names.
    pub fn iter(&self) -> impl Iterator<Item = (&Name, &Lock)> {
        self.locks.iter().map(|(name, lock)| (name, lock.as_ref()))
    }

    /// The holder of the lock that has it longest: of a leadership, the leader.
    pub fn holder(&self, name: &str) -> Option<(Owner, Token)> {
        let (token, claim) = self.lock(name)?.holders().next()?;
        Some((claim.owner, token))
    }

    pub(super) fn put(&mut self, name: &Name, size: u32, place: Place, claim: Claim) {
        if self.locks.get(name).is_none() {
            self.locks.insert(name.clone(), Arc::new(Lock::new(size)));
        }
        let lock = self.locks.get_mut(name).expect("it is there, or was put there");
        let lock = Arc::make_mut(lock);
        lock.put(place, claim);
        self.digest.add(lock.digest(name, place, &claim));
        self.claims += 1;
    }

    /// Ends a claim, and forgets the lock with its last one.
    pub(super) fn end(&mut self, name: &Name, place: Place) -> Option<Claim> {
        let lock = Arc::make_mut(self.locks.get_mut(name)?);
        let claim = lock.end(place)?;
        self.digest.remove(lock.digest(name, place, &claim));
        self.claims -= 1;
        if lock.is_unused() {
            self.locks.remove(name);
        }
        Some(claim)
    }

    pub(super) fn set_members(&mut self, members: BTreeSet<Incarnation>) {
        let hash = |member: &Incarnation| part(&[b"member"], &[member.0 as u64, (member.0 >> 64) as u64]);
        for member in self.members.difference(&members) {
            self.digest.remove(hash(member));
        }
        for member in members.difference(&self.members) {
            self.digest.add(hash(member));
        }
        self.members = Arc::new(members);
    }

    pub(super) fn digest(&self) -> u64 {
        self.digest
            .with(&[self.claims as u64, self.tokens.last(), self.now.millis])
    }

    /// Whether a claim that was read can stand beside those before it.
    fn check(
        &self,
        name: &Name,
        size: u32,
        place: Place,
        claim: &Claim,
        options: &Options,
    ) -> Result<(), RestoreError> {
        let lock = self.lock(name);
        let free = lock.map_or(size, Lock::free);
        let (possible, deadline) = match place {
            Place::Holds(token) => (
                token.0 <= self.tokens.last()
                    && claim.permits <= free
                    && lock.is_none_or(|lock| lock.holder(token).is_none()),
                claim.deadline.is_none(),
            ),
            Place::Waits(ticket) => (
                claim.permits <= size && lock.is_none_or(|lock| !lock.queue().contains_key(&ticket)),
                claim.deadline.is_none_or(|deadline| self.now < deadline),
            ),
        };
        let lawful = possible
            && deadline
            && claim.permits >= 1
            && lock.is_none_or(|lock| lock.place(claim.owner).is_none())
            && self.members.contains(&claim.owner.member)
            && self.claims < options.max_claims as usize;
        ensure(lawful, || {
            format!("{name:?} cannot be held or waited for like this: {place:?} {claim:?} of {size}")
        })
    }
}

impl Entries for State {
    type Key = Name;

    fn definition(&self) -> &str {
        &self.definition
    }

    fn write_beginning(&self, to: &mut Writer) {
        let members: Vec<u128> = self.members.iter().map(|member| member.0).collect();
        to.put(&(self.tokens, self.now, members, self.locks.len() as u64));
    }

    fn write_entries(&self, after: Option<&Name>, about: usize, to: &mut Writer) -> Option<Name> {
        write_after(&self.locks, after, about, to, |name, lock, to| {
            let holders: Vec<_> = lock.holders().collect();
            let queue: Vec<_> = lock.queue().iter().collect();
            to.put(&(name.as_ref(), lock.total(), holders, queue));
        })
    }

    fn digest(&self) -> u64 {
        self.digest()
    }

    fn bytes(&self) -> u64 {
        (self.locks.len() + 2 * self.claims) as u64 * 32
    }
}

impl Restore for LockTable {
    fn restoring(&mut self) -> &mut Restoring {
        &mut self.restoring
    }

    fn defined(&self) -> Arc<str> {
        self.state.definition.clone()
    }

    fn begin(&mut self, reader: &mut Reader<'_>) -> Result<u64, Stop> {
        let (members, count): (Vec<u128>, u64);
        let mut read = State::new(self.state.definition.clone());
        (read.tokens, read.now, members, count) = reader.take("beginning")?;
        read.set_members(members.into_iter().map(Incarnation).collect());
        let max_locks = self.options.max_locks;
        ensure(count <= u64::from(max_locks), || {
            format!("{count} locks exceed the bound max_locks, {max_locks}")
        })?;
        self.state = read;
        self.held.clear();
        self.owned.clear();
        self.deadlines.clear();
        Ok(count)
    }

    fn take_entry(&mut self, reader: &mut Reader<'_>) -> Result<(), Stop> {
        let (name, size): (&str, u32) = reader.take("locks")?;
        let holders: Vec<(Token, Claim)> = reader.take("holders")?;
        let queue: Vec<(u64, Claim)> = reader.take("queues")?;
        let read = &mut self.state;
        let in_order = read.locks.last().is_none_or(|(last, _)| **last < *name);
        ensure(in_order, || format!("{name:?} is not after the name before it"))?;
        ensure((1..=MAX_NAME_BYTES).contains(&name.len()), || {
            format!("a name has {} bytes", name.len())
        })?;
        ensure(!holders.is_empty() || !queue.is_empty(), || {
            format!("{name:?} has no holder and no waiter")
        })?;
        let name: Name = name.into();
        let holds = holders
            .into_iter()
            .map(|(token, claim)| (Place::Holds(token), claim));
        let waits = queue
            .into_iter()
            .map(|(ticket, claim)| (Place::Waits(ticket), claim));
        for (place, claim) in holds.chain(waits) {
            read.check(&name, size, place, &claim, &self.options)?;
            read.put(&name, size, place, claim);
            self.owned.insert((claim.owner, name.clone()));
            let other = match (place, claim.deadline) {
                (Place::Holds(token), _) => self.held.insert(token, name.clone()),
                (Place::Waits(ticket), Some(deadline)) => {
                    self.deadlines.insert((deadline, ticket), name.clone())
                }
                (Place::Waits(_), None) => None,
            };
            ensure(other.is_none(), || match place {
                Place::Holds(token) => format!("{other:?} and {name:?} are held with one token, {token}"),
                Place::Waits(_) => format!("{other:?} and {name:?} were asked for at one place of the order"),
            })?;
        }
        Ok(())
    }

    fn end(&mut self) -> Result<u64, RestoreError> {
        let digest = self.state.digest();
        if planted!(ForgetTokens) {
            self.state.tokens = Default::default();
        }
        Ok(digest)
    }
}
