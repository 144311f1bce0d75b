use proptest::prelude::*;

use super::*;
use crate::state::restore_in_parts;
use crate::{AgreedTime, Snapshot as _};

fn tell(table: &mut CounterTable, founded: u64, command: Command) -> Result<Done, Refused> {
    let at = At {
        index: 1,
        time: AgreedTime::default(),
        founded,
    };
    table.apply(at, Incarnation(1), command, &mut Vec::new())
}

fn add(name: &str, by: i64) -> Command {
    Command::Add {
        name: name.into(),
        by,
    }
}

fn set(value: i64, condition: Condition) -> Command {
    Command::Set {
        name: "a".into(),
        value,
        condition,
    }
}

fn value(done: Result<Done, Refused>) -> i64 {
    match done {
        Ok(Done::Counter(Some(counter))) => counter.value,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_sum_that_does_not_fit_is_refused_and_changes_nothing() {
    let mut table = CounterTable::new(Options::default());
    assert_eq!(value(tell(&mut table, 1, add("a", i64::MAX - 1))), i64::MAX - 1);
    assert_eq!(value(tell(&mut table, 1, add("a", 1))), i64::MAX);
    let before = table.digest();
    let refused = tell(&mut table, 1, add("a", 1)).unwrap_err();
    assert_eq!(
        refused.to_string(),
        "9223372036854775807 and 1 do not fit 64 bits with a sign"
    );
    assert_eq!(table.digest(), before);
    assert_eq!(value(tell(&mut table, 1, add("b", i64::MIN))), i64::MIN);
    assert!(tell(&mut table, 1, add("b", -1)).is_err());
}

#[test]
fn a_counter_is_set_only_at_the_version_that_was_read() {
    let mut table = CounterTable::new(Options { max_counters: 1 });
    tell(&mut table, 1, set(5, Condition::Absent)).unwrap();
    let read = table.state().get("a").unwrap();
    tell(&mut table, 1, add("a", 1)).unwrap();
    assert!(tell(&mut table, 1, set(9, Condition::Version(read.version))).is_err());
    assert_eq!(table.state().get("a").unwrap().value, 6);
    let refused = tell(&mut table, 1, add("b", 1)).unwrap_err();
    assert_eq!(
        refused.to_string(),
        "there are 1 counters, which is the bound max_counters"
    );
    let remove = Command::Remove {
        name: "a".into(),
        condition: Condition::Present,
    };
    assert_eq!(tell(&mut table, 1, remove.clone()), Ok(Done::Counter(None)));
    assert!(tell(&mut table, 1, remove).is_err());
    tell(&mut table, 1, add("b", 1)).expect("there is room again");
}

#[test]
fn blocks_of_ids_have_bounds() {
    let mut table = CounterTable::new(Options::default());
    for count in [0, MAX_BLOCK + 1, u32::MAX] {
        assert_eq!(
            tell(&mut table, 1, Command::TakeBlock { count }),
            Err(Refused::Block { count })
        );
    }
    assert_eq!(
        tell(&mut table, 1, Command::TakeBlock { count: 2 }),
        Ok(Done::Block(1 << 22 | 1))
    );
}

#[derive(Debug, Clone)]
enum Step {
    Add(u8, i64),
    Remove(u8),
    Take(u32),
    Restore,
    /// All members end, and the cluster is founded anew.
    FoundAnew,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0..3u8, any::<i64>()).prop_map(|(name, by)| Step::Add(name, by)),
        1 => (0..3u8).prop_map(Step::Remove),
        3 => (1..=MAX_BLOCK).prop_map(Step::Take),
        1 => Just(Step::Restore),
        1 => Just(Step::FoundAnew),
    ]
}

proptest! {
    #[test]
    fn sums_are_right_and_ids_never_come_twice_also_when_founded_anew(steps in prop::collection::vec(step(), 1..60)) {
        let mut table = CounterTable::new(Options::default());
        let mut founded = 1;
        let mut sums = std::collections::BTreeMap::new();
        let (mut last, mut version) = (0, Version::default());
        for step in steps {
            match step {
                Step::Add(name, by) => {
                    let sum: &mut i64 = sums.entry(name.to_string()).or_default();
                    match (tell(&mut table, founded, add(&name.to_string(), by)), sum.checked_add(by)) {
                        (Ok(Done::Counter(Some(counter))), Some(right)) => {
                            *sum = right;
                            prop_assert_eq!(counter.value, right);
                            prop_assert!(counter.version > version);
                            version = counter.version;
                        }
                        (Err(Refused::Overflow { .. }), None) => {}
                        other => panic!("{other:?}"),
                    }
                }
                Step::Remove(name) => {
                    let name = name.to_string();
                    sums.remove(&name);
                    tell(&mut table, founded, Command::Remove { name: name.into(), condition: Condition::Always })
                        .unwrap();
                }
                Step::Take(count) => {
                    let Ok(Done::Block(first)) = tell(&mut table, founded, Command::TakeBlock { count }) else {
                        panic!()
                    };
                    prop_assert!(first > last);
                    last = first + u64::from(count) - 1;
                }
                Step::Restore => {
                    let state = table.snapshot().read_all().unwrap();
                    let mut restored = CounterTable::new(Options::default());
                    prop_assert_eq!(&restore_in_parts(&mut restored, table.snapshot(), 1, 3), &state);
                    prop_assert_eq!(restored.digest(), table.digest());
                    prop_assert_eq!(restored.snapshot().read_all().unwrap(), state);
                    table = restored;
                }
                Step::FoundAnew => {
                    founded += 1;
                    table = CounterTable::new(Options::default());
                    sums.clear();
                }
            }
        }
        let have: Vec<_> = table.state().iter().map(|(name, counter)| (name.to_string(), counter.value)).collect();
        sums.retain(|name, _| table.state().get(name).is_some());
        prop_assert_eq!(have, sums.into_iter().collect::<Vec<_>>());
    }

    #[test]
    fn no_bytes_make_a_table_panic_and_what_is_refused_changes_nothing(
        cut in any::<prop::sample::Index>(),
        byte in any::<u8>(),
        noise in prop::collection::vec(any::<u8>(), 0..80),
    ) {
        let mut table = CounterTable::new(Options::default());
        (0..5).for_each(|n| drop(tell(&mut table, 1, add(&n.to_string(), n))));
        let mut bytes = table.snapshot().read_all().unwrap();
        let digest = table.digest();
        prop_assert!(table.clone().restore(&bytes[..cut.index(bytes.len())], true).is_err());
        let beginning = postcard::to_stdvec(&table.definition()).unwrap();
        prop_assert!(table.clone().restore(&[beginning, noise].concat(), true).is_err());
        let at = cut.index(bytes.len());
        bytes[at] ^= byte;
        let taken = table.restore(&bytes, true);
        prop_assert!(taken.is_err() || table.digest() == digest);
    }
}
