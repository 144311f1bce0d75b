//! Of which members a member of a ring-monitored view has word, by what others say.

use crate::membership::monitor::rings::Rings;

/// What a member of a wide view knows of the others while some member doubts another.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Word {
    /// For each rank: whether there is word of the member, or would be but for lost members.
    pub(crate) of: Vec<bool>,
    /// Whether some member is heard by none of the members of which there is word. One path that does not
    /// work is not enough for that: if one observer of ten does not hear a member, the others do.
    pub(crate) misses: bool,
    /// From what that follows, if it follows from nothing else.
    pub(crate) basis: Option<Basis>,
}

/// From this and the view it follows, in most cases, of which members there is word.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Basis {
    /// Pairs of ranks: the first does not hear the second.
    pub(crate) down: Vec<(usize, usize)>,
    /// The ranks in the cut.
    pub(crate) lost: Vec<usize>,
    /// How many are proven dead: never fewer than before.
    pub(crate) proven: usize,
}

impl Word {
    /// Of which members the member of rank `me` has word.
    pub(crate) fn by(
        rings: &Rings,
        me: usize,
        basis: Basis,
        is_proven: impl Fn(usize) -> bool,
        could_decide: impl Fn(&[bool]) -> bool,
    ) -> Self {
        let members = rings.members().count();
        let hears = |by: usize, subject: usize| basis.down.binary_search(&(by, subject)).is_err();
        let mut lost = vec![false; members];
        for rank in &basis.lost {
            lost[*rank] = true;
        }
        let mut heard_of = vec![false; members];
        heard_of[me] = true;
        walk(rings, &mut heard_of, vec![me], hears);
        let misses = (0..members).any(|rank| !heard_of[rank] || is_proven(rank));
        if basis.down.iter().all(|(by, subject)| *by != me || lost[*subject]) {
            let is_heard = |rank: usize| {
                let mut observers = rings.observers(rank).iter().map(|by| usize::from(*by));
                observers.any(|by| !lost[by] && hears(by, rank))
            };
            let stays = |rank: usize| rank == me || !lost[rank] || is_heard(rank);
            return Word {
                of: (0..members).map(stays).collect(),
                misses,
                basis: Some(basis),
            };
        }
        loop {
            let mut ask = Vec::new();
            for rank in 0..members {
                let is_gone = |rank: usize| !heard_of[rank] && lost[rank];
                let mut observers = rings.observers(rank).iter();
                let excused = !heard_of[rank] && !lost[rank] && observers.all(|by| is_gone(usize::from(*by)));
                if excused {
                    heard_of[rank] = true;
                    ask.push(rank);
                }
            }
            if ask.is_empty() {
                break;
            }
            walk(rings, &mut heard_of, ask, hears);
        }
        if could_decide(&heard_of) {
            return Word {
                of: heard_of,
                misses,
                basis: None,
            };
        }
        let mut connected = vec![false; members];
        connected[me] = true;
        let mut tell = vec![me];
        while let Some(subject) = tell.pop() {
            for by in rings.observers(subject).iter().map(|by| usize::from(*by)) {
                if heard_of[by] && !connected[by] && hears(by, subject) {
                    connected[by] = true;
                    tell.push(by);
                }
            }
        }
        Word {
            of: connected,
            misses,
            basis: None,
        }
    }
}

/// Goes from these to all that they hear, to all that those hear, and so on.
fn walk(rings: &Rings, heard_of: &mut [bool], mut from: Vec<usize>, hears: impl Fn(usize, usize) -> bool) {
    while let Some(by) = from.pop() {
        for subject in rings.subjects(by) {
            if !heard_of[subject] && hears(by, subject) {
                heard_of[subject] = true;
                from.push(subject);
            }
        }
    }
}
