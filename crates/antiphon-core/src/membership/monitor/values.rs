//! The views that votes of a wide view may be about. A vote names a view by its digest, and counts only once
//! that view is known.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use antiphon_wire::membership::{Ayes, Change};
use antiphon_wire::{NodeView, ViewDigest};

use crate::membership::monitor::ranks::Ranks;
use crate::membership::view::check;

/// Views that votes may be about; of more, the latest are kept.
const MAX_VALUES: usize = 256;
/// Votes about at most so many unknown views wait until these views are known.
const MAX_WAITING: usize = 256;

/// The views that may follow one view, as far as they are known.
#[derive(Debug, Default)]
pub(crate) struct Values {
    known: BTreeMap<ViewDigest, Arc<NodeView>>,
    /// These, in the order in which they became known.
    order: VecDeque<ViewDigest>,
    /// Votes about views that are not known yet.
    waiting: BTreeMap<Ayes, Ranks>,
}

impl Values {
    /// The view with this digest.
    pub(crate) fn get(&self, digest: ViewDigest) -> Option<&Arc<NodeView>> {
        self.known.get(&digest)
    }

    /// Notes a view that may follow the present one.
    pub(crate) fn learn(&mut self, value: Arc<NodeView>) -> ViewDigest {
        let digest = value.digest();
        if self.known.insert(digest, value).is_none() {
            self.order.push_back(digest);
        }
        if self.order.len() > MAX_VALUES
            && let Some(oldest) = self.order.pop_front()
        {
            self.known.remove(&oldest);
        }
        digest
    }

    /// Notes the view that a change of the present one makes; `None` if it cannot follow. Each view that is
    /// known by its digest was checked, here or by this node's own engine.
    pub(crate) fn learn_change(&mut self, present: &NodeView, change: Change) -> Option<Arc<NodeView>> {
        let value = Arc::new(check::apply(present, change)?);
        self.learn(value.clone());
        Some(value)
    }

    /// The votes that waited for views to become known.
    pub(crate) fn take_waiting(&mut self) -> BTreeMap<Ayes, Ranks> {
        std::mem::take(&mut self.waiting)
    }

    /// The view that these votes show as accepted, if they show one. `None` if that view is not known: the
    /// votes wait.
    pub(crate) fn accepted_by(&mut self, what: Ayes, by: &Ranks) -> Option<Option<Arc<NodeView>>> {
        let Ayes::Promise {
            accepted: Some(value),
            ..
        } = what
        else {
            return Some(None);
        };
        let known = self.known.get(&value).cloned();
        if known.is_none() && (self.waiting.len() < MAX_WAITING || self.waiting.contains_key(&what)) {
            self.waiting.entry(what).or_default().merge(by);
        }
        known.map(Some)
    }
}
