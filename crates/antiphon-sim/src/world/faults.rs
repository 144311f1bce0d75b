//! Performs the steps of a plan, and takes all faults back for the liveness phase.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use antiphon_core::wire::frame::MAX_FRAME_BYTES;
use antiphon_core::{Hints, Sources, Time};
use bytes::Bytes;

use super::process::Input;
use super::{Door, Happening, World, addr_of};
use crate::agenda::Micros;
use crate::plan::{Action, HARDLY_A_PATH_PPM, Network, Probes, Step, Who};
use crate::trace::{Ending, ProcessId, Seen, Slot};

impl World {
    /// Performs one action now. Returns whether it did anything.
    pub fn act(&mut self, action: &Action) -> bool {
        let done = self.try_act(action);
        if done {
            self.count(action.kind());
        }
        done
    }

    fn try_act(&mut self, action: &Action) -> bool {
        let slots = self.hosts.len();
        match action {
            Action::Start(slot) => *slot < slots && self.start(*slot, false).is_some(),
            Action::Crash(who) => self.with(*who, action, |world, id| world.end(id, Ending::Killed)),
            Action::CrashAtOutput(who, count) => {
                self.with(*who, action, |world, id| world.doom_at_output(id, *count))
            }
            Action::CrashAfterView(who, count) => {
                self.with(*who, action, |world, id| world.doom_after_view(id, *count))
            }
            Action::PowerOff(who) => self.with(*who, action, |world, id| {
                let slot = world.processes[id].slot;
                world.hosts[slot].powered = false;
                world.end(id, Ending::PowerLost);
            }),
            Action::Leave(who) => self.with(*who, action, |world, id| world.leave(id)),
            Action::LeaveGroup(who, group) => {
                self.with(*who, action, |world, id| world.leave_group(id, *group))
            }
            Action::JoinGroup(who, group) => {
                *group < self.plan.groups.len()
                    && self.with(*who, action, |world, id| world.join_group(id, *group))
            }
            Action::Pause(who, length) => self.with(*who, action, |world, id| {
                world.disturb(world.processes[id].slot, *length, true);
                world.pause(id, *length);
            }),
            Action::Slow(who, cost, length) => self.with(*who, action, |world, id| {
                world.disturb(world.processes[id].slot, *length, false);
                world.slow(id, *cost, *length);
            }),
            Action::Stall(who, length) => self.with(*who, action, |world, id| world.stall(id, *length)),
            Action::Recover(who) => self.with(*who, action, |world, id| world.accept(id, Input::Recover)),
            Action::Tell(slot, whom) => {
                self.fault_note(action);
                let known = *slot < self.told.len();
                if known {
                    self.tell(*slot, whom.clone());
                }
                known
            }
            Action::StartLocator(index, with_state) => {
                self.fault_note(action);
                self.start_locator(*index, *with_state)
            }
            Action::EndLocator(index, power) => {
                self.fault_note(action);
                self.end_locator(*index, *power)
            }
            Action::Partition(sides) => {
                self.fault_note(action);
                for (i, one) in sides.iter().enumerate() {
                    for other in &sides[i + 1..] {
                        one.iter()
                            .for_each(|a| other.iter().for_each(|b| self.cut(*a, *b, false)));
                    }
                }
                true
            }
            Action::OneWay(from, to) => {
                self.fault_note(action);
                from.iter()
                    .for_each(|a| to.iter().for_each(|b| self.block(*a, *b, false)));
                true
            }
            Action::Lossy(from, to, ppm) => {
                self.fault_note(action);
                for (a, b) in from.iter().flat_map(|a| to.iter().map(move |b| (*a, *b))) {
                    for door in self.doors(b) {
                        self.path_mut(a, door).loss_ppm = *ppm;
                    }
                    self.note_path(a, b);
                }
                true
            }
            Action::Probes(from, to, probes) => {
                self.fault_note(action);
                for (a, b) in from.iter().flat_map(|a| to.iter().map(move |b| (*a, *b))) {
                    for door in self.doors(b) {
                        self.path_mut(a, door).probes = *probes;
                    }
                }
                true
            }
            Action::CutPair(a, b) => {
                self.fault_note(action);
                self.cut(*a, *b, false);
                true
            }
            Action::Reject(a, b) => {
                self.fault_note(action);
                self.cut(*a, *b, true);
                self.reset_streams_between(*a, *b, None);
                self.reset_lifelines_between(*a, *b, None);
                true
            }
            Action::CutLink(from, to, link) => {
                self.fault_note(action);
                for from in from {
                    to.iter().for_each(|to| self.block_link(*from, *to, *link, false));
                }
                true
            }
            Action::RejectLink(a, b, link) => {
                self.fault_note(action);
                self.block_link(*a, *b, *link, true);
                self.block_link(*b, *a, *link, true);
                self.reset_streams_between(*a, *b, Some(*link));
                self.reset_lifelines_between(*a, *b, Some(*link));
                true
            }
            Action::FlapLink(a, b, link, period, length) => {
                self.fault_note(action);
                let (until, calm) = (self.now + length, self.calm);
                self.flap((*a, *b, Some(*link)), *period, until, true, calm);
                true
            }
            Action::Deafen(from, to, deaf) => {
                self.fault_note(action);
                if *deaf {
                    self.deaf.insert((*from, *to))
                } else {
                    self.deaf.remove(&(*from, *to))
                }
            }
            Action::Isolate(who) => {
                let Some(slot) = self.resolve(*who) else {
                    return false;
                };
                self.fault_note(action);
                (0..slots).for_each(|other| self.cut(slot, other, false));
                true
            }
            Action::Heal => {
                self.fault_note(action);
                self.heal();
                true
            }
            Action::Clog(from, to, length) => {
                self.fault_note(action);
                let until = self.now + length;
                self.disturb(*from, *length, false);
                self.disturb(*to, *length, false);
                for door in self.doors(*to) {
                    self.path_mut(*from, door).clogged_until = until;
                }
                true
            }
            Action::Flap(a, b, period, length) => {
                self.fault_note(action);
                let (until, calm) = (self.now + length, self.calm);
                self.flap((*a, *b, None), *period, until, true, calm);
                true
            }
            Action::ResetStreams(a, b) => {
                self.fault_note(action);
                self.reset_streams_between(*a, *b, None);
                true
            }
            Action::ResetLifelines(a, b) => {
                self.fault_note(action);
                self.reset_lifelines_between(*a, *b, None);
                true
            }
            Action::ProxyEnds(a, b) => {
                self.fault_note(action);
                self.proxies_end(*a, *b)
            }
            Action::Garbage(who, count) => {
                let Some(slot) = self.resolve(*who) else {
                    return false;
                };
                self.fault_note(action);
                (0..*count).for_each(|_| self.throw_garbage(slot));
                true
            }
            Action::Astray(who, length) => {
                let Some(slot) = self.resolve(*who) else {
                    return false;
                };
                self.fault_note(action);
                self.astray = Some((slot, self.now + length));
                true
            }
            Action::Foreign(slot, length) => match self.start(*slot, true) {
                Some(id) => {
                    self.agenda.add(self.now + length, Happening::EndForeign(id));
                    true
                }
                None => false,
            },
            Action::Network(network) => {
                self.fault_note(action);
                self.network = (**network).clone();
                self.note(ProcessId::MAX, Seen::Rough(self.network.is_rough()));
                true
            }
        }
    }

    /// Does something to the live process that a step means.
    fn with(&mut self, who: Who, action: &Action, change: impl FnOnce(&mut Self, ProcessId)) -> bool {
        let Some(id) = self.resolve(who).and_then(|slot| self.process_at(slot)) else {
            return false;
        };
        self.note(id, Seen::Fault(format!("{action:?}")));
        change(self, id);
        true
    }

    /// The operator looks, and says yes.
    pub(super) fn recover(&mut self, id: ProcessId, now: Time) {
        let node = &mut self.processes[id].node;
        let shown = node.recovery(now);
        match shown.and_then(|shown| node.recover(now, &shown).map(|()| shown)) {
            Ok(shown) => self.note(id, Seen::Recovered(shown.lineage, shown.view)),
            Err(_) => self.count("recovery_refused"),
        }
    }

    fn tell(&mut self, slot: Slot, whom: Vec<Slot>) {
        self.told[slot] = whom;
        self.hint(slot);
    }

    /// The node at a slot hears now what it is told, when it comes to it.
    pub(super) fn hint(&mut self, slot: Slot) {
        if let (Some(id), Some(told)) = (self.process_at(slot), self.told.get(slot)) {
            let nodes = told.iter().copied().map(addr_of).collect();
            let locators = 0..self.locators.len();
            let locators = locators.map(|index| self.locator_addr(index)).collect();
            let whom = told.clone();
            self.note(ProcessId::MAX, Seen::Told { slot, whom });
            let sources = self.sources();
            let hints = Hints {
                nodes,
                locators,
                sources,
            };
            self.accept(id, Input::Hints(hints));
        }
    }

    /// Whether nodes are told of others by anything but locators that are written out.
    fn sources(&self) -> Sources {
        let tells = |step: &Step| matches!(step.action, Action::Tell(..));
        let told = self.told.iter().any(|whom| !whom.is_empty());
        match told || self.plan.steps.iter().any(tells) {
            true => Sources::Heard,
            false => Sources::None,
        }
    }

    fn fault_note(&mut self, action: &Action) {
        let text = format!("{action:?}");
        self.note(ProcessId::MAX, Seen::Fault(text));
    }

    fn disturb(&mut self, slot: Slot, length: Micros, stopped: bool) {
        let until = self.now + length;
        self.note(ProcessId::MAX, Seen::Disturbed { slot, until, stopped });
    }

    fn cut(&mut self, a: Slot, b: Slot, rejecting: bool) {
        if a != b {
            self.block(a, b, rejecting);
            self.block(b, a, rejecting);
        }
    }

    fn block(&mut self, from: Slot, to: Slot, rejecting: bool) {
        (0..self.plan.links).for_each(|link| self.block_link(from, to, link, rejecting));
    }

    fn block_link(&mut self, from: Slot, to: Slot, link: usize, rejecting: bool) {
        if from == to {
            return;
        }
        let (now, door) = (self.now, Door { slot: to, link });
        let path = self.path_mut(from, door);
        path.rejecting = rejecting;
        if path.blocked.is_none() {
            path.blocked = Some(now);
            self.note_path(from, to);
            self.watch_keepalives(from, door);
        }
    }

    /// Notes whether a member may count on a path, when anything of it has changed.
    fn note_path(&mut self, from: Slot, to: Slot) {
        let bad = |link| {
            let path = self.path(from, Door { slot: to, link });
            path.blocked.is_some() || path.loss_ppm >= HARDLY_A_PATH_PPM
        };
        let cut = (0..self.plan.links).any(bad);
        self.note(ProcessId::MAX, Seen::Cut { from, to, cut });
    }

    fn unblock(&mut self, from: Slot, to: Slot) {
        (0..self.plan.links).for_each(|link| self.unblock_link(from, to, link));
    }

    fn unblock_link(&mut self, from: Slot, to: Slot, link: usize) {
        let door = Door { slot: to, link };
        let path = self.path_mut(from, door);
        path.rejecting = false;
        path.clogged_until = 0;
        if let Some(since) = path.blocked.take() {
            let cut_for = self.now - since;
            self.note_path(from, to);
            self.unstall_streams(from, door);
            // Those of the other direction may wait for what answers them: the reset of a reader that is
            // gone.
            self.unstall_streams(to, door.facing(from));
            self.unstall_lifelines(from, door, cut_for);
        }
    }

    /// All paths work again.
    pub fn heal(&mut self) {
        for from in 0..self.hosts.len() {
            for to in 0..self.hosts.len() {
                self.unblock(from, to);
            }
        }
    }

    /// Cuts and heals a pair by turns, on one link or on all.
    pub(super) fn flap(
        &mut self,
        (a, b, link): (Slot, Slot, Option<usize>),
        period: Micros,
        until: Micros,
        cut: bool,
        calm: u32,
    ) {
        if calm != self.calm {
            return;
        }
        for link in link.map_or(0..self.plan.links, |link| link..link + 1) {
            for (from, to) in [(a, b), (b, a)] {
                if cut && self.now < until {
                    self.block_link(from, to, link, false);
                } else {
                    self.unblock_link(from, to, link);
                }
            }
        }
        if self.now < until {
            let at = self.now + period;
            self.agenda.add(
                at,
                Happening::Flap {
                    a,
                    b,
                    link,
                    period,
                    until,
                    cut: !cut,
                    calm,
                },
            );
        }
    }

    /// Takes back every fault that can be: paths, network, stopped and slow processes, stalled applications.
    pub fn take_back_faults(&mut self) {
        self.calm += 1;
        self.note(
            ProcessId::MAX,
            Seen::Fault("all faults are taken back".to_owned()),
        );
        self.network = Network {
            proxy_percent: self.network.proxy_percent,
            ..Network::default()
        };
        self.heal();
        let hosts = self.hosts.len();
        for (from, to) in (0..hosts).flat_map(|from| (0..hosts).map(move |to| (from, to))) {
            let mut lost = false;
            for door in self.doors(to) {
                let path = self.path_mut(from, door);
                lost |= std::mem::take(&mut path.loss_ppm) > 0;
                path.probes = Probes::AsFrames;
            }
            if lost {
                self.note_path(from, to);
            }
        }
        for index in 0..self.locators.len() {
            self.start_locator(index, false);
        }
        for slot in 0..self.told.len() {
            self.tell(slot, (0..self.plan.slots).collect());
        }
        for slot in 0..self.hosts.len() {
            let Some(id) = self.hosts[slot].process else {
                continue;
            };
            if self.processes[id].foreign {
                self.end(id, Ending::Killed);
            } else {
                // What was to last longer ends now.
                self.disturb(slot, 0, true);
                self.release(id);
            }
        }
    }

    /// One frame from outside the cluster: noise, a real frame with bytes changed, or a lying length. A copy
    /// of a frame goes where its sender did not send it.
    pub(super) fn let_stray(&mut self, from: Slot, to: Slot, frame: &Bytes) {
        let astray = self.astray.filter(|(_, until)| self.now < *until);
        let Some((at, _)) = astray.filter(|(at, _)| *at != from && *at != to) else {
            return;
        };
        let outside = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(192, 0, 2, 10)), 6_000);
        self.agenda.add(
            self.now + self.network.latency,
            Happening::Outside {
                to: at,
                from: outside,
                bytes: frame.clone(),
            },
        );
    }

    fn throw_garbage(&mut self, to: Slot) {
        let from = SocketAddr::new(
            IpAddr::V4(Ipv4Addr::new(192, 0, 2, self.random.range(1, 9) as u8)),
            6_000,
        );
        let mut bytes: Vec<u8> = match &self.recent {
            Some(frame) if self.random.percent(60) => frame.to_vec(),
            _ => {
                let length = self.random.index(MAX_FRAME_BYTES.min(1_500));
                (0..length).map(|_| self.random.next_u64() as u8).collect()
            }
        };
        for _ in 0..self.random.range(1, 6) {
            if bytes.is_empty() {
                break;
            }
            let at = self.random.index(bytes.len());
            bytes[at] = *self.random.pick(&[0, 1, 0x7f, 0x80, 0xff]);
        }
        let at = self.now + self.random.below(50_000);
        self.agenda.add(
            at,
            Happening::Outside {
                to,
                from,
                bytes: Bytes::from(bytes),
            },
        );
    }
}
