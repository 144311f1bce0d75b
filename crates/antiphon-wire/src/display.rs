//! Views, and which members left them and why, as text for people. If no name is known, an incarnation is
//! shown as its first digits.

use std::fmt::{self, Display, Formatter};

use crate::{Accusation, Cause, Departure, Evidence, Incarnation, Member, NodeView, NodeViewId, Subview};

impl Display for Member {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

/// What was seen, in a sentence without its beginning.
impl Display for Evidence {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Evidence::ProofOfDeath => {
                f.write_str("its process has ended (proven by its lifeline or its witness)")
            }
            Evidence::Silent { for_ms } => write!(f, "silent for {for_ms} ms"),
            Evidence::ConnectionLost => f.write_str("connection lost, and silent since"),
            Evidence::FlushStalled => f.write_str("did not take part in a flush in time"),
            Evidence::Observed => f.write_str("observed it, and enough of its observers had lost it"),
            Evidence::Lossy { lost_percent } => write!(f, "lost {lost_percent} % of what it sent"),
            Evidence::Deaf => f.write_str("was told that it does not hear it"),
        }
    }
}

impl Display for Accusation {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.accuser.short(), self.evidence)
    }
}

/// Why a member is gone, in few words.
impl Display for Cause {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Cause::Left => f.write_str("left"),
            Cause::Crashed => f.write_str("crashed"),
            Cause::Unreachable { from } => write!(f, "unreachable from {}", from.short()),
            Cause::Superseded { .. } => f.write_str("superseded by a new start"),
            Cause::Overridden { .. } => f.write_str("overridden by an operator (recover)"),
            Cause::Separated { .. } => {
                f.write_str("separated: not heard, and without a majority (policy any)")
            }
        }
    }
}

/// `d: crashed (1f3a9c20: silent for 1500 ms)`.
impl Display for Departure {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        gone(f, self, &|incarnation| incarnation.short())
    }
}

impl Display for NodeViewId {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            NodeViewId::Primary { id } => write!(f, "{id}"),
            NodeViewId::NonPrimary {
                base,
                attempt,
                proposer,
            } => {
                write!(f, "{base}-{attempt}@{}", proposer.short())
            }
        }
    }
}

/// `1f3a9c20 5b6c7d8e of view 1:4`.
impl Display for Subview {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let members: Vec<String> = self.members.iter().map(|member| member.short()).collect();
        write!(f, "{} of view {}", members.join(" "), self.view)
    }
}

/// `view 57301 [a b], joined: b, left: c, d: crashed (a: silent for 1500 ms)`. The members are by seniority.
impl Display for NodeView {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let members: Vec<&str> = self.members.iter().map(|member| member.name.as_str()).collect();
        match self.id {
            NodeViewId::Primary { .. } => write!(f, "view {}", self.number)?,
            NodeViewId::NonPrimary {
                attempt, proposer, ..
            } => write!(
                f,
                "view {}-{attempt}@{} without a majority",
                self.number,
                proposer.short()
            )?,
        }
        write!(f, " [{}]", members.join(" "))?;
        let name = |incarnation| self.name_of(incarnation);
        let joined: Vec<String> = self.joined.iter().map(|joined| name(*joined)).collect();
        let (left, removed): (Vec<&Departure>, Vec<_>) =
            (self.departed.iter()).partition(|departure| departure.cause == Cause::Left);
        let left: Vec<String> = left
            .iter()
            .map(|departure| departure.member.name.clone())
            .collect();
        for (label, names) in [("joined", joined), ("left", left)] {
            if !names.is_empty() {
                write!(f, ", {label}: {}", names.join(" "))?;
            }
        }
        for departure in removed {
            f.write_str(", ")?;
            gone(f, departure, &name)?;
        }
        Ok(())
    }
}

fn gone(f: &mut Formatter<'_>, gone: &Departure, name: &dyn Fn(Incarnation) -> String) -> fmt::Result {
    write!(f, "{}: {}", gone.member.name, gone.cause.with_names(name))?;
    if gone.accusers.is_empty() {
        return Ok(());
    }
    let said: Vec<String> = gone.accusers.iter().map(|said| said.with_names(name)).collect();
    write!(f, " ({})", said.join("; "))
}

impl Cause {
    /// As shown, with known names.
    pub fn with_names(&self, name: &dyn Fn(Incarnation) -> String) -> String {
        match self {
            Cause::Unreachable { from } => format!("unreachable from {}", name(*from)),
            cause => cause.to_string(),
        }
    }
}

impl Accusation {
    /// As shown, with known names.
    pub fn with_names(&self, name: &dyn Fn(Incarnation) -> String) -> String {
        format!("{}: {}", name(self.accuser), self.evidence)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::{Lineage, ViewId};

    const BASE: ViewId = ViewId { epoch: 1, counter: 4 };

    fn incarnation(number: u128) -> Incarnation {
        Incarnation(number << 96)
    }

    fn member(name: &str, number: u128) -> Member {
        Member {
            incarnation: incarnation(number),
            name: name.to_owned(),
            addr: ([127, 0, 0, 1], 1).into(),
            further: Vec::new(),
            metadata: BTreeMap::new(),
            weight: 1,
        }
    }

    fn gone(name: &str, number: u128, cause: Cause, accusers: Vec<Accusation>) -> Departure {
        Departure {
            member: member(name, number),
            cause,
            accusers,
        }
    }

    fn accusation(accuser: u128, evidence: Evidence) -> Accusation {
        Accusation {
            accuser: incarnation(accuser),
            evidence,
            before_ms: 0,
        }
    }

    fn view(id: NodeViewId, departed: Vec<Departure>) -> NodeView {
        NodeView {
            lineage: Lineage(1),
            id,
            number: 57301,
            members: vec![member("a", 1), member("b", 2)],
            joined: vec![incarnation(2)],
            departed,
            merged: Vec::new(),
            wire_level: 1,
        }
    }

    #[test]
    fn a_view_says_who_is_in_it_who_came_and_who_went_why() {
        let departed = vec![
            gone("c", 3, Cause::Left, vec![]),
            gone(
                "d",
                4,
                Cause::Crashed,
                vec![
                    accusation(1, Evidence::ProofOfDeath),
                    accusation(9, Evidence::Silent { for_ms: 1500 }),
                ],
            ),
            gone("e", 5, Cause::Unreachable { from: incarnation(1) }, vec![]),
        ];
        assert_eq!(
            view(NodeViewId::Primary { id: BASE }, departed).to_string(),
            "view 57301 [a b], joined: b, left: c, \
             d: crashed (a: its process has ended (proven by its lifeline or its witness); \
             00000009: silent for 1500 ms), \
             e: unreachable from a"
        );
    }

    #[test]
    fn a_view_without_a_majority_says_so() {
        let id = NodeViewId::NonPrimary {
            base: BASE,
            attempt: 2,
            proposer: incarnation(0xab12_cd34),
        };
        assert_eq!(id.to_string(), "1:4-2@ab12cd34");
        assert_eq!(
            view(id, vec![]).to_string(),
            "view 57301-2@ab12cd34 without a majority [a b], joined: b"
        );
    }

    #[test]
    fn every_cause_and_every_evidence_has_its_words() {
        let (lineage, view) = (Lineage(1), BASE);
        for (cause, words) in [
            (Cause::Left, "left"),
            (Cause::Crashed, "crashed"),
            (
                Cause::Unreachable { from: incarnation(1) },
                "unreachable from 00000001",
            ),
            (
                Cause::Superseded { by: incarnation(1) },
                "superseded by a new start",
            ),
            (
                Cause::Overridden { lineage, view },
                "overridden by an operator (recover)",
            ),
            (
                Cause::Separated { lineage, view },
                "separated: not heard, and without a majority (policy any)",
            ),
        ] {
            assert_eq!(cause.to_string(), words);
        }
        for (evidence, words) in [
            (
                Evidence::ProofOfDeath,
                "its process has ended (proven by its lifeline or its witness)",
            ),
            (Evidence::Silent { for_ms: 5 }, "silent for 5 ms"),
            (Evidence::ConnectionLost, "connection lost, and silent since"),
            (Evidence::FlushStalled, "did not take part in a flush in time"),
            (
                Evidence::Observed,
                "observed it, and enough of its observers had lost it",
            ),
            (Evidence::Lossy { lost_percent: 30 }, "lost 30 % of what it sent"),
            (Evidence::Deaf, "was told that it does not hear it"),
        ] {
            assert_eq!(evidence.to_string(), words);
        }
    }

    #[test]
    fn a_member_is_its_name_and_what_speaks_of_one_by_incarnation_shows_its_first_digits() {
        assert_eq!(member("a", 1).to_string(), "a");
        let accused = vec![accusation(1, Evidence::Deaf)];
        assert_eq!(
            accused[0].to_string(),
            "00000001: was told that it does not hear it"
        );
        assert_eq!(
            gone("d", 4, Cause::Crashed, accused).to_string(),
            "d: crashed (00000001: was told that it does not hear it)"
        );
        let subview = Subview {
            lineage: Lineage(1),
            view: BASE,
            members: vec![incarnation(1), incarnation(2)],
        };
        assert_eq!(subview.to_string(), "00000001 00000002 of view 1:4");
    }
}
