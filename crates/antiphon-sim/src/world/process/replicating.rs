//! An application that is a replica: the shipping `Replica` between the node and clients.
//!
//! ```text
//!  node ── events of the group ──► given ──► Replica ──► what it says ──► clients (see `clients`)
//!   ▲                              waits while the           │
//!   └── outbox ◄── send ───────────  application is          ├─► timer, on the process's clock
//!   └── tell   ◄─────────────────────  stalled               └─► leaves: joins again a while later
//! ```
//! What it sends carries a number behind its own bytes, so that no two messages are alike, as the checkers
//! of the group below want it.

mod clients;

use antiphon_core::wire::Level;
use antiphon_core::{MAX_PAYLOAD_BYTES, TellError};
use antiphon_replica::{
    Config as ReplicaConfig, Event as Said, Failure, Output as Wanted, Replica, Standing,
};

use self::clients::Clients;
use super::*;
use crate::agenda::{MILLIS, SECONDS};
use crate::machine::Store;
use crate::trace::Deed;

/// The last member with the state waits so long for a joiner.
const LEAVE_TIMEOUT: std::time::Duration = std::time::Duration::from_secs(3);
/// Two calls of a replica's timer are at least so long apart: what is due at once is due after this.
const BETWEEN_WAKES: Micros = 50;

/// A replica, and what is around it.
pub(in crate::world) struct Replicating {
    replica: Replica<Store>,
    me: Incarnation,
    /// What the group told the application, which has not taken it yet.
    given: VecDeque<Given>,
    standing: Standing,
    /// The application asked to leave.
    pub(in crate::world) leaves: bool,
    wakes_at: Micros,
    clients: Clients,
}

/// What the node tells a replica.
#[derive(Debug)]
pub(super) enum Given {
    View(Arc<GroupView>),
    Message(Incarnation, Bytes),
    Told(Incarnation, Bytes),
    Suspended,
    Resumed,
    Lease(bool),
    /// The state is void, and this is who it is from here on.
    Void(Incarnation, String),
}

impl World {
    /// Whether the members of this group are replicas.
    pub(crate) fn replicates(&self, group: GroupIndex) -> bool {
        self.plan.replicated.as_ref().is_some_and(|it| it.group == group)
    }

    /// The application joins the group: its replica begins.
    pub(super) fn begin_replica(&mut self, id: ProcessId, group: GroupIndex) {
        let Some(plan) = self.plan.replicated.as_ref().filter(|it| it.group == group) else {
            return;
        };
        let window = self.plan.groups[group].options.window_bytes as usize;
        let config = ReplicaConfig {
            held_bytes: plan.held_bytes,
            digest_every: plan.digest_every,
            found_anew: plan.found_anew,
            leave_timeout: LEAVE_TIMEOUT,
            max_requests: 32,
            max_command_bytes: window.min(MAX_PAYLOAD_BYTES) - 256,
            ..ReplicaConfig::default()
        };
        let names = self.states.clone();
        let me = self.processes[id].node.incarnation();
        self.note(id, Seen::Replica(group, Deed::Is(me)));
        let process = &mut self.processes[id];
        let mut replica = Replica::new(me, config, move || Store::new(&names));
        replica.lease(process.leased);
        process.replica = Some(Replicating {
            replica,
            me,
            given: VecDeque::new(),
            standing: Standing::Outside,
            leaves: false,
            wakes_at: Micros::MAX,
            clients: Clients::default(),
        });
    }

    /// The node tells the replica of this group something: it waits until the application takes it.
    pub(super) fn give(&mut self, id: ProcessId, group: GroupIndex, given: Given) {
        if self.replicates(group)
            && let Some(it) = &mut self.processes[id].replica
        {
            it.given.push_back(given);
        }
    }

    /// The same, to the replica of whatever group.
    pub(super) fn give_all(&mut self, id: ProcessId, given: Given) {
        if let Some(group) = self.plan.replicated.as_ref().map(|it| it.group) {
            self.give(id, group, given);
        }
    }

    /// The replica takes what it was given, and what it wants done is done. Whether there was anything.
    pub(super) fn replicate(&mut self, id: ProcessId) -> bool {
        let Some(group) = self.plan.replicated.as_ref().map(|it| it.group) else {
            return false;
        };
        let process = &mut self.processes[id];
        let Some(mut it) = process
            .replica
            .take_if(|_| process.ended.is_none() && !process.stalled)
        else {
            return false;
        };
        let now = process.clock.local(self.now);
        let mut any = false;
        let leased = process.leased;
        it.replica.set_time_of_day(UNIX_TIME_S * 1_000 + self.now / 1_000);
        while let Some(given) = it.next_given(leased) {
            any = true;
            let was = it.me;
            it.take(now, given);
            self.note_deeds(id, group, &mut it);
            if it.me != was {
                self.note(id, Seen::Replica(group, Deed::Is(it.me)));
            }
        }
        self.note_deeds(id, group, &mut it);
        let (held, limit) = (
            it.replica.held_bytes(),
            self.plan.replicated.as_ref().map_or(0, |it| it.held_bytes),
        );
        if held > limit {
            let what = format!("it holds {held} bytes, the limit is {limit}");
            self.note(id, Seen::Replica(group, Deed::Wrong(what)));
        }
        let (mut sent, mut reason) = (false, None);
        it.replica.outputs(now, |wanted| match wanted {
            Wanted::Send(payload) => {
                let taken = self.send_for_replica(id, group, &payload);
                sent |= taken;
                taken
            }
            Wanted::Tell { to, payload } => {
                let taken = self.tell_for_replica(id, group, to, &payload);
                any |= taken;
                taken
            }
            Wanted::Leave { reason: why } => {
                reason = Some(why);
                true
            }
        });
        self.note_deeds(id, group, &mut it);
        let process = &self.processes[id];
        if let Some(wanted) = it.replica.poll_timeout() {
            let at = process.clock.global(wanted).max(self.now + BETWEEN_WAKES);
            if at < it.wakes_at {
                it.wakes_at = at;
                self.agenda.add(at, Happening::Wake(id));
            }
        }
        let leaves = it.leaves;
        self.processes[id].replica = Some(it);
        if let Some(reason) = reason {
            any = true;
            self.note(id, Seen::Replica(group, Deed::Leaves(reason)));
            self.let_go(id, group);
            if !leaves {
                let back = self.now + 100 * MILLIS + self.random.below(2 * SECONDS);
                self.agenda.add(back, Happening::Rejoin(id, group));
            }
        } else if sent && self.random.percent(20) {
            let later = self.now + 1 + self.random.below(2 * MILLIS);
            self.agenda.add(later, Happening::Input(id, Input::Sends(group)));
        } else if sent {
            self.hand_over(id, group);
        }
        any || sent
    }

    /// The replica's timer.
    pub(in crate::world) fn wake(&mut self, id: ProcessId) {
        let process = &mut self.processes[id];
        let now = process.clock.local(self.now);
        let Some(it) = process
            .replica
            .as_mut()
            .filter(|it| it.wakes_at == self.now && process.ended.is_none())
        else {
            return;
        };
        it.wakes_at = Micros::MAX;
        // What waits is looked at again when the process runs.
        if process.gate == Gate::Paused || process.stalled {
            return;
        }
        it.replica.handle_timeout(now);
        self.drive(id);
    }

    /// The application leaves, when the state is safe with others.
    pub(super) fn leave_as_replica(&mut self, id: ProcessId, group: GroupIndex) -> bool {
        let replicates = self.replicates(group);
        let process = &mut self.processes[id];
        let now = process.clock.local(self.now);
        let there = process.uses.get(&group).is_some_and(|usage| !usage.left);
        let Some(it) = process.replica.as_mut().filter(|_| replicates && there) else {
            return false;
        };
        it.leaves = true;
        it.replica.leave(now);
        self.note(id, Seen::Replica(group, Deed::WantsToLeave));
        self.drive(id);
        true
    }

    fn send_for_replica(&mut self, id: ProcessId, group: GroupIndex, payload: &[u8]) -> bool {
        let usage = self.processes[id].uses.get(&group);
        if usage.is_none_or(|usage| usage.full || usage.left) {
            return false;
        }
        let safe = self.plan.replicated.as_ref().is_some_and(|it| it.safe);
        let level = if safe { Level::Safe } else { Level::Agreed };
        let payload = self.numbered(payload);
        self.offer(id, group, level, None, payload).is_ok()
    }

    fn tell_for_replica(
        &mut self,
        id: ProcessId,
        group: GroupIndex,
        to: Incarnation,
        payload: &[u8],
    ) -> bool {
        let payload = self.numbered(payload);
        let usage = self.processes[id].uses.get(&group);
        if usage.is_none_or(|usage| usage.untellable.contains(&to)) {
            return false;
        }
        match self.tell_member(id, group, to, &payload) {
            Ok(()) => true,
            Err(TellError::TooLarge { limit }) => {
                let what = format!("a replica tells {} bytes, the limit is {limit}", payload.len());
                self.note(id, Seen::Contract(what));
                true
            }
            Err(_) => false,
        }
    }

    /// These bytes, and a number that no other message has.
    fn numbered(&mut self, payload: &[u8]) -> Bytes {
        self.numbers += 1;
        [payload, &self.numbers.to_le_bytes()].concat().into()
    }

    /// What the replica says.
    fn note_deeds(&mut self, id: ProcessId, group: GroupIndex, it: &mut Replicating) {
        // It has the state before it says what it does with it, and until it has said all.
        if matches!(it.replica.standing(), Standing::CatchingUp | Standing::Serving) {
            self.note_standing(id, group, it);
        }
        while let Some(said) = it.replica.poll_event() {
            let deed = match said {
                Said::Written { request, outcome } => it.clients.written(request, outcome),
                Said::Readable { request, outcome } => {
                    let op = it.clients.readable(request);
                    Some(match (op, outcome) {
                        (None, _) => Deed::Wrong(format!("{request:?} was answered, and nobody asked")),
                        (Some(op), Err(failure)) => Deed::Unread { op, failure },
                        // The lease may be lost meanwhile: then it may not read.
                        (Some(op), Ok(())) => self.read_for_client(it, Some(op)).unwrap_or(Deed::Unread {
                            op,
                            failure: Failure::NotSent,
                        }),
                    })
                }
                Said::Machine { at, event } => {
                    it.clients.stepped(it.me, &event);
                    Some(Deed::Steps(at, Box::new(event)))
                }
                Said::Members { members } => Some(Deed::Members(members)),
                Said::Synced => {
                    self.count("replica_synced");
                    None
                }
                Said::Overrun { .. } => {
                    self.count("replica_overrun");
                    None
                }
                Said::StateLost => {
                    self.count("replica_lost");
                    None
                }
                Said::Progress { .. } => {
                    self.count("replica_progress");
                    None
                }
                Said::Void { .. } => {
                    it.clients.forget();
                    None
                }
                said @ (Said::Diverged { .. }
                | Said::RestoreFailed { .. }
                | Said::Refused { .. }
                | Said::Malformed { .. }) => Some(Deed::Wrong(format!("{said:?}"))),
            };
            if let Some(deed) = deed {
                self.note(id, Seen::Replica(group, deed));
            }
        }
        self.note_standing(id, group, it);
    }

    fn note_standing(&mut self, id: ProcessId, group: GroupIndex, it: &mut Replicating) {
        let standing = it.replica.standing();
        if standing != it.standing {
            it.standing = standing;
            if standing == Standing::Gone {
                it.clients.forget();
            }
            self.note(id, Seen::Replica(group, Deed::Stands(standing)));
        }
    }

    /// At rest: what is not as it should be at a replica, if anything is. All that are in the group have the
    /// state, or none does and they say so; no request waits, and nothing is held.
    pub(crate) fn unsettled_replica(&self) -> Option<String> {
        let group = self.plan.replicated.as_ref()?.group;
        let slots = self.live_slots().into_iter();
        let wanting = slots.filter(|slot| self.wants_group(*slot, group));
        let replicas: Vec<(Slot, &Replicating)> = wanting
            .filter_map(|slot| Some((slot, self.processes[self.process_at(slot)?].replica.as_ref()?)))
            .collect();
        let all = |standing| replicas.iter().all(|(_, it)| it.standing == standing);
        let lost = all(Standing::Lost) && !self.plan.replicated.as_ref()?.found_anew;
        if !all(Standing::Serving) && !lost {
            let standings: Vec<_> = replicas.iter().map(|(slot, it)| (*slot, it.standing)).collect();
            return Some(format!("replicas do not come to serve: {standings:?}"));
        }
        let mut busy = replicas.iter().filter(|(_, it)| {
            it.clients.waiting() > 0 || it.replica.held_bytes() > 0 || !it.given.is_empty()
        });
        let (slot, it) = busy.next()?;
        Some(format!(
            "the replica of n{slot} at rest has {} requests without an answer, holds {} bytes",
            it.clients.waiting(),
            it.replica.held_bytes()
        ))
    }
}

impl Replicating {
    /// What the application takes next. Without the lease it gets nothing that only a member may have, as
    /// with the library's handles: what waits is dropped when the node turns out to be removed.
    fn next_given(&mut self, leased: bool) -> Option<Given> {
        if leased {
            return self.given.pop_front();
        }
        let for_members =
            |given: &Given| matches!(given, Given::View(_) | Given::Message(..) | Given::Told(..));
        let next = self.given.iter().position(|given| !for_members(given))?;
        if let Given::Void(..) = self.given[next] {
            self.given.drain(..next);
            return self.given.pop_front();
        }
        self.given.remove(next)
    }

    fn take(&mut self, now: antiphon_core::Time, given: Given) {
        let bare = |bytes: Bytes| bytes.slice(..bytes.len().saturating_sub(8));
        match given {
            Given::View(view) => self.replica.handle_view(now, &view),
            Given::Message(sender, bytes) => self.replica.handle_message(now, sender, &bare(bytes)),
            Given::Told(from, bytes) => self.replica.handle_told(now, from, &bare(bytes)),
            Given::Suspended => self.replica.handle_suspended(),
            Given::Resumed => self.replica.handle_resumed(),
            Given::Lease(held) => self.replica.lease(held),
            Given::Void(me, cause) => {
                self.me = me;
                self.replica.handle_resync(me, &cause);
            }
        }
    }
}
