//! The story of a swarm: form, rest, joins, leave.

use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use antiphon_core::{EngineKind, MAX_GROUP_MEMBERS};

use super::args::SwarmArgs;
use super::report::{self, Rest, Summary};
use super::words::{Ask, Counts, Say, Seen, Setup};
use crate::exit::{Exit, Failed};
use crate::files;
use crate::fleet::free_addrs;
use crate::hands::Hand;
use crate::key;
use crate::progress::Progress;
use crate::signals::Signals;

/// For processes to be there, before any node is started.
const READY_WITHIN: Duration = Duration::from_secs(30);
/// For an answer that costs a crowd little.
const ANSWER_WITHIN: Duration = Duration::from_secs(30);
/// After forming and before the rest is measured: what forming left behind comes to its end.
const SETTLE: Duration = Duration::from_secs(1);
/// Between two joins: a cluster at rest is joined.
const BETWEEN_JOINS: Duration = Duration::from_secs(1);
/// For leaving after a signal, or when nobody reads any more.
const LEAVE_EARLY_WITHIN: Duration = Duration::from_secs(10);
/// Between two looks at the clock, for the progress line.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// What is heard.
enum Heard {
    Say(usize, Say),
    Ended(usize),
    Signal(i32),
}

/// Why the story stops early.
enum Stop {
    Failed(Failed),
    Signal(i32),
}

impl From<Failed> for Stop {
    fn from(failed: Failed) -> Self {
        Stop::Failed(failed)
    }
}

/// Runs a swarm.
pub(super) fn run(args: &SwarmArgs) -> Result<Exit, Failed> {
    let mut conductor = Conductor::start(args)?;
    match conductor.tell_story() {
        Ok(exit) => Ok(exit),
        Err(Stop::Failed(failed)) if failed.exit == Exit::StdoutClosed => {
            conductor.leave_early()?;
            Err(failed)
        }
        Err(Stop::Failed(failed)) => {
            conductor.progress.clear();
            Err(failed)
        }
        Err(Stop::Signal(_)) => {
            let left = conductor.leave_early()?;
            if left == Exit::Success {
                conductor.summary.learn(&conductor.seen);
                report::summary(&conductor.summary, args)?;
            }
            Ok(left)
        }
    }
}

struct Conductor<'a> {
    args: &'a SwarmArgs,
    crowds: Vec<Hand>,
    heard: Receiver<Heard>,
    /// Since when each crowd is complete.
    complete: Vec<Option<Instant>>,
    seen: Vec<Seen>,
    /// The processes with nodes that have all left: they may end.
    left: Vec<bool>,
    progress: Progress,
    summary: Summary,
}

impl<'a> Conductor<'a> {
    /// Starts the processes, without nodes yet.
    fn start(args: &'a SwarmArgs) -> Result<Self, Failed> {
        let (all, processes) = (usize::from(args.nodes), usize::from(args.processes));
        if processes > all {
            return Err(Failed::usage(format!(
                "--processes {processes} for --nodes {all}: a process without a node is of no use"
            )));
        }
        let at_once = all + usize::from(args.joins > 0);
        let engine = args.membership;
        let most = engine.max_members();
        if at_once > most {
            let joiner = if args.joins > 0 {
                " and one more that joins"
            } else {
                ""
            };
            let remedy = match at_once <= EngineKind::Cut.max_members() {
                true => "--membership cut, or fewer nodes",
                false => "fewer nodes",
            };
            return Err(Failed::usage(format!(
                "--nodes {all}{joiner}: with --membership {} a cluster has at most {most} members; give {remedy}",
                engine.name()
            )));
        }
        if args.group && at_once > MAX_GROUP_MEMBERS {
            return Err(Failed::usage(format!(
                "--group with {at_once} nodes: a group has at most {MAX_GROUP_MEMBERS} members"
            )));
        }
        let most_here = all.div_ceil(processes) + 1;
        let needed = files::of_a_swarm(most_here as u64, all + 1, args.group, engine);
        files::allow(needed, processes as u64)?;
        let seeds = free_addrs(all.min(usize::from(args.seeds)))?;
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let threads = args.threads.map_or(cores, usize::from);
        let key = args.keyed.then(key::fresh).transpose()?;
        let (hearing, heard) = channel();
        hear_signals(hearing.clone());
        let mut crowds = Vec::new();
        let mut first = 0;
        for index in 0..processes {
            let nodes = all / processes + usize::from(index < all % processes);
            let setup = Setup {
                cluster: format!("swarm-{}", std::process::id()),
                own_seeds: seeds.iter().copied().skip(index).step_by(processes).collect(),
                seeds: seeds.clone(),
                nodes,
                first,
                all,
                membership: args.membership,
                profile: args.profile.clone(),
                transport: args.transport,
                key,
                group: args.group,
                threads,
                die_with: std::process::id(),
            };
            first += nodes;
            let hearing = hearing.clone();
            let hear = move |say: Option<Say>| {
                let heard = say.map_or(Heard::Ended(index), |say| Heard::Say(index, say));
                // Nobody listens any more if the story is over.
                let _ = hearing.send(heard);
            };
            crowds.push(Hand::start("of the swarm", &["swarm", "--crowd"], &setup, hear)?);
        }
        Ok(Self {
            args,
            complete: vec![None; processes],
            seen: vec![Seen::default(); processes],
            left: vec![false; processes],
            crowds,
            heard,
            progress: Progress::new(),
            summary: Summary::new(args),
        })
    }

    fn tell_story(&mut self) -> Result<Exit, Stop> {
        let args = self.args;
        let nodes = usize::from(args.nodes);
        self.answers(READY_WITHIN, "the processes to start", |say| {
            matches!(say, Say::Ready).then_some(())
        })?;
        report::begun(args)?;

        let begun = Instant::now();
        self.ask_all(&Ask::Start)?;
        let formed = self.until_complete(nodes, "forming", begun)?;
        self.summary.formed_ms = report::milliseconds(formed.saturating_duration_since(begun));
        let counts = self.count()?;
        self.summary.learn(&self.seen);
        self.summary.formed(&counts);
        self.progress.clear();
        report::formed(&self.summary, args)?;

        if !args.seconds.is_zero() {
            let rest = self.rest()?;
            let views = self.summary.views;
            self.summary.learn(&self.seen);
            self.summary
                .rested(rest, self.summary.views.saturating_sub(views));
            self.progress.clear();
            report::rested(&self.summary, args)?;
        }
        for run in 0..args.joins {
            self.progress.show(&format!("join {} of {}", run + 1, args.joins));
            let (own_ms, everywhere_ms) = self.join(nodes)?;
            self.summary.joined(own_ms, everywhere_ms);
            report::joined(run, own_ms, everywhere_ms, args)?;
        }
        self.summary.learn(&self.seen);

        self.progress.show("leaving");
        let taken = self.leave(args.within)?;
        self.summary.left_ms = report::milliseconds(taken);
        self.progress.clear();
        report::summary(&self.summary, args)?;
        Ok(Exit::Success)
    }

    /// What the nodes take while nothing happens.
    fn rest(&mut self) -> Result<Rest, Stop> {
        let settled = Instant::now() + SETTLE;
        self.wait_until(settled, "letting it come to rest")?;
        let (before, from) = (self.count()?, Instant::now());
        self.wait_until(from + self.args.seconds, "at rest")?;
        let (after, elapsed) = (self.count()?, from.elapsed());
        Ok(Rest {
            before,
            after,
            elapsed,
        })
    }

    /// One more node joins and leaves again: milliseconds until it has its view, and until all have it.
    fn join(&mut self, nodes: usize) -> Result<(f64, f64), Stop> {
        let rested = Instant::now() + BETWEEN_JOINS;
        self.wait_until(rested, "joining")?;
        self.expect(nodes + 1)?;
        let begun = Instant::now();
        self.crowds[0].ask(&Ask::Join)?;
        let mut own = None;
        let deadline = begun + self.args.within;
        while own.is_none() || self.complete.iter().any(Option::is_none) {
            if let (_, Say::Joined { ms }) = self.next(deadline, "the joiner to be in everyone's view")? {
                own = Some(ms);
            }
        }
        let everywhere = self.complete.iter().flatten().max().copied().unwrap_or(begun);
        self.expect(nodes)?;
        self.crowds[0].ask(&Ask::Part)?;
        self.until_complete(nodes, "parting", Instant::now())?;
        let everywhere_ms = report::milliseconds(everywhere.saturating_duration_since(begun));
        Ok((own.unwrap_or(everywhere_ms), everywhere_ms))
    }

    /// Has all leave before the story is over. Whatever stops that, a second signal or the time, ends the
    /// crowds.
    fn leave_early(&mut self) -> Result<Exit, Failed> {
        self.progress
            .show("leaving; a second signal ends everything at once");
        let left = self.leave(LEAVE_EARLY_WITHIN);
        self.progress.clear();
        match left {
            Ok(taken) => {
                self.summary.interrupted(report::milliseconds(taken));
                Ok(Exit::Success)
            }
            Err(Stop::Signal(signal)) => Ok(Exit::Signal(signal)),
            Err(Stop::Failed(failed)) => Err(failed),
        }
    }

    /// Has all leave at once; says how long the last took.
    fn leave(&mut self, within: Duration) -> Result<Duration, Stop> {
        let begun = Instant::now();
        self.ask_all(&Ask::Leave)?;
        let left = self.answers(within, "all nodes to leave", |say| {
            matches!(say, Say::Left).then_some(())
        });
        let taken = begun.elapsed();
        left?;
        let deadline = begun + within;
        self.crowds
            .iter_mut()
            .for_each(|crowd| crowd.wait_until(deadline));
        Ok(taken)
    }

    fn ask_all(&mut self, ask: &Ask) -> Result<(), Failed> {
        self.crowds.iter_mut().try_for_each(|crowd| crowd.ask(ask))
    }

    /// From here on a complete view is one of this many members.
    fn expect(&mut self, members: usize) -> Result<(), Failed> {
        self.complete.fill(None);
        self.ask_all(&Ask::Expect { members })
    }

    /// When the last crowd became complete.
    fn until_complete(&mut self, nodes: usize, doing: &str, begun: Instant) -> Result<Instant, Stop> {
        let deadline = begun + self.args.within;
        while self.complete.iter().any(Option::is_none) {
            let sum = |of: fn(&Seen) -> usize| self.seen.iter().map(of).sum::<usize>();
            let largest = self.seen.iter().map(|seen| seen.largest).max().unwrap_or(0);
            self.progress.show(&format!(
                "{doing}: {:.1} s, {} of {nodes} nodes report all, the largest view has {largest}",
                begun.elapsed().as_secs_f64(),
                sum(|seen| seen.complete),
            ));
            let look = (Instant::now() + LOOK_EVERY).min(deadline);
            self.hear(look)?;
            if Instant::now() >= deadline {
                return Err(self.incomplete(nodes, doing).into());
            }
        }
        Ok(self.complete.iter().flatten().max().copied().unwrap_or(begun))
    }

    fn incomplete(&self, nodes: usize, doing: &str) -> Failed {
        let complete: usize = self.seen.iter().map(|seen| seen.complete).sum();
        let smallest = self.seen.iter().map(|seen| seen.smallest).min().unwrap_or(0);
        let largest = self.seen.iter().map(|seen| seen.largest).max().unwrap_or(0);
        let removed: usize = self.seen.iter().map(|seen| seen.removed.len()).sum();
        let refused = self.seen.iter().rev().find_map(|seen| seen.refused.as_deref());
        let refused = refused.map_or_else(String::new, |reason| format!("; a node was refused: {reason}"));
        Failed::run(format!(
            "{doing}: after {} s {complete} of {nodes} nodes report all; their views have {smallest} to {largest} members, and \
             {removed} nodes were removed by others{refused}. If this machine is too small for them, take fewer, or \
             --profile wan, which gives each more time",
            self.args.within.as_secs()
        ))
    }

    fn count(&mut self) -> Result<Vec<Counts>, Stop> {
        self.ask_all(&Ask::Count)?;
        self.answers(
            ANSWER_WITHIN,
            "the nodes to tell what they take",
            |say| match say {
                Say::Counted { counts } => Some(counts.clone()),
                _ => None,
            },
        )
    }

    /// One answer of each crowd.
    fn answers<T>(
        &mut self,
        within: Duration,
        what: &str,
        question: impl Fn(&Say) -> Option<T>,
    ) -> Result<Vec<T>, Stop> {
        let deadline = Instant::now() + within;
        let mut answers: Vec<Option<T>> = self.crowds.iter().map(|_| None).collect();
        while answers.iter().any(Option::is_none) {
            let (crowd, say) = self.next(deadline, what)?;
            if let Some(answer) = question(&say) {
                answers[crowd] = Some(answer);
            }
        }
        Ok(answers.into_iter().flatten().collect())
    }

    fn wait_until(&mut self, deadline: Instant, doing: &str) -> Result<(), Stop> {
        while Instant::now() < deadline {
            let left = deadline.saturating_duration_since(Instant::now());
            self.progress
                .show(&format!("{doing}: {:.0} s more", left.as_secs_f64()));
            self.hear((Instant::now() + LOOK_EVERY).min(deadline))?;
        }
        Ok(())
    }

    /// The next line of a crowd.
    fn next(&mut self, deadline: Instant, what: &str) -> Result<(usize, Say), Stop> {
        match self.hear(deadline)? {
            Some(said) => Ok(said),
            None => Err(Failed::run(format!("waited in vain for {what}")).into()),
        }
    }

    /// The next line of a crowd, if one comes in time.
    fn hear(&mut self, deadline: Instant) -> Result<Option<(usize, Say)>, Stop> {
        let (crowd, say) = loop {
            let left = deadline.saturating_duration_since(Instant::now());
            match self.heard.recv_timeout(left) {
                Ok(Heard::Say(crowd, say)) => break (crowd, say),
                Ok(Heard::Signal(signal)) => return Err(Stop::Signal(signal)),
                // It was told to, and the others may still be at it.
                Ok(Heard::Ended(crowd)) if self.left[crowd] => {}
                Ok(Heard::Ended(crowd)) => {
                    let first = format!("process {} of {} has ended", crowd + 1, self.crowds.len());
                    return Err(Failed::run(format!("{first}; what it said of that is above")).into());
                }
                Err(RecvTimeoutError::Timeout) => return Ok(None),
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(Failed::run("all processes have ended").into());
                }
            }
        };
        match &say {
            Say::Complete { complete } => self.complete[crowd] = complete.then(Instant::now),
            Say::Seen { seen } => self.seen[crowd].clone_from(seen),
            Say::Left => self.left[crowd] = true,
            Say::Failed { reason } => return Err(Failed::run(reason.clone()).into()),
            _ => {}
        }
        Ok(Some((crowd, say)))
    }
}

/// A key for this run.
/// Has SIGINT and SIGTERM heard like a crowd.
fn hear_signals(hearing: Sender<Heard>) {
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        // Without it signals end the program as they always do, and with it the crowds.
        let Ok(runtime) = runtime else { return };
        runtime.block_on(async {
            let Ok(mut signals) = Signals::new() else { return };
            loop {
                let signal = signals.next().await;
                if hearing.send(Heard::Signal(signal)).is_err() {
                    return;
                }
            }
        });
    });
}
