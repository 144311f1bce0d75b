use std::time::Duration;

use proptest::prelude::*;

use super::*;
use crate::Snapshot as _;
use crate::state::restore_in_parts;

/// A map, the place of the order, and what the map told since it was last asked.
struct Told {
    map: MapMachine,
    at: At,
    events: Vec<Changed>,
}

const MEMBER: Incarnation = Incarnation(1);

fn at(index: u64, millis: u64, founded: u64) -> At {
    At {
        index,
        time: AgreedTime { millis },
        founded,
    }
}

/// Appends the argument to the value; removes the value for an empty argument.
fn append(old: Option<&[u8]>, argument: &[u8]) -> Result<Option<Vec<u8>>, String> {
    let value = [old.unwrap_or_default(), argument].concat();
    match argument {
        b"no" => Err("no".to_owned()),
        b"" => Ok(None),
        _ => Ok(Some(value)),
    }
}

impl Told {
    fn with(options: Options) -> Self {
        Self {
            map: MapMachine::new(options).function("append", 3, append),
            at: at(0, 0, 1),
            events: Vec::new(),
        }
    }

    fn new() -> Self {
        Self::with(Options::default())
    }

    fn tell(&mut self, command: impl Into<Command>) -> Result<Vec<Written>, Refused> {
        self.at.index += 1;
        self.map.apply(self.at, MEMBER, command.into(), &mut self.events)
    }

    fn put(&mut self, key: &'static str, value: &'static str) -> Entry {
        let mut written = self.tell(Write::put(key, value)).unwrap();
        written.remove(0).new.unwrap()
    }

    fn value(&self, key: &str) -> Option<&[u8]> {
        self.map.get(key.as_bytes()).map(|entry| &*entry.value)
    }

    fn happened(&mut self) -> Vec<(Bytes, Now)> {
        self.events
            .drain(..)
            .map(|event| (event.key, event.now))
            .collect()
    }
}

#[test]
fn an_entry_is_replaced_only_at_the_version_that_was_read() {
    let mut map = Told::new();
    let first = map.put("a", "1");
    map.tell(Write::put("a", "2").if_version(first.version)).unwrap();
    let refused = map
        .tell(Write::put("a", "3").if_version(first.version))
        .unwrap_err();
    assert_eq!(
        refused.to_string(),
        "b\"a\": the command wants version 4194305, there is version 4194306"
    );
    assert!(map.tell(Write::put("a", "3").if_absent()).is_err());
    assert!(map.tell(Write::remove("a").if_version(first.version)).is_err());
    assert_eq!(map.value("a"), Some(&b"2"[..]));
    map.tell(Write::remove("a")).unwrap();
    map.tell(Write::put("a", "4").if_absent()).unwrap();
    assert_eq!(map.value("a"), Some(&b"4"[..]));
}

#[test]
fn one_condition_that_does_not_hold_undoes_all_writes_of_the_command() {
    let mut map = Told::new();
    map.put("from", "10");
    map.events.clear();
    let before = map.map.digest();
    let transfer = |condition| {
        [
            Write::put("from", "5"),
            Write::put("to", "5"),
            Write::check("account", condition),
        ]
    };
    assert!(map.tell(transfer(Condition::Present)).is_err());
    assert_eq!(
        (map.map.digest(), map.events.len()),
        (before, 0),
        "nothing changed"
    );
    let written = map.tell(transfer(Condition::Absent)).unwrap();
    assert_eq!(written[2], Written { old: None, new: None });
    assert!(written[0].new.as_ref().unwrap().version < written[1].new.as_ref().unwrap().version);
    assert_eq!(map.value("to"), Some(&b"5"[..]));
    let twice = map.tell([Write::put("a", "1"), Write::remove("a")]);
    assert_eq!(twice, Err(Refused::KeyTwice { key: "a".into() }));
}

#[test]
fn a_registered_function_computes_a_value_and_can_remove_it_or_refuse() {
    let mut map = Told::new();
    map.tell(
        Write::put("a", "x")
            .flagged(7)
            .expiring(Duration::from_millis(50)),
    )
    .unwrap();
    map.tell(Write::compute("a", "append", "y")).unwrap();
    let entry = map.map.get(b"a").unwrap();
    assert_eq!((&*entry.value, entry.modified.flags()), (&b"xy"[..], 7));
    assert_eq!(entry.expires, Some(AgreedTime { millis: 50 }), "as it was");
    let refused = map.tell([Write::put("b", "1"), Write::compute("a", "append", "no")]);
    assert_eq!(
        refused.unwrap_err().to_string(),
        "b\"a\": function \"append\": no"
    );
    assert_eq!(map.value("b"), None);
    let unknown = map.tell(Write::compute("a", "prepend", "y"));
    assert_eq!(
        unknown,
        Err(Refused::NoFunction {
            name: "prepend".into()
        })
    );
    map.tell(Write::compute("a", "append", "")).unwrap();
    assert_eq!((map.value("a"), map.map.deadline()), (None, None));
}

#[test]
fn an_expired_entry_is_not_found_also_before_the_timeout() {
    let mut map = Told::new();
    map.at.time.millis = 100;
    map.tell(Write::put("a", "1").expiring(Duration::from_millis(10)))
        .unwrap();
    map.put("b", "1");
    let end = AgreedTime { millis: 110 };
    assert_eq!(map.map.deadline(), Some(end));
    assert!(map.map.get(b"a").is_some());
    assert!(
        map.map.get_at(b"a", end).is_none(),
        "a reader that knows the time"
    );
    map.at.time = end;
    map.events.clear();
    map.tell(Write::put("a", "2").if_absent())
        .expect("the command finds no entry");
    assert_eq!(map.happened()[0], ("a".into(), Now::Expired));
    map.tell(Write::put("a", "3").expiring(Duration::from_millis(10)))
        .unwrap();
    map.put("a", "4");
    assert_eq!(
        map.map.deadline(),
        None,
        "a new write without time to live ends the old one"
    );
}

#[test]
fn a_timeout_expires_all_that_is_due_in_the_order_of_time() {
    let mut map = Told::new();
    for (key, millis) in [("c", 10), ("a", 20), ("b", 10), ("d", 30)] {
        map.tell(Write::put(key, "1").expiring(Duration::from_millis(millis)))
            .unwrap();
    }
    map.events.clear();
    map.map.timeout(at(9, 20, 1), &mut map.events);
    let keys: Vec<_> = map.events.iter().map(|event| event.key.clone()).collect();
    assert_eq!(keys, ["b", "c", "a"]);
    assert!(
        map.events.is_sorted_by_key(|event| event.version),
        "removals have versions too"
    );
    assert_eq!(map.map.state().len(), 1);
}

#[test]
fn a_map_at_its_bound_refuses_what_makes_it_grow_and_names_the_bound() {
    let room = 2 * (2 + Entry::OVERHEAD_BYTES);
    let mut map = Told::with(Options {
        max_bytes: room,
        ..Options::default()
    });
    map.put("a", "1");
    map.put("b", "1");
    let refused = map.tell(Write::put("c", "1")).unwrap_err();
    assert_eq!(
        refused.to_string(),
        "the map would have 774 bytes, its bound max_bytes is 516"
    );
    map.tell([Write::remove("a"), Write::put("c", "1")])
        .expect("one goes, one comes");
    assert_eq!(map.map.state().bytes(), room);
    let long = Options::default().max_key_bytes as usize + 1;
    assert!(
        map.tell(Write::put(vec![0; long], "1"))
            .unwrap_err()
            .to_string()
            .contains("max_key_bytes")
    );
    let long = Options::default().max_value_bytes as usize + 1;
    assert!(
        map.tell(Write::put("a", vec![0; long]))
            .unwrap_err()
            .to_string()
            .contains("max_value_bytes")
    );
}

#[test]
fn a_map_that_evicts_gives_up_what_was_written_longest_ago() {
    let mut map = Told::with(Options {
        max_bytes: 2 * (2 + Entry::OVERHEAD_BYTES),
        full: Full::EvictOldest,
        ..Options::default()
    });
    map.put("a", "1");
    map.put("b", "1");
    map.put("a", "2");
    map.events.clear();
    map.put("c", "1");
    let happened = map.happened();
    assert!(matches!(happened[0].1, Now::Written(_)), "{happened:?}");
    assert_eq!(happened[1], ("b".into(), Now::Evicted));
    let three = ["d", "e", "f"].map(|key| Write::put(key, "1"));
    assert!(
        map.tell(three).is_err(),
        "a command must fit alone: it must not evict its own writes"
    );
    assert_eq!(map.map.state().len(), 2);
}

#[test]
fn a_snapshot_stays_while_writes_go_on() {
    let mut map = Told::new();
    map.put("a/1", "1");
    map.put("a/2", "2");
    map.put("b", "3");
    let snapshot = map.map.state().clone();
    let mut seen = Vec::new();
    for (key, entry) in snapshot.iter() {
        map.tell([
            Write::remove(key.clone()),
            Write::put([key, &b"!"[..]].concat(), "new"),
        ])
        .unwrap();
        seen.push((key.clone(), entry.value.clone()));
    }
    assert_eq!(
        seen,
        [("a/1", "1"), ("a/2", "2"), ("b", "3")].map(|(key, value)| (Bytes::from(key), Bytes::from(value)))
    );
    assert_eq!(map.map.state().prefix(b"a/").count(), 2);
    let a: Vec<_> = map
        .map
        .state()
        .prefix(b"a/")
        .map(|(key, _)| key.clone())
        .collect();
    assert_eq!(a, ["a/1!", "a/2!"]);
}

#[test]
fn a_map_that_is_founded_anew_has_higher_versions() {
    let mut former = Told::new();
    let last = former.put("a", "1").version;
    let mut anew = Told::new();
    anew.at.founded = 2;
    assert!(anew.put("a", "1").version > last);
}

#[test]
fn a_subscriber_by_key_or_prefix_filters_what_all_members_are_told() {
    let watches = [Watch::All, Watch::Key("a/b".into()), Watch::Prefix("a/".into())];
    let matching = |key: &str| watches.each_ref().map(|watch| watch.matches(key.as_bytes()));
    assert_eq!(matching("a/b"), [true, true, true]);
    assert_eq!(matching("a/c"), [true, false, true]);
    assert_eq!(matching("a"), [true, false, false]);
}

#[test]
fn a_state_is_taken_by_no_map_that_is_defined_differently() {
    let mut map = Told::new();
    map.put("a", "1");
    let state = map.map.snapshot().read_all().unwrap();
    let mut other = MapMachine::new(Options::default());
    let error = other.restore(&state, true).unwrap_err().to_string();
    assert!(
        error.contains("[\\\"append 3\\\"]") && error.contains("functions []"),
        "{error}"
    );
}

/// Prints what a read and a write cost, as the median of a thousand batches, so that it does not matter what
/// else runs: `cargo test --release -p antiphon-replica -- --ignored --nocapture reading`.
#[test]
#[ignore = "measures time"]
fn reading_is_fast() {
    let key = |n: u64| Bytes::from(format!("key/{:08}", n.wrapping_mul(7_919) % 100_000));
    let time = |what: &str, batch: u64, each: &mut dyn FnMut(&Bytes)| {
        let mut nanos: Vec<_> = (0..1000)
            .map(|round| {
                let keys: Vec<_> = (round * batch..(round + 1) * batch).map(key).collect();
                let started = std::time::Instant::now();
                keys.iter().for_each(&mut *each);
                started.elapsed().as_nanos() as u64 / batch
            })
            .collect();
        nanos.sort_unstable();
        println!("{what}: {} ns", nanos[500]);
    };
    let mut map = Told::new();
    time("put", 100, &mut |key| {
        map.tell(Write::put(key.clone(), "0123456789abcdef")).unwrap();
        map.events.clear();
    });
    assert_eq!(map.map.state().len(), 100_000);
    let state = map.map.state().clone();
    time("get", 1000, &mut |key| assert!(map.map.get(key).is_some()));
    time("get of a snapshot", 1000, &mut |key| {
        assert!(state.get(key).is_some())
    });
    time("put while a snapshot is held", 100, &mut |key| {
        map.tell(Write::put(key.clone(), "0123456789abcdef")).unwrap();
        map.events.clear();
    });
}

/// What can happen to a map.
#[derive(Debug, Clone)]
enum Step {
    Tell(Command),
    Pass(u64),
    Timeout,
    Restore,
}

fn step() -> impl Strategy<Value = Step> {
    let key = || (0..5u8).prop_map(|key| Bytes::from(vec![b'a' + key]));
    let value = || prop::collection::vec(any::<u8>(), 0..40).prop_map(Bytes::from);
    let operation = prop_oneof![
        4 => (value(), 0..3u16, prop::option::of(0..30u64)).prop_map(|(value, flags, time_to_live_ms)| {
            Operation::Put { value, flags, time_to_live_ms }
        }),
        2 => Just(Operation::Remove),
        1 => prop_oneof![Just("x"), Just(""), Just("no")].prop_map(|argument| Operation::Compute {
            function: "append".to_owned(),
            argument: argument.into(),
        }),
        1 => Just(Operation::Check),
    ];
    let condition = prop_oneof![
        6 => Just(Condition::Always),
        1 => Just(Condition::Absent),
        1 => Just(Condition::Present),
        1 => (1..30u64).prop_map(|count| Condition::Version(Version(1 << 22 | count))),
    ];
    let write = (key(), condition, operation).prop_map(|(key, condition, operation)| Write {
        key,
        condition,
        operation,
    });
    let command = prop::collection::vec(write, 1..4).prop_map(|writes| Step::Tell(Command { writes }));
    prop_oneof![8 => command, 2 => (0..15u64).prop_map(Step::Pass), 1 => Just(Step::Timeout), 1 => Just(Step::Restore)]
}

/// A map as one would write it without thought of speed: each step looks at all entries.
#[derive(Default)]
struct Model {
    entries: Vec<(Bytes, Entry)>,
    version: u64,
}

const MAX_BYTES: u64 = 4 * Entry::OVERHEAD_BYTES + 66;

impl Model {
    fn find(&self, key: &Bytes) -> Option<&Entry> {
        self.entries
            .iter()
            .find(|(of, _)| of == key)
            .map(|(_, entry)| entry)
    }

    fn remove(&mut self, key: &Bytes) {
        self.entries.retain(|(of, _)| of != key);
    }

    fn next(&mut self) -> Version {
        self.version += 1;
        Version(1 << 22 | self.version)
    }

    fn bytes(&self) -> u64 {
        self.entries
            .iter()
            .map(|(key, entry)| (key.len() + entry.value.len()) as u64 + Entry::OVERHEAD_BYTES)
            .sum()
    }

    fn expire(&mut self, now: u64) {
        let before = self.entries.len();
        self.entries
            .retain(|(_, entry)| entry.expires.is_none_or(|at| now < at.millis));
        self.version += (before - self.entries.len()) as u64;
    }

    /// Whether the command is done.
    fn tell(&mut self, command: &Command, now: u64, evict: bool) -> bool {
        let mut after = Self {
            entries: self.entries.clone(),
            version: self.version,
        };
        let mut keys = Vec::new();
        let mut comes = 0;
        for Write {
            key,
            condition,
            operation,
        } in &command.writes
        {
            let old = self.find(key).cloned();
            if keys.contains(&key) || !condition.holds(old.as_ref().map(|entry| entry.version)) {
                return false;
            }
            keys.push(key);
            let (value, flags, expires) = match operation {
                Operation::Check => continue,
                Operation::Remove => (None, 0, None),
                Operation::Put {
                    value,
                    flags,
                    time_to_live_ms,
                } => (
                    Some(value.clone()),
                    *flags,
                    time_to_live_ms.map(|ms| AgreedTime { millis: now + ms }),
                ),
                Operation::Compute { argument, .. } => {
                    match append(old.as_ref().map(|entry| &*entry.value), argument) {
                        Ok(value) => (
                            value.map(Bytes::from),
                            old.as_ref().map_or(0, |entry| entry.modified.flags()),
                            old.as_ref().and_then(|entry| entry.expires),
                        ),
                        Err(_) => return false,
                    }
                }
            };
            if old.is_some() || value.is_some() {
                after.remove(key);
                let version = after.next();
                if let Some(value) = value {
                    comes += (key.len() + value.len()) as u64 + Entry::OVERHEAD_BYTES;
                    let modified = Stamp::new(AgreedTime { millis: now }, flags);
                    let entry = Entry {
                        value,
                        version,
                        modified,
                        expires,
                    };
                    after.entries.push((key.clone(), entry));
                }
            }
        }
        if evict && comes > MAX_BYTES || !evict && after.bytes() > MAX_BYTES.max(self.bytes()) {
            return false;
        }
        while after.bytes() > MAX_BYTES {
            let oldest = after
                .entries
                .iter()
                .min_by_key(|(_, entry)| entry.version)
                .unwrap()
                .0
                .clone();
            after.remove(&oldest);
            after.next();
        }
        *self = after;
        true
    }
}

#[test]
fn an_event_takes_the_bytes_of_its_key_and_of_both_values() {
    let mut map = Told::with(Options::default());
    map.tell(Write::put("key", vec![1; 1_000])).unwrap();
    map.tell(Write::put("key", vec![2; 500])).unwrap();
    map.tell(Write::remove("key")).unwrap();
    let bytes: Vec<usize> = map.events.iter().map(MapMachine::event_bytes).collect();
    assert_eq!(bytes, [1_003, 1_503, 503]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn a_map_does_what_its_model_does(
        steps in prop::collection::vec(step(), 1..60),
        evict in any::<bool>(),
        (about, part) in (1..200_usize, 1..99_usize),
    ) {
        let full = if evict { Full::EvictOldest } else { Full::Refuse };
        let options = Options { max_bytes: MAX_BYTES, full, ..Options::default() };
        let mut map = Told::with(options.clone());
        let mut model = Model::default();
        let mut last = Version::default();
        for step in steps {
            match step {
                Step::Tell(command) => {
                    model.expire(map.at.time.millis);
                    let does = model.tell(&command, map.at.time.millis, evict);
                    let reply = map.tell(command);
                    prop_assert_eq!(reply.is_ok(), does, "{:?}", reply);
                }
                Step::Pass(millis) => {
                    map.at.time.millis += millis;
                    continue;
                }
                Step::Timeout => {
                    model.expire(map.at.time.millis);
                    map.map.timeout(map.at, &mut map.events);
                }
                Step::Restore => {
                    let state = map.map.snapshot().read_all().unwrap();
                    let mut restored = Told::with(options.clone()).map;
                    let parts = restore_in_parts(&mut restored, map.map.snapshot(), about, part);
                    prop_assert_eq!(&parts, &state, "however it is cut");
                    prop_assert_eq!(restored.digest(), map.map.digest());
                    prop_assert_eq!(restored.snapshot().read_all().unwrap(), state, "the same bytes");
                    map.map = restored;
                }
            }
            // A16: versions rise over all changes, and no write has an earlier stamp than one before it.
            for event in map.events.drain(..) {
                prop_assert!(event.version > last);
                last = event.version;
                if let (Now::Written(new), Some(old)) = (&event.now, &event.old) {
                    prop_assert!(new.version > old.version);
                    prop_assert!(new.modified.time() >= old.modified.time());
                }
            }
            let state = map.map.state();
            let mut wanted = model.entries.clone();
            wanted.sort_by(|one, other| one.0.cmp(&other.0));
            // An entry without any time to live is written, and gone at once for readers.
            wanted.retain(|(_, entry)| entry.expires.is_none_or(|at| state.now() < at));
            let have: Vec<_> = state.iter().map(|(key, entry)| (key.clone(), entry.clone())).collect();
            for (key, entry) in &have {
                prop_assert_eq!(map.map.get(key), Some(entry));
            }
            prop_assert_eq!(map.map.index.len(), state.len());
            prop_assert_eq!(have, wanted);
            // The digest that was kept up to date is the digest of all that is there.
            let mut anew = State::new("".into());
            for (key, entry) in state.entries.iter() {
                anew.insert(key.clone(), entry.clone());
            }
            (anew.versions, anew.now) = (state.versions, state.now);
            prop_assert_eq!(anew.digest(), state.digest());
            let deadline = state.entries.iter().map(|(_, entry)| entry).filter_map(|entry| entry.expires).min();
            prop_assert_eq!(map.map.deadline(), deadline);
        }
    }

    #[test]
    fn no_bytes_make_a_map_panic_and_what_is_refused_changes_nothing(
        steps in prop::collection::vec(step(), 1..20),
        cut in any::<prop::sample::Index>(),
        byte in any::<u8>(),
        noise in prop::collection::vec(any::<u8>(), 0..80),
    ) {
        let mut map = Told::new();
        for step in steps {
            if let Step::Tell(command) = step {
                let _ = map.tell(command);
            }
        }
        let mut bytes = map.map.snapshot().read_all().unwrap();
        let digest = map.map.digest();
        prop_assert!(map.map.clone().restore(&noise, true).is_err());
        prop_assert!(map.map.clone().restore(&bytes[..cut.index(bytes.len())], true).is_err());
        // Noise behind a true definition is read further than noise alone.
        let beginning = postcard::to_stdvec(&map.map.definition()).unwrap();
        prop_assert!(map.map.clone().restore(&[beginning, noise].concat(), true).is_err());
        let at = cut.index(bytes.len());
        bytes[at] ^= byte;
        let taken = map.map.restore(&bytes, true);
        prop_assert!(taken.is_err() || map.map.digest() == digest, "one byte changed, and it was taken");
    }

    #[test]
    fn a_state_that_a_member_made_up_breaks_nothing(
        steps in prop::collection::vec(step(), 1..40),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
        evict in any::<bool>(),
    ) {
        let full = if evict { Full::EvictOldest } else { Full::Refuse };
        let mut map = Told::with(Options { max_bytes: MAX_BYTES, full, ..Options::default() });
        for step in steps {
            match step {
                Step::Tell(command) => drop(map.tell(command)),
                Step::Pass(millis) => map.at.time.millis += millis,
                Step::Timeout => map.map.timeout(map.at, &mut map.events),
                Step::Restore => {
                    let state = map.map.snapshot().read_all().unwrap();
                    let mut restored = map.map.clone();
                    if crate::state::restore_forged(&mut restored, state, &changes).is_ok() {
                        map.map = restored;
                    }
                }
            }
        }
        map.map.snapshot().read_all().unwrap();
    }
}
