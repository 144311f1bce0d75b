//! Two components that part, write or wait, and merge: for no member do versions or stamps go back.

use std::collections::BTreeMap;
use std::time::Duration;

use antiphon_core::wire::Incarnation;
use antiphon_core::{GroupView, Time};
use bytes::Bytes;
use proptest::prelude::*;

use super::super::{Ack, Config, Output, Replica, Standing};
use super::Planted;
use super::group::view_of;
use crate::map::{MapMachine, Options, Stamp, Write};
use crate::{At, Version};

/// What a reader has seen of each key.
type Read = BTreeMap<Bytes, (Version, Stamp, Bytes)>;

/// Two members, which are in one component or in two.
struct Pair {
    replicas: [Replica<MapMachine>; 2],
    names: [Incarnation; 2],
    seen: [Read; 2],
    micros: [u64; 2],
    k: u32,
    incarnations: u128,
    together: bool,
}

impl Pair {
    fn new() -> Self {
        let names = [Incarnation(1 << 64), Incarnation(2 << 64)];
        let make = || MapMachine::new(Options::default());
        let mut pair = Self {
            replicas: names.map(|name| Replica::new(name, Config::default(), make)),
            names,
            seen: Default::default(),
            micros: [1_000_000, 7_000_000],
            k: 0,
            incarnations: 2,
            together: false,
        };
        pair.view(0, &[0], &[0], &[]);
        pair.k += 1;
        pair.meet(0);
        pair
    }

    fn view(&mut self, at: usize, members: &[usize], joined: &[usize], crashed: &[Incarnation]) {
        let names = |of: &[usize]| of.iter().map(|member| self.names[*member]).collect::<Vec<_>>();
        let view = GroupView {
            crashed: crashed.to_vec(),
            ..view_of(self.k + 1, &names(members), &names(joined))
        };
        let now = Time::from_micros(self.micros[at]);
        self.replicas[at].handle_view(now, &view);
    }

    /// The other member comes to the group of this one.
    fn meet(&mut self, first: usize) {
        let other = 1 - first;
        for at in [first, other] {
            self.view(at, &[first, other], &[other], &[]);
        }
        self.k += 1;
        self.together = true;
        self.settle();
        let standings = self.replicas.each_ref().map(Replica::standing);
        assert_eq!(standings, [Standing::Serving; 2]);
    }

    /// Each member is alone; whether both go on is up to the policy of the cluster.
    fn part(&mut self, majority: Option<usize>) {
        for at in [0, 1] {
            if majority.is_none_or(|of| of == at) {
                self.view(at, &[at], &[], &[self.names[1 - at]]);
            } else {
                self.replicas[at].handle_suspended();
            }
        }
        self.k += 1;
        self.together = false;
        self.settle();
    }

    /// The component of this member goes on, and the other member is a fresh incarnation in it.
    fn merge(&mut self, first: usize) {
        let other = 1 - first;
        self.incarnations += 1;
        self.names[other] = Incarnation(self.incarnations << 64);
        self.replicas[other].handle_resync(self.names[other], "removed");
        self.meet(first);
    }

    fn write(&mut self, at: usize, key: u8, value: u8, millis: u64) {
        self.micros[at] += millis * 1_000;
        let write = match value {
            0 => Write::remove(vec![key]),
            _ => Write::put(vec![key], vec![value]),
        };
        if self.replicas[at].write(&write.into(), Ack::Here).is_ok() {
            self.settle();
        }
    }

    /// The senior member writes what lives so long.
    fn write_for_ten_seconds(&mut self) {
        let write = Write::put(vec![2], vec![2]).expiring(Duration::from_secs(10));
        self.replicas[0].write(&write.into(), Ack::Here).unwrap();
        self.settle();
    }

    /// Also by a time that another member has said.
    fn assert_that_ten_seconds_end_in_time(&mut self) {
        self.write_for_ten_seconds();
        let due = self.replicas[0].poll_timeout().unwrap();
        assert!(due <= Time::from_micros(self.micros[0] + 10_000_000), "{due:?}");
    }

    /// All that is sent is delivered, in one order for each component.
    fn settle(&mut self) {
        loop {
            let mut sent = Vec::new();
            for at in [0, 1] {
                let now = Time::from_micros(self.micros[at]);
                let mut reads = true;
                while reads {
                    self.replicas[at].outputs(now, |output| {
                        sent.push((at, output));
                        true
                    });
                    reads = self.replicas[at].wants_reading();
                    if let Some(reading) = self.replicas[at].poll_reading() {
                        self.replicas[at].handle_read(reading.run());
                    }
                }
            }
            if sent.is_empty() {
                break;
            }
            for (from, output) in sent {
                let name = self.names[from];
                for at in [0, 1] {
                    let now = Time::from_micros(self.micros[at]);
                    match &output {
                        Output::Send(payload) if at == from || self.together => {
                            self.replicas[at].handle_message(now, name, payload);
                        }
                        Output::Tell { to, payload } if self.names[at] == *to && self.together => {
                            self.replicas[at].handle_told(now, name, payload);
                        }
                        _ => {}
                    }
                }
            }
            self.look();
        }
        self.look();
    }

    /// A16: of no key does any member read an older version or stamp than it has read; and it reads another
    /// value only with a higher version.
    fn look(&mut self) {
        for (replica, seen) in self.replicas.iter().zip(&mut self.seen) {
            let _ = replica.read(|map| {
                for (key, entry) in map.state().iter() {
                    let now = (entry.version, entry.modified, entry.value.clone());
                    if let Some(former) = seen.insert(key.clone(), now.clone()) {
                        assert!(former.0 <= now.0, "A16: {key:?} was {former:?}, is {now:?}");
                        assert!(former.1 <= now.1, "A16: {key:?} was {former:?}, is {now:?}");
                        assert!(
                            former.2 == now.2 || former.0 < now.0,
                            "{key:?}: {former:?} {now:?}"
                        );
                    }
                }
            });
        }
    }

    /// The highest version that any member has read.
    fn highest(&self) -> Version {
        let read = self.seen.iter().flat_map(BTreeMap::values);
        read.map(|(version, ..)| *version).max().unwrap_or_default()
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn versions_and_stamps_never_go_back_over_merges_whatever_the_policy(
        rounds in prop::collection::vec(
            (
                prop::option::of(0..2usize),
                0..2usize,
                prop::collection::vec((0..2usize, 0..4u8, 0..9u8, 0..5_000u64), 0..25),
            ),
            1..5,
        ),
    ) {
        let mut pair = Pair::new();
        for (majority, first, writes) in rounds {
            for (at, key, value, millis) in &writes[..writes.len() / 3] {
                pair.write(*at, *key, *value, *millis);
            }
            pair.part(majority);
            for (at, key, value, millis) in &writes[writes.len() / 3..] {
                pair.write(*at, *key, *value, *millis);
            }
            let highest = pair.highest();
            pair.merge(majority.unwrap_or(first));
            let states = pair.replicas.each_ref().map(|replica| replica.read(|map| {
                map.state().iter().map(|(key, entry)| (key.clone(), entry.clone())).collect::<Vec<_>>()
            }));
            prop_assert_eq!(&states[0], &states[1]);
            pair.write(1, 77, 1, 1);
            let written = pair.replicas[0].read(|map| map.get(&[77]).map(|entry| entry.version));
            prop_assert!(written.unwrap().unwrap() > highest, "the next version is above all of both");
        }
    }
}

#[test]
fn a_state_that_takes_no_notice_of_what_a_joiner_has_seen_is_found_out() {
    let merge = |planted| {
        let mut pair = Pair::new();
        for replica in &mut pair.replicas {
            replica.planted = planted;
        }
        pair.write(0, 1, 1, 10);
        pair.part(None);
        // The side that gives way writes more, and later.
        for value in 1..5 {
            pair.write(1, 1, value, 5_000);
        }
        pair.write(0, 1, 9, 1);
        pair.merge(0);
    };
    merge(None);
    for planted in [Planted::ForgetWhatWasSeen, Planted::KeepTheTime] {
        let found = std::panic::catch_unwind(|| merge(Some(planted)));
        assert!(found.is_err(), "{planted:?}");
    }
}

#[test]
fn a_leader_counts_on_from_the_latest_time_that_any_member_has_said() {
    let mut pair = Pair::new();
    // The clock of the junior member is an hour ahead.
    pair.write(1, 1, 1, 3_600_000);
    pair.assert_that_ten_seconds_end_in_time();
}

#[test]
fn only_the_leader_says_that_a_deadline_has_come() {
    let mut pair = Pair::new();
    pair.write_for_ten_seconds();
    let [leader, junior] = &mut pair.replicas;
    let later = Time::from_micros(60_000_000);
    junior.handle_timeout(later);
    junior.outputs(later, |output| panic!("{output:?}"));
    leader.handle_timeout(later);
    let mut says = 0;
    leader.outputs(later, |output| {
        says += u32::from(matches!(output, Output::Send(_)));
        true
    });
    assert_eq!(says, 1);
}

#[test]
fn a_leader_counts_on_from_the_time_to_which_a_merge_has_lifted_the_state() {
    let mut pair = Pair::new();
    pair.part(None);
    pair.write(1, 1, 1, 3_600_000);
    pair.merge(0);
    pair.assert_that_ten_seconds_end_in_time();
}

#[test]
fn a_state_that_is_founded_anew_rises_above_what_its_founder_has_seen() {
    let mut pair = Pair::new();
    pair.write(0, 1, 1, 5_000);
    let highest = pair.highest();
    pair.names[1] = Incarnation(9 << 64);
    pair.replicas[1].handle_resync(pair.names[1], "removed");
    pair.k += 5;
    pair.together = false;
    pair.view(1, &[1], &[1], &[]);
    pair.settle();
    // Its clock says that nothing was founded before.
    pair.write(1, 1, 2, 0);
    assert!(pair.highest() > highest);
}

#[test]
fn numbers_end_at_the_last_one_also_where_a_member_says_that_it_has_seen_that() {
    let mut map = MapMachine::new(Options::default());
    let at = |founded| At {
        index: 1,
        time: Default::default(),
        founded,
    };
    let put = || Write::put("a", "1").into();
    let mut events = Vec::new();
    use crate::Machine as _;
    map.apply(at(1), Incarnation(1), put(), &mut events).unwrap();
    let founded = crate::serials::founded_above(u64::MAX);
    map.members(at(founded), &Default::default(), &mut events);
    map.apply(at(founded), Incarnation(1), put(), &mut events)
        .unwrap();
    assert!(map.get(b"a").is_some());
}
