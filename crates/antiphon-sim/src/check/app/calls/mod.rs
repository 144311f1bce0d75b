//! Calls and handlers: G29 and G49.
//!
//! ```text
//!  callers:   Calls ──────────────────────────► Ended (replies, failures, why)  ──► ended: G29, and what it says
//!  handlers:          Starts ──► Answers | Stops                                ──► this file: once, in time
//!  both:      Takes (a view) ─► a member is gone: its handlers stop, calls to it end
//! ```
//! The checkers know which call went to which members, and nothing of requests, receipts and the machine. A
//! handler that runs is a *run*.
//!
//! A process that is stopped, whose application does not read, or that leaves the group ends nothing
//! meanwhile: what is due then is due after that.

mod ended;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use antiphon_core::GroupView;
use antiphon_core::wire::Incarnation;
use antiphon_replica::calls::{Rule, Target, Why};

use crate::agenda::{MILLIS, Micros, SECONDS};
use crate::check::{History, Report};
use crate::trace::{CallDeed, GroupIndex, Heard, ProcessId, Seen, Slot};

/// A place among all lines of the trace.
type LineNumber = usize;

/// What is due may come so much later: clocks drift, and timers are not set for less than a moment.
const SLACK: Micros = 20 * MILLIS;
/// A call whose only member is gone ends within this time after its application knows it: the receipt of the
/// request comes with the view.
const DEPARTURE: Micros = SECONDS;

/// A call.
struct Call {
    line: LineNumber,
    at: Micros,
    process: ProcessId,
    caller: Incarnation,
    depth: usize,
    target: Target,
    rule: Rule,
    verb: String,
    payload: u64,
    at_rest: bool,
    /// When it ends at the latest, and the run that it is part of.
    until: Micros,
    within: Option<usize>,
    cancelled: bool,
    /// If it is a call to all: when its application took it, and the members then.
    delivered: Option<(LineNumber, Vec<Incarnation>)>,
    delivered_at: Micros,
    /// Since when the only member that it asks is gone.
    gone: Option<Micros>,
    /// If it is a call to all: since when its application knows that it is not delivered.
    not_delivered: Option<Micros>,
    ended: Option<End>,
}

/// How a call ended.
struct End {
    line: LineNumber,
    at: Micros,
    /// If not well: why.
    why: Option<Why>,
    /// These members were gone.
    departed: BTreeSet<Incarnation>,
    /// No handler runs for it at these members, or at none.
    never: BTreeSet<Incarnation>,
    never_anywhere: bool,
}

/// One handler's work for one call.
struct Run {
    op: u64,
    at: Micros,
    process: ProcessId,
    server: Incarnation,
    caller: Incarnation,
    depth: usize,
    until: Micros,
    /// When its application learned that its caller is gone, or that its own membership is over.
    doomed: Option<Micros>,
    ended: Option<Micros>,
    answer: Option<(LineNumber, Result<u64, u64>)>,
    /// It ended without an answer, and said so.
    given_up: bool,
}

/// A process while the trace is read.
#[derive(Default)]
struct Member {
    slot: Slot,
    ended: Option<Micros>,
    incarnation: Option<Incarnation>,
    /// When it became that.
    since: Micros,
    /// The views that its application took in this membership, and those that there were.
    views: Vec<(LineNumber, Micros, Arc<GroupView>)>,
    heard: Vec<Arc<GroupView>>,
    serves: BTreeSet<String>,
    leaves: bool,
    /// When it did not do what was due: stopped, not reading, or leaving the group; and when it was slow.
    asleep: Vec<(Micros, Micros)>,
    slow: Vec<(Micros, Micros)>,
    /// Since when it does not read, and leaves the group.
    deaf: Option<Micros>,
    left: Option<Micros>,
}

/// What is gathered of a group while the trace is read.
struct Reading {
    group: GroupIndex,
    places: usize,
    members: BTreeMap<ProcessId, Member>,
    calls: BTreeMap<u64, Call>,
    runs: Vec<Run>,
    /// Runs for each call, and runs that have not ended at each process.
    runs_of: BTreeMap<u64, Vec<usize>>,
    open_runs: BTreeMap<ProcessId, Vec<usize>>,
    /// Calls that a member took and did not begin.
    never_begun: BTreeSet<(u64, Incarnation)>,
}

pub(super) fn check(history: &History<'_>, report: &mut Report) {
    let lines = &history.trace.lines;
    let groups: BTreeSet<GroupIndex> = lines
        .iter()
        .filter_map(|line| match &line.what {
            Seen::Call(group, _) => Some(*group),
            _ => None,
        })
        .collect();
    for group in groups {
        let mut reading = Reading {
            group,
            places: history.trace.handlers_at_once,
            members: BTreeMap::new(),
            calls: BTreeMap::new(),
            runs: Vec::new(),
            runs_of: BTreeMap::new(),
            open_runs: BTreeMap::new(),
            never_begun: BTreeSet::new(),
        };
        for (number, line) in lines.iter().enumerate() {
            reading.read(number, line.at, line.process, &line.what, report);
        }
        let end = lines.last().map_or(0, |line| line.at);
        reading.check_what_was_due(end, report);
    }
}

impl Member {
    fn view(&self) -> Option<&GroupView> {
        self.views.last().map(|(_, _, view)| &**view)
    }

    /// When what is due then is done at the latest.
    fn allowed(&self, due: Micros, slow: bool) -> Micros {
        let mut latest = due + SLACK;
        let slow = self.slow.iter().filter(|_| slow);
        let open = self.deaf.into_iter().chain(self.left);
        let open = open.map(|since| (since, Micros::MAX / 2));
        let mut excuses: Vec<_> = self.asleep.iter().chain(slow).copied().chain(open).collect();
        excuses.sort_unstable();
        for (from, to) in excuses {
            if from <= latest && to + SLACK > latest {
                latest = to + SLACK;
            }
        }
        latest
    }
}

impl Call {
    /// When a member that runs it is told that no caller waits for the answer. What it is told later, it
    /// knows after that.
    fn told_off(&self, server: Incarnation) -> Option<LineNumber> {
        let end = self.ended.as_ref()?;
        let ended = matches!(end.why, Some(Why::Deadline | Why::Cancelled));
        if !ended || end.departed.contains(&server) {
            return None;
        }
        match self.target {
            Target::All => Some(end.line.max(self.delivered.as_ref()?.0)),
            _ => Some(end.line),
        }
    }
}

impl Reading {
    fn read(&mut self, line: LineNumber, at: Micros, process: ProcessId, what: &Seen, report: &mut Report) {
        match what {
            Seen::Started {
                slot, foreign: false, ..
            } => self.members.entry(process).or_default().slot = *slot,
            Seen::Disturbed { slot, until, stopped } => {
                let there = |member: &&mut Member| member.slot == *slot && member.ended.is_none();
                for member in self.members.values_mut().filter(there) {
                    let list = if *stopped {
                        &mut member.asleep
                    } else {
                        &mut member.slow
                    };
                    list.push((at, *until));
                }
            }
            Seen::Call(group, deed) if *group == self.group => self.deed(line, at, process, deed, report),
            other => {
                let Some(member) = self.members.get_mut(&process) else {
                    return;
                };
                match other {
                    Seen::Ended(_) => {
                        member.ended = Some(at);
                        self.open_runs.remove(&process);
                    }
                    Seen::Reads(false) => {
                        member.deaf.get_or_insert(at);
                    }
                    Seen::Reads(true) => {
                        let since = member.deaf.take();
                        member.asleep.extend(since.map(|since| (since, at)));
                    }
                    Seen::AskedToJoin { group, .. } if *group == self.group => {
                        member.serves.clear();
                        member.heard.clear();
                        member.leaves = false;
                    }
                    Seen::AskedToLeaveGroup(group) if *group == self.group => {
                        member.leaves = true;
                        member.left = Some(at);
                    }
                    Seen::AskedToLeave => member.leaves = true,
                    Seen::Group(group, Heard::View(view)) if *group == self.group => {
                        member.heard.push(view.clone());
                    }
                    Seen::Group(group, Heard::Left) if *group == self.group => {
                        let since = member.left.take();
                        member.asleep.extend(since.map(|since| (since, at)));
                        self.dooms(process, at, |_| true);
                    }
                    _ => {}
                }
            }
        }
    }

    fn deed(
        &mut self,
        line: LineNumber,
        at: Micros,
        process: ProcessId,
        deed: &CallDeed,
        report: &mut Report,
    ) {
        let Some(member) = self.members.get_mut(&process) else {
            return;
        };
        match deed {
            CallDeed::Is(incarnation) => {
                member.incarnation = Some(*incarnation);
                member.since = at;
                member.views.clear();
                self.dooms(process, at, |_| true);
            }
            CallDeed::Takes(view) => {
                member.views.push((line, at, view.clone()));
                let is_gone = |member: Incarnation| gone(view, member);
                self.dooms(process, at, is_gone);
                for call in self.calls.values_mut().filter(|call| call.process == process) {
                    if let (Target::Member(asked), None) = (&call.target, &call.ended)
                        && is_gone(*asked)
                    {
                        call.gone.get_or_insert(at);
                    }
                }
            }
            CallDeed::Serves { verb, serves: true } => {
                member.serves.insert(verb.clone());
            }
            CallDeed::Serves { verb, serves: false } => {
                member.serves.remove(verb);
            }
            CallDeed::Calls {
                op,
                within,
                target,
                rule,
                deadline,
                verb,
                payload,
                at_rest,
            } => {
                let within = within.and_then(|op| self.open_run(process, op));
                let until = within.map_or(Micros::MAX, |run| self.runs[run].until);
                let Some(caller) = self.members.get(&process).and_then(|member| member.incarnation) else {
                    return;
                };
                let call = Call {
                    line,
                    at,
                    process,
                    caller,
                    depth: within.map_or(0, |run| self.runs[run].depth + 1),
                    target: target.clone(),
                    rule: *rule,
                    verb: verb.clone(),
                    payload: *payload,
                    at_rest: *at_rest,
                    until: until.min(at + deadline),
                    within,
                    cancelled: false,
                    delivered: None,
                    delivered_at: 0,
                    gone: None,
                    not_delivered: None,
                    ended: None,
                };
                self.calls.insert(*op, call);
            }
            CallDeed::Cancels { op } => {
                if let Some(call) = self.calls.get_mut(op) {
                    call.cancelled = true;
                }
            }
            CallDeed::Delivered { op } => {
                let members = member.view().map(|view| view.members.clone());
                if let (Some(call), Some(members)) = (self.calls.get_mut(op), members) {
                    call.delivered = Some((line, members));
                    call.delivered_at = at;
                }
            }
            CallDeed::NotDelivered { op } => {
                if let Some(call) = self.calls.get_mut(op) {
                    call.not_delivered.get_or_insert(at);
                }
            }
            CallDeed::Ended { op, result } => self.ended(line, at, process, *op, result, report),
            CallDeed::Starts {
                op,
                caller,
                verb,
                payload,
                within,
            } => {
                let run = Run {
                    op: *op,
                    at,
                    process,
                    server: member.incarnation.unwrap_or(*caller),
                    caller: *caller,
                    depth: 0,
                    until: at + within,
                    doomed: None,
                    ended: None,
                    answer: None,
                    given_up: false,
                };
                self.starts(run, verb, *payload, report);
            }
            CallDeed::Answers { op, answer } => {
                let Some(run) = self.close_run(process, *op) else {
                    return report.fail("G49", at, format!("p{process} answers {op}, and does not run it"));
                };
                let run = &mut self.runs[run];
                run.answer = Some((line, *answer));
                run.ended = Some(at);
            }
            CallDeed::GivesUp { op, began: true } => {
                let Some(run) = self.close_run(process, *op) else {
                    return report.fail(
                        "G49",
                        at,
                        format!("p{process} gives up {op}, and does not run it"),
                    );
                };
                let run = &mut self.runs[run];
                run.given_up = true;
                run.ended = Some(at);
            }
            CallDeed::GivesUp { op, began: false } => {
                self.never_begun
                    .extend(member.incarnation.map(|server| (*op, server)));
            }
            CallDeed::Stops { op } => self.stops(at, process, *op, report),
            CallDeed::Wrong(what) => report.fail("G49", at, format!("p{process}: {what}")),
        }
    }

    fn open_run(&self, process: ProcessId, op: u64) -> Option<usize> {
        let open = self.open_runs.get(&process)?.iter();
        open.copied().find(|run| self.runs[*run].op == op)
    }

    fn close_run(&mut self, process: ProcessId, op: u64) -> Option<usize> {
        let run = self.open_run(process, op)?;
        self.open_runs
            .entry(process)
            .and_modify(|open| open.retain(|other| *other != run));
        Some(run)
    }

    /// The application learns that these callers are gone: what runs for them stops at once.
    fn dooms(&mut self, process: ProcessId, at: Micros, is_gone: impl Fn(Incarnation) -> bool) {
        for run in self.open_runs.get(&process).into_iter().flatten() {
            let run = &mut self.runs[*run];
            if is_gone(run.caller) {
                run.doomed.get_or_insert(at);
            }
        }
    }

    fn starts(&mut self, mut run: Run, verb: &str, payload: u64, report: &mut Report) {
        let (op, at, process, server) = (run.op, run.at, run.process, run.server);
        let Some(call) = self.calls.get(&op) else {
            return report.fail("G49", at, format!("p{process} runs {op}, which nobody asked"));
        };
        run.depth = call.depth;
        let asked = match &call.target {
            Target::Member(member) => *member == server,
            Target::Members(members) => members.contains(&server),
            Target::Any | Target::All => true,
        };
        let same = asked && call.caller == run.caller && call.verb == verb && call.payload == payload;
        report.check("G49", at, same, || {
            format!(
                "p{process} runs {op}, and was not asked so by {}",
                run.caller.short()
            )
        });
        // G49: its deadline, which is never before the caller's.
        report.check("G49", at, run.until + SLACK >= call.until, || {
            let (until, wanted) = (run.until, call.until);
            format!("p{process} runs {op} until {until}, and its caller waits until {wanted}")
        });
        let member = self.members.get(&process);
        let serves = member.is_some_and(|member| member.serves.contains(verb));
        report.check("G49", at, serves, || {
            format!("p{process} runs {op}, and does not serve {verb}")
        });
        let known = member
            .and_then(Member::view)
            .is_some_and(|view| view.members.contains(&run.caller));
        report.check("G49", at, known, || {
            format!(
                "p{process} runs {op} of {}, which is no member",
                run.caller.short()
            )
        });
        // G49: at most once at each member; at most once anywhere if only one member is asked.
        let one = matches!(call.target, Target::Member(_) | Target::Any);
        let before = self
            .runs_of
            .get(&op)
            .into_iter()
            .flatten()
            .map(|run| &self.runs[*run]);
        let before = before.filter(|before| one || before.server == server).count();
        report.check("G49", at, before == 0, || {
            format!("p{process} runs {op}, which was run {before} times before")
        });
        if let Some(end) = &call.ended {
            let denied = end.never_anywhere || end.never.contains(&server);
            report.check("G49", at, !denied, || {
                format!("p{process} runs {op}, and its caller was told that it did not")
            });
        }
        // What a member is told by another one comes in order: so has the end of an earlier call.
        let direct = !matches!(call.target, Target::All) && run.caller != server;
        for open in self
            .open_runs
            .get(&process)
            .into_iter()
            .flatten()
            .filter(|_| direct)
        {
            let earlier = &self.runs[*open];
            let call_before = self.calls.get(&earlier.op);
            let told_off = call_before.and_then(|call| call.told_off(server));
            let stale = earlier.caller == run.caller && told_off.is_some_and(|end| end < call.line);
            report.check("G49", at, !stale, || {
                format!(
                    "p{process} still runs {}, which was given up before {op} was called",
                    earlier.op
                )
            });
        }
        let number = self.runs.len();
        self.runs_of.entry(op).or_default().push(number);
        let open = self.open_runs.entry(process).or_default();
        open.push(number);
        let depth = run.depth;
        self.runs.push(run);
        let same_depth = open.iter().filter(|run| self.runs[**run].depth == depth).count();
        report.check("G49", at, same_depth <= self.places, || {
            let places = self.places;
            format!("p{process} runs {same_depth} handlers at depth {depth}, and has {places} places")
        });
    }

    fn stops(&mut self, at: Micros, process: ProcessId, op: u64, report: &mut Report) {
        let Some(number) = self.close_run(process, op) else {
            return report.fail("G49", at, format!("p{process} stops {op}, and does not run it"));
        };
        let run = &mut self.runs[number];
        run.ended = Some(at);
        let run = &self.runs[number];
        let given_up = self.calls.get(&op).and_then(|call| call.ended.as_ref());
        let given_up = given_up.is_some_and(|end| end.why.is_some_and(|why| why != Why::Failed));
        let member = self.members.get(&process);
        let leaves = member.is_some_and(|member| member.leaves);
        let reason = at + SLACK >= run.until || run.doomed.is_some() || given_up || leaves;
        report.check("G49", at, reason, || {
            format!("p{process} stops {op}, which its caller still waits for")
        });
    }

    /// G49: calls and runs end when they are to.
    fn check_what_was_due(&self, end: Micros, report: &mut Report) {
        for (op, call) in &self.calls {
            let Some(member) = self.members.get(&call.process) else {
                continue;
            };
            let ended = call.ended.as_ref().map(|end| end.at);
            let seen = ended.or(member.ended).unwrap_or(end);
            let allowed = member.allowed(call.until, false);
            report.check("G49", call.at, seen <= allowed, || {
                let (process, until) = (call.process, call.until);
                format!("p{process}: {op}, due at {until}, ends at {ended:?}, at the latest {allowed}")
            });
            if let Some(since) = call.not_delivered {
                report.check("G49", since, seen <= since, || {
                    let process = call.process;
                    format!("p{process}: {op} is not delivered since {since}, and ends at {ended:?}")
                });
            }
            if let Some(gone) = call.gone {
                let allowed = member.allowed(gone + DEPARTURE, true);
                report.check("G49", gone, seen <= allowed, || {
                    let process = call.process;
                    format!(
                        "p{process}: {op} asked a member that is gone since {gone}, and ends at {ended:?}"
                    )
                });
            }
        }
        for run in &self.runs {
            let Some(member) = self.members.get(&run.process) else {
                continue;
            };
            let seen = run.ended.or(member.ended).unwrap_or(end);
            let allowed = member.allowed(run.until, false);
            report.check("G49", run.at, seen <= allowed, || {
                let (process, op) = (run.process, run.op);
                format!("p{process} runs {op} past its deadline: until {:?}", run.ended)
            });
            if let Some(doomed) = run.doomed {
                report.check("G49", doomed, seen <= doomed, || {
                    let (process, op) = (run.process, run.op);
                    format!(
                        "p{process} runs {op}, whose caller is gone since {doomed}: until {:?}",
                        run.ended
                    )
                });
            }
        }
    }
}

/// Whether a member of the view before is not in this one, or begins anew in it.
fn gone(view: &GroupView, member: Incarnation) -> bool {
    !view.members.contains(&member) || view.joined.contains(&member)
}
