mod model;

use std::time::Duration;

use super::*;
use crate::Snapshot as _;
use crate::state::restore_in_parts;

/// A table, the place of the order, and what the table told since it was last asked.
struct Told {
    table: LockTable,
    at: At,
    events: Vec<Event>,
}

const A: Incarnation = Incarnation(1);
const B: Incarnation = Incarnation(2);
const C: Incarnation = Incarnation(3);

fn owner(member: Incarnation, client: u64) -> Owner {
    Owner { member, client }
}

fn permits(take: u32, of: u32) -> Mode {
    Mode::Permits { take, of }
}

impl Told {
    fn with(options: Options) -> Self {
        let at = At {
            index: 0,
            time: AgreedTime::default(),
            founded: 1,
        };
        let mut told = Self {
            table: LockTable::new(options),
            at,
            events: Vec::new(),
        };
        told.members(&[A, B, C]);
        told
    }

    fn new() -> Self {
        Self::with(Options::default())
    }

    fn members(&mut self, members: &[Incarnation]) {
        let before = &self.table.state.members;
        let change = Change {
            members: members.to_vec(),
            joined: members.iter().filter(|m| !before.contains(m)).copied().collect(),
            gone: before.iter().filter(|m| !members.contains(m)).copied().collect(),
            ..Change::default()
        };
        self.change(&change);
    }

    fn change(&mut self, change: &Change) {
        self.at.index += 1;
        self.table.members(self.at, change, &mut self.events);
    }

    fn tell(&mut self, from: Incarnation, command: Command) -> Result<Done, Refused> {
        self.at.index += 1;
        self.table.apply(self.at, from, command, &mut self.events)
    }

    /// Acquires at once, for client 0.
    fn token(&mut self, from: Incarnation, name: &str) -> Token {
        match self.tell(from, Command::acquire(name, 0)) {
            Ok(Done::Granted(token)) => token,
            other => panic!("{other:?}"),
        }
    }

    fn waits(&mut self, from: Incarnation, command: Command) {
        assert_eq!(self.tell(from, command), Ok(Done::Waiting));
    }

    fn time_out(&mut self, millis: u64) {
        self.at.index += 1;
        self.at.time.millis = millis;
        self.table.timeout(self.at, &mut self.events);
    }

    fn happened(&mut self) -> Vec<(Owner, What)> {
        self.events
            .drain(..)
            .map(|event| (event.owner, event.what))
            .collect()
    }

    fn holders(&self, name: &str) -> Vec<Incarnation> {
        let lock = self.table.state().lock(name);
        lock.map_or(Vec::new(), |lock| {
            lock.holders().map(|(_, claim)| claim.owner.member).collect()
        })
    }
}

#[test]
fn a_departed_holder_loses_the_lock_and_the_next_one_has_it_in_the_same_step_with_a_higher_token() {
    let mut locks = Told::new();
    let first = locks.token(A, "x");
    locks.waits(B, Command::acquire("x", 0));
    locks.waits(C, Command::acquire("x", 0));
    locks.happened();
    locks.members(&[A, C]);
    assert_eq!(locks.happened(), [], "B only waited");
    locks.members(&[C]);
    let second = Token(first.0 + 1);
    assert_eq!(
        locks.happened(),
        [
            (owner(A, 0), What::Lost(first, Cause::Crashed)),
            (owner(C, 0), What::Granted(second)),
        ]
    );
    let refused = locks.tell(A, Command::release(first)).unwrap_err();
    assert_eq!(refused.to_string(), "the member that asks is not in the group");
}

#[test]
fn a_member_that_leaves_and_comes_back_in_one_change_has_lost_its_locks() {
    let mut locks = Told::new();
    let token = locks.token(A, "x");
    locks.happened();
    locks.change(&Change {
        members: vec![B, C, A],
        joined: vec![A],
        gone: vec![A],
        left: vec![A],
        ..Change::default()
    });
    assert_eq!(locks.happened(), [(owner(A, 0), What::Lost(token, Cause::Left))]);
}

#[test]
fn what_a_member_held_says_whether_it_left_died_or_its_state_differed() {
    let mut locks = Told::new();
    let tokens = [A, B, C].map(|member| locks.token(member, &format!("of {}", member.0)));
    locks.happened();
    locks.change(&Change {
        members: vec![C],
        gone: vec![A, B],
        left: vec![A],
        ..Change::default()
    });
    let lost = |member, token, cause| (owner(member, 0), What::Lost(token, cause));
    assert_eq!(
        locks.happened(),
        [
            lost(A, tokens[0], Cause::Left),
            lost(B, tokens[1], Cause::Crashed)
        ]
    );
    locks.change(&Change {
        gone: vec![C],
        diverged: vec![C],
        ..Change::default()
    });
    assert_eq!(locks.happened(), [lost(C, tokens[2], Cause::Diverged)]);
}

#[test]
fn shared_holders_are_together_and_one_behind_a_waiting_exclusive_claim_waits() {
    let mut locks = Told::new();
    let shared = || Command::acquire("x", 0).mode(Mode::Shared);
    let Ok(Done::Granted(first)) = locks.tell(A, shared()) else {
        panic!()
    };
    locks.waits(B, Command::acquire("x", 0));
    locks.waits(C, shared());
    assert_eq!(
        locks.tell(C, Command::acquire("x", 1).mode(Mode::Shared).at_once()),
        Err(Refused::Busy)
    );
    locks.tell(A, Command::release(first)).unwrap();
    assert_eq!(locks.holders("x"), [B]);
    // The exclusive holder goes: all shared claims at the front are granted together.
    locks.waits(A, shared());
    locks.members(&[A, C]);
    assert_eq!(locks.holders("x"), [C, A]);
}

#[test]
fn a_wait_ends_in_agreed_time_and_those_behind_it_go_on() {
    let mut locks = Told::new();
    locks
        .tell(A, Command::acquire("x", 0).mode(Mode::Shared))
        .unwrap();
    locks.waits(B, Command::acquire("x", 0).within(Duration::from_millis(100)));
    locks.waits(C, Command::acquire("x", 0).mode(Mode::Shared));
    assert_eq!(locks.table.deadline(), Some(AgreedTime { millis: 100 }));
    locks.happened();
    locks.time_out(100);
    let happened = locks.happened();
    assert_eq!(happened[0], (owner(B, 0), What::TimedOut));
    assert_eq!((happened.len(), locks.holders("x")), (2, vec![A, C]));
    assert_eq!(locks.table.deadline(), None);
}

#[test]
fn a_waiter_that_is_too_late_is_not_granted_what_a_departed_member_leaves() {
    let mut locks = Told::new();
    locks.token(A, "x");
    locks.waits(B, Command::acquire("x", 0).within(Duration::from_millis(100)));
    locks.waits(C, Command::acquire("x", 0));
    locks.at.time.millis = 100;
    locks.members(&[B, C]);
    assert_eq!(locks.holders("x"), [C]);
}

#[test]
fn a_semaphore_has_one_size_while_it_is_used() {
    let mut locks = Told::new();
    let take = |count| Command::acquire("s", 0).mode(permits(count, 3)).at_once();
    locks.tell(A, take(2)).unwrap();
    assert_eq!(locks.tell(B, take(2)), Err(Refused::Busy));
    locks.tell(B, take(1)).unwrap();
    let refused = locks.tell(C, Command::acquire("s", 0)).unwrap_err();
    assert_eq!(
        refused.to_string(),
        "the name is in use for a semaphore of 3 permits"
    );
    for mode in [permits(0, 3), permits(4, 3), permits(1, u32::MAX)] {
        assert!(matches!(
            locks.tell(C, Command::acquire("t", 0).mode(mode)),
            Err(Refused::Permits { .. })
        ));
    }
    locks.members(&[C]);
    locks
        .tell(C, Command::acquire("s", 0))
        .expect("it was forgotten with its last holder");
}

#[test]
fn a_lock_that_was_forgotten_is_granted_with_a_higher_token_also_when_the_cluster_is_founded_anew() {
    let mut locks = Told::new();
    let first = locks.token(A, "x");
    locks.tell(A, Command::release(first)).unwrap();
    assert!(locks.table.state().lock("x").is_none());
    let second = locks.token(B, "x");
    assert!(second > first);
    let mut anew = Told::new();
    anew.at.founded = 2;
    assert!(anew.token(A, "x") > second);
}

#[test]
fn a_lock_is_not_reentrant_and_only_its_member_releases_it() {
    let mut locks = Told::new();
    let token = locks.token(A, "x");
    assert_eq!(
        locks.tell(A, Command::acquire("x", 0)),
        Err(Refused::Holds { token })
    );
    locks.waits(A, Command::acquire("x", 1));
    assert_eq!(locks.tell(A, Command::acquire("x", 1)), Err(Refused::Waits));
    assert_eq!(
        locks.tell(B, Command::release(token)),
        Err(Refused::NotHeld { token })
    );
    let abandon = || Command::Abandon {
        name: "x".into(),
        client: 1,
    };
    locks.tell(A, abandon()).unwrap();
    assert_eq!(locks.tell(A, abandon()), Err(Refused::WaitsNot));
    locks.tell(A, Command::release(token)).unwrap();
    assert_eq!(
        locks.tell(A, Command::release(token)),
        Err(Refused::NotHeld { token })
    );
}

#[test]
fn a_leader_hands_over_to_a_candidate_of_its_choice_and_to_nobody_else() {
    let mut locks = Told::new();
    let name = leadership("jobs");
    let token = locks.token(A, &name);
    locks.waits(B, Command::acquire(&name, 0));
    locks.waits(C, Command::acquire(&name, 7));
    locks.waits(C, Command::acquire(&name, 8));
    assert_eq!(
        locks.tell(A, Command::transfer(token, A)),
        Err(Refused::NoSuccessor)
    );
    assert_eq!(
        locks.tell(B, Command::transfer(token, B)),
        Err(Refused::NotHeld { token })
    );
    locks.happened();
    let Ok(Done::Granted(second)) = locks.tell(A, Command::transfer(token, C)) else {
        panic!()
    };
    assert_eq!(
        locks.happened(),
        [
            (owner(A, 0), What::Lost(token, Cause::HandedOver(owner(C, 7)))),
            (owner(C, 7), What::Granted(second)),
        ]
    );
    assert_eq!(locks.table.state().holder(&name), Some((owner(C, 7), second)));
    locks.tell(C, Command::hand_over(second, owner(C, 8))).unwrap();
    locks.tell(C, Command::Forget { client: 8 }).unwrap();
    assert_eq!(locks.holders(&name), [B]);
}

#[test]
fn a_hand_over_of_one_permit_makes_no_room_for_a_successor_that_wants_more() {
    let mut locks = Told::new();
    let take = |client, count| Command::acquire("s", client).mode(permits(count, 3));
    let Ok(Done::Granted(token)) = locks.tell(A, take(0, 1)) else {
        panic!()
    };
    locks.tell(A, take(1, 2)).unwrap();
    locks.waits(B, take(0, 3));
    assert_eq!(
        locks.tell(A, Command::transfer(token, B)),
        Err(Refused::TooMuch { wanted: 3, free: 1 })
    );
    assert_eq!(locks.holders("s"), [A, A]);
}

#[test]
fn names_locks_and_claims_are_bounded_and_errors_name_the_bound() {
    let mut locks = Told::with(Options {
        max_locks: 2,
        max_claims: 3,
    });
    locks.token(A, "x");
    locks.token(A, "y");
    let refused = locks.tell(A, Command::acquire("z", 0)).unwrap_err().to_string();
    assert_eq!(refused, "2 locks are in use, which is the bound max_locks");
    locks.waits(B, Command::acquire("x", 0));
    let refused = locks.tell(C, Command::acquire("x", 0)).unwrap_err().to_string();
    assert_eq!(
        refused,
        "there are 3 holders and waiters, which is the bound max_claims"
    );
    for name in ["", &"n".repeat(MAX_NAME_BYTES + 1)] {
        assert!(matches!(
            locks.tell(A, Command::acquire(name, 0)),
            Err(Refused::Name { .. })
        ));
    }
}

#[test]
fn when_all_tokens_have_been_given_nothing_is_granted_and_nothing_breaks() {
    let mut locks = Told::new();
    let all = std::num::NonZeroU32::new((1 << 22) - 1).unwrap();
    locks.table.state.tokens.take(u64::MAX >> 22, all).unwrap();
    assert_eq!(locks.tell(A, Command::acquire("x", 0)), Err(Refused::Exhausted));
    assert!(locks.table.state().lock("x").is_none());
}

#[test]
fn a_snapshot_stays_while_locks_change_and_a_table_goes_on_from_it() {
    let mut locks = Told::new();
    let token = locks.token(A, "x");
    locks.waits(B, Command::acquire("x", 0).within(Duration::from_millis(9)));
    let snapshot = locks.table.snapshot();
    locks.members(&[B, C]);
    assert_eq!(
        locks.table.state().holder("x").map(|(owner, _)| owner),
        Some(owner(B, 0))
    );
    let mut other = Told::new();
    restore_in_parts(&mut other.table, snapshot, 1, 3);
    assert_eq!(other.table.state().holder("x"), Some((owner(A, 0), token)));
    other.time_out(9);
    other.tell(A, Command::release(token)).unwrap();
    assert!(other.token(C, "x") > token);
}

#[test]
fn a_state_that_gives_one_token_to_two_holders_is_refused() {
    let mut locks = Told::new();
    let take = |client| Command::acquire("s", client).mode(permits(1, 3));
    let Ok(Done::Granted(first)) = locks.tell(A, take(0)) else {
        panic!()
    };
    let Ok(Done::Granted(second)) = locks.tell(A, take(1)) else {
        panic!()
    };
    let mut state = locks.table.snapshot().read_all().unwrap();
    let [first, second] = [first, second].map(|token| postcard::to_stdvec(&token).unwrap());
    let at = state
        .windows(second.len())
        .rposition(|bytes| bytes == second)
        .unwrap();
    state[at..at + first.len()].copy_from_slice(&first);
    let error = locks.table.restore(&state, true).unwrap_err().to_string();
    assert!(error.contains("cannot be held"), "{error}");
}
