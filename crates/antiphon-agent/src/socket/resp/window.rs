//! Replies in the order of the commands, whenever what comes of each is known.

use std::borrow::Cow;
use std::collections::{BTreeMap, VecDeque};

use antiphon_api::blocks::Reply;

use super::encode::{Encoder, Version};
use super::shape::{MAY_HAVE_HAPPENED, Shape, had_one, may_have_happened, told};

/// Commands of a connection that are under way.
pub(super) const MAX_COMMANDS: usize = 1024;
/// Bytes of replies that wait to be written, or wait for replies before them. Beyond that no command begins.
pub(super) const MAX_BYTES: usize = 1 << 20;
/// The most parts of one command: each part has an id of its own.
const PARTS: u64 = super::decode::MAX_ARGUMENTS as u64;

/// The commands that have no written reply yet, the oldest first.
#[derive(Debug, Default)]
pub(super) struct Window {
    slots: VecDeque<Slot>,
    /// The number of the first of them.
    first: u64,
    /// Replies that wait for one before them.
    bytes: usize,
    /// The keys that commands under way may still write to, and how many commands each.
    writing: BTreeMap<u64, usize>,
    /// Commands that may write and stand in the queue of a worker.
    queued: usize,
}

#[derive(Debug)]
enum Slot {
    Ready(Vec<u8>),
    Waiting(Waiting),
}

#[derive(Debug)]
struct Waiting {
    shape: Shape,
    version: Version,
    left: usize,
    sum: i64,
    /// The first of the parts that failed.
    failed: Option<String>,
    /// What another part that failed was to do may have happened.
    maybe: bool,
    /// The key that each part writes, if they write any.
    writes: Vec<u64>,
    queued: bool,
}

impl Waiting {
    /// The error of one part as that of the whole command, of which other parts have, or may have, happened.
    fn whole<'a>(&self, error: &'a str) -> Cow<'a, str> {
        let happened = !self.writes.is_empty() && (self.sum > 0 || self.maybe);
        match happened && !error.ends_with(MAY_HAVE_HAPPENED) {
            true => format!("{error}{MAY_HAVE_HAPPENED}").into(),
            false => error.into(),
        }
    }
}

impl Window {
    pub(super) fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// Whether another command may begin, with so much ahead of it.
    pub(super) fn has_room(&self, ahead_bytes: usize) -> bool {
        self.slots.len() < MAX_COMMANDS && self.bytes + ahead_bytes < MAX_BYTES
    }

    /// Whether a command that is under way may still write.
    pub(super) fn is_writing(&self) -> bool {
        !self.writing.is_empty()
    }

    /// Whether it may still write to this key.
    pub(super) fn writes(&self, key: u64) -> bool {
        self.writing.contains_key(&key)
    }

    /// A command begins. Returns the id of its first part; the ids of the others follow it.
    pub(super) fn begin(&mut self, shape: Shape, version: Version, parts: usize, writes: Vec<u64>) -> u64 {
        for key in &writes {
            *self.writing.entry(*key).or_default() += 1;
        }
        let number = self.first + self.slots.len() as u64;
        self.slots.push_back(Slot::Waiting(Waiting {
            shape,
            version,
            left: parts,
            sum: 0,
            failed: None,
            maybe: false,
            writes,
            queued: false,
        }));
        number * PARTS
    }

    /// The command of this id may write, and stands in the queue of a worker until it is over.
    pub(super) fn queue(&mut self, id: u64) {
        if let Some(waiting) = self.waiting(id)
            && !std::mem::replace(&mut waiting.queued, true)
        {
            self.queued += 1;
        }
    }

    /// Whether a command that may write stands in the queue of a worker.
    pub(super) fn has_queued(&self) -> bool {
        self.queued > 0
    }

    /// A reply that is known at once, to go behind those that are not.
    pub(super) fn ready(
        &mut self,
        out: &mut Vec<u8>,
        version: Version,
        write: impl FnOnce(&mut Encoder<'_>),
    ) {
        if self.slots.is_empty() {
            return write(&mut Encoder { bytes: out, version });
        }
        let mut bytes = Vec::new();
        write(&mut Encoder {
            bytes: &mut bytes,
            version,
        });
        self.bytes += bytes.len();
        self.slots.push_back(Slot::Ready(bytes));
    }

    /// What the command of this id replies with.
    pub(super) fn shape(&self, id: u64) -> Option<&Shape> {
        let at = (id / PARTS).checked_sub(self.first)?;
        match self.slots.get(at as usize)? {
            Slot::Waiting(waiting) => Some(&waiting.shape),
            Slot::Ready(_) => None,
        }
    }

    /// What came of a part of a command.
    pub(super) fn replied(&mut self, id: u64, reply: Reply, out: &mut Vec<u8>) {
        let parts_sum = |waiting: &mut Waiting| match &reply.error {
            Some(failure) => {
                waiting.maybe |= may_have_happened(failure);
                waiting.failed.get_or_insert_with(|| told(failure));
            }
            None => waiting.sum += had_one(&reply),
        };
        let Some(waiting) = self.waiting(id) else {
            return;
        };
        if waiting.shape == Shape::HadOne {
            parts_sum(waiting);
            return self.part(id, out, |waiting, to| match &waiting.failed {
                Some(error) => to.error(&waiting.whole(error)),
                None => to.number(waiting.sum),
            });
        }
        self.part(id, out, |waiting, to| waiting.shape.write(reply, to));
    }

    /// The same, for a command with a reply that `write` writes.
    pub(super) fn written(&mut self, id: u64, out: &mut Vec<u8>, write: impl FnOnce(&mut Encoder<'_>)) {
        self.part(id, out, |_, to| write(to));
    }

    /// It makes no sense.
    pub(super) fn failed(&mut self, id: u64, error: &str, out: &mut Vec<u8>) {
        if let Some(waiting) = self.waiting(id) {
            waiting.failed.get_or_insert_with(|| error.to_owned());
        }
        self.part(id, out, |waiting, to| {
            to.error(&waiting.whole(waiting.failed.as_deref().unwrap_or(error)));
        });
    }

    fn waiting(&mut self, id: u64) -> Option<&mut Waiting> {
        let at = (id / PARTS).checked_sub(self.first)?;
        match self.slots.get_mut(at as usize)? {
            Slot::Waiting(waiting) => Some(waiting),
            Slot::Ready(_) => None,
        }
    }

    /// A part of a command is over; with the last one its reply is written.
    fn part(&mut self, id: u64, out: &mut Vec<u8>, write: impl FnOnce(&Waiting, &mut Encoder<'_>)) {
        let Some(waiting) = self.waiting(id) else {
            return;
        };
        waiting.left -= 1;
        let over = waiting.left == 0;
        let key = waiting.writes.get((id % PARTS) as usize).copied();
        if over {
            let version = waiting.version;
            let queued = usize::from(waiting.queued);
            self.queued -= queued;
            let at = (id / PARTS - self.first) as usize;
            if at == 0 {
                if let Some(Slot::Waiting(waiting)) = self.slots.pop_front() {
                    self.first += 1;
                    write(&waiting, &mut Encoder { bytes: out, version });
                }
            } else if let Slot::Waiting(waiting) = &self.slots[at] {
                let mut bytes = Vec::new();
                write(
                    waiting,
                    &mut Encoder {
                        bytes: &mut bytes,
                        version,
                    },
                );
                self.bytes += bytes.len();
                self.slots[at] = Slot::Ready(bytes);
            }
        }
        if let Some(key) = key
            && let Some(writers) = self.writing.get_mut(&key)
        {
            *writers -= 1;
            if *writers == 0 {
                self.writing.remove(&key);
            }
        }
        while let Some(Slot::Ready(_)) = self.slots.front() {
            if let Some(Slot::Ready(bytes)) = self.slots.pop_front() {
                self.first += 1;
                self.bytes -= bytes.len();
                out.extend_from_slice(&bytes);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use antiphon_api::Payload;
    use antiphon_api::blocks::{Code, Failure, Value};

    use super::*;

    fn value(text: &str) -> Reply {
        Reply {
            value: Some(Value::Bytes(Payload::from_bytes(text.as_bytes()))),
            ..Reply::default()
        }
    }

    fn begin(window: &mut Window, shape: Shape, parts: usize) -> u64 {
        window.begin(shape, Version::Two, parts, vec![])
    }

    #[test]
    fn replies_come_in_the_order_of_the_commands() {
        let (mut window, mut out) = (Window::default(), Vec::new());
        window.ready(&mut out, Version::Two, |to| to.number(0));
        assert_eq!(out, b":0\r\n");
        let first = begin(&mut window, Shape::Value, 1);
        window.ready(&mut out, Version::Two, |to| to.number(1));
        let second = begin(&mut window, Shape::Value, 1);
        let third = begin(&mut window, Shape::Done, 1);
        window.failed(third, "ERR no", &mut out);
        window.replied(second, value("b"), &mut out);
        // Nobody waits for it any more.
        window.replied(second, value("c"), &mut out);
        assert_eq!(out, b":0\r\n");
        window.replied(first, value("a"), &mut out);
        assert_eq!(out, b":0\r\n$1\r\na\r\n:1\r\n$1\r\nb\r\n-ERR no\r\n");
        assert!(window.is_empty() && window.bytes == 0);
        window.replied(first, value("a"), &mut out);
    }

    #[test]
    fn a_sum_is_known_when_all_its_parts_are_and_an_error_of_one_is_that_of_all() {
        let (mut window, mut out) = (Window::default(), Vec::new());
        let sum = begin(&mut window, Shape::HadOne, 3);
        window.replied(sum + 2, value("x"), &mut out);
        window.replied(sum, value("x"), &mut out);
        assert!(out.is_empty());
        window.replied(sum + 1, Reply::default(), &mut out);
        assert_eq!(out, b":2\r\n");
        out.clear();
        let sum = begin(&mut window, Shape::HadOne, 2);
        let failed = Reply {
            error: Some(Failure::nothing_done(Code::Unavailable, "later")),
            ..Reply::default()
        };
        window.replied(sum, failed, &mut out);
        window.replied(sum + 1, value("x"), &mut out);
        assert_eq!(out, b"-UNAVAILABLE later\r\n");
    }

    #[test]
    fn an_error_of_one_part_says_that_others_may_have_happened() {
        let refused = Reply {
            error: Some(Failure::nothing_done(Code::Refused, "no")),
            ..Reply::default()
        };
        for first in [0, 1] {
            let (mut window, mut out) = (Window::default(), Vec::new());
            let sum = window.begin(Shape::HadOne, Version::Two, 2, vec![7, 8]);
            window.replied(sum + first, refused.clone(), &mut out);
            window.replied(sum + 1 - first, value("x"), &mut out);
            assert_eq!(out, b"-REFUSED no (it may have happened)\r\n");
        }
    }

    #[test]
    fn keys_are_written_until_the_command_is_over() {
        let (mut window, mut out) = (Window::default(), Vec::new());
        let first = window.begin(Shape::Done, Version::Two, 1, vec![7]);
        let second = window.begin(Shape::HadOne, Version::Two, 2, vec![7, 8]);
        window.replied(first, Reply::default(), &mut out);
        assert!(window.writes(7) && window.writes(8) && !window.writes(9));
        window.replied(second, Reply::default(), &mut out);
        assert!(!window.writes(7) && window.writes(8));
        window.failed(second + 1, "ERR no", &mut out);
        assert!(!window.writes(8) && window.is_empty());
    }

    #[test]
    fn a_command_stands_in_a_queue_until_its_last_part_is_over() {
        let (mut window, mut out) = (Window::default(), Vec::new());
        let (one, two) = (
            begin(&mut window, Shape::Done, 1),
            begin(&mut window, Shape::HadOne, 2),
        );
        assert!(!window.has_queued());
        for id in [one, two, two + 1] {
            window.queue(id);
        }
        window.replied(two, Reply::default(), &mut out);
        window.replied(two + 1, Reply::default(), &mut out);
        assert!(window.has_queued());
        window.failed(one, "ERR no", &mut out);
        assert!(!window.has_queued() && window.is_empty());
        // One that is over stands in none.
        window.queue(one);
        assert!(!window.has_queued());
    }

    #[test]
    fn commands_and_bytes_are_bounded() {
        let (mut window, mut out) = (Window::default(), Vec::new());
        let first = begin(&mut window, Shape::Done, 1);
        window.ready(&mut out, Version::Two, |to| to.bulk(&vec![0; MAX_BYTES]));
        assert!(!window.has_room(0));
        window.replied(first, Reply::default(), &mut out);
        assert!(window.has_room(0) && !window.has_room(MAX_BYTES));
        for _ in 0..MAX_COMMANDS {
            assert!(window.has_room(0));
            begin(&mut window, Shape::Done, 1);
        }
        assert!(!window.has_room(0));
    }
}
