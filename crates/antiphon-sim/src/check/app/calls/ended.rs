//! What a caller is told at the end of a call.

use std::collections::{BTreeMap, BTreeSet};

use antiphon_core::wire::Incarnation;
use antiphon_core::{GroupView, Parting};
use antiphon_replica::calls::{CallError, Failure, Ran, Replies, Rule, Target, Why};
use bytes::Bytes;

use super::*;
use crate::trace::hash;

/// What the end of a call says.
struct Told<'a> {
    replies: &'a [(Incarnation, Bytes)],
    failures: &'a [(Incarnation, Failure)],
    /// If it did not end well.
    error: Option<(Why, Ran)>,
}

impl Told<'_> {
    fn mentioned(&self) -> BTreeSet<Incarnation> {
        let replied = self.replies.iter().map(|(member, _)| *member);
        replied
            .chain(self.failures.iter().map(|(member, _)| *member))
            .collect()
    }

    fn departed(&self) -> usize {
        let goes = |failure| parting(failure).is_some_and(|parting| *parting != Parting::Ended);
        self.failures.iter().filter(|(_, failure)| goes(failure)).count()
    }
}

impl Reading {
    pub(super) fn ended(
        &mut self,
        line: LineNumber,
        at: Micros,
        process: ProcessId,
        op: u64,
        result: &Result<Replies, CallError>,
        report: &mut Report,
    ) {
        let told = match result {
            Ok(replies) => Told {
                replies: &replies.replies,
                failures: &replies.failures,
                error: None,
            },
            Err(error) => Told {
                replies: &error.replies,
                failures: &error.failures,
                error: Some((error.why, error.ran)),
            },
        };
        let Some(call) = self.calls.get(&op).filter(|call| call.process == process) else {
            return report.fail("G49", at, format!("p{process}: {op} ends, and was not called"));
        };
        report.check("G49", at, call.ended.is_none(), || {
            format!("p{process}: {op} ends twice")
        });
        self.check_answers(at, op, call, &told, report);
        self.check_ran(at, op, &told, report);
        check_members(at, op, call, &told, report);
        check_rule(at, op, call, &told, report);
        self.check_departures(line, at, op, call, &told, report);
        if let Some((why, _)) = told.error {
            self.check_why(at, op, call, why, report);
        }
        let departed = told
            .failures
            .iter()
            .filter(|(_, failure)| parting(failure).is_some());
        let never = told
            .failures
            .iter()
            .filter(|(_, failure)| failure.ran() == Ran::No);
        let end = End {
            line,
            at,
            why: told.error.map(|(why, _)| why),
            departed: departed.map(|(member, _)| *member).collect(),
            never: never.map(|(member, _)| *member).collect(),
            never_anywhere: told.error.is_some_and(|(_, ran)| ran == Ran::No),
        };
        if let Some(call) = self.calls.get_mut(&op) {
            call.ended = Some(end);
        }
    }

    /// The answers that members gave for a call.
    fn answers(&self, op: u64) -> BTreeMap<Incarnation, Result<u64, u64>> {
        let runs = self.runs_of.get(&op).into_iter().flatten();
        let runs = runs.map(|run| &self.runs[*run]);
        runs.filter_map(|run| Some((run.server, run.answer?.1))).collect()
    }

    fn gave_up(&self, op: u64, server: Incarnation) -> bool {
        let mut runs = self.runs_of.get(&op).into_iter().flatten();
        runs.any(|run| self.runs[*run].server == server && self.runs[*run].given_up)
    }

    /// G49: each answer is the answer that the member's handler gave for this call.
    fn check_answers(&self, at: Micros, op: u64, call: &Call, told: &Told<'_>, report: &mut Report) {
        let process = call.process;
        let answers = self.answers(op);
        for (member, reply) in told.replies {
            let given = answers.get(member);
            report.check("G49", at, given == Some(&Ok(hash(reply, 0))), || {
                format!(
                    "p{process}: {op} is given a reply of {}, which gave {given:?}",
                    member.short()
                )
            });
        }
        for (member, failure) in told.failures {
            // All are there, serve the verb and have the time. Not all have the room; and once it is known
            // how a call ends, it waits for no others.
            let expected = matches!(failure, Failure::Error(_) | Failure::Busy | Failure::NoAnswer);
            report.check("G49", at, !call.at_rest || expected, || {
                let member = member.short();
                format!("p{process}: {op}, called at rest, is given {failure:?} of {member}")
            });
            let given = answers.get(member);
            let right = match failure {
                Failure::Error(error) => given == Some(&Err(hash(error, 0))),
                Failure::ReplyLost => given.is_some(),
                Failure::GivenUp { may_have_run: true } => self.gave_up(op, *member),
                Failure::GivenUp { may_have_run: false } => self.never_begun.contains(&(op, *member)),
                _ => true,
            };
            report.check("G49", at, right, || {
                format!(
                    "p{process}: {op} is given {failure:?} of {}, which gave {given:?}",
                    member.short()
                )
            });
        }
        let count = told.replies.len() + told.failures.len();
        report.check("G49", at, told.mentioned().len() == count, || {
            format!("p{process}: {op} is told of a member twice")
        });
    }

    /// G49: what is said not to have run has not run; `starts` sees to it that it does not run later.
    fn check_ran(&self, at: Micros, op: u64, told: &Told<'_>, report: &mut Report) {
        let runs = self.runs_of.get(&op).into_iter().flatten();
        let ran: BTreeSet<Incarnation> = runs.map(|run| self.runs[*run].server).collect();
        for (member, failure) in told.failures {
            if failure.ran() == Ran::No {
                report.check("G49", at, !ran.contains(member), || {
                    format!("{op} is said not to have run at {}: {failure:?}", member.short())
                });
            }
        }
        let right = match told.error {
            None | Some((_, Ran::Maybe)) => true,
            Some((_, Ran::No)) => ran.is_empty(),
            Some((_, Ran::Yes)) => !ran.is_empty(),
        };
        report.check("G49", at, right, || {
            format!("of {op} it is said: {:?}; it ran at {ran:?}", told.error)
        });
    }

    /// G49: a member that is said to be gone is gone, with the cause that the view has; and what is said to
    /// have had the time to answer was a member all that time. An application that was stopped may be given a
    /// view without the member after the deadline, and before it is told of the deadline.
    fn check_departures(
        &self,
        line: LineNumber,
        at: Micros,
        op: u64,
        call: &Call,
        told: &Told<'_>,
        report: &mut Report,
    ) {
        let process = call.process;
        let Some(member) = self.members.get(&process) else {
            return;
        };
        let since = call.delivered.as_ref().map_or(call.line, |(line, _)| *line);
        for (asked, failure) in told.failures {
            let mut views = member
                .views
                .iter()
                .filter(|(taken, ..)| (since..line).contains(taken));
            let without = views.find(|(_, _, view)| gone(view, *asked));
            let in_time = without.is_some_and(|(_, taken, _)| *taken + SLACK < call.until);
            let without = without.map(|(_, _, view)| view);
            let right = match (parting(failure), without) {
                // The caller's own membership is over; what waited within a handler is cancelled then.
                (Some(Parting::Ended), _) => told.error.is_some() && (member.since == at || member.leaves),
                // It may have come back and gone again, as its receipt tells and no view that was taken yet.
                (Some(cause), Some(_)) => member.heard.iter().any(|view| is_cause(view, *asked, cause)),
                // The receipt may come before the view.
                (Some(_), None) => told.error.is_some(),
                (None, Some(_)) => !in_time || !matches!(failure, Failure::NoAnswer | Failure::NotSent),
                (None, None) => true,
            };
            report.check("G49", at, right, || {
                let without = without.map(|view| view.id);
                let asked = asked.short();
                format!("p{process}: {op} is told of {asked}: {failure:?}; a view without it: {without:?}")
            });
        }
    }

    /// G49: a call ends for a reason.
    fn check_why(&self, at: Micros, op: u64, call: &Call, why: Why, report: &mut Report) {
        let member = self.members.get(&call.process);
        let right = match why {
            Why::Deadline => at + SLACK >= call.until,
            Why::Cancelled => {
                let stopped = call.within.map(|run| &self.runs[run]);
                let stopped = stopped.is_some_and(|run| run.ended == Some(at) && run.answer.is_none());
                call.cancelled || stopped
            }
            Why::MembershipEnded => member.is_some_and(|member| member.since == at || member.leaves),
            Why::NotDelivered => call.not_delivered.is_some(),
            Why::Failed => true,
        };
        report.check("G49", at, right, || {
            format!("p{}: {op} ends, and nothing happened: {why:?}", call.process)
        });
        // A member answers: at once, or when there is a place.
        report.check("G49", at, !call.at_rest || why != Why::Deadline, || {
            format!("p{}: {op}, called at rest, has no answer", call.process)
        });
    }
}

/// The members that were asked, as far as it is known.
fn asked(call: &Call) -> Option<BTreeSet<Incarnation>> {
    match &call.target {
        Target::Member(member) => Some([*member].into()),
        Target::Members(members) => Some(members.iter().copied().collect()),
        Target::Any => None,
        Target::All => {
            let members = call.delivered.as_ref().map(|(_, members)| members);
            Some(members?.iter().copied().collect())
        }
    }
}

/// G29, G49: outcomes are told of the members that were asked, and no such member is forgotten.
fn check_members(at: Micros, op: u64, call: &Call, told: &Told<'_>, report: &mut Report) {
    let number = number_of(call);
    let mentioned = told.mentioned();
    // What is due when the request is delivered comes before that, and so does what ends with a handler that
    // is due then.
    let why = told.error.map(|(why, _)| why);
    let ends = why == Some(Why::Deadline) || why == Some(Why::Cancelled) && call.within.is_some();
    let due = ends && call.delivered_at == at;
    let right = match asked(call) {
        Some(asked) if told.error.is_some() && !due => mentioned == asked,
        Some(asked) => mentioned.is_subset(&asked),
        None if call.target == Target::Any => mentioned.len() == 1,
        // A call to all that is not delivered here asks no member that is known.
        None => true,
    };
    report.check(number, at, right, || {
        let asked = asked(call);
        format!(
            "p{}: {op} asked {asked:?} and is told of {mentioned:?}",
            call.process
        )
    });
}

/// G29, G49: the rule holds, or it cannot hold any more.
fn check_rule(at: Micros, op: u64, call: &Call, told: &Told<'_>, report: &mut Report) {
    let replies = told.replies.len();
    let members = match call.target {
        Target::Any => Some(1),
        _ => asked(call).map(|asked| asked.len()),
    };
    let to_all = call.target == Target::All;
    let waits = |(_, failure): &&(Incarnation, Failure)| *failure == Failure::NoAnswer;
    let failed = told.failures.iter().filter(|failure| !waits(failure)).count();
    let holds = match (call.rule, members) {
        (Rule::First, _) => replies >= 1,
        (Rule::Count(count), _) => replies >= count,
        (Rule::Majority | Rule::All | Rule::Each, None) => false,
        (Rule::Each, Some(members)) => replies + failed == members,
        (Rule::Majority, Some(members)) => 2 * replies > members,
        // G29: the members of the view, less the members that are gone.
        (Rule::All, Some(members)) if to_all => replies >= 1 && replies + told.departed() == members,
        (Rule::All, Some(members)) => replies == members,
    };
    let possible = replies + told.failures.iter().filter(waits).count();
    let fails = || match (call.rule, members) {
        // Each ends with any failures.
        (_, None) | (Rule::Each, _) => false,
        (Rule::First, _) => possible == 0,
        (Rule::Count(count), _) => possible < count,
        (Rule::Majority, Some(members)) => 2 * possible <= members,
        (Rule::All, Some(members)) if to_all => possible == 0 || possible + told.departed() < members,
        (Rule::All, Some(members)) => possible < members,
    };
    let right = match told.error {
        None => holds,
        Some((Why::Failed, _)) => fails(),
        // What the end itself makes of those that are asked counts as failures.
        Some(_) if call.rule == Rule::Each => true,
        // It would have ended.
        Some(_) => !holds,
    };
    report.check(number_of(call), at, right, || {
        let (process, rule, failures) = (call.process, call.rule, told.failures);
        format!(
            "p{process}: {op} ends: {:?}; {rule:?} of {members:?}: {replies} replies, {failures:?}",
            told.error
        )
    });
}

fn number_of(call: &Call) -> &'static str {
    match call.target {
        Target::All => "G29",
        _ => "G49",
    }
}

/// Why a member is gone, if that is what is said.
fn parting(failure: &Failure) -> Option<&Parting> {
    match failure {
        Failure::NotDelivered(parting) | Failure::Departed(parting) => Some(parting),
        _ => None,
    }
}

/// Whether this is what the view says of a member that is not in it any more.
fn is_cause(view: &GroupView, member: Incarnation, cause: &Parting) -> bool {
    match cause {
        Parting::Left => view.left.contains(&member),
        Parting::Removed(cause) => view.causes.iter().any(|(of, why)| *of == member && why == cause),
        Parting::Crashed => view.crashed.contains(&member),
        _ => false,
    }
}
