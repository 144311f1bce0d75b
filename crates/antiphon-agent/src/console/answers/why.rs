//! Why a node is, or is not, a member: what is known of it, and what that comes to.

use antiphon_core::{Heard, WhyEntry, WhyReport};

use super::{Names, accused_by, looking, millis, names, seated};
use antiphon::{Accusation, Cause, Examined, Incarnation, Noted, Phase};
use antiphon_api::ago;
use antiphon_api::console::{Fact, REFUSAL_LASTS_MS, Why};

/// A word for programs, and a sentence.
type Verdict = (&'static str, String);

pub(crate) fn why(report: &WhyReport, examined: &Examined, history: &[Noted]) -> Why {
    let names = names(history);
    let known = report.entries.iter().filter_map(|entry| fact(&names, entry));
    let mut facts: Vec<Fact> = known.collect();
    facts.extend(left_behind(report, examined));
    let (verdict, text) = of_a_member(report, examined, &names)
        .or_else(|| of_one_that_waits(report))
        .or_else(|| of_one_that_is_gone(report, &names))
        .or_else(|| of_this_node(report, examined))
        .unwrap_or_else(|| of_nobody(report, examined, &names));
    if verdict == "unknown" {
        facts.extend(whom_it_misses(examined));
    }
    Why {
        asked: examined.status.name.clone(),
        node: report.name.clone(),
        verdict: verdict.to_owned(),
        text,
        facts,
    }
}

impl Names {
    /// An entry of a report in a sentence.
    pub fn why(&self, entry: &WhyEntry) -> String {
        let unknown = || "something that this build has no words for".to_owned();
        fact(self, entry).map_or_else(unknown, |fact| fact.text)
    }
}

fn of_a_member(report: &WhyReport, examined: &Examined, names: &Names) -> Option<Verdict> {
    let node = &report.name;
    let accusers = report.entries.iter().rev().find_map(|entry| match entry {
        WhyEntry::Member { accusers, .. } => Some(accusers.as_slice()),
        _ => None,
    })?;
    let has_majority = examined.status.phase == Phase::Primary;
    let here = examined.status.view.as_deref();
    let component = here.is_some_and(|view| view.members.iter().any(|member| member.name == *node));
    Some(match (accusers, has_majority) {
        (_, false) if !component => (
            "suspected",
            format!(
                "{node} was a member of the last view with a majority, and this component, without one, does not hear it"
            ),
        ),
        ([], true) => ("member", format!("{node} is a member, and nobody suspects it")),
        ([], false) => (
            "member",
            format!("{node} is a member of this component, which has no majority of the last primary view"),
        ),
        (accusers, _) => (
            "suspected",
            format!(
                "{node} is a member, and is suspected ({})",
                names.accusations(accusers)
            ),
        ),
    })
}

fn of_one_that_waits(report: &WhyReport) -> Option<Verdict> {
    let ready = report.entries.iter().rev().find_map(|entry| match entry {
        WhyEntry::Joining { ready_ms, .. } => Some(ready_ms.is_some()),
        _ => None,
    })?;
    let why = match ready {
        true => "it is admitted with the next view",
        false => {
            "it asks to be admitted but does not answer: what this node sends to its address does not arrive"
        }
    };
    Some(("waiting", format!("{} is no member yet; {why}", report.name)))
}

/// The later of both counts: that the node was refused, or that it departed.
fn of_one_that_is_gone(report: &WhyReport, names: &Names) -> Option<Verdict> {
    let node = &report.name;
    let latest = report.entries.iter().filter_map(|entry| match entry {
        WhyEntry::Departed { ago_ms, .. } | WhyEntry::Refused { ago_ms, .. } => Some((*ago_ms, entry)),
        _ => None,
    });
    // If both happened at the same time, the refusal stands later in the report.
    match latest.rev().min_by_key(|(ago_ms, _)| *ago_ms)?.1 {
        WhyEntry::Departed {
            cause,
            accusers,
            ago_ms,
            ..
        } => {
            let verdict = match cause {
                Cause::Left => "left",
                _ => "removed",
            };
            let why = names.cause(cause) + &in_brackets(names, accusers);
            Some((
                verdict,
                format!("{node} is no member since {} ago: {why}", ago(*ago_ms)),
            ))
        }
        WhyEntry::Refused { reason, ago_ms, .. } => {
            let refused = match *ago_ms {
                ..=REFUSAL_LASTS_MS => "it asks to be admitted and is refused".to_owned(),
                past => format!("it was refused {} ago, and has not asked since", ago(past)),
            };
            Some(("refused", format!("{node} is no member; {refused}: {reason}")))
        }
        _ => None,
    }
}

/// A node without a view knows why it has none.
fn of_this_node(report: &WhyReport, examined: &Examined) -> Option<Verdict> {
    let node = &report.name;
    let looking = looking(&examined.inspection).filter(|_| *node == examined.status.name)?;
    let (reason, since) = looking.refused.as_ref()?;
    let ago_ms = millis(*since);
    let refused = match ago_ms {
        ..=REFUSAL_LASTS_MS => "it asks to be admitted and is refused".to_owned(),
        past => format!("it was refused {} ago, and not since", ago(past)),
    };
    Some(("refused", format!("{node} is no member; {refused}: {reason}")))
}

fn of_nobody(report: &WhyReport, examined: &Examined, names: &Names) -> Verdict {
    let node = &report.name;
    let text = match seated(&examined.inspection).map(|seated| seated.coordinator) {
        Some(coordinator) if coordinator != examined.inspection.incarnation => format!(
            "no node called {node} was in a view since this node has been in the cluster; whether one asks to be admitted, {} knows, who admits nodes: ask there",
            names.name(coordinator)
        ),
        Some(_) => format!(
            "no node called {node} was in a view since this node has been in the cluster, and none has asked to be admitted: it is not started, has another --cluster name or key, or cannot reach this cluster; run `antiphon doctor` with its settings on its host"
        ),
        None => format!("this node is in no cluster yet, so it knows nothing of {node}"),
    };
    ("unknown", text)
}

/// A component without a majority lacks members that no view has removed.
fn left_behind(report: &WhyReport, examined: &Examined) -> Option<Fact> {
    let view = examined.status.view.as_deref()?;
    let seated = seated(&examined.inspection)?;
    let name = &report.name;
    let entry = report.entries.iter().find_map(|entry| match entry {
        WhyEntry::Member { incarnation, .. } => Some(*incarnation),
        _ => None,
    })?;
    let lacks = !view.is_primary() && !view.contains(entry);
    let text = format!(
        "now: not in this component, view {}, which has {} of {} members and no majority; {name} was in the last view that had one",
        view.id,
        view.members.len(),
        seated.members.len()
    );
    lacks.then(|| Fact {
        view: Some(view.number),
        ..about("absent", entry, text)
    })
}

/// A node that has no cluster says at least which nodes it waits for.
fn whom_it_misses(examined: &Examined) -> Option<Fact> {
    let looking = looking(&examined.inspection)?;
    let missing: Vec<String> = looking.missing.iter().map(ToString::to_string).collect();
    Some(Fact {
        kind: "unknown".to_owned(),
        text: match missing.as_slice() {
            [] => "now: no cluster yet; all seeds have answered".to_owned(),
            missing => format!("now: no cluster yet; no answer from {}", missing.join(", ")),
        },
        ..Fact::default()
    })
}

/// An entry of a report: what kind it is, what programs may want of it, and all of it in a sentence.
fn fact(names: &Names, entry: &WhyEntry) -> Option<Fact> {
    Some(match entry {
        WhyEntry::Joined {
            incarnation,
            view,
            number,
            ago_ms,
        } => {
            let text = format!(
                "{} ago: joined with view {number} ({view}), as incarnation {}",
                ago(*ago_ms),
                incarnation.short()
            );
            Fact {
                ago_ms: Some(*ago_ms),
                view: Some(*number),
                ..about("joined", *incarnation, text)
            }
        }
        WhyEntry::Departed {
            incarnation,
            view,
            number,
            cause,
            accusers,
            ago_ms,
        } => {
            let cause = names.cause(cause);
            let text = format!(
                "{} ago: gone with view {number} ({view}), incarnation {}: {cause}{}",
                ago(*ago_ms),
                incarnation.short(),
                in_brackets(names, accusers)
            );
            Fact {
                ago_ms: Some(*ago_ms),
                view: Some(*number),
                cause: Some(cause),
                accusers: accused_by(names, accusers),
                ..about("departed", *incarnation, text)
            }
        }
        WhyEntry::Refused {
            incarnation,
            addr,
            reason,
            fatal,
            times,
            ago_ms,
        } => {
            let often = match times {
                1 => String::new(),
                times => format!(" ({times} times)"),
            };
            let goes_on = match (*fatal, *ago_ms) {
                (false, ..=REFUSAL_LASTS_MS) => "; it goes on trying",
                _ => "",
            };
            let text = format!(
                "{} ago: incarnation {} at {addr} asked to be admitted and was refused{often}: {reason}{goes_on}",
                ago(*ago_ms),
                incarnation.short()
            );
            Fact {
                ago_ms: Some(*ago_ms),
                cause: Some(reason.clone()),
                ..about("refused", *incarnation, text)
            }
        }
        WhyEntry::Joining {
            incarnation,
            addr,
            asked_ms,
            ready_ms,
        } => {
            let ready = match ready_ms {
                Some(ready) => format!("said {} ago that it is ready", ago(*ready)),
                None => "has not answered whether it is ready: what is sent to that address does not arrive"
                    .to_owned(),
            };
            let text = format!(
                "now: incarnation {} at {addr} waits to be admitted, asked {} ago, {ready}",
                incarnation.short(),
                ago(*asked_ms)
            );
            Fact {
                ago_ms: Some(*asked_ms),
                ..about("joining", *incarnation, text)
            }
        }
        WhyEntry::Said {
            incarnation,
            view,
            primary,
            leaving,
            doubts,
        } => {
            let doubts: Vec<String> = doubts.iter().map(|doubted| names.name(*doubted)).collect();
            let doubts = match doubts.as_slice() {
                [] => "it suspects nobody".to_owned(),
                doubts => format!("it suspects {}", doubts.join(", ")),
            };
            let majority = match primary {
                true => "in the majority",
                false => "WITHOUT a majority",
            };
            let leaving = if *leaving { ", and wants to leave" } else { "" };
            let text = format!("it said last: it has view {view}, {majority}{leaving}; {doubts}");
            about("said", *incarnation, text)
        }
        WhyEntry::Member {
            incarnation,
            heard,
            accusers,
        } => {
            let (kind, suspected) = match accusers.as_slice() {
                [] => ("member", "nobody suspects it".to_owned()),
                accusers => {
                    let said = names.accusations(accusers);
                    ("suspected", format!("suspected now ({said})"))
                }
            };
            let text = format!(
                "now: member, incarnation {}, {}; {suspected}",
                incarnation.short(),
                heard_by(names, heard)
            );
            Fact {
                accusers: accused_by(names, accusers),
                ..about(kind, *incarnation, text)
            }
        }
        _ => return None,
    })
}

fn heard_by(names: &Names, heard: &Heard) -> String {
    match heard {
        Heard::Itself => "the node that answers".to_owned(),
        Heard::Here { ago_ms } => format!("last heard {ago_ms} ms ago"),
        Heard::By(observers) => {
            let observers: Vec<String> = observers.iter().map(|by| names.name(*by)).collect();
            format!(
                "not observed by the node that answers but by {}: ask there when it was heard",
                observers.join(", ")
            )
        }
        _ => "heard in a way that this build has no words for".to_owned(),
    }
}

fn about(kind: &str, incarnation: Incarnation, text: String) -> Fact {
    Fact {
        kind: kind.to_owned(),
        incarnation: Some(incarnation.to_string()),
        text,
        ..Fact::default()
    }
}

fn in_brackets(names: &Names, accusers: &[Accusation]) -> String {
    match accusers {
        [] => String::new(),
        accusers => format!(" ({})", names.accusations(accusers)),
    }
}

#[cfg(test)]
mod tests {
    use antiphon_core::wire::{Evidence, ViewId};

    use super::*;

    const HIM: Incarnation = Incarnation(7 << 96);

    fn departed(cause: Cause, ago_ms: u64) -> WhyEntry {
        let proof = Accusation {
            accuser: Incarnation(1 << 96),
            evidence: Evidence::ProofOfDeath,
            before_ms: 3,
        };
        WhyEntry::Departed {
            incarnation: HIM,
            view: ViewId { epoch: 1, counter: 4 },
            number: 57301,
            accusers: match cause {
                Cause::Left => Vec::new(),
                _ => vec![proof],
            },
            cause,
            ago_ms,
        }
    }

    fn refused(ago_ms: u64) -> WhyEntry {
        WhyEntry::Refused {
            incarnation: HIM,
            addr: ([127, 0, 0, 1], 7400).into(),
            reason: "the name is taken".to_owned(),
            fatal: false,
            times: 2,
            ago_ms,
        }
    }

    fn verdict(entries: Vec<WhyEntry>) -> Option<Verdict> {
        let name = "b".to_owned();
        of_one_that_is_gone(&WhyReport { name, entries }, &Names::default())
    }

    #[test]
    fn whoever_left_and_whoever_was_removed_are_told_apart_by_the_cause() {
        let (word, text) = verdict(vec![departed(Cause::Left, 20_000)]).unwrap();
        assert_eq!((word, &*text), ("left", "b is no member since 20 s ago: left"));
        let (word, text) = verdict(vec![departed(Cause::Crashed, 1)]).unwrap();
        assert_eq!(word, "removed");
        assert!(
            text.contains("1 ms ago: crashed (00000001: its process has ended"),
            "{text}"
        );
    }

    #[test]
    fn the_later_of_a_departure_and_a_refusal_makes_the_verdict() {
        let word = |entries| verdict(entries).unwrap().0;
        assert_eq!(
            word(vec![departed(Cause::Crashed, 9_000), refused(5_000)]),
            "refused"
        );
        assert_eq!(
            word(vec![departed(Cause::Crashed, 5_000), refused(5_000)]),
            "refused"
        );
        assert_eq!(
            word(vec![departed(Cause::Crashed, 4_000), refused(5_000)]),
            "removed"
        );
        assert_eq!(verdict(Vec::new()), None);
    }

    #[test]
    fn a_refusal_of_the_past_is_told_as_past() {
        let text = |ago_ms| verdict(vec![refused(ago_ms)]).unwrap().1;
        assert!(text(4_000).contains("asks to be admitted and is refused: the name is taken"));
        let past = text(3 * 86_400_000);
        assert!(
            past.contains("was refused 72 h ago") && !past.contains("is refused"),
            "{past}"
        );
        let fact = |ago_ms| Names::default().why(&refused(ago_ms));
        assert!(fact(4_000).ends_with("it goes on trying") && !fact(60_000).contains("goes on"));
    }

    #[test]
    fn a_member_that_this_node_does_not_observe_is_told_with_those_who_do() {
        let member = |heard| {
            let accusers = Vec::new();
            let incarnation = HIM;
            Names::default().why(&WhyEntry::Member {
                incarnation,
                heard,
                accusers,
            })
        };
        let observers = [1, 2].map(|number| Incarnation(number << 96));
        assert_eq!(
            member(Heard::By(observers.to_vec())),
            "now: member, incarnation 00000007, not observed by the node that answers but by 00000001, 00000002: ask there when it was heard; nobody suspects it"
        );
        assert_eq!(
            member(Heard::Here { ago_ms: 120 }),
            "now: member, incarnation 00000007, last heard 120 ms ago; nobody suspects it"
        );
        assert!(member(Heard::Itself).contains("the node that answers; nobody"));
    }

    #[test]
    fn a_fact_has_for_programs_what_its_sentence_says() {
        let fact = fact(&Names::default(), &departed(Cause::Crashed, 996)).unwrap();
        assert_eq!(
            (&*fact.kind, fact.ago_ms, fact.view),
            ("departed", Some(996), Some(57301))
        );
        assert_eq!(fact.cause.as_deref(), Some("crashed"));
        assert_eq!(fact.accusers[0].before_ms, 3);
        assert!(
            fact.text
                .starts_with("996 ms ago: gone with view 57301 (1:4), incarnation 00000007: crashed (")
        );
    }
}
