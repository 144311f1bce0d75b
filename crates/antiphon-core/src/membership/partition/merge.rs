//! The merge of two lineages of one cluster, for example of two components under the policy `any`. The junior
//! one gives way; the two never both do.
//!
//! ```text
//!   x, of the junior lineage              y, of the senior one
//!   Yield(standing, nonce) ─────────────► is it the senior, can it decide, has it room for x, and does it give way to nobody?
//!                     ◄── Stay(nonce) ───   then it stays for a while, whatever it meets
//!   soon enough, and still the junior:
//!   Dissolve to its lineage, start over ──► Join
//! ```
//! A merge is a join, never a two-sided commit (R6): the nodes of the junior lineage join the other one as
//! fresh incarnations. The junior is the one with the lower total weight. If the weights are equal, it is the
//! one whose number is less ahead of its counter, which mostly is the one founded later. If that is equal
//! too, it is the one founded later.
//!
//! A member without a primary has no lineage that could go on, but may have one soon: its majority is mostly
//! cut off, not gone. And the primary that it meets may be one node that an operator had go on by mistake.
//! When paths heal one after the other, each member of a majority would meet that node before it meets the
//! others, and give up what they did together. So it goes at once only to a senior lineage, or to one whose
//! operator has given up exactly the member's own view, or a later one. It goes to another lineage when it
//! has met it for `unreachable_after` and heard no quorum meanwhile.
//!
//! Weight tells first which lineage is the junior one, so that fewer nodes lose what they did. But weights
//! change while messages are on their way. Each of two lineages could find the other one the heavier, and
//! both would give way, to nobody; and under the policy `majority` no node of them would ever found again. So
//! a member that would give way asks first, and the member that it asks promises to stay, if it hears a
//! quorum.
//!
//! # Invariants
//! - *One side stays.* When x starts over, y is a member of the other lineage. It gives way to nobody for at
//!   least half as long as its promise lasts, since x takes an answer only within half of that time since it
//!   asked. A member that has asked promises nothing until its question is void, so promises make no circle.
//! - *Nobody is told to go.* The Dissolve of a member that goes tells the others where to ask. Each member
//!   gives way by a promise that it was given itself.
//! - *Nobody comes back.* A node that gave way does not join the lineage that it left for a while: the other
//!   members of that lineage are about to give way too.
//!
//! That members had stayed in one of two lineages that met is for the simulator to judge
//! (`check/inside/components`).
//!
//! # When…
//! - *y dies after its promise*: its lineage goes on without it, if it has other members; x finds them at the
//!   addresses where it asks;
//! - *x dies*: the other members of its lineage meet the other lineage by themselves;
//! - *the two are cut apart again at that moment*: x seeks, and under `any` after a while goes on alone
//!   ([`seek`]), as a component of one;
//! - *there is no room for x in the other lineage, or its name is taken there*: no member promises anything,
//!   and x stays where it is, as a component with the others that stay. If this comes to be so between the
//!   promise and the join, x is refused until (under `any`) it goes on alone;
//! - *x has no primary and wants to leave*: it just goes;
//! - *three lineages meet*: a member that has asked a third lineage promises nothing. The junior lineage asks
//!   again, and finds fewer.
//!
//! [`seek`]: crate::membership::seek

use std::cmp::Ordering;
use std::time::Duration;

use antiphon_wire::membership::Standing;

use crate::random::Random;
use crate::{Profile, Time};

/// What a member knows of its own side when it meets another lineage.
#[derive(Debug)]
pub(crate) struct Side<'a> {
    pub(crate) profile: &'a Profile,
    pub(crate) standing: Standing,
    /// Whether every component goes on (policy `any`).
    pub(crate) any: bool,
    /// Whether the members that it hears could decide.
    pub(crate) quorum: bool,
    /// Whether it has accepted a view that is not decided yet. Until then it may turn out that no quorum can
    /// decide that view.
    pub(crate) is_bound: bool,
    pub(crate) wants_to_leave: bool,
}

/// What the node of the other lineage says, besides where it stands.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Says {
    /// That it is there.
    Here,
    /// It asks whether it may give way. `has_room`: whether nothing speaks against it as a member here.
    Yield { nonce: u64, has_room: bool },
    /// It promises to stay.
    Stay { nonce: u64 },
}

/// What a member does about another lineage.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Step {
    Nothing,
    /// It tells the other node where its own lineage is.
    Here,
    /// It asks whether it may give way.
    Yield {
        nonce: u64,
    },
    /// It promises to stay.
    Stay {
        nonce: u64,
    },
    /// It starts over, and joins the other lineage. `tell`: whether it tells the members of its own lineage.
    GiveWay {
        tell: bool,
    },
}

/// What a member has asked and promised.
#[derive(Debug, Default)]
pub(crate) struct Merging {
    /// The last question of this member, and when it asked.
    asked: Option<(u64, Time)>,
    /// Until when this member gives way to nobody.
    stays_until: Option<Time>,
    /// Policy `majority`: since when this node has met junior lineages while it heard no quorum, and when it
    /// last did.
    beside: Option<(Time, Time)>,
}

impl Merging {
    /// The members that this node hears could decide.
    pub(crate) fn hears_quorum(&mut self) {
        self.beside = None;
    }

    /// This node did not run for this long, by its own fault.
    pub(crate) fn missed(&mut self, missed: Duration) {
        if let Some((since, last)) = &mut self.beside {
            *since = *since + missed;
            *last = *last + missed;
        }
    }

    /// This member meets a node of another lineage.
    pub(crate) fn meet(
        &mut self,
        random: &mut Random,
        now: Time,
        side: &Side<'_>,
        other: &Standing,
        says: Says,
    ) -> Step {
        match says {
            Says::Yield { nonce, has_room } if gives_way(other, &side.standing) => {
                let unsure = !side.quorum || side.is_bound || side.wants_to_leave;
                if !has_room || unsure || self.waits(now, side) {
                    return Step::Nothing;
                }
                self.stays_until = Some(now + side.profile.suspect_after);
                Step::Stay { nonce }
            }
            Says::Here | Says::Yield { .. } => self.consider(random, now, side, other),
            Says::Stay { nonce } => {
                let asked = self.asked.is_some_and(|(asked, _)| asked == nonce);
                let counts = asked && self.waits(now, side) && !self.stays(now);
                if !counts || !self.yields_to(now, side, other) {
                    return Step::Nothing;
                }
                let tell = side.standing.primary;
                Step::GiveWay { tell }
            }
        }
    }

    fn consider(&mut self, random: &mut Random, now: Time, side: &Side<'_>, other: &Standing) -> Step {
        let primary = side.standing.primary;
        if planted!(BothGiveWay) && other.primary {
            return Step::GiveWay { tell: primary };
        }
        if !self.yields_to(now, side, other) {
            return if primary { Step::Here } else { Step::Nothing };
        }
        if side.wants_to_leave {
            return match primary || side.any {
                true => Step::Nothing,
                false => Step::GiveWay { tell: false },
            };
        }
        let pause = side.profile.heartbeat / 2;
        let lately = self.asked.is_some_and(|(_, at)| now.since(at) < pause);
        if self.stays(now) || lately {
            return Step::Nothing;
        }
        let nonce = random.next_u64();
        self.asked = Some((nonce, now));
        Step::Yield { nonce }
    }

    /// Whether this node would give way: together with its lineage, or by itself if it has no primary.
    fn yields_to(&mut self, now: Time, side: &Side<'_>, other: &Standing) -> bool {
        let mine = &side.standing;
        if mine.primary || side.any || planted!(GiveWayToLighter) || !gives_way(mine, other) {
            return gives_way(mine, other);
        }
        if seniority(mine, other) == Ordering::Less {
            return true;
        }
        // R11: an operator's word gives up the view that was shown to the operator, and what came before it.
        // If there is a later view, its members have gone on without the recovered node, and nobody told the
        // operator. They wait for each other.
        let given_up = other
            .overrides
            .is_some_and(|overridden| overridden.lineage == mine.lineage && overridden.view >= mine.view);
        !side.quorum && (given_up || self.has_waited(now, side.profile.unreachable_after))
    }

    /// This node met a junior lineage, and hears no quorum. Returns whether that has gone on for `patience`.
    fn has_waited(&mut self, now: Time, patience: Duration) -> bool {
        // The other lineage may ask seldom, and some questions may get lost.
        let goes_on = |(_, last): &(Time, Time)| now.since(*last) < patience * 2;
        let since = self.beside.filter(goes_on).map_or(now, |(since, _)| since);
        self.beside = Some((since, now));
        now.since(since) >= patience
    }

    fn stays(&self, now: Time) -> bool {
        self.stays_until.is_some_and(|until| now < until)
    }

    /// Whether an answer to this node's question would still count.
    fn waits(&self, now: Time, side: &Side<'_>) -> bool {
        let void = side.profile.suspect_after / 2;
        self.asked.is_some_and(|(_, at)| now.since(at) <= void)
    }
}

/// Whether the first lineage gives way to the second. A lineage without a primary has nothing to offer.
fn gives_way(one: &Standing, other: &Standing) -> bool {
    other.primary && (!one.primary || seniority(one, other) == Ordering::Less)
}

/// Which of two lineages gives way: `Less` is the junior.
fn seniority(one: &Standing, other: &Standing) -> Ordering {
    // Numbers begin with the time of founding. They rise with the counter, and by more where a view admits a
    // node that has seen a higher number.
    let ahead = |standing: &Standing| standing.number.saturating_sub(standing.view.counter);
    one.weight
        .cmp(&other.weight)
        .then(ahead(other).cmp(&ahead(one)))
        .then(other.lineage.cmp(&one.lineage))
}

#[cfg(test)]
mod tests {
    use antiphon_wire::{Lineage, ViewId};

    use super::*;

    fn standing(lineage: u128, weight: u32) -> Standing {
        Standing {
            lineage: Lineage(lineage),
            view: ViewId { epoch: 1, counter: 3 },
            number: 3,
            weight,
            primary: true,
            engine: 0,
            policy: 0,
            overrides: None,
        }
    }

    /// Weights change while messages are on their way, so each of two lineages may find the other one the
    /// heavier. Both would give way, to nobody.
    #[test]
    fn a_member_that_has_asked_promises_nothing_until_its_question_is_void() {
        let profile = Profile::lan();
        let side = Side {
            profile: &profile,
            standing: standing(1, 3),
            any: false,
            quorum: true,
            is_bound: false,
            wants_to_leave: false,
        };
        let (heavier, lighter) = (standing(2, 4), standing(2, 2));
        let (random, start) = (&mut Random::new([1, 2, 3, 4]), Time::from_micros(1));
        let mut merging = Merging::default();
        let asked = merging.meet(random, start, &side, &heavier, Says::Here);
        assert!(matches!(asked, Step::Yield { .. }), "{asked:?}");
        let asks = Says::Yield {
            nonce: 7,
            has_room: true,
        };
        let answer = merging.meet(random, start, &side, &lighter, asks);
        assert!(matches!(answer, Step::Nothing), "{answer:?}");
        let later = start + profile.suspect_after;
        let answer = merging.meet(random, later, &side, &lighter, asks);
        assert!(matches!(answer, Step::Stay { nonce: 7 }), "{answer:?}");
        let next = merging.meet(random, later, &side, &heavier, Says::Here);
        assert!(matches!(next, Step::Nothing), "it stays: {next:?}");
    }
}
