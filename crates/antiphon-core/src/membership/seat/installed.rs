//! What a member knows of the installed view. It lives as long as that view, and the next view replaces it
//! whole.

use std::collections::BTreeMap;
use std::sync::Arc;

use antiphon_wire::membership::{Ballot, Change};
use antiphon_wire::{Incarnation, NodeView};

use crate::Time;
use crate::membership::agree::engine::Engine;
use crate::membership::agree::interface::Votes;
use crate::membership::contacts::told::Told;
use crate::membership::context::Context;
use crate::membership::lease::rounds::{Inherited, Rounds};
use crate::membership::monitor::reconnect::Reconnect;
use crate::membership::monitor::rings::Rings;
use crate::membership::monitor::topology::{Topology, are_named, rings_of};
use crate::membership::partition::nonprimary::Nonprimary;
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
    /// What the lifelines show of this node's vote in the slot: the ballots promised and accepted last.
    pub(crate) shown: (Option<Ballot>, Option<Ballot>),
    pub(crate) nonprimary: Nonprimary,
    /// Whether the members that this node does not doubt could decide the next view, as of the last time that
    /// this was weighed.
    pub(crate) quorum: bool,
    /// Since when this node has been blocked by a view: it accepted the view, knows of no decision, and has
    /// heard less than a quorum of the view's members.
    pub(crate) blocked: Option<Time>,
    /// The leader as of the last time that this node weighed everything.
    pub(crate) leader: Option<Incarnation>,
    /// When this node last weighed everything, where that takes a while; and when it does so again.
    pub(crate) weighed: Time,
    pub(crate) weigh: Option<Time>,
    /// The rounds that renew leases, where members do not all answer each other.
    pub(crate) rounds: Option<Rounds>,
    pub(crate) reconnect: Reconnect,
    pub(crate) told: Told,
    /// Members that this node told again of deaths of which they had no proof, and when it last did.
    pub(crate) proven_again: BTreeMap<Incarnation, Time>,
    /// When to pull from a member that has a later view, unless this node has installed it by then.
    pub(crate) pull_at: Option<(Time, Incarnation)>,
}

impl Installed {
    /// What a member begins its first view with.
    pub(crate) fn first(cx: &Context, now: Time, view: Arc<NodeView>) -> Self {
        Self::of(cx, now, view, None, &Inherited::default())
    }

    /// Begins the next view. What is known of members goes on; what is known of the slot does not.
    pub(crate) fn replace(&mut self, cx: &Context, now: Time, view: Arc<NodeView>, base: Option<Change>) {
        let inherited = self.rounds.as_ref();
        let inherited = inherited.map_or_else(Inherited::default, |rounds| rounds.leaves_behind(&self.view));
        let next = Self::of(cx, now, view, base, &inherited);
        let before = std::mem::replace(self, next);
        if self.view.members == before.view.members {
            self.reconnect = before.reconnect.renewed();
        }
        self.engine.follow(before.engine);
    }

    fn of(cx: &Context, now: Time, view: Arc<NodeView>, base: Option<Change>, inherited: &Inherited) -> Self {
        let (config, me) = (&cx.config, cx.me);
        let rings = rings_of(config, &view);
        let named = are_named(config, &view, &rings);
        let topology = Topology::of(me, now, &view, &rings, config.profile.batch, cx.detector.lag());
        let votes = if named {
            Votes::Named(base.filter(check::change_fits))
        } else {
            Votes::Whole
        };
        Self {
            reconnect: Reconnect::of(config, me, &view, !topology.hears_all()),
            topology,
            named,
            engine: Engine::new(
                config.engine,
                me,
                view.clone(),
                rings.clone(),
                votes,
                &config.profile,
            ),
            shown: (None, None),
            nonprimary: Nonprimary::default(),
            quorum: true,
            blocked: None,
            leader: None,
            weighed: Time::ZERO,
            weigh: None,
            rounds: Rounds::of(config, me, now, &view, &rings, inherited),
            told: Told::default(),
            proven_again: BTreeMap::new(),
            pull_at: None,
            view,
            rings,
        }
    }
}
