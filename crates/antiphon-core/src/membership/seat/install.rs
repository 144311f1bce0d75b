//! A primary view is installed: what depends on the view is made anew, and its members are told what they
//! need.

use std::collections::BTreeSet;
use std::sync::Arc;

use antiphon_wire::membership::Change;
use antiphon_wire::{Evidence, Incarnation, NodeView, ViewId};

use crate::Time;
use crate::membership::agree::{lifelines, proofs};
use crate::membership::context::{Context, Past};
use crate::membership::effect::Effect;
use crate::membership::seat::Seat;
use crate::membership::seat::installed::Installed;
use crate::membership::view::check;

impl Seat {
    /// Installs a primary view of which this node is a member. `base`: how the view differs from the one
    /// before, if it follows that one.
    pub(crate) fn install(&mut self, cx: &mut Context, now: Time, view: Arc<NodeView>, base: Option<Change>) {
        let before = &self.installed;
        let follows = base.is_some();
        check::assert_goes_on(cx.me, &before.view, &view, follows);
        let gossiped = !before.topology.tells_all();
        self.installed.replace(cx, now, view, base);
        self.pulls.install();
        let Installed {
            view,
            rings,
            topology,
            ..
        } = &self.installed;
        self.lease
            .install(&cx.config, now, (view, rings), topology.leases_by_rounds());
        self.take_up(cx, now, follows, gossiped);
    }

    /// Takes up an installed view. It `follows` another view, in which this node `gossiped`, or begins a
    /// lineage here.
    pub(crate) fn take_up(&mut self, cx: &mut Context, now: Time, follows: bool, gossiped: bool) {
        let view = self.installed.view.clone();
        let rings = self.installed.rings.clone();
        self.reports.install(&view);
        cx.history.push(now, view.clone());
        let topology = &self.installed.topology;
        let is_near = |member: Incarnation| topology.is_neighbour(member);
        let members = || view.members.iter().map(|member| member.incarnation);
        let observed: Option<BTreeSet<Incarnation>> =
            (!topology.hears_all()).then(|| rings.subjects_in(&view, cx.me).collect());
        cx.detector.watch(now, members(), observed.as_ref());
        cx.past = Some(Past::of(&view, cx.past.as_ref()));
        if cx.any() {
            cx.left_behind.note(now, &view);
        }
        cx.remember_override(&view);
        for member in view.members.iter().filter(|member| is_near(member.incarnation)) {
            cx.know_peer(member.incarnation, member.addr);
        }
        let (joiners, leaving) = (&self.joiners, &self.leaving);
        let waiting: BTreeSet<Incarnation> = cx.withdrawn.waiting().collect();
        cx.keep_peers(|peer| {
            let stays = is_near(peer) && (!topology.tells_all() || view.contains(peer));
            stays || joiners.contains(peer) || leaving.waits_for(peer) || waiting.contains(&peer)
        });
        self.joiners.install(cx, now, &view, topology.tells_all());
        cx.effects.push_back(Effect::Installed(announced(&view)));
        let mut commands = Vec::new();
        let watchers = lifelines::watchers(&view, cx.me, &rings);
        cx.lifelines.follow(watchers, &mut commands);
        cx.lifeline_commands(commands);
        self.remember_leavers(cx, now);
        self.leave_last_vote(cx);
        if follows && gossiped {
            self.receive_joiners(cx, &view, &rings);
        }
        for dead in self.proofs.install(&view) {
            cx.detector.unprove(now, dead);
        }
        for (dead, vote) in self.proofs.all().clone() {
            // A node that watches the dead member only from now on did not doubt it before.
            cx.detector.accuse(now, dead, Evidence::ProofOfDeath);
            self.with_engine(cx, now, |engine, around| engine.certify(around, dead, &vote));
            // Not all members need have heard of the proof in the view before.
            let Installed { view, topology, .. } = &mut self.installed;
            proofs::spread(now, topology, view, dead, &vote);
        }
        if gossiped && !self.installed.topology.tells_all() {
            // Heartbeats say nothing there that rumours do not say. If all members sent one at once whenever
            // a member comes or goes, that would be most of the cost.
            self.opine(cx, now);
        } else {
            self.next_heartbeat = now;
        }
        self.hear_early(cx, now);
        let around = self.installed.around_lease(&self.leaving);
        cx.pulses(self.lease.hear_early(now, around));
    }
}

/// The view as the layers above see it.
fn announced(view: &Arc<NodeView>) -> Arc<NodeView> {
    if planted!(ReuseViewId) && !view.departed.is_empty() {
        // R5: an id is never used for two member lists.
        let mut reused = (**view).clone();
        let id = view.primary_id();
        let counter = id.counter.saturating_sub(1);
        reused.id = antiphon_wire::NodeViewId::Primary {
            id: ViewId {
                epoch: id.epoch,
                counter,
            },
        };
        return Arc::new(reused);
    }
    view.clone()
}
