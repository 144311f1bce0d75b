//! Which member began or ceased to suspect which.

use std::collections::{BTreeMap, BTreeSet};

use antiphon::{Examined, Incarnation};
use antiphon_api::{Event, Told};

use super::{Names, seated, suspicion};

/// The suspicions that a client was told of last.
#[derive(Debug, Default)]
pub(crate) struct Doubts {
    known: BTreeSet<(Incarnation, Incarnation)>,
}

impl Doubts {
    /// Which suspicions have come or gone since the last call.
    pub(crate) fn follow(&mut self, examined: &Examined, names: &Names) -> Vec<Told> {
        let doubts = seated(&examined.inspection).map_or(&[][..], |seated| &seated.doubts);
        let present: BTreeMap<_, _> = doubts
            .iter()
            .map(|doubt| ((doubt.accuser, doubt.accused), doubt))
            .collect();
        let cleared = self.known.iter().filter(|pair| !present.contains_key(pair));
        let cleared = cleared.map(|(accuser, accused)| Event::Cleared {
            accuser: names.name(*accuser),
            accused: names.name(*accused),
        });
        let new = present.iter().filter(|(pair, _)| !self.known.contains(pair));
        let new = new.map(|(_, doubt)| Event::Suspected(suspicion(doubt, names)));
        let told = cleared.chain(new).map(Told::now).collect();
        self.known = present.into_keys().collect();
        told
    }
}
