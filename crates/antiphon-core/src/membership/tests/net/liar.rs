//! A host that lies: of what it says, one message in four was changed.

use std::sync::Arc;

use antiphon_wire::NodeView;

use super::super::super::Effect;
use super::super::super::testing::twisted;
use super::super::succession::check_succession;
use super::Net;

impl Net {
    /// What a host says, as it leaves it.
    pub(super) fn as_said(&mut self, node: usize, effect: Effect) -> Effect {
        let Some((_, random)) = self.liar.as_mut().filter(|(liar, _)| *liar == node) else {
            return effect;
        };
        if random.below(4) > 0 {
            return effect;
        }
        match effect {
            Effect::Send { to, message } => Effect::Send {
                to,
                message: twisted(random, message),
            },
            Effect::Discovery { to, message } => Effect::Discovery {
                to,
                message: twisted(random, message),
            },
            Effect::Heartbeat { to, heartbeat } => Effect::Heartbeat {
                to,
                heartbeat: twisted(random, heartbeat),
            },
            Effect::Pulse { to, pulse } => Effect::Pulse {
                to,
                pulse: twisted(random, pulse),
            },
            effect => effect,
        }
    }

    /// Where nobody lies, views follow one another, and each id has one.
    pub(super) fn check_view(&mut self, node: usize, view: &Arc<NodeView>) {
        if self.liar.is_some() {
            return;
        }
        let views = &self.host(node).views;
        check_succession(views.iter().rev().find(|view| view.is_primary()), view);
        if view.is_primary() {
            let id = (view.lineage, view.primary_id());
            let known = self.primaries.entry(id).or_insert(view.clone());
            assert_eq!(known, view, "one view under one id");
        }
    }
}
