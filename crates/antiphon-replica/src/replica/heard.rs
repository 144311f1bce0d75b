//! What a member without a state of its own has heard about those that have one.
//!
//! It hears all that changes since its first view, and nothing of what was before. That comes with the state:
//! its first chunk names those that had it at its point ([`Agreed`]). From then on this member knows exactly
//! which members have the state, long before it is one of them. Until then it says nothing.
//!
//! A member that diverged is one of those with the state until it says so itself ([`Word::Differs`]), and so
//! is a joiner that says `Synced` with what such a member gave: a comparison needs the state. A member that
//! left the group and joined again, also under the same incarnation, begins anew.

use std::collections::{BTreeMap, BTreeSet};

use antiphon_core::wire::Incarnation;

use super::agreed::Agreed;
use super::format::{Member, Point};
use super::held::ViewItem;

/// Members of which something is remembered after they left.
const MAX_GONE: usize = 64;

#[derive(Default)]
pub(super) struct Heard {
    /// Members that may serve: no serving member is missing. Exact at the most senior member.
    pub(super) serving: BTreeSet<Member>,
    /// Members of the view that have said that their state differs, and at which point.
    pub(super) differed: BTreeMap<Member, Point>,
    /// The last point at which it heard of any.
    pub(super) news: Point,
    /// It was said that none does.
    pub(super) lost: bool,
    /// This member has queued `Lost` or `Founded`.
    pub(super) said: bool,
    /// Where `Founded` was heard last; at first, where this member began to hear.
    pub(super) founded: Point,
    /// Which members had the state at a point, once this is known.
    known: Option<Known>,
    /// What was heard last of a member, and where: behind the point of `known`.
    words: BTreeMap<Member, (Point, Word)>,
    /// Where members joined last: behind the point of `known`.
    joined: BTreeMap<Member, Point>,
    /// There is something to tell.
    fresh: bool,
}

/// What was so at a point.
#[derive(Default)]
pub(super) struct Known {
    pub(super) point: Point,
    /// Where the state was founded.
    pub(super) founding: Point,
    /// Exactly those that had the state.
    pub(super) synced: BTreeSet<Member>,
    /// Members whose state had differed, and that did not join again since.
    pub(super) diverged: BTreeSet<Member>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Word {
    Gone,
    Joined,
    Has(Has),
    /// Said of its state up to this point.
    Differs(Point),
}

/// A member has the state, from this source and of this point.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Has {
    source: Member,
    of: Point,
    /// Where the member had joined when it said so, and where its source had, if that was heard.
    joined: Option<Point>,
    source_joined: Option<Point>,
}

impl From<&Agreed> for Known {
    fn from(agreed: &Agreed) -> Self {
        Self {
            point: agreed.point,
            founding: agreed.founding,
            synced: agreed.serving.clone(),
            diverged: agreed.diverged.iter().copied().collect(),
        }
    }
}

impl Known {
    /// This member founded the state here.
    pub(super) fn founded(founder: Member, point: Point) -> Self {
        Self {
            point,
            founding: point,
            synced: BTreeSet::from([founder]),
            diverged: BTreeSet::new(),
        }
    }

    /// Whether a word from behind this point counts, by the rule of [`Agreed::synced`].
    fn counts(&self, member: Member, has: Has) -> bool {
        // If it joined since, it had nothing of its former state any more.
        let differed = |member: Member, joined: Option<Point>| {
            self.diverged.contains(&member) && joined.is_none_or(|at| at <= self.point)
        };
        has.of >= self.founding && !differed(member, has.joined) && !differed(has.source, has.source_joined)
    }
}

impl Heard {
    pub(super) fn new(serving: BTreeSet<Member>, news: Point, known: Option<Known>) -> Self {
        Self {
            serving,
            news,
            founded: news,
            fresh: known.is_some(),
            known,
            ..Self::default()
        }
    }

    /// R19: this state differs from the others', as the member itself has said since.
    pub(super) fn is_void(&self, source: Member, point: Point) -> bool {
        self.differed.get(&source).is_some_and(|said| point <= *said)
    }

    /// Whether it is known which members had the state at this point, or at a later one.
    pub(super) fn is_known_at(&self, point: Point) -> bool {
        self.known.as_ref().is_some_and(|known| known.point >= point)
    }

    /// Whether the state was founded after this point: what a member said there is of a state before. None:
    /// this is not known.
    pub(super) fn is_founded_after(&self, point: Point) -> Option<bool> {
        self.known.as_ref().map(|known| point < known.founding)
    }

    /// What was heard up to that point is part of it. The stream must have come so far here.
    pub(super) fn know(&mut self, mut known: Known) {
        self.words.retain(|member, (at, word)| {
            let counts = match *word {
                Word::Has(has) => known.counts(*member, has),
                Word::Differs(said) => said >= known.founding,
                Word::Gone | Word::Joined => true,
            };
            *at > known.point && counts
        });
        self.joined.retain(|_, at| *at > known.point);
        known.diverged.retain(|member| !self.joined.contains_key(member));
        self.known = Some(known);
        self.fresh = true;
    }

    pub(super) fn hear_view(&mut self, at: Point, view: &ViewItem) {
        for member in &view.gone {
            // What it gave before counts for nothing yet.
            if !self.differs(*member, Point::default()) {
                self.words.insert(*member, (at, Word::Gone));
            }
        }
        for member in &view.joined {
            self.words.insert(*member, (at, Word::Joined));
            self.joined.insert(*member, at);
            if let Some(known) = &mut self.known {
                known.diverged.remove(member);
            }
        }
        let most = view.members.len() + MAX_GONE;
        if self.words.len() > most {
            self.words.retain(|member, _| view.members.contains(member));
        }
        if self.joined.len() > most {
            self.joined.retain(|member, _| view.members.contains(member));
        }
        self.fresh = true;
    }

    pub(super) fn hear_synced(&mut self, at: Point, member: Member, source: Member, of: Point) {
        let before = self.is_founded_after(of) == Some(true);
        if !before && !self.differs(member, of) && !self.differs(source, of) {
            let has = Has {
                source,
                of,
                joined: self.joined.get(&member).copied(),
                source_joined: self.joined.get(&source).copied(),
            };
            self.words.insert(member, (at, Word::Has(has)));
            self.fresh = true;
        }
    }

    pub(super) fn hear_differs(&mut self, at: Point, member: Member, said: Point) {
        self.words.insert(member, (at, Word::Differs(said)));
        self.fresh = true;
    }

    /// No member has the state here.
    pub(super) fn hear_lost(&mut self, at: Point) {
        self.words.retain(|_, (_, word)| !matches!(word, Word::Has(_)));
        let known = self.known.get_or_insert_default();
        known.point = at;
        known.synced.clear();
        self.fresh = true;
    }

    /// The state is founded anew here, if no member has it. Where this is not known the new state will tell:
    /// its point is not before this one.
    pub(super) fn hear_founded(&mut self, at: Point, founder: Member, view: &[Member]) {
        self.founded = at;
        let none = self.known.is_some() && !view.iter().any(|member| self.has_state(*member));
        if self.serving.is_empty() || none {
            self.know(Known::founded(founder, at));
        }
    }

    /// The members of this view and whether each has the state, if that is known and not told yet.
    pub(super) fn members(&mut self, view: &[Member]) -> Option<Vec<(Incarnation, bool)>> {
        if self.known.is_none() || !std::mem::take(&mut self.fresh) {
            return None;
        }
        let members = view
            .iter()
            .map(|member| ((*member).into(), self.has_state(*member)));
        Some(members.collect())
    }

    fn has_state(&self, member: Member) -> bool {
        match self.words.get(&member) {
            Some((_, word)) => matches!(word, Word::Has(_)),
            None => self
                .known
                .as_ref()
                .is_some_and(|known| known.synced.contains(&member)),
        }
    }

    /// Whether its state of this point differed, and it did not join anew since. One of a later point than it
    /// said is of a state that was founded anew.
    fn differs(&self, member: Member, of: Point) -> bool {
        match self.words.get(&member) {
            Some((_, Word::Differs(said))) => of <= *said,
            Some((_, Word::Joined | Word::Has(_))) => false,
            Some((_, Word::Gone)) | None => self
                .known
                .as_ref()
                .is_some_and(|known| known.diverged.contains(&member)),
        }
    }
}
