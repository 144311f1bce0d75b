//! What a flush wants done.

use std::collections::VecDeque;

use antiphon_wire::Incarnation;
use antiphon_wire::group::{Decision, GroupData, GroupMessage};

/// What a flush wants done, in order. The group does it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum FlushEffect {
    /// A control message, perhaps to this member itself.
    Send { to: Incarnation, message: GroupMessage },
    /// A question to a holder of the cut.
    Ask { to: Incarnation, question: GroupData },
    /// This joiner of the decision gets its first view.
    Welcome {
        joiner: Incarnation,
        decision: Box<Decision>,
    },
    /// This leader holds up the flush.
    Accuse(Incarnation),
    /// A peer sent something that cannot be right.
    Nonsense,
    /// The cut is here and may be delivered: deliver the rest of it and install the view, in one step. The
    /// last effect.
    Install(Box<Decision>),
    /// The group goes on without this member, for this cause. The last effect.
    StartOver(String),
}

/// Wishes that wait to be carried out.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct FlushEffects(VecDeque<FlushEffect>);

impl FlushEffects {
    pub(super) fn push(&mut self, effect: FlushEffect) {
        self.0.push_back(effect);
    }

    pub(super) fn send(&mut self, to: Incarnation, message: GroupMessage) {
        self.push(FlushEffect::Send { to, message });
    }

    pub(super) fn poll(&mut self) -> Option<FlushEffect> {
        self.0.pop_front()
    }
}
