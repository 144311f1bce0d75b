//! The checks of users' machines: what is deterministic passes, what is not is named with its command.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use antiphon::Incarnation;
use antiphon::replicated::counters::{Command, CounterTable, Options};
use antiphon::replicated::map::{self, MapMachine, Write};
use antiphon::replicated::{AgreedTime, At, Change, Machine, RestoreError};
use antiphon::testkit::{CheckError, check, check_cluster, check_runs};
use bytes::Bytes;

#[test]
fn the_machines_that_ship_pass() -> Result<(), CheckError> {
    let add = |seed: u64| {
        (0..40).map(move |number| Command::Add {
            name: format!("{}", (seed + number) % 5).into(),
            by: number as i64,
        })
    };
    check(
        0..3,
        || CounterTable::new(Options::default()),
        |seed| add(seed).collect(),
    )?;
    let put = |number: u64| {
        let write = Write::put(format!("{}", number % 7), "value");
        let write = if number.is_multiple_of(3) {
            write.expiring(std::time::Duration::from_secs(1))
        } else {
            write
        };
        map::Command::from(write)
    };
    check(
        3..6,
        || MapMachine::new(map::Options::default()),
        |seed| (seed..seed + 40).map(put).collect(),
    )
}

/// What is wrong with a machine.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Fault {
    /// Of several names that were said as often as any other, it takes the first of a hash table.
    IteratesHashMap,
    /// It counts what it has made.
    KnowsItself,
    /// A part of the state is not written.
    ForgetsPart,
    /// Its timeout differs.
    Timeout,
}

static MADE: AtomicU64 = AtomicU64::new(0);

struct Names {
    fault: Fault,
    said: HashMap<String, u32>,
    favourite: String,
    steps: u32,
    number: u64,
}

impl Names {
    fn new(fault: Fault) -> Self {
        Self {
            fault,
            said: HashMap::new(),
            favourite: String::new(),
            steps: 0,
            number: MADE.fetch_add(1, Relaxed),
        }
    }
}

impl Machine for Names {
    type Command = String;
    type Reply = ();
    type Event = ();
    type Snapshot = Bytes;

    fn apply(&mut self, _: At, _: Incarnation, name: String, _: &mut Vec<()>) {
        self.steps += 1;
        *self.said.entry(name.clone()).or_default() += 1;
        match self.fault {
            Fault::IteratesHashMap => {
                let most = self.said.iter().max_by_key(|(_, count)| **count);
                self.favourite = most.map(|(name, _)| name.clone()).unwrap_or_default();
            }
            Fault::KnowsItself if name == "5" => self.favourite = self.number.to_string(),
            Fault::ForgetsPart if self.steps == 25 => self.favourite = name,
            _ => {}
        }
    }

    fn members(&mut self, _: At, _: &Change, _: &mut Vec<()>) {}

    fn deadline(&self) -> Option<AgreedTime> {
        let waits = self.fault == Fault::Timeout && self.said.contains_key("9") && self.favourite.is_empty();
        waits.then_some(AgreedTime { millis: 1 })
    }

    fn timeout(&mut self, _: At, _: &mut Vec<()>) {
        self.favourite = self.number.to_string();
    }

    fn snapshot(&self) -> Bytes {
        let mut said: Vec<_> = self
            .said
            .iter()
            .map(|(name, count)| format!("{name} {count}"))
            .collect();
        said.sort();
        said.push(self.favourite.clone());
        if self.fault != Fault::ForgetsPart {
            said.push(self.steps.to_string());
        }
        said.join("\n").into()
    }

    fn restore(&mut self, state: &[u8], complete: bool) -> Result<usize, RestoreError> {
        if !complete {
            return Ok(0);
        }
        let mut lines: Vec<_> = std::str::from_utf8(state)
            .expect("it is ours")
            .split('\n')
            .collect();
        if self.fault != Fault::ForgetsPart {
            self.steps = lines
                .pop()
                .and_then(|steps| steps.parse().ok())
                .expect("it is ours");
        }
        self.favourite = lines.pop().expect("it is ours").to_owned();
        for line in lines {
            let (name, count) = line.split_once(' ').expect("it is ours");
            self.said
                .insert(name.to_owned(), count.parse().expect("it is ours"));
        }
        Ok(state.len())
    }

    fn definition(&self) -> String {
        "names 1".to_owned()
    }
}

fn names() -> Vec<String> {
    (0..60).map(|number| (number * number % 11).to_string()).collect()
}

#[test]
fn what_is_not_deterministic_is_named_with_the_command_after_which_it_shows() {
    for (fault, names_it) in [
        (Fault::IteratesHashMap, "differ after command"),
        (Fault::KnowsItself, "differ after command"),
        (Fault::ForgetsPart, "differ after command 55"),
        (
            Fault::Timeout,
            "differ after a timeout in the time before command",
        ),
    ] {
        let alone = check_runs(move || Names::new(fault), names()).expect_err("it is not deterministic");
        assert!(alone.to_string().contains(names_it), "{fault:?}: {alone}");
        // Some faults show only where a member was killed in time.
        let together = |seed| check_cluster(seed, move || Names::new(fault), names()).err();
        let together = (1..20).find_map(together).expect("nor on a cluster");
        assert!(
            together.to_string().contains("two members differ after"),
            "{fault:?}: {together}"
        );
    }
    // What no command brings about does not show.
    let never = names().into_iter().filter(|name| name != "9").collect();
    check_runs(|| Names::new(Fault::Timeout), never).expect("nothing brings it about");
}

/// Numbers of eight bytes each.
struct Eights {
    numbers: Vec<u64>,
    /// It says that it has taken a number of which it was given a part.
    drops: bool,
}

impl Machine for Eights {
    type Command = u64;
    type Reply = ();
    type Event = ();
    type Snapshot = Bytes;

    fn apply(&mut self, _: At, _: Incarnation, number: u64, _: &mut Vec<()>) {
        self.numbers.push(number);
    }

    fn members(&mut self, _: At, _: &Change, _: &mut Vec<()>) {}

    fn snapshot(&self) -> Bytes {
        let bytes: Vec<u8> = self
            .numbers
            .iter()
            .flat_map(|number| number.to_le_bytes())
            .collect();
        bytes.into()
    }

    fn restore(&mut self, state: &[u8], _: bool) -> Result<usize, RestoreError> {
        let whole = state
            .chunks_exact(8)
            .map(|bytes| u64::from_le_bytes(bytes.try_into().expect("eight bytes")));
        self.numbers.extend(whole);
        Ok(if self.drops {
            state.len()
        } else {
            state.len() / 8 * 8
        })
    }

    fn definition(&self) -> String {
        "eights 1".to_owned()
    }
}

#[test]
fn a_machine_that_drops_what_is_cut_in_two_is_found_whatever_the_size_of_its_entries() {
    let make = |drops| {
        move || Eights {
            numbers: Vec::new(),
            drops,
        }
    };
    check_runs(make(false), (0..40).collect()).expect("it keeps them");
    let found = check_runs(make(true), (0..40).collect()).expect_err("it drops some");
    assert!(found.to_string().contains("differ after"), "{found}");
}

/// Its state cannot be restored whole, or not at all.
struct Forgetful {
    eights: Eights,
    refuses: bool,
}

impl Machine for Forgetful {
    type Command = u64;
    type Reply = ();
    type Event = ();
    type Snapshot = Bytes;

    fn apply(&mut self, at: At, from: Incarnation, number: u64, events: &mut Vec<()>) {
        self.eights.apply(at, from, number, events);
    }

    fn members(&mut self, _: At, _: &Change, _: &mut Vec<()>) {}

    fn snapshot(&self) -> Bytes {
        self.eights.snapshot()
    }

    fn restore(&mut self, state: &[u8], complete: bool) -> Result<usize, RestoreError> {
        if self.refuses && !state.is_empty() {
            let reason = "page 9 is torn".to_owned();
            return Err(RestoreError { reason });
        }
        let taken = self.eights.restore(state, complete)?;
        self.eights.numbers.pop();
        Ok(taken)
    }

    fn definition(&self) -> String {
        "forgetful 1".to_owned()
    }
}

#[test]
fn what_a_member_restores_after_the_last_command_is_compared_and_why_it_cannot_is_told() {
    let found = |refuses| {
        let make = move || Forgetful {
            eights: Eights {
                numbers: Vec::new(),
                drops: false,
            },
            refuses,
        };
        // So few commands have one fault among them: a member that is killed restores all of them, and
        // applies none.
        let all = (0..40).filter_map(|seed| check_cluster(seed, make, (0..8).collect()).err());
        all.map(|error| error.to_string()).collect::<Vec<_>>()
    };
    let (lost, refused) = (found(false), found(true));
    assert!(
        lost.iter().any(|text| text.contains("differ after all commands")),
        "{lost:?}"
    );
    assert!(
        refused.iter().any(|text| text.contains("page 9 is torn")),
        "{refused:?}"
    );
}
