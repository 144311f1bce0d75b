//! An application that is a replica: the shipping `Replica` between the node and clients.
//!
//! ```text
//!  node ── events of the group ──► unread ──► Replica ──► what it says ──► clients (see `clients`)
//!   ▲                              waits while the           │
//!   └── outbox ◄── send ───────────  application is          ├─► timer, on the process's clock
//!   └── tell   ◄─────────────────────  stalled               └─► leaves: joins again a while later
//! ```

mod clients;
mod disk;

use antiphon_core::MAX_PAYLOAD_BYTES;
use antiphon_core::wire::Level;
use antiphon_replica::{
    Config as ReplicaConfig, Event as Said, Failure, Output as Wanted, Pieces, Replica, Standing,
};

use self::clients::Clients;
use self::disk::Disk;
use super::driven::{BETWEEN_WAKES, Unread, bare};
use super::*;
use crate::agenda::{MILLIS, SECONDS};
use crate::machine::{Parts, Store};
use crate::trace::Deed;

/// The last member with the state waits so long for a joiner.
const LEAVE_TIMEOUT: std::time::Duration = std::time::Duration::from_secs(3);

/// Bytes of a state that may be under way to one joiner. A source begins with an eighth, so that states of
/// runs take several chunks.
const TRANSFER_BYTES: usize = 128_000;

/// A replica, and what is around it.
pub(in crate::world) struct Replicating {
    pub(super) replica: Replica<Store>,
    me: Incarnation,
    pub(super) unread: Unread,
    standing: Standing,
    /// The application asked to leave.
    pub(in crate::world) leaves: bool,
    pub(super) wakes_at: Micros,
    clients: Clients,
    disk: Disk,
    /// What another thread reads of the state for a joiner, and when it is done.
    reading: Option<(Micros, Pieces<Parts>)>,
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
            spill_bytes: plan.spill_bytes,
            digest_every: plan.digest_every,
            found_anew: plan.found_anew,
            agreed: !plan.safe,
            leave_timeout: LEAVE_TIMEOUT,
            transfer_bytes: TRANSFER_BYTES,
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
            unread: Unread::default(),
            standing: Standing::Outside,
            leaves: false,
            wakes_at: Micros::MAX,
            clients: Clients::default(),
            disk: Disk::default(),
            reading: None,
        });
    }

    /// The replica takes what it was given, and its requests are carried out. Whether there was anything.
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
        while let Some(given) = it.unread.next(leased) {
            any = true;
            let was = it.me;
            it.take(now, given);
            self.note_deeds(id, group, &mut it);
            if it.me != was {
                self.note(id, Seen::Replica(group, Deed::Is(it.me)));
            }
        }
        any |= self.use_disk(id, group, &mut it, now);
        if let Some((_, pieces)) = it.reading.take_if(|(due, _)| *due <= self.now) {
            any = true;
            it.replica.handle_read(pieces);
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
        let safe = self.plan.replicated.as_ref().is_some_and(|it| it.safe);
        let level = if safe { Level::Safe } else { Level::Agreed };
        let (mut sent, mut reason) = (false, None);
        it.replica.outputs(now, |wanted| match wanted {
            Wanted::Send(payload) => {
                let taken = self.send_driven(id, group, level, &payload).is_some();
                sent |= taken;
                taken
            }
            Wanted::Tell { to, payload } => {
                let taken = self.tell_driven(id, group, to, &payload).is_some();
                any |= taken;
                taken
            }
            Wanted::Leave { reason: why } => {
                reason = Some(why);
                true
            }
        });
        if it.reading.is_none()
            && let Some(reading) = it.replica.poll_reading()
        {
            let takes = self.plan.replicated.as_ref().map_or(0, |it| it.disk);
            let due = self.now + 1 + self.random.below(takes.max(1));
            it.reading = Some((due, reading.run()));
        }
        self.note_deeds(id, group, &mut it);
        let process = &self.processes[id];
        let wanted = it.replica.poll_timeout().map(|at| process.clock.global(at));
        let read = it.reading.as_ref().map(|(due, _)| *due);
        if let Some(wanted) = [wanted, it.disk.due(), read].into_iter().flatten().min() {
            let at = wanted.max(self.now + BETWEEN_WAKES);
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
        } else if sent {
            self.hand_over_driven(id, group);
        }
        any || sent
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
                Said::Machine { at, serving, event } => {
                    if event.renewed().next().is_some() {
                        self.count("replica_renewed");
                    }
                    it.clients.stepped(it.me, &event);
                    Some(Deed::Steps(at, serving, Box::new(event)))
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
                Said::SpillFailed { .. } if it.disk.has_failed() => {
                    self.count("replica_disk_failed");
                    None
                }
                said @ (Said::Diverged { .. }
                | Said::SourceFailed { .. }
                | Said::RestoreFailed { .. }
                | Said::SpillFailed { .. }
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
            it.clients.waiting() > 0 || it.replica.held_bytes() > 0 || !it.unread.is_empty()
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
    fn take(&mut self, now: antiphon_core::Time, given: Given) {
        match given {
            Given::View(view) => self.replica.handle_view(now, &view),
            Given::Message(sender, bytes) => self.replica.handle_message(now, sender, &bare(&bytes)),
            Given::Told(from, bytes) => self.replica.handle_told(now, from, &bare(&bytes)),
            Given::Suspended => self.replica.handle_suspended(),
            Given::Transitional(_) => {}
            Given::Resumed => self.replica.handle_resumed(),
            Given::Lease(held) => self.replica.lease(held),
            Given::Void(me, cause) => {
                self.me = me;
                self.replica.handle_resync(me, &cause);
            }
        }
    }
}
