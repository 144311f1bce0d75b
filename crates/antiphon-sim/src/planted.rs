//! Do the checkers bite? Each planted mistake of the core is armed, and plans are run until a checker fails.
//!
//! A failure counts only if the same seed passes with the mistake disarmed. The mistakes for which a small world is
//! searched exhaustively (R26) are caught there; the same worlds without a mistake must be sound, which `explore` shows.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use antiphon_core::planted::{Bug, arm};

use crate::check::Violation;
use crate::explore::study;
use crate::plan::{NAMES, Plan, named};
use crate::run::run;

/// How a mistake was caught.
#[derive(Debug, Clone)]
pub struct Catch {
    /// Which.
    pub bug: Bug,
    /// By which plan and seed, and what it broke; `None` if it was not.
    pub by: Option<(&'static str, u64, Violation)>,
    /// Runs it took.
    pub runs: u64,
}

/// Tries to catch all mistakes, each within a bounded time.
pub fn catch_all(jobs: usize, each: Duration, tell: impl Fn(&Catch) + Sync) -> Vec<Catch> {
    let next = AtomicUsize::new(0);
    let caught = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..jobs.max(1) {
            scope.spawn(|| {
                while let Some(bug) = Bug::ALL.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let catch = catch_one(*bug, each);
                    tell(&catch);
                    caught
                        .lock()
                        .unwrap_or_else(|poisoned| poisoned.into_inner())
                        .push(catch);
                }
            });
        }
    });
    let mut caught = caught
        .into_inner()
        .unwrap_or_else(|poisoned| poisoned.into_inner());
    caught.sort_by_key(|catch: &Catch| catch.bug);
    caught
}

/// Tries to catch one mistake.
pub fn catch_one(bug: Bug, within: Duration) -> Catch {
    let deadline = Instant::now() + within;
    let mut runs = 0;
    let mut attempt = |name: &'static str, seed: u64| {
        runs += 1;
        let plan = named(name, seed, None)?;
        fails_armed(bug, &plan, seed).map(|violation| (name, seed, violation))
    };
    if let Some(by) = found_by_exploration(bug) {
        return Catch {
            bug,
            by: Some(by),
            runs: 1,
        };
    }
    // The plans made for it get most of the time; the others may know better.
    let (likely, others) = plans_for(bug);
    for round in 0..u64::MAX {
        let tries = likely
            .iter()
            .flat_map(|name| (0..LIKELY_SEEDS).map(move |seed| (*name, round * LIKELY_SEEDS + seed)));
        for (name, seed) in tries.chain(others.iter().map(|name| (*name, round))) {
            if Instant::now() > deadline {
                return Catch { bug, by: None, runs };
            }
            if let Some(by) = attempt(name, seed) {
                return Catch {
                    bug,
                    by: Some(by),
                    runs,
                };
            }
        }
    }
    Catch { bug, by: None, runs }
}

/// Some mistakes need a schedule that chance rarely draws: where a small world is made for one, it is searched whole.
fn found_by_exploration(bug: Bug) -> Option<(&'static str, u64, Violation)> {
    const STATES: u64 = 3_000_000;
    let studies = study::slot(false).into_iter().chain(study::flush(false));
    studies
        .filter(|study| study.armed() == Some(bug))
        .find_map(|study| {
            let found = study.run(STATES).outcome.violation?;
            let violation = Violation {
                guarantee: "exploration",
                at: 0,
                what: format!("{}: {}", study.name, found.what),
            };
            Some(("explore", 0, violation))
        })
}

/// Seeds of each likely plan before all others get one.
const LIKELY_SEEDS: u64 = 20;

fn fails_armed(bug: Bug, plan: &Plan, seed: u64) -> Option<Violation> {
    arm(Some(bug));
    let armed = run(plan, seed);
    arm(None);
    let violation = armed.report.violations.into_iter().next()?;
    // What also fails without the mistake says nothing about it.
    run(plan, seed).report.is_ok().then_some(violation)
}

/// The plans that most likely show a mistake, and all others.
fn plans_for(bug: Bug) -> (Vec<&'static str>, Vec<&'static str>) {
    let name = format!("{bug:?}");
    let likely: Vec<&'static str> = LIKELY
        .iter()
        .filter(|(word, _)| name.contains(word))
        .map(|(_, plan)| *plan)
        .collect();
    let others = NAMES
        .iter()
        .copied()
        .filter(|plan| !likely.contains(plan))
        .collect();
    (likely, others)
}

/// Words in the names of mistakes, and the plans made for what they mean.
const LIKELY: &[(&str, &str)] = &[
    ("CutOn", "cut-flip-flop"),
    ("Behind", "cut-flip-flop"),
    ("CutOff", "cut-off"),
    ("BeyondTheRings", "cut-islands"),
    ("CutBy", "cut-lossy"),
    ("CutIgnores", "cut-lossy"),
    ("CutWithout", "cut-a-tenth-crashes"),
    ("IgnoreWitness", "r10-killed-behind-proxies"),
    ("Witness", "r10-stale-witness"),
    ("Testament", "r10-stale-witness"),
    ("Wedge", "r13-late-frame-of-the-dead"),
    ("Certificate", "r2-cut-heal-kill"),
    ("LastVote", "r2-cut-heal-kill"),
    ("VoteBeforeLifeline", "r2-killed-while-voting"),
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
    ("WithoutVotes", "default-weights"),
    ("VoteBesideAPrimary", "r4-locators-and-nodes-restart"),
    ("BelieveAFreshLocator", "r4-locators-and-nodes-restart"),
    ("RegisterSeldom", "r4-locators-and-nodes-restart"),
    ("TrustTheFirstNamed", "r4-members-named-late"),
    ("FoundByHints", "r4-hints-differ"),
    ("FoundByHints", "r4-hints-come-late"),
    ("Believe", "r7-cut-off"),
    ("VoteWhileAnswered", "r7-cut-off"),
    ("WithoutLease", "r7-cut-off"),
    ("CountLateDead", "r7-counted-on-die"),
    ("AnswerAfterVote", "r7-behind"),
    ("VoteAtOnceInANewView", "r7-behind"),
    ("Override", "r11-recover"),
    ("SettleApart", "r6-minority-settles"),
    ("GiveWayToLighter", "r11-recover-beside-majority"),
    ("Separate", "any-partition"),
    ("Separate", "any-flap"),
    ("BothGiveWay", "any-partition"),
    ("LeftBehind", "any-partition"),
    ("MergeNames", "any-partition"),
    ("Grant", "r12-founding-race"),
    ("Directory", "r12-founding-race"),
    ("Minority", "r6-merge"),
    ("Primary", "r6-merge"),
    ("Unordered", "r15-senders-die-behind-gaps"),
    ("Gap", "r15-senders-die-behind-gaps"),
    ("Scope", "r15-senders-die-behind-gaps"),
    ("PartOfCut", "r15-senders-die-behind-gaps"),
    ("Flush", "r14-leaders-die-in-the-flush"),
    ("Leader", "r14-leaders-die-in-the-flush"),
    ("Cut", "r14-leaders-die-in-the-flush"),
    ("Install", "crash-between-installs"),
    ("Order", "r16-sequencer-dies"),
    ("Receipt", "r17-receipts"),
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
    ("SafeCut", "g25-the-only-holder-dies"),
    ("Safe", "r17-safe"),
    ("Chain", "chain-is-torn"),
    ("HandOn", "chain-is-torn"),
    ("Supplier", "chain-is-torn"),
    ("Nulls", "r16-members-of-a-rotation-die"),
    ("SilentSlot", "r16-members-of-a-rotation-die"),
    ("TokenOfOldView", "r16-the-token-is-late"),
    ("Token", "r16-the-token-is-lost"),
    ("Multicast", "multicast-fails"),
    ("Hears", "multicast-is-not-heard"),
    ("Starved", "starved-observers"),
    ("LateTimers", "starved-observers"),
    ("PassOn", "r20-relays-die"),
    ("PassOn", "r20-black-holes"),
    ("Relay", "r20-relays-die"),
    ("Relay", "r20-black-holes"),
    ("Link", "links-fail"),
    ("FailBack", "links-fail"),
];
