//! Do the checkers bite? Each planted mistake of the core is armed, on each membership engine that can make
//! it, until a checker fails.
//!
//! ```text
//!   planted.txt ──► the catch that is known: plan, seed ──► still fails ──────────────────► caught
//!                                                       └─► does not: stale ──► search ──► caught, or missed
//! ```
//! A failure counts only if the same seed passes with the mistake disarmed. The mistakes for which a small
//! world is searched exhaustively (R26) may be caught there; the same worlds without a mistake must be sound,
//! which `explore` shows.
//!
//! The known catches depend on the exact code of the protocol: almost any change of it gives other runs. Then
//! the search, bounded in time, must catch again, and `antiphon-sim planted --write` notes where.

mod table;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use antiphon_core::EngineKind;
use antiphon_core::planted::{Bug, arm};

pub use table::{Entry, Table};

use crate::check::Violation;
use crate::explore::study;
use crate::plan::{NAMES, Plan, named_on, runs_on};
use crate::run::run;

/// What stands for a plan where a small world was searched whole.
pub const EXPLORED: &str = "explore";

/// Where a mistake was noticed, and by what.
#[derive(Debug, Clone)]
pub struct Found {
    /// The plan, or [`EXPLORED`].
    pub plan: &'static str,
    /// The seed.
    pub seed: u64,
    /// What it broke.
    pub violation: Violation,
}

/// How a mistake was caught on one engine.
#[derive(Debug, Clone)]
pub struct Catch {
    /// Which.
    pub bug: Bug,
    /// The engine that made it.
    pub engine: EngineKind,
    /// Where; `None` if it was not caught.
    pub by: Option<Found>,
    /// Whether that is what the table says.
    pub known: bool,
    /// Runs it took, with the mistake armed.
    pub runs: u64,
}

/// For how long to search for what the table does not know, or knows no more.
#[derive(Debug, Clone, Copy)]
pub struct Bounds {
    /// Threads.
    pub jobs: usize,
    /// For each mistake on each engine.
    pub each: Duration,
    /// For all of them together.
    pub all: Duration,
    /// A catch on one engine is enough, on either by turns: no more is run for that mistake.
    pub once: bool,
}

/// Which mistakes a round of the search is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Whom {
    All,
    CaughtNowhere,
}

/// Tries to catch these mistakes on these engines, where they can be made. What is known is tried first,
/// everywhere; then comes the search: for a short time each, as most are easy, and then for longer; first for
/// what was caught on no engine, and for the rest of the time for what was caught on one of them only.
pub fn catch(
    bugs: &[Bug],
    engines: &[EngineKind],
    table: &Table,
    bounds: Bounds,
    tell: impl Fn(&Catch) + Sync,
) -> Vec<Catch> {
    let until = Instant::now() + bounds.all;
    let due = bugs
        .iter()
        .flat_map(|bug| engines.iter().map(move |engine| (*bug, *engine)))
        .filter(|(bug, engine)| table.is_due(*bug, *engine));
    let mut left: Vec<Hunt> = due.map(|(bug, engine)| Hunt::new(bug, engine)).collect();
    if bounds.once {
        let turns = |hunt: &Hunt| hunt.bug as usize + hunt.engine as usize;
        left.sort_by_key(|hunt| turns(hunt) % EngineKind::ALL.len());
    }
    let mut caught: Vec<Catch> = Vec::new();
    let disarmed = Disarmed::default();
    let short = bounds.each / 6;
    let first = match bounds.once {
        true => Whom::CaughtNowhere,
        false => Whom::All,
    };
    let rounds = [
        (first, None),
        // A checker that bites on one engine bites; what time is left goes to the other one.
        (Whom::CaughtNowhere, Some(short)),
        (Whom::CaughtNowhere, Some(bounds.each - short)),
        (Whom::All, Some(short)),
        (Whom::All, Some(bounds.each - short)),
    ];
    let rounds = &rounds[..if bounds.once { 3 } else { rounds.len() }];
    for (whom, within) in rounds.iter().copied() {
        let before: BTreeSet<Bug> = caught.iter().map(|catch| catch.bug).collect();
        let is_caught = |bug: Bug| before.contains(&bug);
        let (now, later): (Vec<Hunt>, Vec<Hunt>) = left
            .into_iter()
            .partition(|hunt| whom == Whom::All || !is_caught(hunt.bug));
        left = later;
        let meanwhile = Mutex::new(BTreeSet::new());
        // Poisoned locks only say that another thread panicked; what is in them is whole.
        let meanwhile = || meanwhile.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let tried = at_once(bounds.jobs, now, |hunt| {
            if whom == Whom::CaughtNowhere && meanwhile().contains(&hunt.bug) {
                return None;
            }
            let by = match within {
                None => hunt.known(table, &disarmed),
                Some(within) => hunt.search(until.min(Instant::now() + within), &disarmed),
            };
            if by.is_some() {
                meanwhile().insert(hunt.bug);
                tell(&hunt.catch(by.clone(), within.is_none()));
            }
            by
        });
        for (hunt, by) in tried {
            match by {
                Some(by) => caught.push(hunt.catch(Some(by), within.is_none())),
                None => left.push(hunt),
            }
        }
    }
    let somewhere: BTreeSet<Bug> = caught.iter().map(|catch| catch.bug).collect();
    for hunt in left {
        if bounds.once && somewhere.contains(&hunt.bug) {
            continue;
        }
        let missed = hunt.catch(None, false);
        tell(&missed);
        caught.push(missed);
    }
    caught.sort_by_key(|catch| (catch.bug, catch.engine));
    caught
}

/// Does something with each of them, on so many threads; they come back in any order.
fn at_once<T: Send, R: Send>(jobs: usize, all: Vec<T>, act: impl Fn(&mut T) -> R + Sync) -> Vec<(T, R)> {
    let next = AtomicUsize::new(0);
    let all: Vec<Mutex<Option<T>>> = all.into_iter().map(|one| Mutex::new(Some(one))).collect();
    let done = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..jobs.max(1) {
            scope.spawn(|| {
                while let Some(one) = all.get(next.fetch_add(1, Ordering::Relaxed)) {
                    // Poisoned locks only say that another thread panicked; what is in them is whole.
                    let taken = one.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).take();
                    let Some(mut taken) = taken else { continue };
                    let result = act(&mut taken);
                    let mut done = done.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
                    done.push((taken, result));
                }
            });
        }
    });
    done.into_inner().unwrap_or_else(|poisoned| poisoned.into_inner())
}

/// Runs without a mistake: one run is enough for all catches of the same plan and seed on the same engine.
#[derive(Default)]
struct Disarmed {
    passed: Mutex<BTreeMap<(&'static str, u64, EngineKind), bool>>,
}

impl Disarmed {
    fn passes(&self, plan: &Plan, seed: u64) -> bool {
        let key = (plan.name, seed, plan.membership);
        // Poisoned locks only say that another thread panicked; what is in them is whole. Two threads may
        // make the same run: no harm.
        let passed = self
            .passed
            .lock()
            .unwrap_or_else(|poisoned| poisoned.into_inner());
        let before = passed.get(&key).copied();
        drop(passed);
        before.unwrap_or_else(|| {
            let passes = run(plan, seed).report.is_ok();
            let mut passed = self
                .passed
                .lock()
                .unwrap_or_else(|poisoned| poisoned.into_inner());
            passed.insert(key, passes);
            passes
        })
    }
}

/// The search for one mistake on one engine. It goes on where it stopped.
struct Hunt {
    bug: Bug,
    engine: EngineKind,
    /// Plans and seeds not yet tried.
    tries: Box<dyn Iterator<Item = (&'static str, u64)> + Send>,
    explored: bool,
    runs: u64,
}

impl Hunt {
    fn new(bug: Bug, engine: EngineKind) -> Self {
        Self {
            bug,
            engine,
            tries: tries(bug, engine),
            explored: false,
            runs: 0,
        }
    }

    fn catch(&self, by: Option<Found>, known: bool) -> Catch {
        Catch {
            bug: self.bug,
            engine: self.engine,
            by,
            known,
            runs: self.runs,
        }
    }

    /// Tries what the table says.
    fn known(&mut self, table: &Table, disarmed: &Disarmed) -> Option<Found> {
        match table.caught(self.bug, self.engine)? {
            (EXPLORED, _) => self.explore(),
            (plan, seed) => self.attempt(plan, seed, disarmed),
        }
    }

    /// Tries plans until then, and the exhaustive search if none of them does it.
    fn search(&mut self, until: Instant, disarmed: &Disarmed) -> Option<Found> {
        while Instant::now() < until {
            let (plan, seed) = self.tries.next()?;
            if let Some(found) = self.attempt(plan, seed, disarmed) {
                return Some(found);
            }
        }
        match self.explored {
            true => None,
            false => self.explore(),
        }
    }

    fn attempt(&mut self, plan: &'static str, seed: u64, disarmed: &Disarmed) -> Option<Found> {
        self.runs += 1;
        let drawn = named_on(plan, seed, None, Some(self.engine))?;
        arm(Some(self.bug));
        let armed = run(&drawn, seed);
        arm(None);
        let violation = armed.report.violations.into_iter().next()?;
        // What also fails without the mistake says nothing about it.
        disarmed.passes(&drawn, seed).then_some(Found {
            plan,
            seed,
            violation,
        })
    }

    /// Some mistakes need a schedule that chance rarely draws: where a small world is made for one, it is
    /// searched whole. The slot and the flush are the same on both engines.
    fn explore(&mut self) -> Option<Found> {
        const STATES: u64 = 3_000_000;
        self.explored = true;
        let studies = study::slot(false).into_iter().chain(study::flush(false));
        studies
            .filter(|study| study.armed() == Some(self.bug))
            .find_map(|study| {
                self.runs += 1;
                let found = study.run(STATES).outcome.violation?;
                let violation = Violation {
                    guarantee: "exploration",
                    at: 0,
                    missing: 0,
                    what: format!("{}: {}", study.name, found.what),
                };
                Some(Found {
                    plan: EXPLORED,
                    seed: 0,
                    violation,
                })
            })
    }
}

/// What to try, without end: the plans made for a mistake get most of the seeds; the others may know better.
fn tries(bug: Bug, engine: EngineKind) -> Box<dyn Iterator<Item = (&'static str, u64)> + Send> {
    /// Seeds of each likely plan before all others get one.
    const LIKELY_SEEDS: u64 = 20;
    let name = format!("{bug:?}");
    let (likely, others): (Vec<&'static str>, Vec<&'static str>) = NAMES
        .iter()
        .filter(|plan| runs_on(plan, engine))
        .partition(|plan| {
            LIKELY
                .iter()
                .any(|(word, made)| made == *plan && name.contains(word))
        });
    Box::new((0..u64::MAX / LIKELY_SEEDS).flat_map(move |round| {
        let seeds = round * LIKELY_SEEDS..(round + 1) * LIKELY_SEEDS;
        let first = likely
            .iter()
            .flat_map(|plan| seeds.clone().map(|seed| (*plan, seed)));
        let then = others.iter().map(|plan| (*plan, round));
        first.chain(then).collect::<Vec<_>>()
    }))
}

/// Words in the names of mistakes, and the plans made for what they mean.
const LIKELY: &[(&str, &str)] = &[
    ("OfOthers", "r7-answers-go-astray"),
    ("Held", "r19-joiner-while-writing"),
    ("Held", "r19-source-dies"),
    ("HoldWithout", "r19-source-dies"),
    ("LatestPart", "r19-joiner-spills"),
    ("ReadBack", "r19-joiner-spills"),
    ("WithTheState", "r19-nobody-has-the-state"),
    ("ToLeave", "r19-source-dies"),
    ("ReadAtOnce", "g45-writers-are-cut-off"),
    ("TimeGoesBack", "g45-writers-are-cut-off"),
    ("NobodyTicks", "g45-writers-are-cut-off"),
    ("CountAllRequests", "g45-writers-are-cut-off"),
    ("KeepTheLastBack", "g51-hosts-come-and-go"),
    ("WhenOneLeaves", "g30-holder-is-removed"),
    ("AtRecovery", "r11-recover-replicas"),
    ("ReceiptsApart", "any-calls"),
    ("AfterChange", "g51-hosts-come-and-go"),
    ("BeforeAll", "g45-writers-are-cut-off"),
    ("IgnoreVersions", "g45-writers-are-cut-off"),
    ("AddTwice", "g45-writers-are-cut-off"),
    ("KeysUntold", "g45-writers-are-cut-off"),
    ("CountsUntold", "g45-writers-are-cut-off"),
    ("Tokens", "g30-holder-is-removed"),
    ("Locks", "g30-holder-is-removed"),
    ("Waiters", "g30-holder-is-removed"),
    ("SendCalls", "g29-all-while-members-change"),
    ("ForgetTheDeparted", "g29-all-while-members-change"),
    ("ForTheDeparted", "g49-servers-die"),
    ("PastItsTime", "g49-servers-die"),
    ("HalfTheTime", "g49-servers-die"),
    ("BeginNumbers", "g29-all-while-members-change"),
    ("WasSent", "g49-servers-die"),
    ("InSilence", "g49-servers-die"),
    ("Busy", "g49-servers-die"),
    ("Place", "g49-servers-die"),
    ("Replies", "g49-servers-die"),
    ("NoDepths", "g49-servers-die"),
    ("LeaveOneOut", "g49-servers-die"),
    ("Undelivered", "g49-apart-and-together"),
    ("WhatWasSeen", "g50-replicas-merge"),
    ("KeepTheTime", "g50-replicas-merge"),
    ("RenewNothing", "g50-replicas-merge"),
    ("KnowAtOnce", "g51-hosts-come-and-go"),
    ("KnownAlone", "g51-hosts-come-and-go"),
    ("DuringChange", "g51-hosts-come-and-go"),
    ("ClientsOfDeparted", "g51-hosts-come-and-go"),
    ("ChangeUnsafely", "g51-hosts-are-cut-off"),
    ("FirstOfBundle", "g51-hosts-come-and-go"),
    ("GoUnsaid", "g51-hosts-come-and-go"),
    ("AllClients", "g51-hosts-come-and-go"),
    ("ShowCatchingUp", "g50-replicas-merge"),
    ("TakeUndoneForEarlier", "g45-writers-are-cut-off"),
    ("Tell", "g44-told-while-views-change"),
    ("Unheard", "g44-told-while-views-change"),
    ("WhoWasAhead", "joiners-beside-crashes"),
    ("NamelessDeparted", "joiners-beside-crashes"),
    ("RelayWhen", "r20-too-many-for-their-processors"),
    ("BeatsMake", "r20-too-many-for-their-processors"),
    ("CutOn", "cut-flip-flop"),
    ("CutHears", "cut-deaf-together"),
    ("Behind", "cut-flip-flop"),
    ("CutOff", "cut-off"),
    ("InWideViews", "cut-dead-path"),
    ("Bystanders", "cut-dead-path"),
    ("BeyondTheRings", "cut-islands"),
    ("CutBy", "cut-half-lost"),
    ("CutIgnores", "cut-lossy"),
    ("CutWithout", "cut-a-tenth-crashes"),
    ("IgnoreWitness", "r10-killed-behind-proxies"),
    ("Witness", "r10-stale-witness"),
    ("LastVoteRecord", "r10-stale-witness"),
    ("Wedge", "r13-late-frame-of-the-dead"),
    ("Certificate", "r2-cut-heal-kill"),
    ("LastVote", "r2-cut-heal-kill"),
    ("VoteBeforeLifeline", "r2-killed-while-voting"),
    ("ProveOnce", "r2-proven-while-apart"),
    ("Proof", "r9-resets-and-proxies"),
    ("Lifeline", "r9-resets-and-proxies"),
    ("Tuple", "r9-resets-and-proxies"),
    ("Ballot", "r1-coordinator-dies-in-the-slot"),
    ("Accept", "r1-coordinator-dies-in-the-slot"),
    ("Promise", "r1-coordinator-dies-in-the-slot"),
    ("Joiner", "crash-between-installs"),
    ("Joiner", "r14-leaders-die-in-the-flush"),
    ("JointQuorum", "r3-joiners-vanish"),
    ("Seniority", "crash-between-installs"),
    ("Suspended", "r6-merge"),
    ("Suspended", "r17-receipts"),
    ("TailOfTheDead", "g20-sender-and-sequencer-die"),
    ("Dead", "r16-sequencer-dies"),
    ("FoundAlone", "r4-one-of-three-restarted"),
    ("WithoutVotes", "r3-the-vote-comes-late"),
    ("VoteBesideAPrimary", "r4-locator-loses-power"),
    ("BelieveAFreshLocator", "r4-locator-loses-power"),
    ("RegisterSeldom", "r4-locators-and-nodes-restart"),
    ("TrustTheFirstNamed", "r4-members-named-late"),
    ("FoundByHints", "r4-hints-differ"),
    ("FoundByHints", "r4-hints-come-late"),
    ("Believe", "r7-cut-off"),
    ("VoteWhileAnswered", "r7-cut-off"),
    ("WithoutLease", "r7-cut-off"),
    ("TellWithoutLease", "r7-answers-go-astray"),
    ("TellWithoutLease", "g49-apart-and-together"),
    ("Pulse", "cut-off-from-a-large-primary"),
    ("Graft", "cut-the-pulse-goes-on"),
    ("SilenceAll", "cut-far-seniors"),
    ("Anybodys", "r7-answers-go-astray"),
    ("CountLateDead", "r7-an-answer-outlives-its-giver"),
    ("AnswerAfterVote", "r7-a-voter-is-asked"),
    ("VoteAtOnceInANewView", "r7-behind"),
    ("Override", "r11-recover"),
    ("AdmitWithoutThePast", "r1-only-a-joiner-is-left"),
    ("PullFromNoStranger", "r1-only-a-joiner-is-left"),
    ("StandStill", "r1-a-slot-stands-still"),
    ("SettleApart", "r6-minority-settles"),
    ("PartUnaccused", "r6-minority-settles"),
    ("GiveWayToLighter", "r11-recover-beside-majority"),
    ("Separate", "any-partition"),
    ("Separate", "any-flap"),
    ("BothGiveWay", "any-partition"),
    ("LeftBehind", "any-partition"),
    ("MergeNames", "any-partition"),
    ("Full", "r21-stalled-applications"),
    ("JoinForgets", "r17-safe"),
    ("Grant", "r12-founding-race"),
    ("LeaderIn", "r12-only-joiners-are-left"),
    ("Directory", "r12-founding-race"),
    ("Minority", "r6-merge"),
    ("Primary", "r6-merge"),
    ("Unordered", "r15-senders-die-behind-gaps"),
    ("FifoGap", "multicast-fails"),
    ("Gap", "r15-senders-die-behind-gaps"),
    ("Scope", "r15-senders-die-behind-gaps"),
    ("PartOfCut", "r15-senders-die-behind-gaps"),
    ("Flush", "r14-leaders-die-in-the-flush"),
    ("Leader", "r14-leaders-die-in-the-flush"),
    ("Cut", "r14-leaders-die-in-the-flush"),
    ("Install", "crash-between-installs"),
    ("Order", "r16-sequencer-dies"),
    ("Receipt", "r17-receipts"),
    ("Records", "r17-receipts"),
    ("Removal", "r18-the-remover-dies"),
    ("Resync", "r6-merge"),
    ("Expel", "pause-across-view"),
    ("Dedup", "default"),
    ("Dedup", "late-replay"),
    ("Duplicate", "late-replay"),
    ("Incarnation", "restart-at-the-same-address"),
    ("Slow", "slow-consumer"),
    ("Credit", "r21-stalled-applications"),
    ("Window", "r21-stalled-applications"),
    ("Large", "r22-large-messages"),
    ("Pieces", "r22-large-messages"),
    ("Object", "r22-bulk"),
    ("AllHold", "r22-bulk"),
    ("Progress", "r22-bulk"),
    ("SafeCut", "g25-the-only-holder-dies"),
    ("Safe", "r17-safe"),
    ("MarkOfOwnRow", "r17-safe"),
    ("Chain", "chain-is-torn"),
    ("HandOn", "chain-is-torn"),
    ("Supplier", "chain-is-torn"),
    ("Nulls", "r16-members-of-a-rotation-die"),
    ("SilentSlot", "r16-members-of-a-rotation-die"),
    ("TokenOfOldView", "r16-the-token-is-late"),
    ("Token", "r16-the-token-is-lost"),
    ("Multicast", "multicast-fails"),
    ("Hears", "multicast-is-not-heard"),
    ("KeepTheDeaf", "deaf-hosts"),
    ("Starved", "starved-observers"),
    ("LateTimers", "starved-observers"),
    ("PassOn", "r20-relays-die"),
    ("PassOn", "r20-black-holes"),
    ("Relay", "r20-relays-die"),
    ("Relay", "r20-black-holes"),
    ("NeverProbe", "r21-lossy-host"),
    ("ProbesCount", "r21-only-udp-passes"),
    ("Link", "links-fail"),
    ("FailBack", "links-fail"),
];
