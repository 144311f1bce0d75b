//! Frames on connections, as two kernels keep them (R25).
//!
//! There is one connection per sending process, destination and class. It is in order, and loses nothing
//! while it stands. What a process had written before it died still arrives, then the FIN. If the process
//! left data unread, a reset comes instead, and what was on its way is gone. A cut is silence: after the heal
//! the retransmission comes with its back-off, or the connection has timed out on one side and is half open
//! on the other. A stopped process's kernel goes on taking bytes until the buffers are full. Connections of
//! one process progress independently: connections of a dead process may still bring data after its lifeline
//! has proved its death.
//!
//! Where packets are lost, no bytes are lost, but all bytes wait for the lost ones. The first packet of a
//! burst is sent again after 200 ms, and each time after twice as long, until it was acknowledged. Bytes
//! written meanwhile go after it.

use std::collections::{BTreeMap, VecDeque};

use antiphon_core::{Class, PathTrouble};
use bytes::Bytes;

use super::process::Input;
use super::{Door, Happening, World, addr_of};
use crate::agenda::{MILLIS, Micros, SECONDS};
use crate::trace::{Ending, ProcessId, Slot};

/// What a kernel holds of a connection; what lies behind it is the driver's, and dies with the process.
const KERNEL_BYTES: usize = 128 << 10;
/// A driver waits this long before it dials an address again.
const REDIAL: Micros = 100 * MILLIS;
/// An idle half-open connection is noticed after this long.
pub const KEEPALIVE: Micros = 15 * SECONDS;
/// What is not acknowledged is sent again after this for the first time.
const FIRST_RETRY: Micros = 200 * MILLIS;
/// A kernel that has waited for long tries again after this at the latest.
pub const LONGEST_RETRY: Micros = 1_500 * MILLIS;

#[derive(Debug, Default)]
pub(super) struct Streams {
    next_id: u64,
    all: BTreeMap<u64, Stream>,
    index: BTreeMap<(ProcessId, Door, Class), u64>,
    redial: BTreeMap<(ProcessId, Door, Class), Micros>,
}

#[derive(Debug)]
struct Stream {
    from: ProcessId,
    from_slot: Slot,
    door: Door,
    class: Class,
    /// The accepting process, once connected.
    to: Option<ProcessId>,
    queue: VecDeque<(Micros, Bytes)>,
    bytes: usize,
    last_arrival: Micros,
    /// Until then what was lost is sent again, and nothing else.
    repairs_until: Micros,
    /// The sender is gone: a FIN follows the queue.
    closing: bool,
    scheduled: bool,
    /// The reader has been told that there is something to read, and has not got to it.
    announced: bool,
    stalled: Option<Micros>,
}

impl World {
    pub(super) fn send_stream(&mut self, from: ProcessId, to: Door, class: Class, bytes: Bytes) {
        let key = (from, to, class);
        let id = match self.streams.index.get(&key) {
            Some(id) => *id,
            None => {
                if self.streams.redial.get(&key).is_some_and(|at| *at > self.now) {
                    return;
                }
                self.dial_stream(key)
            }
        };
        let from_slot = self.processes[from].slot;
        if self.random.ppm(self.network.break_ppm) {
            self.count("stream_break");
            self.break_stream(id, PathTrouble::Lost);
            return;
        }
        let done = self.line_done(from_slot, to, bytes.len());
        let latency = self.latency(from_slot, to.slot);
        let repair = self.repair(id, from_slot, to);
        let (now, limit) = (self.now, self.network.buffer_bytes.max(2 * KERNEL_BYTES));
        let Some(stream) = self.streams.all.get_mut(&id) else {
            return;
        };
        if stream.bytes + bytes.len() > limit {
            self.count("overflow");
            return;
        }
        stream.bytes += bytes.len();
        let (arrives, repaired) = repair.unwrap_or((now, now));
        stream.repairs_until = stream.repairs_until.max(repaired);
        stream.last_arrival = stream.last_arrival.max(done.max(now).max(arrives) + latency);
        let gives_up = repaired - now > self.network.user_timeout;
        stream.queue.push_back((stream.last_arrival, bytes));
        let at = stream.last_arrival;
        if stream.to.is_some() && !stream.scheduled && stream.stalled.is_none() && !stream.announced {
            stream.scheduled = true;
            self.agenda.add(at, Happening::StreamReady(id));
        }
        if gives_up {
            let since = now;
            self.agenda.add(
                now + self.network.user_timeout,
                Happening::StreamUnanswered { id, since },
            );
        }
        self.take_line(from_slot, to, done);
    }

    /// When what is written to a stream now leaves for good, and when its kernel knows that it came; `None`
    /// if at once.
    fn repair(&mut self, id: u64, from: Slot, to: Door) -> Option<(Micros, Micros)> {
        let until = self.streams.all.get(&id)?.repairs_until;
        if until > self.now {
            return Some((until, until));
        }
        let there = self.network.loss_ppm.max(self.path(from, to).loss_ppm);
        let back = self.path(to.slot, to.facing(from)).loss_ppm;
        let back = self.network.loss_ppm.max(back);
        if there == 0 && back == 0 {
            return None;
        }
        let (mut at, mut wait, mut arrives) = (self.now, FIRST_RETRY, None);
        loop {
            let (lost, unanswered) = (self.random.ppm(there), self.random.ppm(back));
            if !lost {
                arrives.get_or_insert(at);
            }
            let over = at - self.now > self.network.user_timeout;
            if !lost && !unanswered || over {
                return Some((arrives.unwrap_or(at), at));
            }
            self.count("stream_loss");
            at += wait;
            wait = (wait * 2).min(LONGEST_RETRY);
        }
    }

    /// A kernel whose packets were not acknowledged for too long gives the connection up.
    pub(super) fn stream_unanswered(&mut self, id: u64, since: Micros) {
        let waits = |stream: &Stream| stream.repairs_until > self.now && stream.stalled.is_none();
        if self.streams.all.get(&id).is_some_and(waits) {
            if let Some(stream) = self.streams.all.get_mut(&id) {
                stream.stalled = Some(since);
            }
            self.stream_timeout(id, since);
        }
    }

    fn dial_stream(&mut self, key: (ProcessId, Door, Class)) -> u64 {
        let (from, door, class) = key;
        let from_slot = self.processes[from].slot;
        self.streams.next_id += 1;
        let id = self.streams.next_id;
        self.streams.all.insert(
            id,
            Stream {
                from,
                from_slot,
                door,
                class,
                to: None,
                queue: VecDeque::new(),
                bytes: 0,
                last_arrival: 0,
                repairs_until: 0,
                closing: false,
                scheduled: false,
                announced: false,
                stalled: None,
            },
        );
        self.streams.index.insert(key, id);
        let at = self.now + 2 * self.latency(from_slot, door.slot);
        self.agenda.add(at, Happening::StreamDial { id, attempt: 0 });
        id
    }

    pub(super) fn stream_dial(&mut self, id: u64, attempt: u32) {
        let Some(stream) = self.streams.all.get(&id) else {
            return;
        };
        let (from_slot, door) = (stream.from_slot, stream.door);
        if self.path(from_slot, door).rejecting {
            return self.dial_failed(id, PathTrouble::Refused);
        }
        let blocked = self.is_blocked(from_slot, door) || self.is_blocked(door.slot, door.facing(from_slot));
        if blocked || self.loses_a_packet(from_slot, door) {
            // A SYN is sent again after 1 s, then 2 s.
            return match attempt {
                0 | 1 => {
                    let at = self.now + (SECONDS << attempt);
                    self.agenda.add(
                        at,
                        Happening::StreamDial {
                            id,
                            attempt: attempt + 1,
                        },
                    );
                }
                _ => self.dial_failed(id, PathTrouble::TimedOut),
            };
        }
        let Some(reader) = self.hosts[door.slot].process else {
            return self.dial_failed(id, PathTrouble::Refused);
        };
        let now = self.now;
        let latency = self.latency(from_slot, door.slot);
        let Some(stream) = self.streams.all.get_mut(&id) else {
            return;
        };
        stream.to = Some(reader);
        for (at, _) in &mut stream.queue {
            *at = (*at).max(now + latency);
        }
        stream.last_arrival = stream.last_arrival.max(now + latency);
        stream.scheduled = true;
        self.agenda.add(now + latency, Happening::StreamReady(id));
    }

    /// Whether a packet or what answers it is lost now.
    fn loses_a_packet(&mut self, from: Slot, to: Door) -> bool {
        let back = to.facing(from);
        let ppm = [self.path(from, to).loss_ppm, self.path(to.slot, back).loss_ppm];
        let all = self.network.loss_ppm;
        ppm.into_iter()
            .map(|ppm| ppm.max(all))
            .any(|ppm| ppm > 0 && self.random.ppm(ppm))
    }

    fn dial_failed(&mut self, id: u64, trouble: PathTrouble) {
        let Some(stream) = self.remove_stream(id) else {
            return;
        };
        self.streams
            .redial
            .insert((stream.from, stream.door, stream.class), self.now + REDIAL);
        self.trouble(stream.from, stream.door, trouble, self.now);
    }

    /// Something has arrived, or may go on: hands over what can be.
    pub(super) fn stream_ready(&mut self, id: u64) {
        if let Some(stream) = self.streams.all.get_mut(&id) {
            stream.scheduled = false;
        }
        loop {
            let Some(stream) = self.streams.all.get(&id) else {
                return;
            };
            let Some(reader) = stream.to else { return };
            let (from_slot, door) = (stream.from_slot, stream.door);
            let Some(at) = stream.queue.front().map(|(at, _)| *at) else {
                if stream.closing {
                    self.fin_arrives(id);
                }
                return;
            };
            if self.path(from_slot, door).rejecting {
                return self.break_stream(id, PathTrouble::Lost);
            }
            let ready_at = at.max(self.path(from_slot, door).clogged_until);
            if ready_at > self.now {
                return self.schedule_stream(id, ready_at);
            }
            if self.is_blocked(from_slot, door) {
                return self.stall_stream(id);
            }
            if self.processes[reader].ended.is_some() {
                // No process owns that connection any more: the kernel answers with a reset.
                let at = self.now + self.network.latency;
                return self.agenda.add(at, Happening::StreamGone(id));
            }
            if !self.reads_now(reader) {
                return self.announce_stream(id, reader);
            }
            let bytes = self.take_frame(id);
            if let Some(bytes) = bytes {
                let from = addr_of(from_slot);
                self.accept(reader, Input::Frame { from, bytes });
            }
        }
    }

    /// A process gets to read one of its connections: a few frames of it.
    pub(super) fn read_stream(&mut self, reader: ProcessId, id: u64) {
        let Some(stream) = self.streams.all.get_mut(&id) else {
            return;
        };
        stream.announced = false;
        let from = addr_of(stream.from_slot);
        for _ in 0..self.random.range(1, 8) {
            let arrived = self
                .streams
                .all
                .get(&id)
                .is_some_and(|stream| stream.queue.front().is_some_and(|(at, _)| *at <= self.now));
            if !arrived || self.processes[reader].ended.is_some() {
                break;
            }
            if let Some(bytes) = self.take_frame(id) {
                self.handle(reader, Input::Frame { from, bytes });
            }
        }
        self.schedule_stream(id, self.now);
    }

    fn take_frame(&mut self, id: u64) -> Option<Bytes> {
        let stream = self.streams.all.get_mut(&id)?;
        let (_, bytes) = stream.queue.pop_front()?;
        stream.bytes -= bytes.len();
        Some(bytes)
    }

    fn schedule_stream(&mut self, id: u64, at: Micros) {
        let Some(stream) = self.streams.all.get_mut(&id) else {
            return;
        };
        if !stream.scheduled {
            stream.scheduled = true;
            self.agenda.add(at, Happening::StreamReady(id));
        }
    }

    fn announce_stream(&mut self, id: u64, reader: ProcessId) {
        let Some(stream) = self.streams.all.get_mut(&id) else {
            return;
        };
        if !stream.announced {
            stream.announced = true;
            self.accept(reader, Input::ReadStream(id));
        }
    }

    fn stall_stream(&mut self, id: u64) {
        let now = self.now;
        let Some(stream) = self.streams.all.get_mut(&id) else {
            return;
        };
        if stream.stalled.is_none() {
            stream.stalled = Some(now);
            let at = now + self.network.user_timeout;
            self.agenda.add(at, Happening::StreamTimeout { id, since: now });
        }
    }

    /// A path works again: what waited for it goes on when the kernel next tries, which is the later the
    /// longer it was cut.
    pub(super) fn unstall_streams(&mut self, from: Slot, to: Door) {
        if self.is_blocked(from, to) {
            return;
        }
        let waiting: Vec<(u64, Micros)> = self
            .streams
            .all
            .iter()
            .filter(|(_, stream)| stream.from_slot == from && stream.door == to)
            .filter_map(|(id, stream)| stream.stalled.map(|since| (*id, since)))
            .collect();
        for (id, since) in waiting {
            let backoff = self.random.below((self.now - since).min(LONGEST_RETRY) + 1);
            if let Some(stream) = self.streams.all.get_mut(&id) {
                stream.stalled = None;
            }
            self.schedule_stream(id, self.now + backoff);
        }
    }

    /// A host is back: retransmissions to it meet an answer, a reset.
    pub(super) fn unstall_streams_to(&mut self, to: Slot) {
        for from in 0..self.hosts.len() {
            for door in self.doors(to) {
                self.unstall_streams(from, door);
            }
        }
    }

    /// The connections that hold something back, for messages.
    pub fn waiting_streams(&self) -> Vec<String> {
        let waits = |stream: &&Stream| stream.stalled.is_some() || stream.to.is_none() || stream.announced;
        let show = |stream: &Stream| {
            format!(
                "n{}→n{} {:?}: {} frames, stalled since {:?}, connected {}, announced {}",
                stream.from_slot,
                stream.door.slot,
                stream.class,
                stream.queue.len(),
                stream.stalled,
                stream.to.is_some(),
                stream.announced
            )
        };
        self.streams.all.values().filter(waits).map(show).collect()
    }

    pub(super) fn stream_timeout(&mut self, id: u64, since: Micros) {
        let Some(stream) = self.streams.all.get(&id) else {
            return;
        };
        if stream.stalled != Some(since) {
            return;
        }
        let (reader, back) = (stream.to, stream.door.facing(stream.from_slot));
        let Some(stream) = self.remove_stream(id) else {
            return;
        };
        self.count("stream_timeout");
        self.trouble(stream.from, stream.door, PathTrouble::TimedOut, self.now);
        if let Some(reader) = reader {
            // Half open until its own keepalive notices.
            self.trouble(reader, back, PathTrouble::Lost, self.now + KEEPALIVE);
        }
    }

    /// The sender learns that the other end is gone.
    pub(super) fn stream_gone(&mut self, id: u64) {
        let Some(stream) = self.streams.all.get(&id) else {
            return;
        };
        if self.is_blocked(stream.door.slot, stream.door.facing(stream.from_slot)) {
            return self.stall_stream(id);
        }
        let Some(stream) = self.remove_stream(id) else {
            return;
        };
        self.trouble(stream.from, stream.door, PathTrouble::Lost, self.now);
    }

    fn fin_arrives(&mut self, id: u64) {
        let Some(stream) = self.streams.all.get(&id) else {
            return;
        };
        if self.is_blocked(stream.from_slot, stream.door) {
            return self.stall_stream(id);
        }
        let Some(stream) = self.remove_stream(id) else {
            return;
        };
        if let Some(reader) = stream.to {
            let back = stream.door.facing(stream.from_slot);
            self.trouble(reader, back, PathTrouble::Lost, self.now);
        }
    }

    /// A reset: both ends learn it, and what was on its way is gone.
    fn break_stream(&mut self, id: u64, trouble: PathTrouble) {
        let Some(stream) = self.remove_stream(id) else {
            return;
        };
        self.trouble(stream.from, stream.door, trouble, self.now);
        if let Some(reader) = stream.to {
            let at = self.now + self.network.latency;
            let back = stream.door.facing(stream.from_slot);
            self.trouble(reader, back, trouble, at);
        }
    }

    fn remove_stream(&mut self, id: u64) -> Option<Stream> {
        let stream = self.streams.all.remove(&id)?;
        let key = (stream.from, stream.door, stream.class);
        if self.streams.index.get(&key) == Some(&id) {
            self.streams.index.remove(&key);
        }
        Some(stream)
    }

    pub(super) fn reset_streams_between(&mut self, a: Slot, b: Slot, link: Option<usize>) {
        let ids: Vec<u64> = self
            .streams
            .all
            .iter()
            .filter(|(_, s)| link.is_none_or(|link| s.door.link == link))
            .filter(|(_, s)| [(a, b), (b, a)].contains(&(s.from_slot, s.door.slot)))
            .map(|(id, _)| *id)
            .collect();
        for id in ids {
            self.break_stream(id, PathTrouble::Lost);
        }
    }

    /// What a process's connections do when it ends.
    pub(super) fn streams_of_ended(&mut self, process: ProcessId, ending: Ending) {
        let ids: Vec<u64> = self
            .streams
            .all
            .iter()
            .filter(|(_, stream)| stream.from == process || stream.to == Some(process))
            .map(|(id, _)| *id)
            .collect();
        for id in ids {
            let Some(stream) = self.streams.all.get(&id) else {
                continue;
            };
            let outgoing = stream.from == process;
            match (outgoing, ending) {
                (true, Ending::PowerLost) => {
                    let (reader, back) = (stream.to, stream.door.facing(stream.from_slot));
                    self.remove_stream(id);
                    if let Some(reader) = reader {
                        self.trouble(reader, back, PathTrouble::Lost, self.now + KEEPALIVE);
                    }
                }
                (true, _) => self.close_after_death(id),
                // The sender's retransmissions meet silence until they time out.
                (false, Ending::PowerLost) => self.stall_stream(id),
                (false, _) => {
                    let at = self.now + self.network.latency;
                    self.agenda.add(at, Happening::StreamGone(id));
                }
            }
        }
        self.streams.redial.retain(|(from, ..), _| *from != process);
    }

    fn close_after_death(&mut self, id: u64) {
        let Some(stream) = self.streams.all.get(&id) else {
            return;
        };
        let (process, door, connected) = (stream.from, stream.door, stream.to.is_some());
        let key = (process, door, stream.class);
        let unread = self.streams.all.values().any(|other| {
            other.to == Some(process)
                && other.from_slot == door.slot
                && other.queue.front().is_some_and(|(at, _)| *at <= self.now)
        });
        self.streams.index.remove(&key);
        if !connected {
            self.streams.all.remove(&id);
            return;
        }
        if unread {
            // Unread data turns the close into a reset, and what was written may be lost with it.
            self.count("stream_rst_at_death");
            return self.break_stream(id, PathTrouble::Lost);
        }
        let now = self.now;
        let Some(stream) = self.streams.all.get_mut(&id) else {
            return;
        };
        stream.closing = true;
        while stream.bytes > KERNEL_BYTES {
            let Some((_, bytes)) = stream.queue.pop_back() else {
                break;
            };
            stream.bytes -= bytes.len();
        }
        let idle = stream.queue.is_empty() && !stream.scheduled && stream.stalled.is_none();
        if idle {
            let at = now + self.network.latency;
            self.schedule_stream(id, at);
        }
    }
}
