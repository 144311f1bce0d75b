//! Pulls: when a member that is behind asks others for the views that it lacks, and which questions of others
//! it answers.

use std::time::Duration;

use antiphon_wire::Incarnation;

use crate::Time;
use crate::membership::contacts::told::Told;

/// When this node asked for views, or was asked.
#[derive(Debug)]
pub(crate) struct Pulls {
    /// When this node may ask again.
    next: Time,
    /// When to ask a member that has a later view, unless this node has installed that view by then.
    later: Option<(Time, Incarnation)>,
    answered: Told,
}

impl Pulls {
    /// Nobody was asked, and nobody asked.
    pub(crate) fn new(now: Time) -> Self {
        Self {
            next: now,
            later: None,
            answered: Told::default(),
        }
    }

    /// A view was installed.
    pub(crate) fn install(&mut self) {
        self.later = None;
    }

    /// Whether this node may ask now; if so, it counts. It asks again after so long.
    pub(crate) fn may_ask(&mut self, now: Time, apart: Duration) -> bool {
        let due = now >= self.next;
        if due {
            self.next = now + apart;
        }
        due
    }

    /// This member is to be asked then, unless another one is to be asked already.
    pub(crate) fn ask_later(&mut self, at: Time, from: Incarnation) {
        self.later.get_or_insert((at, from));
    }

    /// The member that is to be asked by now.
    pub(crate) fn take_due(&mut self, now: Time) -> Option<Incarnation> {
        self.later.take_if(|(at, _)| *at <= now).map(|(_, from)| from)
    }

    /// When a member is to be asked.
    pub(crate) fn next_deadline(&self) -> Option<Time> {
        self.later.map(|(at, _)| at)
    }

    /// Whether this node is answered, because it was not answered for so long; if so, it counts.
    pub(crate) fn may_answer(&mut self, now: Time, to: Incarnation, apart: Duration) -> bool {
        self.answered.may_tell(now, to, apart)
    }
}
