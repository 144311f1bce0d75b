//! Node views: what each node saw of the membership, as plain data, and what must hold between them: G1, G2,
//! G4, G6, G7, G16, G18, seniority, and for how long a node believes in a view.
//!
//! ```text
//!  a  ── 1 {a b c} ────── 2 {a b} ───────── 3 {a b d} ──     a line is the life of an incarnation; the
//!  b  ── 1 {a b c} ────── 2 {a b} ───────── 3 {a b d} ──     primary views of one lineage are one chain,
//!  c  ── 1 {a b c} ── (non-primary {c})                      whichever life saw which of them
//!  d                                        3 {a b d} ──
//! ```

use std::collections::{BTreeMap, BTreeSet};

use crate::{Id, Micros, Name, Report, list};

/// What nodes saw. `M` is what incarnations are called, `V` what views are called: no two alike in one
/// lineage.
#[derive(Debug, Clone)]
pub struct Membership<M, V> {
    /// One for each incarnation.
    pub lives: Vec<Life<M, V>>,
    /// For how long a running node may believe in an old primary view after a newer one without it was
    /// decided.
    pub belief: Micros,
}

/// What one incarnation saw.
#[derive(Debug, Clone)]
pub struct Life<M, V> {
    /// How findings call it.
    pub name: String,
    /// How views call it.
    pub member: M,
    /// Its views, in order.
    pub views: Vec<NodeView<M, V>>,
    /// Whether it goes on at the end, and all is at rest.
    pub rests: bool,
    /// From when until when its process was frozen.
    pub frozen: Vec<(Micros, Micros)>,
}

/// A view of the cluster.
#[derive(Debug, Clone)]
pub struct NodeView<M, V> {
    /// Its name.
    pub id: V,
    /// The lineage of its id. The same for all if the reader does not know lineages and there is one only,
    /// one of each life's own if there are several: nothing is compared between lives then.
    pub lineage: u128,
    /// Its place among the primary views; of a non-primary view, that of the one it is based on.
    pub place: Id,
    /// The place of the view that it follows, if the reader can know it. Else it is the last one in the chain
    /// that any node saw.
    pub follows: Option<Id>,
    /// Whether its members may decide.
    pub primary: bool,
    /// Whether a node goes to it from another lineage rightfully.
    pub crosses: bool,
    /// Its members, by seniority.
    pub members: Vec<M>,
    /// Those that were not in the view before.
    pub joined: Vec<M>,
    /// Those of the view before that are gone, for whatever cause.
    pub departed: Vec<M>,
    /// A hash of all else that it says, the same wherever it is seen. 0 where that may differ.
    pub rest: u64,
    /// When it was installed.
    pub at: Micros,
    /// Until when this node was bound to believe in it as a primary view; none if the reader does not know.
    pub until: Option<Micros>,
}

impl<M: Name, V: Name> NodeView<M, V> {
    fn shown(&self) -> String {
        format!("node view {} {}", self.id, list(self.members.iter().copied()))
    }
}

impl<M: Name, V: Name> Life<M, V> {
    fn primaries(&self) -> impl Iterator<Item = &NodeView<M, V>> {
        self.views.iter().filter(|view| view.primary)
    }
}

/// Judges what nodes saw.
pub fn judge<M: Name, V: Name>(membership: &Membership<M, V>, report: &mut Report) {
    let lives = &membership.lives;
    for life in lives {
        self_inclusion(life, report);
        forward(life, report);
    }
    agreement(lives, report);
    let chains = chains(lives);
    for chain in chains.values() {
        for (before, next) in chain.values().zip(chain.values().skip(1)) {
            if next.follows.is_none_or(|place| place == before.place) {
                shares_a_member(lives, before, next, report);
                seniority(before, next, report);
                differences(before, next, report);
            }
        }
    }
    sees_the_whole_chain(lives, &chains, report);
    no_skip(lives, report);
    beliefs(membership, report);
}

/// G1.
fn self_inclusion<M: Name, V: Name>(life: &Life<M, V>, report: &mut Report) {
    for view in &life.views {
        report.check("G1", view.at, view.members.contains(&life.member), || {
            format!("{}: is not in its own {}", life.name, view.shown())
        });
    }
}

/// G2 views only go forward; a life has one lineage, unless a view says why not. R1: it skips no decided
/// view.
fn forward<M: Name, V: Name>(life: &Life<M, V>, report: &mut Report) {
    let mut last: Option<&NodeView<M, V>> = None;
    let mut seen = BTreeSet::new();
    for view in &life.views {
        report.check("G2", view.at, seen.insert(view.id), || {
            format!("{}: saw {} twice", life.name, view.shown())
        });
        if let Some(last) = last {
            let after = || format!("{}: saw {} after {}", life.name, view.shown(), last.shown());
            let same = last.lineage == view.lineage;
            report.check("G2", view.at, same || view.crosses, after);
            let rises = view.place > last.place || !view.primary && view.place == last.place;
            report.check("G2", view.at, rises, after);
            if let Some(follows) = view.follows.filter(|_| view.primary && same) {
                let of_another_epoch = view.place.0[0] != last.place.0[0];
                report.check("G16", view.at, of_another_epoch || follows <= last.place, after);
            }
        }
        if view.primary {
            last = Some(view);
        }
    }
}

/// G4 one id, one list, in one order.
fn agreement<M: Name, V: Name>(lives: &[Life<M, V>], report: &mut Report) {
    let mut known = BTreeMap::<(u128, V), (&Life<M, V>, _)>::new();
    for life in lives {
        for view in &life.views {
            let (other, same) = *known.entry((view.lineage, view.id)).or_insert((life, view));
            let lists = same.members == view.members;
            // What a non-primary view says of departures, each member may have been told otherwise.
            let says = (&same.joined, &same.departed, same.rest) == (&view.joined, &view.departed, view.rest);
            let equal = lists && (says || !view.primary);
            report.check("G4", view.at, equal, || {
                format!(
                    "{} at {} is {} at {}{}",
                    view.shown(),
                    life.name,
                    list(same.members.iter().copied()),
                    other.name,
                    if lists { ", and says other things" } else { "" }
                )
            });
            let distinct: BTreeSet<&M> = view.members.iter().collect();
            report.check("G4", view.at, distinct.len() == view.members.len(), || {
                format!("{}: {} lists a member twice", life.name, view.shown())
            });
        }
    }
}

/// The primary views of each lineage by place, as they were first seen.
type Chains<'a, M, V> = BTreeMap<u128, BTreeMap<Id, &'a NodeView<M, V>>>;

fn chains<M: Name, V: Name>(lives: &[Life<M, V>]) -> Chains<'_, M, V> {
    let mut chains = Chains::new();
    for view in lives.iter().flat_map(Life::primaries) {
        let chain = chains.entry(view.lineage).or_default();
        let first = chain.entry(view.place).or_insert(view);
        if view.at < first.at {
            *first = view;
        }
    }
    chains
}

/// G6, R3: every view keeps a member of its predecessor, one that had installed it.
fn shares_a_member<M: Name, V: Name>(
    lives: &[Life<M, V>],
    before: &NodeView<M, V>,
    next: &NodeView<M, V>,
    report: &mut Report,
) {
    let installed = |life: &Life<M, V>| {
        let mut views = life.primaries();
        views.any(|seen| (seen.lineage, seen.id) == (before.lineage, before.id))
    };
    let both =
        |life: &&Life<M, V>| before.members.contains(&life.member) && next.members.contains(&life.member);
    let shared = lives.iter().filter(both).any(installed);
    report.check("G6", next.at, shared, || {
        format!("no member of {} had installed {}", next.shown(), before.shown())
    });
}

/// Survivors keep their order, and joiners come after them.
fn seniority<M: Name, V: Name>(before: &NodeView<M, V>, next: &NodeView<M, V>, report: &mut Report) {
    let kept: Vec<&M> = before
        .members
        .iter()
        .filter(|who| next.members.contains(who))
        .collect();
    let first: Vec<&M> = next.members.iter().take(kept.len()).collect();
    report.check("seniority", next.at, kept == first, || {
        format!(
            "{} does not keep the seniority of {}",
            next.shown(),
            before.shown()
        )
    });
}

/// G7 what changed is what is said.
fn differences<M: Name, V: Name>(before: &NodeView<M, V>, next: &NodeView<M, V>, report: &mut Report) {
    let sorted = |mut members: Vec<M>| {
        members.sort();
        members
    };
    let minus = |all: &[M], other: &[M]| -> Vec<M> {
        sorted(all.iter().filter(|who| !other.contains(who)).copied().collect())
    };
    let came = minus(&next.members, &before.members);
    let went = minus(&before.members, &next.members);
    for (what, said, was) in [("joined", &next.joined, came), ("departed", &next.departed, went)] {
        let said = sorted(said.clone());
        report.check("G7", next.at, said == was, || {
            format!(
                "{} says that {} {what}; from {} it was {}",
                next.shown(),
                list(said.iter().copied()),
                before.shown(),
                list(was.iter().copied())
            )
        });
    }
}

/// G18, R1: a node that saw an earlier and a later primary view saw those between.
fn sees_the_whole_chain<M: Name, V: Name>(
    lives: &[Life<M, V>],
    chains: &Chains<'_, M, V>,
    report: &mut Report,
) {
    for life in lives {
        let mut own: BTreeMap<u128, BTreeSet<Id>> = BTreeMap::new();
        for view in life.primaries() {
            own.entry(view.lineage).or_default().insert(view.place);
        }
        for (lineage, own) in &own {
            let (Some(first), Some(last)) = (own.first(), own.last()) else {
                continue;
            };
            let mut between = chains[lineage].range(first..=last);
            let skipped = between.find(|(place, _)| !own.contains(place));
            let at = skipped.map_or(0, |(_, view)| view.at);
            report.check("G18", at, skipped.is_none(), || {
                let skipped = skipped.map(|(_, view)| view.shown()).unwrap_or_default();
                format!("{}: skipped {skipped}", life.name)
            });
        }
    }
}

/// G18 no view is skipped: a member of a view sees it, or is gone, or is removed by a later one.
fn no_skip<M: Name, V: Name>(lives: &[Life<M, V>], report: &mut Report) {
    let resting: BTreeMap<M, &Life<M, V>> = lives
        .iter()
        .filter(|life| life.rests)
        .map(|life| (life.member, life))
        .collect();
    for life in resting.values() {
        let primaries: Vec<&NodeView<M, V>> = life.primaries().collect();
        for (index, view) in primaries.iter().enumerate() {
            for other in view.members.iter().filter_map(|member| resting.get(member)) {
                let later = &primaries[index + 1..];
                let seen = later.iter().any(|later| !later.members.contains(&other.member))
                    || other.primaries().any(|seen| seen.id == view.id)
                    // It came later, as a joiner of this or a later view.
                    || other.primaries().next().is_some_and(|first| first.place > view.place);
                report.check("G18", view.at, seen, || {
                    format!(
                        "{}: saw {}, and its member {} never did",
                        life.name,
                        view.shown(),
                        other.name
                    )
                });
            }
        }
    }
}

/// When a life believed in a primary view.
struct Belief<'a, M, V> {
    life: &'a Life<M, V>,
    view: &'a NodeView<M, V>,
    until: Micros,
}

/// G6: no two primaries without a common member side by side; and a node that runs notices within bounds that
/// the primary is elsewhere.
fn beliefs<M: Name, V: Name>(membership: &Membership<M, V>, report: &mut Report) {
    let beliefs: Vec<Belief<'_, M, V>> = membership
        .lives
        .iter()
        .flat_map(|life| life.primaries().map(move |view| (life, view)))
        .filter_map(|(life, view)| {
            let until = view.until?;
            Some(Belief { life, view, until })
        })
        .collect();
    for old in &beliefs {
        for new in &beliefs {
            let (from, to) = (old.view.at.max(new.view.at), old.until.min(new.until));
            if old.view.lineage != new.view.lineage || old.view.place >= new.view.place || from >= to {
                continue;
            }
            let seconds = |micros: Micros| micros as f64 / 1e6;
            let common = old
                .view
                .members
                .iter()
                .any(|member| new.view.members.contains(member));
            report.check("G6", from, common, || {
                format!(
                    "two primaries from {:.2}s to {:.2}s: {} in {}, {} in {}",
                    seconds(from),
                    seconds(to),
                    old.life.name,
                    old.view.shown(),
                    new.life.name,
                    new.view.shown()
                )
            });
            let excluded = !new.view.members.contains(&old.life.member);
            let frozen = old
                .life
                .frozen
                .iter()
                .any(|(start, end)| *start < to && *end > from);
            let late = excluded && to - from > membership.belief && !frozen;
            report.check("G6", from, !late, || {
                format!(
                    "{}: believed in {} for {:.1}s after {} had installed {} without it",
                    old.life.name,
                    old.view.shown(),
                    seconds(to - from),
                    new.life.name,
                    new.view.shown()
                )
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A life in a few words, one a second: `7:abc` primary view 7, `7-abc` a non-primary one based on it.
    fn life(letter: char, story: &str) -> Life<char, u64> {
        let mut views: Vec<NodeView<char, u64>> = Vec::new();
        for (at, word) in (0..).step_by(1_000_000).zip(story.split_whitespace()) {
            let primary = word.contains(':');
            let (number, members) = word.split_once([':', '-']).expect("a view");
            let number = number.parse().expect("a number");
            let members: Vec<char> = members.chars().collect();
            let before = views.last().map(|view| view.members.clone()).unwrap_or_default();
            let minus = |all: &[char], other: &[char]| -> Vec<char> {
                all.iter()
                    .filter(|member| !other.contains(member))
                    .copied()
                    .collect()
            };
            if let Some(last) = views.last_mut() {
                last.until = Some(at);
            }
            views.push(NodeView {
                id: 10 * number + u64::from(primary),
                lineage: 0,
                place: Id([0, 0, number]),
                follows: None,
                primary,
                crosses: false,
                joined: minus(&members, &before),
                departed: minus(&before, &members),
                members,
                rest: 0,
                at,
                until: None,
            });
        }
        if let Some(last) = views.last_mut() {
            last.until = Some(100_000_000);
        }
        Life {
            name: letter.to_string(),
            member: letter,
            views,
            rests: true,
            frozen: Vec::new(),
        }
    }

    fn judged(change: impl Fn(&mut Vec<Life<char, u64>>)) -> Vec<&'static str> {
        let mut lives = vec![
            life('a', "1:abc 2:ab 3:abd"),
            life('b', "1:abc 2:ab 3:abd"),
            life('c', "1:abc 1-c"),
        ];
        lives[2].rests = false;
        change(&mut lives);
        let belief = 5_000_000;
        let mut report = Report::default();
        judge(&Membership { lives, belief }, &mut report);
        let mut broken: Vec<_> = report
            .violations
            .iter()
            .map(|violation| violation.guarantee)
            .collect();
        broken.dedup();
        broken
    }

    #[test]
    fn a_chain_that_is_as_promised_is_accepted_and_each_broken_promise_named() {
        assert_eq!(judged(|_| {}), [""; 0]);
        let b = |story: &'static str| judged(move |lives| lives[1] = life('b', story));
        assert!(b("1:abc 2:ac 3:abd").contains(&"G1"));
        assert!(b("1:abc 3:abd 2:ab").contains(&"G2"));
        assert!(b("1:abc 2:ba 3:abd").contains(&"G4"));
        assert!(b("1:abc 3:abd").contains(&"G18"));
        assert!(
            b("1:abc 2:ab").contains(&"G18"),
            "it rests, and is in the next one"
        );
        assert!(judged(|lives| lives.push(life('d', "4:d"))).contains(&"G6"));
        assert!(judged(|lives| lives[0].views[1].departed.clear()).contains(&"G7"));
        let overtaken = judged(|lives| {
            for life in &mut lives[..2] {
                life.views[2].members = vec!['b', 'a', 'd'];
            }
        });
        assert_eq!(overtaken, ["seniority"]);
    }

    #[test]
    fn a_view_that_does_not_follow_the_last_one_that_was_seen_is_not_compared_with_it() {
        let follows = |place: u64| {
            judged(move |lives| {
                for life in &mut lives[..2] {
                    life.views[2].follows = Some(Id([0, 0, place]));
                    life.views[2].joined.clear();
                }
            })
        };
        assert_eq!(follows(2), ["G7"]);
        assert_eq!(follows(0), [""; 0]);
        // Nobody saw view 4, and these say that they follow it.
        assert_eq!(follows(4), ["G16"]);
    }

    #[test]
    fn a_node_that_goes_on_believing_is_noticed_and_a_frozen_one_excused() {
        let late = |lives: &mut Vec<_>| lives[2] = life('c', "1:abc");
        assert!(judged(late).contains(&"G6"));
        let frozen = judged(|lives| {
            late(lives);
            lives[2].rests = false;
            lives[2].frozen.push((1_500_000, 90_000_000));
        });
        assert_eq!(frozen, [""; 0]);
    }
}
