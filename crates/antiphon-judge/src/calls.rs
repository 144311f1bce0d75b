//! Calls: what was called, what members were handed of it, and what callers were told. This is the part of
//! G49 that can be seen from outside.
//!
//! ```text
//!  a  ── calls "a1" at b ────── is told: it did not run at b ──     a line is a member
//!  b  ──────────────── is handed "a1" of a ────────────────────
//! ```
//! What is judged:
//!
//! - a member is handed only what was called, by the member that is named as its caller, and where it asked;
//! - a call is handed out at most once: once in all if one member was asked, else once to each;
//! - a call of which its caller is told that it did not run is handed to nobody, neither before that nor
//!   later; if that is told of some members, to none of these.
//!
//! A call of whose end nothing is known yet may have been handed to anyone that it asks.

use std::collections::{BTreeMap, BTreeSet};

use crate::{Micros, Name, Report};

/// The calls of one group. `M` is what members are called. `P` is what payloads are called: no two calls of
/// one member have the same.
#[derive(Debug, Clone)]
pub struct Calls<M, P> {
    /// The group's name.
    pub group: String,
    /// What was called.
    pub called: Vec<Call<M, P>>,
    /// What members were handed, in the order of each.
    pub handed: Vec<Handed<M, P>>,
}

/// A call.
#[derive(Debug, Clone)]
pub struct Call<M, P> {
    /// The member that calls.
    pub caller: M,
    /// With what.
    pub payload: P,
    /// The members that it asks.
    pub asks: Asks<M>,
    /// Whether its caller was told that it ran nowhere.
    pub ran_nowhere: bool,
    /// At which members it did not run, as its caller was told.
    pub not_run_at: Vec<M>,
}

/// The members that a call asks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Asks<M> {
    /// One member, whichever serves.
    Any,
    /// All members.
    All,
    /// These members.
    These(Vec<M>),
}

/// A request as a member was handed it, to run it.
#[derive(Debug, Clone)]
pub struct Handed<M, P> {
    /// When.
    pub at: Micros,
    /// How findings call the member: the process.
    pub name: String,
    /// How callers call it.
    pub member: M,
    /// The caller named on it.
    pub caller: M,
    /// With what.
    pub payload: P,
}

impl<M: Name> Asks<M> {
    fn asks(&self, member: M) -> bool {
        match self {
            Self::Any | Self::All => true,
            Self::These(members) => members.contains(&member),
        }
    }

    fn is_for_one(&self) -> bool {
        match self {
            Self::Any => true,
            Self::All => false,
            Self::These(members) => members.len() == 1,
        }
    }
}

/// Judges the calls of a group.
pub fn judge<M: Name, P: Name>(calls: &Calls<M, P>, report: &mut Report) {
    let mut handed: BTreeMap<(M, P), Vec<&Handed<M, P>>> = BTreeMap::new();
    for one in &calls.handed {
        handed.entry((one.caller, one.payload)).or_default().push(one);
    }
    for call in &calls.called {
        let handed = handed.remove(&(call.caller, call.payload)).unwrap_or_default();
        each(&calls.group, call, &handed, report);
    }
    // What is left belongs to no call.
    for one in handed.values().flatten() {
        report.check("G49", one.at, false, || {
            format!("{}, which {} never called", shown(&calls.group, one), one.caller)
        });
    }
}

fn each<M: Name, P: Name>(group: &str, call: &Call<M, P>, handed: &[&Handed<M, P>], report: &mut Report) {
    let mut before = BTreeSet::new();
    for one in handed {
        report.check("G49", one.at, call.asks.asks(one.member), || {
            format!("{}, which asks others", shown(group, one))
        });
        let place = (!call.asks.is_for_one()).then_some(one.member);
        report.check("G49", one.at, before.insert(place), || {
            format!("{}, which had been handed out before", shown(group, one))
        });
    }
    let denied = |one: &&&Handed<M, P>| call.ran_nowhere || call.not_run_at.contains(&one.member);
    let wrong = handed.iter().find(denied);
    report.check("G49", wrong.map_or(0, |one| one.at), wrong.is_none(), || {
        let what = wrong.map(|one| shown(group, one)).unwrap_or_default();
        format!("{what}, which was told that it does not run there")
    });
}

fn shown<M: Name, P: Name>(group: &str, one: &Handed<M, P>) -> String {
    format!(
        "{}: was handed {} of {} in {group}",
        one.name, one.payload, one.caller
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is broken if a makes the call `a1`, which asks these, and these requests are handed out (`b a1`:
    /// b is handed a1, with a named as its caller), and a is told that it did not run at these (`*`:
    /// anywhere).
    fn broken(asks: Asks<char>, handed: &[&'static str], denied: &str) -> Vec<String> {
        let handed = handed.iter().map(|word| {
            let (member, payload) = word.split_once(' ').expect("a member and a payload");
            let first = |word: &str| word.chars().next().expect("a word has letters");
            Handed {
                at: 1,
                name: member.to_owned(),
                member: first(member),
                caller: first(payload),
                payload,
            }
        });
        let calls = Calls {
            group: "g".to_owned(),
            called: vec![Call {
                caller: 'a',
                payload: "a1",
                asks,
                ran_nowhere: denied == "*",
                not_run_at: denied.chars().collect(),
            }],
            handed: handed.collect(),
        };
        let mut report = Report::default();
        judge(&calls, &mut report);
        let broken = report.violations.iter();
        assert!(broken.clone().all(|violation| violation.guarantee == "G49"));
        broken.map(|violation| violation.what.clone()).collect()
    }

    const NONE: [&str; 0] = [];

    #[test]
    fn a_call_that_did_not_run_was_handed_to_nobody() {
        let told = "b: was handed a1 of a in g, which was told that it does not run there";
        for asks in [Asks::Any, Asks::All, Asks::These(vec!['b'])] {
            assert_eq!(broken(asks.clone(), &["b a1"], ""), NONE);
            assert_eq!(broken(asks.clone(), &[], "*"), NONE);
            assert_eq!(broken(asks.clone(), &["b a1"], "*"), [told]);
            assert_eq!(broken(asks, &["b a1"], "b"), [told]);
        }
        assert_eq!(broken(Asks::All, &["b a1", "c a1"], "d"), NONE);
        assert_eq!(broken(Asks::All, &["c a1", "b a1"], "bd"), [told]);
    }

    #[test]
    fn a_call_is_handed_out_once_in_all_or_once_to_each() {
        let again = "c: was handed a1 of a in g, which had been handed out before";
        assert_eq!(broken(Asks::Any, &["b a1", "c a1"], ""), [again]);
        for asks in [Asks::All, Asks::These(vec!['b', 'c'])] {
            assert_eq!(broken(asks.clone(), &["b a1", "c a1"], ""), NONE);
            assert_eq!(broken(asks, &["b a1", "c a1", "c a1"], ""), [again]);
        }
    }

    #[test]
    fn what_nobody_called_and_what_asks_others_is_rejected() {
        let never =
            |what: &str, who: &str| format!("b: was handed {what} of {who} in g, which {who} never called");
        assert_eq!(broken(Asks::All, &["b a2"], ""), [never("a2", "a")]);
        assert_eq!(broken(Asks::All, &["b c1"], ""), [never("c1", "c")]);
        let others = "c: was handed a1 of a in g, which asks others";
        assert_eq!(broken(Asks::These(vec!['b']), &["c a1"], ""), [others]);
        assert_eq!(
            broken(Asks::These(vec!['b', 'd']), &["c a1", "b a1"], ""),
            [others]
        );
    }
}
