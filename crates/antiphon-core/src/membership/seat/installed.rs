//! What a member knows of the installed view. It lives as long as that view, and the next view replaces it
//! whole.

use std::sync::Arc;

use antiphon_wire::membership::Change;
use antiphon_wire::{Incarnation, NodeView};

use crate::Time;
use crate::membership::agree::engine::Engine;
use crate::membership::agree::interface::Votes;
use crate::membership::change::leaving::Leaving;
use crate::membership::contacts::told::Told;
use crate::membership::context::Context;
use crate::membership::lease::Around;
use crate::membership::monitor::reconnect::Reconnect;
use crate::membership::monitor::rings::Rings;
use crate::membership::monitor::topology::{Topology, are_named, rings_of};
use crate::membership::monitor::weighing::Weighing;
use crate::membership::partition::nonprimary::Nonprimary;
use crate::membership::seat::standstill::Standstill;
use crate::membership::view::check;

/// The last primary view installed, and all that is about this view alone.
#[derive(Debug)]
pub(crate) struct Installed {
    pub(crate) view: Arc<NodeView>,
    pub(crate) rings: Arc<Rings>,
    pub(crate) topology: Topology,
    /// Whether votes name what changes in the view.
    pub(crate) named: bool,
    pub(crate) engine: Engine,
    pub(crate) nonprimary: Nonprimary,
    /// Whether the members that this node does not doubt could decide the next view, as of the last time that
    /// this was weighed.
    pub(crate) quorum: bool,
    pub(crate) standstill: Standstill,
    /// The leader as of the last time that this node weighed everything.
    pub(crate) leader: Option<Incarnation>,
    pub(crate) weighing: Weighing,
    pub(crate) reconnect: Reconnect,
    pub(crate) told: Told,
}

impl Installed {
    /// What a member begins its first view with.
    pub(crate) fn first(cx: &Context, now: Time, view: Arc<NodeView>) -> Self {
        Self::of(cx, now, view, None)
    }

    /// Begins the next view. What is known of members goes on; what is known of the slot does not.
    pub(crate) fn replace(&mut self, cx: &Context, now: Time, view: Arc<NodeView>, base: Option<Change>) {
        let next = Self::of(cx, now, view, base);
        let before = std::mem::replace(self, next);
        if self.view.members == before.view.members {
            self.reconnect = before.reconnect.renewed();
        }
        self.engine.follow(before.engine);
    }

    /// What the lease is to know of this view, at a member that leaves or does not.
    pub(crate) fn around_lease(&self, leaving: &Leaving) -> Around<'_> {
        Around {
            engine: &self.engine,
            primary: self.nonprimary.view().is_none(),
            departing: leaving.is_departing(),
        }
    }

    fn of(cx: &Context, now: Time, view: Arc<NodeView>, base: Option<Change>) -> Self {
        let (config, me) = (&cx.config, cx.me);
        let rings = rings_of(config, &view);
        let named = are_named(config, &view, &rings);
        let votes = if named {
            Votes::Named(base.filter(check::change_fits))
        } else {
            Votes::Whole
        };
        let topology = Topology::of(me, now, &view, &rings, config.profile.batch, cx.detector.lag());
        Self {
            reconnect: Reconnect::of(config, me, &view, !topology.hears_all()),
            weighing: Weighing::new(topology.weighs_every(config.profile.batch)),
            engine: Engine::new(
                config.engine,
                me,
                view.clone(),
                (rings.clone(), &topology),
                votes,
                &config.profile,
            ),
            topology,
            named,
            nonprimary: Nonprimary::default(),
            quorum: true,
            standstill: Standstill::default(),
            leader: None,
            told: Told::default(),
            view,
            rings,
        }
    }
}
