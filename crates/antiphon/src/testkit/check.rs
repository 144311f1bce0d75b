//! Checks of a machine of your own: whether the same commands make the same state, wherever they are applied.
//!
//! ```
//! use antiphon::Incarnation;
//! use antiphon::replicated::{At, Machine, RestoreError};
//! use antiphon::testkit;
//! use bytes::Bytes;
//! use std::collections::HashMap;
//!
//! /// Who votes for what; its bytes are in the order of a hash table, which is another one at each member.
//! #[derive(Default)]
//! struct Votes(HashMap<String, u32>);
//!
//! impl Machine for Votes {
//!     type Command = String;
//!     type Reply = u32;
//!     type Event = ();
//!     type Snapshot = Bytes;
//!
//!     fn apply(&mut self, _: At, _: Incarnation, vote: String, _: &mut Vec<()>) -> u32 {
//!         let votes = self.0.entry(vote).or_default();
//!         *votes += 1;
//!         *votes
//!     }
//!     fn snapshot(&self) -> Bytes {
//!         let lines = self.0.iter().map(|(vote, count)| format!("{vote} {count}\n"));
//!         lines.collect::<String>().into()
//!     }
//!     fn restore(&mut self, state: &[u8], complete: bool) -> Result<usize, RestoreError> {
//!         if !complete {
//!             return Ok(0); // it takes the whole at once
//!         }
//!         // …
//! #       for line in String::from_utf8_lossy(state).lines() {
//! #           let (vote, count) = line.split_once(' ').expect("we wrote it");
//! #           self.0.insert(vote.to_owned(), count.parse().expect("we wrote it"));
//! #       }
//!         Ok(state.len())
//!     }
//!     fn definition(&self) -> String {
//!         "votes 1".to_owned()
//!     }
//! }
//!
//! let votes = |seed: u64| (0..100).map(|n| format!("candidate {}", (seed + n * n) % 10)).collect();
//! let caught = testkit::check(0..3, Votes::default, votes).unwrap_err();
//! assert!(caught.to_string().contains("differ after command"), "{caught}");
//! // seed 0: two runs of the same commands differ after command 2, "candidate 1": …
//! ```
//! # What is compared
//! After each command, change of members and timeout: the digest of the machine, if it has one, and the bytes
//! of its snapshot. So the check finds a `HashMap` that is written in its order, a clock, a random number, an
//! address; and state that the snapshot leaves out, as soon as it decides anything.
//!
//! # What is not found
//! Inputs from outside that are the same in one process: an environment variable, a file, the width of
//! `usize`. Replies, which go to their caller alone, and what events say: their number is compared. Anything
//! that no command of the test brings about.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;
use twox_hash::XxHash3_64;

use super::ground::lock;
use super::{RunError, SceneError, TellSeed, World};
use crate::replicated::{
    AgreedTime, At, Change, Machine, Replicable, Replicated, RestoreError, Snapshot as _, SnapshotError,
    Standing,
};
use crate::{Cluster, Incarnation};

const NODES: [&str; 3] = ["a", "b", "c"];
/// Commands that are given while one fault lasts.
const EPISODE: usize = 8;
/// How long one of these may take in virtual time.
const EPISODE_LIMIT: Duration = Duration::from_secs(120);
/// The time that passes from command to command where there is no cluster.
const STEP_MS: u64 = 10;

/// Checks that the machine of `make` does the same wherever the commands of a seed are applied: first by
/// [`check_runs`], then on a cluster by [`check_cluster`]. Ten seeds of a hundred commands take some seconds.
///
/// # Errors
/// [`CheckError`] of the first seed that fails.
///
/// # Panics
/// If the machine does.
pub fn check<M: Replicable<Command: fmt::Debug>>(
    seeds: impl IntoIterator<Item = u64>,
    make: impl Fn() -> M + Clone + Send + Sync + 'static,
    commands: impl Fn(u64) -> Vec<M::Command>,
) -> Result<(), CheckError> {
    for seed in seeds {
        let _told = TellSeed(seed);
        let commands = commands(seed);
        let of_seed = |what| CheckError {
            seed: Some(seed),
            what,
        };
        let copies = commands.iter().map(copy).collect::<Result<_, _>>();
        check_runs(&make, commands).map_err(|error| of_seed(error.what))?;
        check_cluster(seed, make.clone(), copies.map_err(of_seed)?)?;
    }
    Ok(())
}

/// Checks that two machines with the same inputs do the same, and so does a third one that takes over the
/// state of the first half-way. Among the commands, members go and come, and time passes.
///
/// # Errors
/// [`CheckError`].
///
/// # Panics
/// If the machine does.
pub fn check_runs<M: Machine<Command: fmt::Debug>>(
    make: impl Fn() -> M,
    commands: Vec<M::Command>,
) -> Result<(), CheckError> {
    let runs = Runs {
        runs: vec![("the first run", make()), ("the second run", make())],
        at: At {
            index: 0,
            time: AgreedTime::default(),
            founded: 1,
        },
        after: "its making".to_owned(),
    };
    runs.through(make, commands)
        .map_err(|what| CheckError { seed: None, what })
}

struct Runs<M> {
    runs: Vec<(&'static str, M)>,
    at: At,
    /// What was done last.
    after: String,
}

impl<M: Machine<Command: fmt::Debug>> Runs<M> {
    fn through(mut self, make: impl Fn() -> M, commands: Vec<M::Command>) -> Result<(), What> {
        let members = [1, 2, 3].map(|number| Incarnation(number << 64));
        let half = commands.len() / 2;
        self.compare()?;
        self.members(&members, &members, &[])?;
        for (number, command) in commands.into_iter().enumerate() {
            if number == half {
                self.members(&members[..2], &[], &members[2..])?;
                self.take_over(make())?;
                self.members(&members, &members[2..], &[])?;
            }
            let text = format!("{command:?}");
            self.pass(&format!("the time before command {}", number + 1))?;
            self.after = format!("command {}, {text}", number + 1);
            self.step(|machine, at, events| {
                let from = members[number % 2];
                machine.apply(at, from, copy(&command)?, events);
                Ok(())
            })?;
        }
        self.at.time = self.at.time.after(Duration::from_secs(3600));
        self.pass("the last command, an hour later,")
    }

    fn members(
        &mut self,
        members: &[Incarnation],
        joined: &[Incarnation],
        gone: &[Incarnation],
    ) -> Result<(), What> {
        let change = Change {
            members: members.to_vec(),
            joined: joined.to_vec(),
            gone: gone.to_vec(),
            ..Change::default()
        };
        self.after = format!("a change of members: {} are left", members.len());
        self.step(|machine, at, events| {
            machine.members(at, &change, events);
            Ok(())
        })
    }

    /// Time passes, and what is due happens.
    fn pass(&mut self, after: &str) -> Result<(), What> {
        self.at.time = self.at.time.after(Duration::from_millis(STEP_MS));
        // As replicas do: the rest of what is due comes later.
        for _ in 0..1024 {
            if self.runs[0].1.deadline().is_none_or(|due| due > self.at.time) {
                break;
            }
            self.after = format!("a timeout in {after}");
            self.step(|machine, at, events| {
                machine.timeout(at, events);
                Ok(())
            })?;
        }
        Ok(())
    }

    fn step(
        &mut self,
        mut step: impl FnMut(&mut M, At, &mut Vec<M::Event>) -> Result<(), What>,
    ) -> Result<(), What> {
        self.at.index += 1;
        let mut told = Vec::new();
        for (name, machine) in &mut self.runs {
            let mut events = Vec::new();
            step(machine, self.at, &mut events)?;
            told.push((*name, format!("{} events", events.len())));
        }
        self.same(told)?;
        self.compare()
    }

    /// A third machine takes the state of the first one.
    fn take_over(&mut self, mut machine: M) -> Result<(), What> {
        let after = self.after.clone();
        let state = self.runs[0].1.snapshot().read_all();
        let state = state.map_err(|error| What::Write {
            after: after.clone(),
            reason: error.reason,
        })?;
        restore(&mut machine, &state).map_err(|error| What::Restore {
            after,
            reason: error.reason,
        })?;
        self.runs.push(("a run that took its state over", machine));
        self.after = format!("{}, and restoring what was written", self.after);
        self.compare()
    }

    fn compare(&self) -> Result<(), What> {
        let of = self.runs.iter().map(|(name, machine)| {
            let state = looks(machine).map_err(|error| What::Write {
                after: self.after.clone(),
                reason: error.reason,
            })?;
            Ok((*name, format!("{state}, deadline {:?}", machine.deadline())))
        });
        self.same(of.collect::<Result<_, What>>()?)
    }

    fn same(&self, of: Vec<(&str, String)>) -> Result<(), What> {
        match of.iter().find(|(_, state)| *state != of[0].1) {
            None => Ok(()),
            Some((name, state)) => Err(What::Differs {
                runs: true,
                after: self.after.clone(),
                one: format!("{}: {}", of[0].0, of[0].1),
                other: format!("{name}: {state}"),
            }),
        }
    }
}

/// The command as other members get it.
fn copy<C: Serialize + DeserializeOwned + fmt::Debug>(command: &C) -> Result<C, What> {
    let copy = postcard::to_stdvec(command).and_then(|bytes| postcard::from_bytes(&bytes));
    copy.map_err(|error| What::Codec {
        command: format!("{command:?}"),
        reason: error.to_string(),
    })
}

/// Pieces of a state have one of these lengths after the other. So they end anywhere in what a machine
/// writes, whatever the size of its entries.
const PIECES: [usize; 4] = [1, 7, 61, 509];

/// As a joiner does: the state comes in pieces, each behind what was left of those before.
fn restore<M: Machine>(machine: &mut M, state: &[u8]) -> Result<(), RestoreError> {
    let (mut taken, mut end) = (0, 0);
    for piece in PIECES.iter().cycle() {
        end = state.len().min(end + piece);
        let (offered, complete) = (&state[taken..end], end == state.len());
        let count = machine.restore(offered, complete)?;
        if count > offered.len() || complete && count < offered.len() {
            let reason = format!("it took {count} of {} bytes", offered.len());
            return Err(RestoreError { reason });
        }
        if complete {
            break;
        }
        taken += count;
    }
    Ok(())
}

/// Stands for a state.
fn looks<M: Machine>(machine: &M) -> Result<String, SnapshotError> {
    let bytes = machine.snapshot().read_all()?;
    let hash = XxHash3_64::oneshot(&bytes);
    let digest = machine.digest().map(|digest| format!("digest {digest:016x}, "));
    let digest = digest.unwrap_or_default();
    Ok(format!(
        "{digest}{} bytes of state with checksum {hash:016x}",
        bytes.len()
    ))
}

/// Checks that three members of a virtual cluster have the same state after each of these commands, while
/// they are cut off, stopped, killed and started again, and lose frames. One seed decides everything.
///
/// # Errors
/// [`CheckError`]: the first command after which two members differ, or why the run did not end well.
///
/// # Panics
/// If the machine does.
pub fn check_cluster<M: Replicable<Command: fmt::Debug>>(
    seed: u64,
    make: impl Fn() -> M + Clone + Send + Sync + 'static,
    commands: Vec<M::Command>,
) -> Result<(), CheckError> {
    let book = Arc::new(Book::default());
    let limit = EPISODE_LIMIT * (2 + commands.len() / EPISODE) as u32;
    let ran = World::new(seed, NODES).limit(limit).run(async |world| {
        let mut members = Vec::new();
        for name in NODES {
            members.push(Node::start(&world, name, &make, &book).await?);
        }
        serve(&world, &members, &book).await?;
        let mut commands = commands.into_iter();
        while commands.len() > 0 && !book.is_different() {
            episode(
                &world,
                &mut members,
                &make,
                &book,
                commands.by_ref().take(EPISODE),
            )
            .await?;
        }
        at_rest(&world, &members, &book).await
    });
    let seed = Some(seed);
    if let Some(what) = lock(&book.difference).take() {
        return Err(CheckError { seed, what: what.1 });
    }
    ran.map_err(|error| CheckError {
        seed,
        what: What::Run(error),
    })
}

struct Node<M: Replicable<Command: fmt::Debug>> {
    name: &'static str,
    /// It lives as long as its handle.
    _cluster: Cluster,
    replicated: Replicated<Noted<M>>,
}

impl<M: Replicable<Command: fmt::Debug>> Node<M> {
    async fn start(
        world: &World,
        name: &'static str,
        make: &(impl Fn() -> M + Clone + Send + Sync + 'static),
        book: &Arc<Book>,
    ) -> Result<Self, SceneError> {
        let cluster = world.node(name)?.start().await?;
        let (make, book) = (make.clone(), book.clone());
        let noted = move || Noted {
            machine: make(),
            at: name,
            book: book.clone(),
        };
        let replicated = cluster.replicated("checked", noted).digest_every(EPISODE as u64);
        Ok(Self {
            name,
            replicated: replicated.start().await?,
            _cluster: cluster,
        })
    }
}

/// Waits until all have the state, or are found to differ, or one cannot get it.
async fn serve<M: Replicable<Command: fmt::Debug>>(
    world: &World,
    members: &[Node<M>],
    book: &Book,
) -> Result<(), SceneError> {
    let serves = |node: &Node<M>| {
        node.replicated.standing() == Standing::Serving && node.replicated.status().synced().count() == 3
    };
    let has_ended = |node: &&Node<M>| node.replicated.standing() == Standing::Gone;
    world
        .until(|| {
            book.is_different() || members.iter().all(serves) || members.iter().any(|node| has_ended(&node))
        })
        .await;
    if let Some(node) = members.iter().find(has_ended)
        && !book.is_different()
    {
        let why = node.replicated.synced().await.err();
        let why = why.map_or_else(|| "it has left".to_owned(), |error| error.to_string());
        return Err(format!("{}: {why}", node.name).into());
    }
    Ok(())
}

/// What the members have in the end: a state that was restored after the last step shows in no step.
async fn at_rest<M: Replicable<Command: fmt::Debug>>(
    world: &World,
    members: &[Node<M>],
    book: &Book,
) -> Result<(), SceneError> {
    // More often than once, since time may still be passing for them, in one after the other, and since a
    // member may be without its lease for a moment.
    for left in (0..10).rev() {
        world.sleep_ms(1_000).await;
        if book.is_different() {
            break;
        }
        let of = |node: &Node<M>| node.replicated.read(|noted| (node.name, looks(&noted.machine)));
        let all: Vec<_> = match members.iter().map(of).collect::<Result<_, _>>() {
            Err(_) if left > 0 => continue,
            all => all?,
        };
        let all = all.into_iter().map(|(name, looks)| Ok((name, looks?)));
        let all: Vec<_> = all.collect::<Result<_, SnapshotError>>()?;
        let Some(other) = all.iter().find(|(_, state)| *state != all[0].1) else {
            return Ok(());
        };
        if left == 0 {
            let ((one, state), (other, another)) = (&all[0], other);
            let what = What::of_members("all commands", (one, state), (other, another));
            book.differ((u64::MAX, u64::MAX), what);
        }
    }
    Ok(())
}

/// One fault at one member, and commands at all of them meanwhile.
async fn episode<M: Replicable<Command: fmt::Debug>>(
    world: &World,
    members: &mut [Node<M>],
    make: &(impl Fn() -> M + Clone + Send + Sync + 'static),
    book: &Arc<Book>,
    commands: impl Iterator<Item = M::Command>,
) -> Result<(), SceneError> {
    let victim = world.draw() as usize % NODES.len();
    let name = members[victim].name;
    let others: Vec<&str> = NODES.into_iter().filter(|other| *other != name).collect();
    let fault = world.draw() % 5;
    match fault {
        0 => {}
        1 => world.partition([name], others)?,
        2 => world.lossy([name], others, 0.2)?,
        3 => world.pause(name, Duration::from_millis(world.draw() % 6_000))?,
        _ => world.kill(name)?,
    }
    let mut writes = Vec::new();
    for command in commands {
        let at = members[world.draw() as usize % NODES.len()].replicated.clone();
        // Whether it happened does not matter: all members are to agree on that.
        writes.push(tokio::spawn(async move { drop(at.write(command).await) }));
        world.sleep_ms(world.draw() % 400).await;
    }
    world.sleep_ms(world.draw() % 4_000).await;
    world.heal();
    if fault == 4 {
        members[victim] = Node::start(world, name, make, book).await?;
    }
    serve(world, members, book).await?;
    for write in writes {
        write.await?;
    }
    Ok(())
}

/// A step: the founding of the state that it belongs to, and its number in the order.
type Step = (u64, u64);

/// What members had after each step: the first that makes a step says how it looks.
#[derive(Default)]
struct Book {
    steps: Mutex<BTreeMap<Step, (&'static str, String)>>,
    /// The first step after which two members differ.
    difference: Mutex<Option<(Step, What)>>,
}

impl Book {
    fn is_different(&self) -> bool {
        lock(&self.difference).is_some()
    }

    fn note<M: Machine>(&self, at: At, member: &'static str, after: &str, machine: &M) {
        let place = (at.founded, at.index);
        let what = match looks(machine) {
            Ok(state) => {
                let mut steps = lock(&self.steps);
                let (first, same) = steps.entry(place).or_insert_with(|| (member, state.clone()));
                if *same == state {
                    return;
                }
                What::of_members(after, (first, same), (member, &state))
            }
            Err(error) => What::Write {
                after: after.to_owned(),
                reason: error.reason,
            },
        };
        self.differ(place, what);
    }

    fn differ(&self, place: Step, what: What) {
        let mut difference = lock(&self.difference);
        if difference.as_ref().is_none_or(|(first, _)| place < *first) {
            *difference = Some((place, what));
        }
    }
}

/// The machine of a member, that notes each step of it.
struct Noted<M> {
    machine: M,
    at: &'static str,
    book: Arc<Book>,
}

impl<M: Machine<Command: fmt::Debug>> Machine for Noted<M> {
    type Command = M::Command;
    type Reply = M::Reply;
    type Event = M::Event;
    type Snapshot = M::Snapshot;

    fn apply(
        &mut self,
        at: At,
        from: Incarnation,
        command: M::Command,
        events: &mut Vec<M::Event>,
    ) -> M::Reply {
        let after = format!("command {command:?}, which is step {} of the state,", at.index);
        let reply = self.machine.apply(at, from, command, events);
        self.book.note(at, self.at, &after, &self.machine);
        reply
    }

    fn members(&mut self, at: At, change: &Change, events: &mut Vec<M::Event>) {
        self.machine.members(at, change, events);
        let after = format!("a change of members, which is step {} of the state,", at.index);
        self.book.note(at, self.at, &after, &self.machine);
    }

    fn deadline(&self) -> Option<AgreedTime> {
        self.machine.deadline()
    }

    fn timeout(&mut self, at: At, events: &mut Vec<M::Event>) {
        self.machine.timeout(at, events);
        let after = format!("a timeout, which is step {} of the state,", at.index);
        self.book.note(at, self.at, &after, &self.machine);
    }

    fn snapshot(&self) -> M::Snapshot {
        self.machine.snapshot()
    }

    fn restore(&mut self, state: &[u8], complete: bool) -> Result<usize, RestoreError> {
        self.machine.restore(state, complete)
    }

    fn digest(&self) -> Option<u64> {
        self.machine.digest()
    }

    fn serial(&self) -> Option<u64> {
        self.machine.serial()
    }

    fn event_bytes(event: &M::Event) -> usize {
        M::event_bytes(event)
    }

    fn definition(&self) -> String {
        self.machine.definition()
    }
}

/// What is wrong with a machine. Its `Debug` reads like its text, so that a test may return it.
pub struct CheckError {
    seed: Option<u64>,
    what: What,
}

enum What {
    /// States differ: of runs, or of members.
    Differs {
        runs: bool,
        after: String,
        one: String,
        other: String,
    },
    /// A command cannot be read as it was written.
    Codec {
        command: String,
        reason: String,
    },
    Write {
        after: String,
        reason: String,
    },
    Restore {
        after: String,
        reason: String,
    },
    Run(RunError),
}

impl What {
    fn of_members(after: &str, (one, state): (&str, &str), (other, another): (&str, &str)) -> Self {
        Self::Differs {
            runs: false,
            after: after.to_owned(),
            one: format!("{one}: {state}"),
            other: format!("{other}: {another}"),
        }
    }
}

impl fmt::Display for CheckError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let (Some(seed), false) = (self.seed, matches!(self.what, What::Run(_))) {
            write!(f, "seed {seed}: ")?;
        }
        match &self.what {
            What::Differs {
                runs,
                after,
                one,
                other,
            } => {
                let (who, look) = match runs {
                    true => (
                        "two runs of the same commands",
                        "what it does depends on more than its state, its arguments and the order of commands: a hash table's order, a clock, chance",
                    ),
                    false => (
                        "two members",
                        "what it does depends on more than the commands, or its snapshot leaves out what decides",
                    ),
                };
                write!(f, "{who} differ after {after}\n  {one}\n  {other}\n{look}")
            }
            What::Codec { command, reason } => write!(
                f,
                "command {command} cannot be read as it was written: {reason}; check its serde attributes"
            ),
            What::Write { after, reason } => write!(f, "the state cannot be written after {after}: {reason}"),
            What::Restore { after, reason } => {
                write!(f, "what was written after {after} cannot be restored: {reason}")
            }
            What::Run(error) => error.fmt(f),
        }
    }
}

impl fmt::Debug for CheckError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl std::error::Error for CheckError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match &self.what {
            What::Run(error) => Some(error),
            _ => None,
        }
    }
}
