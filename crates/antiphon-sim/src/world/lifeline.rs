//! Lifelines as two kernels keep them (R9, R25).
//!
//! ```text
//!   writer (watched) ──dial──► reader (watches)
//!   Dialling ─ refused, timed out ─► Failed at the writer
//!      └► Open ─ record that does not fit, Reset ─► RST ─► Ended(Broken)
//!           ├─ the writer's process ends ─► every byte written so far, then FIN ─► Ended(Fin)
//!           ├─ the reader's process ends ─► Failed at the writer
//!           └─ cut: all of that waits for the heal; keepalive ─► Broken here, Failed there
//! ```
//! A reset that meets a cut is lost: the reader is half open until its keepalive. A host without power never
//! sends anything. A proxy in between shows the reader another address than the writer has, and may end one
//! side alone.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::SocketAddr;

use antiphon_core::wire::Incarnation;
use antiphon_core::{DialId, LifelineCommand, LifelineEnd, LifelineEvent};
use bytes::Bytes;

use super::process::Input;
use super::{Door, Happening, World, addr_on, door_of};
use crate::agenda::{Micros, SECONDS};
use crate::trace::{Ending, ProcessId, Seen, Slot};

#[derive(Debug, Default)]
pub(super) struct Lifelines {
    next_id: u64,
    all: BTreeMap<u64, Lifeline>,
    /// Lifelines that the writer can still write to.
    index: BTreeMap<(ProcessId, DialId), u64>,
    /// Pairs of a member that died and a member that was told so, by the end of a lifeline that nothing in
    /// between could have ended.
    told: BTreeSet<(Incarnation, Incarnation)>,
}

#[derive(Debug)]
struct Lifeline {
    writer: ProcessId,
    writer_slot: Slot,
    dial: DialId,
    watcher: Incarnation,
    door: Door,
    reader: Option<ProcessId>,
    /// The reader's end, as it sees it.
    seen_remote: SocketAddr,
    proxied: bool,
    queue: VecDeque<(Micros, Item)>,
    bytes: usize,
    last_arrival: Micros,
    scheduled: bool,
    announced: bool,
    /// The writer closed its end or is gone: nothing more is written.
    closed: bool,
}

#[derive(Debug)]
enum Item {
    Record(Bytes),
    Fin,
    Reset,
}

impl World {
    pub(super) fn lifeline_command(&mut self, writer: ProcessId, command: LifelineCommand) {
        match command {
            LifelineCommand::Open { dial, to, addr } => self.lifeline_open(writer, dial, to, addr),
            LifelineCommand::Write { dial, record } => self.lifeline_write(writer, dial, record),
            LifelineCommand::Reset { dial } => {
                if let Some(id) = self.lifelines.index.remove(&(writer, dial)) {
                    self.lifeline_reset(id);
                }
            }
        }
    }

    fn lifeline_open(&mut self, writer: ProcessId, dial: DialId, to: Incarnation, addr: SocketAddr) {
        let mut own = self
            .lifelines
            .index
            .range((writer, DialId(0))..=(writer, DialId(u64::MAX)));
        if own.any(|((_, other), id)| *other >= dial || self.lifelines.all[id].watcher == to) {
            self.note(
                writer,
                Seen::Contract(format!(
                    "a second lifeline to {to} was opened beside the first, or a dial number used twice"
                )),
            );
        }
        let writer_slot = self.processes[writer].slot;
        let Some(door) = door_of(addr, &self.plan) else {
            let event = LifelineEvent::Failed { dial };
            self.agenda.add(
                self.now + SECONDS,
                Happening::Input(writer, Input::Lifeline(event)),
            );
            return;
        };
        self.lifelines.next_id += 1;
        let id = self.lifelines.next_id;
        let proxied = self.random.percent(self.network.proxy_percent);
        let mut seen_remote = addr_on(writer_slot, door.link);
        seen_remote.set_port(32_768 + (id % 28_000) as u16);
        self.lifelines.all.insert(
            id,
            Lifeline {
                writer,
                writer_slot,
                dial,
                watcher: to,
                door,
                reader: None,
                seen_remote,
                proxied,
                queue: VecDeque::new(),
                bytes: 0,
                last_arrival: 0,
                scheduled: false,
                announced: false,
                closed: false,
            },
        );
        self.lifelines.index.insert((writer, dial), id);
        let at = self.now + 2 * self.latency(writer_slot, door.slot);
        self.agenda.add(at, Happening::LifelineDial { id, attempt: 0 });
    }

    pub(super) fn lifeline_dial(&mut self, id: u64, attempt: u32) {
        let Some(lifeline) = self.lifelines.all.get(&id) else {
            return;
        };
        let (writer, dial) = (lifeline.writer, lifeline.dial);
        let (writer_slot, door) = (lifeline.writer_slot, lifeline.door);
        let cut = self.is_blocked(writer_slot, door) || self.is_blocked(door.slot, door.facing(writer_slot));
        if cut && !self.path(writer_slot, door).rejecting && attempt < 2 {
            let at = self.now + (SECONDS << attempt);
            return self.agenda.add(
                at,
                Happening::LifelineDial {
                    id,
                    attempt: attempt + 1,
                },
            );
        }
        let reader = self.hosts[door.slot].process.filter(|_| !cut);
        let Some(reader) = reader else {
            self.forget_lifeline(id);
            return self.accept(writer, Input::Lifeline(LifelineEvent::Failed { dial }));
        };
        let Some(lifeline) = self.lifelines.all.get_mut(&id) else {
            return;
        };
        lifeline.reader = Some(reader);
        let local = lifeline.seen_remote;
        if lifeline.proxied {
            // The reader sees the proxy's end, not the writer's.
            lifeline.seen_remote = SocketAddr::from(([10, 9, 0, 1], lifeline.seen_remote.port()));
        }
        let event = LifelineEvent::Opened {
            dial,
            local,
            remote: addr_on(door.slot, door.link),
        };
        self.accept(writer, Input::Lifeline(event));
    }

    fn lifeline_write(&mut self, writer: ProcessId, dial: DialId, record: Bytes) {
        // A lifeline that just failed: its event is on the way to the core.
        let Some(id) = self.lifelines.index.get(&(writer, dial)).copied() else {
            return;
        };
        let Some(lifeline) = self.lifelines.all.get_mut(&id) else {
            return;
        };
        if lifeline.reader.is_none() {
            let to = lifeline.watcher;
            self.note(
                writer,
                Seen::Contract(format!(
                    "a record was written to the lifeline to {to} before it opened"
                )),
            );
            return;
        }
        self.traffic.records.0 += 1;
        self.traffic.records.1 += record.len() as u64;
        if lifeline.bytes + record.len() > self.network.lifeline_bytes {
            self.count("lifeline_full");
            self.lifelines.index.remove(&(writer, dial));
            self.lifeline_reset(id);
            let event = LifelineEvent::Failed { dial };
            self.agenda
                .add(self.now, Happening::Input(writer, Input::Lifeline(event)));
            return;
        }
        lifeline.bytes += record.len();
        self.lifeline_push(id, Item::Record(record));
    }

    fn lifeline_push(&mut self, id: u64, item: Item) {
        let Some(lifeline) = self.lifelines.all.get(&id) else {
            return;
        };
        let (from, to) = (lifeline.writer_slot, lifeline.door);
        let at = self.now + self.latency(from, to.slot);
        let Some(lifeline) = self.lifelines.all.get_mut(&id) else {
            return;
        };
        lifeline.last_arrival = lifeline.last_arrival.max(at);
        lifeline.queue.push_back((lifeline.last_arrival, item));
        self.schedule_lifeline(id, at);
    }

    fn schedule_lifeline(&mut self, id: u64, at: Micros) {
        let Some(lifeline) = self.lifelines.all.get_mut(&id) else {
            return;
        };
        if !lifeline.scheduled && !lifeline.announced {
            lifeline.scheduled = true;
            self.agenda.add(at, Happening::LifelineReady(id));
        }
    }

    pub(super) fn lifeline_ready(&mut self, id: u64) {
        if let Some(lifeline) = self.lifelines.all.get_mut(&id) {
            lifeline.scheduled = false;
        }
        loop {
            let Some(lifeline) = self.lifelines.all.get(&id) else {
                return;
            };
            let (Some(reader), Some((at, _))) = (lifeline.reader, lifeline.queue.front()) else {
                return;
            };
            let path = self.path(lifeline.writer_slot, lifeline.door);
            let ready_at = (*at).max(path.clogged_until);
            if ready_at > self.now {
                return self.schedule_lifeline(id, ready_at);
            }
            if path.rejecting {
                return self.lifeline_break(id);
            }
            // A cut: the kernel tries again, and `unstall_lifelines` says when it gets through.
            if self.is_blocked(lifeline.writer_slot, lifeline.door) {
                return;
            }
            if self.processes[reader].ended.is_some() {
                return self.lifeline_gone(id);
            }
            if !self.reads_now(reader) {
                if let Some(lifeline) = self.lifelines.all.get_mut(&id) {
                    lifeline.announced = true;
                }
                return self.accept(reader, Input::ReadLifeline(id));
            }
            let event = self.take_lifeline_item(id);
            if let Some(event) = event {
                self.accept(reader, Input::Lifeline(event));
            }
        }
    }

    pub(super) fn read_lifeline(&mut self, reader: ProcessId, id: u64) {
        if let Some(lifeline) = self.lifelines.all.get_mut(&id) {
            lifeline.announced = false;
        }
        loop {
            let Some(lifeline) = self.lifelines.all.get(&id) else {
                return;
            };
            let arrived = lifeline.queue.front().is_some_and(|(at, _)| *at <= self.now);
            if !arrived || self.processes[reader].ended.is_some() {
                break;
            }
            if let Some(event) = self.take_lifeline_item(id) {
                self.handle(reader, Input::Lifeline(event));
            }
        }
        self.schedule_lifeline(id, self.now);
    }

    fn take_lifeline_item(&mut self, id: u64) -> Option<LifelineEvent> {
        let lifeline = self.lifelines.all.get_mut(&id)?;
        let (_, item) = lifeline.queue.pop_front()?;
        let end = match item {
            Item::Record(record) => {
                lifeline.bytes -= record.len();
                return Some(LifelineEvent::Record {
                    connection: id,
                    local: addr_on(lifeline.door.slot, lifeline.door.link),
                    remote: lifeline.seen_remote,
                    record,
                });
            }
            Item::Fin => {
                if !lifeline.proxied {
                    let dead = self.processes[lifeline.writer].node.incarnation();
                    self.lifelines.told.insert((dead, lifeline.watcher));
                }
                LifelineEnd::Fin
            }
            Item::Reset => LifelineEnd::Broken,
        };
        self.forget_lifeline(id);
        Some(LifelineEvent::Ended { connection: id, end })
    }

    /// The writer's end is closed with linger 0: what was not sent is discarded, and a reset is sent once.
    fn lifeline_reset(&mut self, id: u64) {
        let Some(lifeline) = self.lifelines.all.get(&id) else {
            return;
        };
        let (from, to) = (lifeline.writer_slot, lifeline.door);
        if lifeline.reader.is_none() {
            return self.forget_lifeline(id);
        }
        if self.is_blocked(from, to) {
            let Some(lifeline) = self.lifelines.all.get_mut(&id) else {
                return;
            };
            lifeline.queue.clear();
            lifeline.closed = true;
            let at = self.now + self.network.keepalive;
            return self.agenda.add(
                at,
                Happening::Keepalive {
                    id,
                    since: Micros::MAX,
                },
            );
        }
        if let Some(lifeline) = self.lifelines.all.get_mut(&id) {
            lifeline.closed = true;
        }
        self.lifeline_push(id, Item::Reset);
    }

    /// Both ends see an error at once.
    fn lifeline_break(&mut self, id: u64) {
        let Some(lifeline) = self.lifelines.all.remove(&id) else {
            return;
        };
        self.lifelines.index.remove(&(lifeline.writer, lifeline.dial));
        if !lifeline.closed {
            let event = LifelineEvent::Failed { dial: lifeline.dial };
            self.agenda.add(
                self.now,
                Happening::Input(lifeline.writer, Input::Lifeline(event)),
            );
        }
        if let Some(reader) = lifeline.reader {
            let event = LifelineEvent::Ended {
                connection: id,
                end: LifelineEnd::Broken,
            };
            self.agenda
                .add(self.now, Happening::Input(reader, Input::Lifeline(event)));
        }
    }

    /// The reader is gone, and the writer learns it.
    pub(super) fn lifeline_gone(&mut self, id: u64) {
        let Some(lifeline) = self.lifelines.all.get(&id) else {
            return;
        };
        if self.is_blocked(lifeline.door.slot, lifeline.door.facing(lifeline.writer_slot)) {
            let at = self.now + self.network.keepalive;
            return self.agenda.add(
                at,
                Happening::Keepalive {
                    id,
                    since: Micros::MAX,
                },
            );
        }
        self.lifeline_break(id);
    }

    /// Keepalive gave up: the cut lasted too long, or the other end is half open.
    pub(super) fn lifeline_keepalive(&mut self, id: u64, since: Micros) {
        let Some(lifeline) = self.lifelines.all.get(&id) else {
            return;
        };
        let still_cut = self.cut_since(lifeline.writer_slot, lifeline.door) == Some(since);
        if still_cut || since == Micros::MAX {
            self.count("keepalive_expiry");
            self.lifeline_break(id);
        }
    }

    /// A pair was cut: its lifelines break if that lasts.
    pub(super) fn watch_keepalives(&mut self, a: Slot, b: Door) {
        let Some(since) = self.cut_since(a, b) else { return };
        for id in self.lifelines_between(a, b.slot, Some(b.link)) {
            let at = self.now + self.network.keepalive;
            self.agenda.add(at, Happening::Keepalive { id, since });
        }
    }

    /// A path works again: retransmissions bring what waited.
    pub(super) fn unstall_lifelines(&mut self, from: Slot, to: Door, cut_for: Micros) {
        for id in self.lifelines_between(from, to.slot, Some(to.link)) {
            let backoff = self.random.below(cut_for.min(1_500_000) + 1);
            self.schedule_lifeline(id, self.now + backoff);
        }
    }

    pub(super) fn reset_lifelines_between(&mut self, a: Slot, b: Slot, link: Option<usize>) {
        for id in self.lifelines_between(a, b, link) {
            self.lifeline_break(id);
        }
    }

    /// A proxy ends both of its sides, each as if the other had: towards the reader with a FIN.
    pub(super) fn proxies_end(&mut self, a: Slot, b: Slot) -> bool {
        let ids: Vec<u64> = self
            .lifelines_between(a, b, None)
            .into_iter()
            .filter(|id| self.lifelines.all[id].proxied)
            .collect();
        for id in &ids {
            let Some(lifeline) = self.lifelines.all.get_mut(id) else {
                continue;
            };
            if lifeline.closed || lifeline.reader.is_none() {
                continue;
            }
            lifeline.closed = true;
            let (writer, dial) = (lifeline.writer, lifeline.dial);
            self.lifelines.index.remove(&(writer, dial));
            self.lifeline_push(*id, Item::Fin);
            self.agenda.add(
                self.now,
                Happening::Input(writer, Input::Lifeline(LifelineEvent::Failed { dial })),
            );
        }
        !ids.is_empty()
    }

    /// Whether a process has learned of another's death in a way that proves it (R9).
    pub fn was_told_of_death(&self, dead: Incarnation, watcher: Incarnation) -> bool {
        self.lifelines.told.contains(&(dead, watcher))
    }

    pub(super) fn tell_of_death(&mut self, dead: Incarnation, watcher: Incarnation) {
        self.lifelines.told.insert((dead, watcher));
    }

    pub(super) fn lifelines_of_ended(&mut self, process: ProcessId, ending: Ending) {
        let ids: Vec<u64> = self
            .lifelines
            .all
            .iter()
            .filter(|(_, lifeline)| lifeline.writer == process || lifeline.reader == Some(process))
            .map(|(id, _)| *id)
            .collect();
        for id in ids {
            let Some(lifeline) = self.lifelines.all.get_mut(&id) else {
                continue;
            };
            let keepalive = self.now + self.network.keepalive;
            if lifeline.writer == process {
                let already_closed = std::mem::replace(&mut lifeline.closed, true);
                self.lifelines
                    .index
                    .remove(&(process, self.lifelines.all[&id].dial));
                if self.lifelines.all[&id].reader.is_none() {
                    self.forget_lifeline(id);
                } else if already_closed {
                    // Its reset is on the way, or was lost.
                } else if ending == Ending::PowerLost {
                    self.agenda.add(
                        keepalive,
                        Happening::Keepalive {
                            id,
                            since: Micros::MAX,
                        },
                    );
                } else if ending == Ending::Exited && self.random.percent(70) {
                    // The driver's drop ran before the exit.
                    self.lifeline_reset(id);
                } else {
                    self.lifeline_push(id, Item::Fin);
                }
            } else if ending == Ending::PowerLost {
                self.agenda.add(
                    keepalive,
                    Happening::Keepalive {
                        id,
                        since: Micros::MAX,
                    },
                );
            } else {
                let at = self.now + self.network.latency;
                self.agenda.add(at, Happening::LifelineGone(id));
            }
        }
    }

    fn lifelines_between(&self, a: Slot, b: Slot, link: Option<usize>) -> Vec<u64> {
        let pair = |lifeline: &Lifeline| {
            let ends = (lifeline.writer_slot, lifeline.door.slot);
            let on_it = link.is_none_or(|link| lifeline.door.link == link);
            on_it && (ends == (a, b) || ends == (b, a))
        };
        self.lifelines
            .all
            .iter()
            .filter(|(_, lifeline)| pair(lifeline))
            .map(|(id, _)| *id)
            .collect()
    }

    fn forget_lifeline(&mut self, id: u64) {
        let Some(lifeline) = self.lifelines.all.remove(&id) else {
            return;
        };
        self.lifelines.index.remove(&(lifeline.writer, lifeline.dial));
    }
}
