//! Replicas and their clients: G28, G30, G45 to G48, G50.
//!
//! ```text
//!  steps of all members ──► line: the one order of a state's steps ──► model: each reply, event and read
//!                             │                                               by naive data structures
//!                             └──► this file: answers against the order in time, tokens, acknowledgements
//! ```
//! The checkers know the *types* of commands and replies, and nothing of the machines and replicas that made
//! them. A state has the name that it was founded with; if a group's state was lost, the next state has
//! another name.
//!
//! What a member applied in its last view and no other member did is *undone* (G45). It is checked as far as
//! it can be: with safe messages nothing is undone.

mod line;
mod lost;
mod model;
mod parts;
mod seen;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use antiphon_core::GroupView;
use antiphon_core::wire::Incarnation;
use antiphon_replica::locks::{self, Owner, Token, What as Lock};
use antiphon_replica::{Ack, AgreedTime, Failure, Standing};

use self::line::{Line, Tenure, Tenures};
use self::model::Model;
use self::seen::SeenHere;
use crate::agenda::Micros;
use crate::check::{History, Report};
use crate::machine::{Step, Stepped};
use crate::trace::{Deed, GroupIndex, Heard, ProcessId, Seen, Slot};

/// The last member with the state waits so long for a joiner, by a clock that may go a little fast.
const LEAVE_TIMEOUT: Micros = 2_900_000;

/// A place among all lines of the trace.
type LineNumber = usize;

/// A request.
struct Request {
    asked: LineNumber,
    at: Micros,
    process: ProcessId,
    /// Of a write.
    ack: Option<Ack>,
    /// The state that its member had.
    state: Option<u64>,
    /// When it was answered or read, and at which place of which tenure, if it was answered well.
    answered: Option<(LineNumber, Option<(Tenure, u64)>)>,
    not_sent: bool,
}

/// A process while the trace is read.
#[derive(Default)]
struct Member {
    slot: Slot,
    incarnation: Option<Incarnation>,
    ended: bool,
    standing: Option<Standing>,
    tenure: Option<Tenure>,
    stays: u64,
    last: u64,
    synced: BTreeSet<Incarnation>,
    /// Of its own commands: where they were applied, what they gave, and which members had the state then.
    own: BTreeMap<u64, (u64, BTreeSet<Incarnation>)>,
    /// The last place at which a request of its own was answered.
    seen: u64,
    /// All members, and since when it wants to leave.
    members: usize,
    leaving: Option<Micros>,
    /// Whether it served until the standing that it has now.
    served: bool,
    /// The last view that its node was told of, while that is a member.
    view: Option<Arc<GroupView>>,
}

pub(super) fn check(history: &History<'_>, report: &mut Report) {
    let groups: BTreeSet<GroupIndex> = history
        .trace
        .lines
        .iter()
        .filter_map(|line| match &line.what {
            Seen::Replica(group, _) => Some(*group),
            _ => None,
        })
        .collect();
    for group in groups {
        check_group(history, group, report);
    }
}

fn check_group(history: &History<'_>, group: GroupIndex, report: &mut Report) {
    let mut reading = Reading {
        group,
        members: BTreeMap::new(),
        requests: BTreeMap::new(),
        tenures: Tenures::default(),
        states: BTreeSet::new(),
        reads: Vec::new(),
        granted: BTreeMap::new(),
        told: BTreeMap::new(),
        uses: Vec::new(),
        removed: BTreeSet::new(),
        seen: BTreeMap::new(),
        safe: true,
        // What an operator has go on, goes on from where it was.
        parts: history.trace.any || history.lives.iter().any(|life| life.gave_way.is_some()),
    };
    for (number, line) in history.trace.lines.iter().enumerate() {
        reading.read(number, line.at, line.process, &line.what, history, report);
    }
    let open: BTreeSet<Tenure> = reading
        .members
        .values()
        .filter(|member| !member.ended && history.at_rest)
        .filter_map(|member| {
            member
                .tenure
                .filter(|_| member.standing == Some(Standing::Serving))
        })
        .collect();
    let states: BTreeSet<u64> = open.iter().map(|tenure| tenure.state).collect();
    report.check("G28", 0, states.len() <= 1, || {
        format!("at rest members have several states: {states:?}")
    });
    let serves = |member: &&Member| {
        history.at_rest && !member.ended && member.standing == Some(Standing::Serving) && member.members > 0
    };
    let serving = || reading.members.values().filter(serves);
    let synced: BTreeSet<Incarnation> = serving().filter_map(|member| member.incarnation).collect();
    for member in serving() {
        report.check("G28", 0, member.synced == synced, || {
            let (who, shown) = (member.incarnation, &member.synced);
            format!("at rest {synced:?} have the state, and {who:?} shows {shown:?}")
        });
    }
    let lines = line::lines(&reading.tenures, &open, reading.safe, reading.parts, report);
    let since = history.trace.rests_since.filter(|_| !states.is_empty());
    let end = history.trace.ended;
    let rest = since.map(|since| Rest { since, end, open });
    reading.check_models(&lines, rest.as_ref(), report);
    reading.check_time(&lines, report);
    // Components that go on by themselves give the same tokens.
    if !reading.parts {
        reading.check_tokens(&lines, report);
        reading.check_uses(history, &lines, report);
    }
    reading.check_answered(history, report);
}

/// What is gathered of a group while the trace is read.
struct Reading<'a> {
    group: GroupIndex,
    members: BTreeMap<ProcessId, Member>,
    requests: BTreeMap<u64, Request>,
    tenures: Tenures<'a>,
    /// All states that were founded until now.
    states: BTreeSet<u64>,
    reads: Vec<Read<'a>>,
    /// For each token, its owner, as the owner's member was told.
    granted: BTreeMap<Token, (locks::Name, Owner, u64)>,
    /// For each lock, when its holders were told.
    told: BTreeMap<locks::Name, Vec<Grant>>,
    uses: Vec<Use>,
    /// Incarnations that their group removed although they lived.
    removed: BTreeSet<Incarnation>,
    seen: BTreeMap<ProcessId, SeenHere>,
    /// Whether all that was sent to the group was safe.
    safe: bool,
    /// Whether some component went on by itself, or a second cluster was founded.
    parts: bool,
}

/// The end of a run, in which nothing disturbs anybody.
struct Rest {
    since: Micros,
    end: Micros,
    /// The members that have a state then.
    open: BTreeSet<Tenure>,
}

struct Read<'a> {
    at: Micros,
    process: ProcessId,
    tenure: Tenure,
    index: u64,
    saw: &'a crate::trace::Saw,
}

/// That a client of a member was told to have a lock.
#[derive(Debug)]
struct Grant {
    line: LineNumber,
    token: Token,
    tenure: Tenure,
    index: u64,
}

struct Use {
    line: LineNumber,
    at: Micros,
    process: ProcessId,
    slot: Slot,
    incarnation: Option<Incarnation>,
    state: Option<u64>,
    lock: locks::Name,
    token: Token,
}

impl<'a> Reading<'a> {
    fn read(
        &mut self,
        number: LineNumber,
        at: Micros,
        process: ProcessId,
        what: &'a Seen,
        history: &History<'_>,
        report: &mut Report,
    ) {
        match what {
            Seen::Started {
                slot, foreign: false, ..
            } => {
                self.members.entry(process).or_default().slot = *slot;
            }
            Seen::Ended(_) => {
                if let Some(member) = self.members.get_mut(&process) {
                    member.ended = true;
                }
            }
            Seen::Sent { group, safe, .. } if *group == self.group => self.safe &= safe,
            Seen::AskedToJoin { group, .. } if *group == self.group => {
                self.seen.entry(process).or_default().joins(self.parts);
            }
            Seen::Group(group, Heard::View(view)) if *group == self.group => {
                self.removed.extend(view.causes.iter().map(|(member, _)| *member));
                if let Some(member) = self.members.get_mut(&process) {
                    member.view = Some(view.clone());
                }
            }
            Seen::Group(group, Heard::Resync(_)) if *group == self.group => {
                if let Some(member) = self.members.get_mut(&process) {
                    member.view = None;
                }
            }
            Seen::Group(group, Heard::Left) if *group == self.group => {
                if let Some(member) = self.members.get_mut(&process) {
                    member.tenure = None;
                    member.standing = None;
                    member.view = None;
                }
            }
            Seen::Replica(group, deed) if *group == self.group => {
                self.deed(number, at, process, deed, history, report);
            }
            _ => {}
        }
    }

    fn deed(
        &mut self,
        number: LineNumber,
        at: Micros,
        process: ProcessId,
        deed: &'a Deed,
        history: &History<'_>,
        report: &mut Report,
    ) {
        let Some(member) = self.members.get_mut(&process) else {
            return;
        };
        match deed {
            Deed::Is(incarnation) => member.incarnation = Some(*incarnation),
            Deed::Writes { op, ack, .. } => {
                self.requests
                    .insert(*op, Request::new(number, at, process, Some(*ack), member));
            }
            Deed::WantsLatest { op } => {
                self.requests
                    .insert(*op, Request::new(number, at, process, None, member));
            }
            Deed::Written { op, outcome } => {
                let Some(request) = self.requests.get_mut(op) else {
                    return report.fail(
                        "G48",
                        at,
                        format!("p{process}: {op} is answered, and was not asked"),
                    );
                };
                let again = request.answered.is_some();
                report.check("G48", at, !again, || {
                    format!("p{process}: {op} is answered twice")
                });
                request.not_sent = matches!(outcome, Err(Failure::NotSent));
                let due = history.trace.asked_at_rest.is_some_and(|rest| request.at >= rest);
                report.check("G48", at, outcome.is_ok() || !due, || {
                    format!(
                        "p{process}: {op}, asked at rest, is answered {:?}",
                        outcome.as_ref().err()
                    )
                });
                let mut place = None;
                if let Ok((where_, reply)) = outcome {
                    let own = member.own.get(op).map(|(index, _)| *index);
                    let tenure = member.tenure;
                    let step = own
                        .zip(tenure)
                        .and_then(|(index, tenure)| self.tenures.step(tenure, index));
                    let same = step.is_some_and(|(at, step)| {
                        at == where_ && matches!(&step.what, Stepped::Command(_, _, given) if given == reply)
                    });
                    report.check("G45", at, same, || {
                        format!(
                            "p{process}: {op} is said to be applied at {} and to give {reply:?}, not so here",
                            where_.index
                        )
                    });
                    place = tenure.map(|tenure| (tenure, where_.index));
                    member.seen = member.seen.max(where_.index);
                    if request.ack == Some(Ack::All) {
                        self.check_all_applied(at, process, *op, report);
                    }
                }
                if let Some(request) = self.requests.get_mut(op) {
                    request.answered = Some((number, place));
                }
            }
            Deed::Unread { op, failure } => {
                if let Some(request) = self.requests.get_mut(op) {
                    let due = history.trace.asked_at_rest.is_some_and(|rest| request.at >= rest);
                    report.check("G48", at, !due, || {
                        format!("p{process}: {op}, asked at rest, is answered {failure:?}")
                    });
                    request.answered = Some((number, None));
                }
            }
            Deed::Reads {
                op,
                state,
                index,
                saw,
            } => {
                // A joiner may have made no step since the point of its state.
                if member.tenure.is_none() && member.standing == Some(Standing::Serving) {
                    member.tenure = Some(Tenure {
                        process,
                        stay: member.stays,
                        state: *state,
                    });
                    member.last = *index;
                }
                let Some(tenure) = member.tenure.filter(|tenure| tenure.state == *state) else {
                    return report.fail("G45", at, format!("p{process} reads a state that it has not"));
                };
                // G45: a member sees the effect of what it was answered itself.
                report.check("G45", at, *index >= member.seen && *index >= member.last, || {
                    let (seen, last) = (member.seen, member.last);
                    format!("p{process} reads at {index}, has applied {last} and was answered at {seen}")
                });
                if let Some(request) = op.and_then(|op| self.requests.get_mut(&op)) {
                    request.answered = Some((number, Some((tenure, *index))));
                }
                let seen = self.seen.entry(process).or_default().reads(saw);
                check_seen(at, process, seen, report);
                self.reads.push(Read {
                    at,
                    process,
                    tenure,
                    index: *index,
                    saw,
                });
            }
            Deed::Steps(place, shown, step) => {
                self.step(number, at, process, *place, step, report);
                if *shown {
                    let seen = self.seen.entry(process).or_default().step(step);
                    check_seen(at, process, seen, report);
                }
            }
            Deed::Members(members) => {
                let synced = members.iter().filter(|(_, synced)| *synced);
                member.synced = synced.map(|(member, _)| *member).collect();
                member.members = members.len();
            }
            Deed::Stands(standing) => {
                if !matches!(standing, Standing::CatchingUp | Standing::Serving) {
                    member.stays += 1;
                    member.tenure = None;
                    member.own.clear();
                    (member.last, member.seen) = (0, 0);
                }
                member.served = member.standing == Some(Standing::Serving);
                member.standing = Some(*standing);
                lost::check_kept(at, process, member, report);
            }
            Deed::Wrong(what) => report.fail("G28", at, format!("p{process}: {what}")),
            // Asked again, it waits no longer.
            Deed::WantsToLeave => _ = member.leaving.get_or_insert(at),
            // G28: the last member that has the state waits for members that want it.
            Deed::Leaves(reason) => {
                let since = member.leaving.take().filter(|_| reason == "left");
                let last = member
                    .synced
                    .iter()
                    .all(|synced| Some(*synced) == member.incarnation);
                let waits = member.served && last && member.members > 1;
                let early = since.is_some_and(|since| at - since < LEAVE_TIMEOUT);
                report.check("G28", at, !(waits && early), || {
                    format!("p{process} leaves with the state, and others wait for it")
                });
                report.check("G28", at, !member.served || since.is_some(), || {
                    format!("p{process} has the state, and leaves by itself: {reason}")
                });
            }
            Deed::Uses { lock, token } => self.uses.push(Use {
                line: number,
                at,
                process,
                slot: member.slot,
                incarnation: member.incarnation,
                state: member.tenure.map(|tenure| tenure.state),
                lock: lock.clone(),
                token: *token,
            }),
        }
        let _ = history;
    }

    fn step(
        &mut self,
        number: LineNumber,
        at: Micros,
        process: ProcessId,
        place: antiphon_replica::At,
        step: &'a Step,
        report: &mut Report,
    ) {
        let Some(member) = self.members.get_mut(&process) else {
            return;
        };
        let tenure = Tenure {
            process,
            stay: member.stays,
            state: step.state,
        };
        let is_new = self.states.insert(step.state);
        let follows = match member.tenure {
            Some(before) => before == tenure && place.index == member.last + 1,
            None => true,
        };
        report.check("G45", at, follows, || {
            let (last, state) = (member.last, step.state);
            format!(
                "p{process} applies {} of state {state} after {last} of {:?}",
                place.index, member.tenure
            )
        });
        member.tenure = Some(tenure);
        member.last = place.index;
        if let Stepped::Command(from, command, _) = &step.what
            && Some(*from) == member.incarnation
        {
            member
                .own
                .insert(command.op, (place.index, member.synced.clone()));
        }
        let me = member.incarnation;
        for event in step.locks.iter().filter(|event| Some(event.owner.member) == me) {
            if let Lock::Granted(token) = event.what {
                let told = self.told.entry(event.name.clone()).or_default();
                told.push(Grant {
                    line: number,
                    token,
                    tenure,
                    index: place.index,
                });
                let to = (event.name.clone(), event.owner, step.state);
                let before = self.granted.insert(token, to.clone());
                if let Some(other) = before.filter(|before| *before != to) {
                    // What was undone can be given again, as long as messages are not safe.
                    let one = (other.1, other.0);
                    let what = format!(
                        "token {token} was given to {one:?}, and now to {} for {}",
                        to.1, to.0
                    );
                    if self.safe && !self.parts {
                        report.fail("G30", at, what);
                    } else {
                        report.excused += 1;
                    }
                }
            }
        }
        self.tenures
            .add(tenure, member.incarnation, number, at, place, step);
        if is_new {
            lost::check_founding(at, process, step.state, &self.members, report);
        }
    }

    /// G47: all that had the state when it was applied here, and still do, have applied it.
    fn check_all_applied(&self, at: Micros, process: ProcessId, op: u64, report: &mut Report) {
        let Some(member) = self.members.get(&process) else {
            return;
        };
        let Some((index, synced)) = member.own.get(&op) else {
            return;
        };
        for other in synced.intersection(&member.synced) {
            let lacks = self.members.iter().find(|(_, of)| {
                of.incarnation == Some(*other)
                    && !of.ended
                    && of
                        .tenure
                        .is_some_and(|of| Some(of.state) == member.tenure.map(|it| it.state))
                    && of.standing == Some(Standing::Serving)
                    && of.last < *index
            });
            report.check("G47", at, lacks.is_none(), || {
                let (who, of) = lacks.map_or((0, 0), |(who, of)| (*who, of.last));
                format!("p{process}: all have applied {op} at {index}, it is said; p{who} has applied {of}")
            });
        }
    }

    /// The model gives each reply, and tells of the same events; and reads see it.
    fn check_models(&self, lines: &[Line<'a>], rest: Option<&Rest>, report: &mut Report) {
        for line in lines {
            let state = line.state;
            let mut reads: BTreeMap<u64, Vec<&Read<'_>>> = BTreeMap::new();
            let on_line =
                |read: &&Read<'_>| read.tenure.state == state && self.is_on(line, read.tenure, read.index);
            for read in self.reads.iter().filter(on_line) {
                reads.entry(read.index).or_default().push(read);
            }
            let mut model = Model::default();
            let mut ops = BTreeSet::new();
            let mut last = None;
            for (index, (at, place, step)) in line.steps() {
                if let Stepped::Command(_, command, _) = &step.what {
                    let new = ops.insert(command.op);
                    report.check("G45", at, new, || {
                        format!("{} is applied twice, now at {index}", command.op)
                    });
                    let request = self.requests.get(&command.op);
                    let sent = request.is_some_and(|request| !request.not_sent);
                    report.check("G48", at, sent, || {
                        format!(
                            "{} is applied at {index}, and was not sent, or not asked",
                            command.op
                        )
                    });
                }
                // After the first mistake the model is that of another state.
                if let Err((guarantee, what)) = model.step(place, step) {
                    report.fail(guarantee, at, format!("state {state} at {index}: {what}"));
                    last = None;
                    break;
                }
                last = Some((index, at, place));
                *report.counts.entry("G45").or_default() += 1;
                *report.counts.entry("G30").or_default() += step.locks.len() as u64;
                for read in reads.remove(&index).into_iter().flatten() {
                    let saw = model.sees(read.saw);
                    report.check("G45", read.at, saw.is_ok(), || {
                        let (process, what) = (read.process, saw.clone().err().unwrap_or_default());
                        format!("p{process} reads at {index}: {what}")
                    });
                }
            }
            if let Some((rest, (index, at, place))) = rest.zip(last) {
                // Members at rest stand there: the line is not that of a component that gave way.
                let stands = |tenure: &Tenure| {
                    tenure.state == state
                        && line.has(*tenure, index)
                        && self.tenures.step(*tenure, index + 1).is_none()
                        && self
                            .tenures
                            .step(*tenure, index)
                            .is_some_and(|(at, _)| *at == place)
                };
                if rest.open.iter().any(stands) {
                    Self::check_deadlines(&model, (at, place.time), rest, report);
                }
            }
        }
    }

    /// G46: a deadline that has come is kept, also if nobody writes. The first member's clock goes on from
    /// the time that was agreed last; clocks drift.
    fn check_deadlines(model: &Model, (at, time): (Micros, AgreedTime), rest: &Rest, report: &mut Report) {
        const SLACK_MS: u64 = 500;
        let gone = rest.end.saturating_sub(at.max(rest.since)) / 1000;
        let reads = time.millis + gone * 95 / 100;
        let due = model.next_deadline();
        report.check(
            "G46",
            rest.end,
            due.is_none_or(|due| due.millis + SLACK_MS > reads),
            || format!("something is due at {due:?}, it is {reads} ms at least, and nothing happens"),
        );
    }

    /// G45: what is asked for after an answer stands behind it; a read of the latest sees it. G46 is the
    /// line's.
    fn check_time(&self, lines: &[Line<'a>], report: &mut Report) {
        for line in lines {
            let state = line.state;
            let mut answers: Vec<(LineNumber, u64)> = Vec::new();
            for request in self.requests.values().filter(|request| request.ack.is_some()) {
                if let Some((number, Some((tenure, index)))) = request.answered
                    && tenure.state == state
                    && line.has(tenure, index)
                {
                    answers.push((number, index));
                }
            }
            answers.sort_unstable();
            // The highest place that was answered up to each answer.
            let mut highest = 0;
            for (_, index) in &mut answers {
                highest = highest.max(*index);
                *index = highest;
            }
            let places = line.places_of_commands();
            for (op, request) in &self.requests {
                if request.state != Some(state) {
                    continue;
                }
                let before = answers.partition_point(|(number, _)| *number < request.asked);
                let Some((_, floor)) = before.checked_sub(1).map(|last| answers[last]) else {
                    continue;
                };
                let process = request.process;
                if request.ack.is_some() {
                    if let Some(index) = places.get(op) {
                        report.check("G45", request.at, *index > floor, || {
                            format!(
                                "p{process}: {op} was asked after an answer at {floor}, and stands at {index}"
                            )
                        });
                    }
                } else if let Some((_, Some((tenure, index)))) = request.answered
                    && self.is_on(line, tenure, index)
                {
                    report.check("G45", request.at, index >= floor, || {
                        format!(
                            "p{process}: read {op} was asked after an answer at {floor}, and sees {index}"
                        )
                    });
                }
            }
        }
    }

    /// Whether a member that reads behind this place reads what is on this line. Where lines part, only its
    /// next step says on which it was.
    fn is_on(&self, line: &Line<'a>, tenure: Tenure, index: u64) -> bool {
        let next = index + 1;
        let parted = || line.has(tenure, next) && self.tenures.step(tenure, next).is_some();
        line.has(tenure, index) && (!self.parts || parted())
    }

    /// G30: the tokens of each lock rise, over all states.
    fn check_tokens(&self, lines: &[Line<'a>], report: &mut Report) {
        let mut by_founding: Vec<&Line<'a>> = lines.iter().collect();
        by_founding.sort_by_key(|line| line.founded());
        let mut last: BTreeMap<&locks::Name, Token> = BTreeMap::new();
        for line in by_founding {
            for (index, (at, _, step)) in line.steps() {
                for event in &step.locks {
                    if let Lock::Granted(token) = event.what {
                        let before = last.insert(&event.name, token);
                        let rises = before.is_none_or(|before| before < token);
                        report.check("G30", at, rises, || {
                            format!(
                                "lock {} has token {token} at {index}, after {before:?}",
                                event.name
                            )
                        });
                    }
                }
            }
        }
    }

    /// G30: no client uses an exclusive lock if another member was told that it has the lock since.
    fn check_uses(&self, history: &History<'_>, lines: &[Line<'a>], report: &mut Report) {
        for it in &self.uses {
            // A member that its group removed may not know it yet; and so may a node without the lease, which
            // there is not under the policy `any`.
            let excused = history.trace.any
                || history.trace.unleased.contains(&it.slot)
                || it
                    .incarnation
                    .is_some_and(|incarnation| self.removed.contains(&incarnation));
            let told = self.told.get(&it.lock).into_iter().flatten();
            let later = told.take_while(|grant| grant.line < it.line).find(|grant| {
                let Tenure { process, state, .. } = grant.tenure;
                let other = process != it.process && Some(state) == it.state;
                // A grant that was undone (G45) does not count. With safe messages there is none.
                let counts = || {
                    let line = lines.iter().find(|line| line.state == state);
                    line.is_none_or(|line| line.has(grant.tenure, grant.index))
                };
                other && grant.token > it.token && counts()
            });
            if excused && later.is_some() {
                report.excused += 1;
                continue;
            }
            report.check("G30", it.at, later.is_none(), || {
                let (process, lock, token) = (it.process, &it.lock, it.token);
                format!("p{process} uses {lock} with token {token}, and another member was told: {later:?}")
            });
        }
    }

    /// G48: at rest no member waits for an answer.
    fn check_answered(&self, history: &History<'_>, report: &mut Report) {
        if !history.at_rest {
            return;
        }
        for (op, request) in &self.requests {
            let lives = self
                .members
                .get(&request.process)
                .is_some_and(|member| !member.ended && member.tenure.is_some());
            report.check("G48", request.at, !lives || request.answered.is_some(), || {
                format!("p{}: {op} has no answer", request.process)
            });
        }
    }
}

/// G50: whatever state it has, nothing that a process has seen goes back.
fn check_seen(at: Micros, process: ProcessId, seen: Result<(), String>, report: &mut Report) {
    report.check("G50", at, seen.is_ok(), || {
        format!("p{process}: {}", seen.clone().err().unwrap_or_default())
    });
}

impl Request {
    fn new(asked: LineNumber, at: Micros, process: ProcessId, ack: Option<Ack>, member: &Member) -> Self {
        Self {
            asked,
            at,
            process,
            ack,
            state: member.tenure.map(|tenure| tenure.state),
            answered: None,
            not_sent: false,
        }
    }
}
