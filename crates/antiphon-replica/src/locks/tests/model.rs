//! A table of locks beside a naive model of it, and beside a judge that hears its events only.

use proptest::prelude::*;

use super::*;

/// What can happen to a table.
#[derive(Debug, Clone)]
enum Step {
    Tell(Incarnation, Command),
    /// A command with one of the tokens that are or were held.
    Release(prop::sample::Index),
    HandOver(prop::sample::Index, Owner, bool),
    Members(Vec<Incarnation>, Option<Incarnation>),
    Pass(u64),
    Timeout,
    Restore,
}

fn step() -> impl Strategy<Value = Step> {
    let member = || (1..5u128).prop_map(Incarnation);
    let name = || prop_oneof![Just("x"), Just("y"), Just("z")];
    let mode = prop_oneof![
        3 => Just(Mode::Exclusive),
        3 => Just(Mode::Shared),
        2 => (1..4u32).prop_map(|take| permits(take, 3)),
    ];
    let wait = prop_oneof![
        1 => Just(Wait::Try),
        3 => (0..30u64).prop_map(Wait::WithinMs),
        3 => Just(Wait::Forever),
    ];
    let acquire = (member(), name(), 0..2u64, mode, wait).prop_map(|(from, name, client, mode, wait)| {
        let name = name.into();
        Step::Tell(
            from,
            Command::Acquire {
                name,
                client,
                mode,
                wait,
            },
        )
    });
    let abandon = (member(), name(), 0..2u64).prop_map(|(from, name, client)| {
        Step::Tell(
            from,
            Command::Abandon {
                name: name.into(),
                client,
            },
        )
    });
    let forget = (member(), 0..2u64).prop_map(|(from, client)| Step::Tell(from, Command::Forget { client }));
    let hand_over = (any::<prop::sample::Index>(), member(), 0..2u64, any::<bool>())
        .prop_map(|(token, to, client, named)| Step::HandOver(token, owner(to, client), named));
    let members = (
        prop::sample::subsequence(vec![A, B, C, Incarnation(4)], 1..=4),
        prop::option::of(member()),
    );
    prop_oneof![
        12 => acquire,
        5 => any::<prop::sample::Index>().prop_map(Step::Release),
        3 => hand_over,
        1 => abandon,
        1 => forget,
        2 => members.prop_map(|(members, again)| Step::Members(members, again)),
        3 => (0..15u64).prop_map(Step::Pass),
        1 => Just(Step::Timeout),
        1 => Just(Step::Restore),
    ]
}

/// A table as one would write it without thought of speed.
#[derive(Debug, Default)]
struct Model {
    members: Vec<Incarnation>,
    locks: BTreeMap<Name, ModelLock>,
    given: u64,
}

#[derive(Debug, Default, PartialEq)]
struct ModelLock {
    size: u32,
    /// Owner, permits, token.
    holders: Vec<(Owner, u32, Token)>,
    /// Owner, permits, deadline.
    queue: Vec<(Owner, u32, Option<u64>)>,
}

impl ModelLock {
    fn free(&self) -> u64 {
        u64::from(self.size)
            - self
                .holders
                .iter()
                .map(|(_, permits, _)| u64::from(*permits))
                .sum::<u64>()
    }
}

impl Model {
    fn next(given: &mut u64) -> Token {
        *given += 1;
        Token(1 << 22 | *given)
    }

    /// Grants what can be granted and forgets what is not used.
    fn settle(&mut self) {
        for lock in self.locks.values_mut() {
            while let Some((owner, permits, _)) = lock.queue.first().copied()
                && u64::from(permits) <= lock.free()
            {
                lock.queue.remove(0);
                lock.holders.push((owner, permits, Self::next(&mut self.given)));
            }
        }
        self.locks
            .retain(|_, lock| !lock.holders.is_empty() || !lock.queue.is_empty());
    }

    fn end(&mut self, gone: impl Fn(Owner) -> bool) {
        for lock in self.locks.values_mut() {
            lock.holders.retain(|(owner, ..)| !gone(*owner));
            lock.queue.retain(|(owner, ..)| !gone(*owner));
        }
    }

    fn time_out(&mut self, now: u64) {
        for lock in self.locks.values_mut() {
            lock.queue
                .retain(|(_, _, deadline)| deadline.is_none_or(|deadline| now < deadline));
        }
    }

    /// The reply, without why something was refused.
    fn tell(&mut self, from: Incarnation, command: &Command, now: u64) -> Option<Done> {
        let owner = |client| Owner { member: from, client };
        if !self.members.contains(&from) {
            return None;
        }
        match command {
            Command::Acquire {
                name,
                client,
                mode,
                wait,
            } => {
                let (permits, size) = mode.permits().unwrap();
                let lock = self.locks.entry(name.clone()).or_insert(ModelLock {
                    size,
                    ..ModelLock::default()
                });
                let known = lock
                    .holders
                    .iter()
                    .map(|h| h.0)
                    .chain(lock.queue.iter().map(|w| w.0));
                if lock.size != size || known.into_iter().any(|known| known == owner(*client)) {
                    return None;
                }
                if lock.queue.is_empty() && u64::from(permits) <= lock.free() {
                    let token = Self::next(&mut self.given);
                    lock.holders.push((owner(*client), permits, token));
                    return Some(Done::Granted(token));
                }
                let deadline = match wait {
                    Wait::Try | Wait::WithinMs(0) => return None,
                    Wait::WithinMs(millis) => Some(now + millis),
                    Wait::Forever => None,
                };
                lock.queue.push((owner(*client), permits, deadline));
                return Some(Done::Waiting);
            }
            Command::Abandon { name, client } => {
                let lock = self.locks.get_mut(name)?;
                let at = lock.queue.iter().position(|waiter| waiter.0 == owner(*client))?;
                lock.queue.remove(at);
            }
            Command::Release { token } => {
                let held = |lock: &ModelLock| {
                    lock.holders
                        .iter()
                        .position(|h| h.2 == *token && h.0.member == from)
                };
                let (at, lock) = self
                    .locks
                    .values_mut()
                    .find_map(|lock| Some((held(lock)?, lock)))?;
                lock.holders.remove(at);
            }
            Command::HandOver { token, to, client } => {
                let held = |lock: &ModelLock| {
                    lock.holders
                        .iter()
                        .position(|h| h.2 == *token && h.0.member == from)
                };
                let (at, lock) = self
                    .locks
                    .values_mut()
                    .find_map(|lock| Some((held(lock)?, lock)))?;
                let wanted = |of: Owner| of.member == *to && client.is_none_or(|client| client == of.client);
                let next = lock.queue.iter().position(|waiter| wanted(waiter.0))?;
                if u64::from(lock.queue[next].1) > lock.free() + u64::from(lock.holders[at].1) {
                    return None;
                }
                lock.holders.remove(at);
                let (owner, permits, _) = lock.queue.remove(next);
                let token = Self::next(&mut self.given);
                lock.holders.push((owner, permits, token));
                return Some(Done::Granted(token));
            }
            Command::Forget { client } => self.end(|of| of == owner(*client)),
        }
        Some(Done::Ended)
    }
}

/// What the events alone must say, whatever the table keeps: it knows nothing of either implementation.
#[derive(Debug, Default)]
struct Judge {
    last: Token,
    /// By lock and owner, the token.
    holds: BTreeMap<(Name, Owner), Token>,
}

impl Judge {
    fn hear(&mut self, events: &[Event]) {
        for Event { name, owner, what } in events {
            let key = (name.clone(), *owner);
            match what {
                What::Granted(token) => {
                    assert!(*token > self.last, "tokens rise in the order of grants");
                    self.last = *token;
                    assert_eq!(self.holds.insert(key, *token), None, "an owner holds once");
                }
                What::Released(token) | What::Lost(token, _) => {
                    assert_eq!(self.holds.remove(&key), Some(*token), "only what is held can go");
                }
                What::TimedOut => assert_eq!(self.holds.get(&key), None),
            }
        }
    }

    fn look(&self, table: &LockTable) {
        let mut holds = BTreeMap::new();
        for (name, lock) in table.state().iter() {
            let modes: Vec<_> = lock.holders().map(|(_, claim)| lock.mode(claim)).collect();
            let exclusive = modes.contains(&Mode::Exclusive);
            assert!(
                !exclusive || modes.len() == 1,
                "{name}: exclusive, or shared: {modes:?}"
            );
            let taken: u64 = lock.holders().map(|(_, claim)| u64::from(claim.permits)).sum();
            assert!(
                taken <= u64::from(lock.size().unwrap_or(u32::MAX)),
                "{name}: {taken} permits"
            );
            assert!(lock.next().is_none(), "{name}: nobody waits for what is free");
            let holders = lock
                .holders()
                .map(|(token, claim)| ((name.clone(), claim.owner), token));
            holds.extend(holders);
            let claims = lock.holders().map(|(_, claim)| claim).chain(lock.waiters());
            for claim in claims {
                assert!(
                    table.state.members.contains(&claim.owner.member),
                    "no departed member holds or waits"
                );
                assert!(claim.deadline.is_none_or(|deadline| table.state.now < deadline));
            }
        }
        assert_eq!(holds, self.holds, "the events say who holds what");
    }
}

fn as_model(table: &LockTable) -> BTreeMap<Name, ModelLock> {
    let locks = table.state().iter().map(|(name, lock)| {
        let holders = lock
            .holders()
            .map(|(token, claim)| (claim.owner, claim.permits, token))
            .collect();
        let queue = lock
            .waiters()
            .map(|claim| {
                (
                    claim.owner,
                    claim.permits,
                    claim.deadline.map(|deadline| deadline.millis),
                )
            })
            .collect();
        let size = lock.total();
        (name.clone(), ModelLock { size, holders, queue })
    });
    locks.collect()
}

/// Does a step with the table and the model.
fn both(locks: &mut Told, model: &mut Model, tokens: &[(Incarnation, Token)], step: Step) {
    let token = |at: prop::sample::Index| tokens.get(at.index(tokens.len().max(1))).copied();
    let (from, command) = match step {
        Step::Tell(from, command) => (from, command),
        Step::Release(at) => {
            let Some((from, token)) = token(at) else { return };
            (from, Command::release(token))
        }
        Step::HandOver(at, to, named) => {
            let Some((from, token)) = token(at) else { return };
            let to_member = Command::transfer(token, to.member);
            (
                from,
                if named {
                    Command::hand_over(token, to)
                } else {
                    to_member
                },
            )
        }
        Step::Members(members, again) => {
            let again: Vec<_> = again
                .filter(|member| members.contains(member))
                .into_iter()
                .collect();
            model.end(|owner| !members.contains(&owner.member) || again.contains(&owner.member));
            model.time_out(locks.at.time.millis);
            model.members = members.clone();
            model.settle();
            return locks.change(&Change {
                members,
                joined: again,
                ..Change::default()
            });
        }
        Step::Pass(millis) => {
            locks.at.time.millis += millis;
            return;
        }
        Step::Timeout => {
            model.time_out(locks.at.time.millis);
            model.settle();
            return locks.time_out(locks.at.time.millis);
        }
        Step::Restore => {
            let state = locks.table.snapshot().read_all().unwrap();
            let mut restored = LockTable::new(Options::default());
            restored.restore(&state, true).unwrap();
            assert_eq!(
                restored.digest(),
                locks.table.digest(),
                "kept up to date, and made anew"
            );
            assert_eq!(restored.snapshot().read_all().unwrap(), state, "the same bytes");
            assert_eq!(
                (&restored.held, &restored.deadlines),
                (&locks.table.held, &locks.table.deadlines)
            );
            locks.table = restored;
            return;
        }
    };
    let now = locks.at.time.millis;
    model.time_out(now);
    model.settle();
    let wanted = model.tell(from, &command, now);
    model.settle();
    let reply = locks.tell(from, command);
    assert_eq!(reply.clone().ok(), wanted, "{reply:?}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn locks_do_what_their_model_does_and_never_grant_twice(steps in prop::collection::vec(step(), 1..80)) {
        let mut locks = Told::new();
        let mut model = Model { members: vec![A, B, C], ..Model::default() };
        let mut judge = Judge::default();
        let mut tokens = Vec::new();
        for step in steps {
            let passes = matches!(step, Step::Pass(_));
            both(&mut locks, &mut model, &tokens, step);
            for event in &locks.events {
                if let What::Granted(token) = event.what {
                    tokens.push((event.owner.member, token));
                }
            }
            judge.hear(&std::mem::take(&mut locks.events));
            judge.look(&locks.table);
            if !passes {
                prop_assert_eq!(as_model(&locks.table), std::mem::take(&mut model.locks).into_iter().collect());
                model.locks = as_model(&locks.table);
            }
        }
    }

    #[test]
    fn no_bytes_make_a_table_panic_and_what_is_refused_changes_nothing(
        steps in prop::collection::vec(step(), 1..30),
        cut in any::<prop::sample::Index>(),
        byte in any::<u8>(),
        noise in prop::collection::vec(any::<u8>(), 0..80),
    ) {
        let mut locks = Told::new();
        for step in steps {
            if let Step::Tell(from, command) = step {
                let _ = locks.tell(from, command);
            }
        }
        let mut bytes = locks.table.snapshot().read_all().unwrap();
        let digest = locks.table.digest();
        prop_assert!(locks.table.clone().restore(&noise, true).is_err());
        prop_assert!(locks.table.clone().restore(&bytes[..cut.index(bytes.len())], true).is_err());
        let beginning = postcard::to_stdvec(&locks.table.definition()).unwrap();
        prop_assert!(locks.table.clone().restore(&[beginning, noise].concat(), true).is_err());
        let at = cut.index(bytes.len());
        bytes[at] ^= byte;
        let taken = locks.table.restore(&bytes, true);
        prop_assert!(taken.is_err() || locks.table.digest() == digest, "one byte changed, and it was taken");
    }

    #[test]
    fn a_state_that_a_member_made_up_breaks_nothing(
        steps in prop::collection::vec(step(), 1..30),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
        later in prop::collection::vec(step(), 1..30),
    ) {
        let mut locks = Told::new();
        let mut tokens = Vec::new();
        for (at, step) in steps.into_iter().chain(later).enumerate() {
            if at == 15 {
                let state = locks.table.snapshot().read_all().unwrap();
                let mut restored = locks.table.clone();
                if crate::state::restore_forged(&mut restored, state, &changes).is_ok() {
                    locks.table = restored;
                }
            }
            match step {
                Step::Tell(from, command) => drop(locks.tell(from, command)),
                Step::Release(at) => if let Some((from, token)) = tokens.get(at.index(tokens.len().max(1))) {
                    let _ = locks.tell(*from, Command::release(*token));
                }
                Step::HandOver(at, to, _) => if let Some((from, token)) = tokens.get(at.index(tokens.len().max(1))) {
                    let _ = locks.tell(*from, Command::transfer(*token, to.member));
                }
                Step::Members(members, _) => locks.members(&members),
                Step::Pass(millis) => locks.time_out(locks.at.time.millis + millis),
                Step::Timeout | Step::Restore => {}
            }
            for (_, what) in locks.happened() {
                if let What::Granted(token) = what {
                    tokens.extend([A, B, C].map(|member| (member, token)));
                }
            }
        }
        locks.table.snapshot().read_all().unwrap();
    }
}
