//! The segments of one session, put together again and given out in order.
//!
//! ```text
//!        next                         seen
//!         │                            │
//!   … ────┼── whole ── partial ── – ───┼──►      a slot per frame; at most MAX_AHEAD of them
//!    given out                 not heard of yet
//! ```
//! A frame is given out once all frames before it were given out or will not come any more. A frame will not
//! come any more if the sender says that it will not send it again, or if the owner has waited long enough
//! ([`Assembly::give_up_front`]).
//!
//! # Bounds
//! What slots hold in bytes, whatever segments say. A frame that does not fit is refused, except for the
//! frame that is to be given out next: without it nothing would ever go on. So slots hold at most the limit
//! and one frame.

use std::collections::VecDeque;

use bytes::{Bytes, BytesMut};

use super::{Gap, MAX_GAPS, MAX_NUMBER, Segment};

/// How many frames the last one seen may be ahead of the first one not given out.
pub const MAX_AHEAD: u64 = 1024;

/// What became of a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Inserted {
    /// It was new.
    Taken,
    /// It was here before, or its frame is not waited for any more.
    Old,
    /// There is no room for its frame, or it contradicts others of the same frame.
    Refused,
}

#[derive(Debug)]
enum Slot {
    /// Nothing of it has arrived.
    Unheard,
    Partial(Partial),
    Whole(Bytes),
    /// The sender will not send what is missing.
    GivenUp,
}

#[derive(Debug)]
struct Partial {
    /// Written up to the end of the last segment that has arrived; what is missing in between is zero.
    bytes: BytesMut,
    length: usize,
    size: usize,
    /// Bit i: segment i is missing.
    missing: u64,
}

/// The frames of one session.
#[derive(Debug)]
pub struct Assembly {
    /// The number of the first slot: the next frame to give out.
    next: u64,
    slots: VecDeque<Slot>,
    held_bytes: usize,
    limit_bytes: usize,
    lost: u64,
}

impl Assembly {
    /// Nothing yet; it may come to hold this much and one frame.
    pub fn new(limit_bytes: usize) -> Self {
        Self {
            next: 1,
            slots: VecDeque::new(),
            held_bytes: 0,
            limit_bytes,
            lost: 0,
        }
    }

    /// Changes how much it may hold.
    pub fn set_limit(&mut self, limit_bytes: usize) {
        self.limit_bytes = limit_bytes;
    }

    /// Adds a segment. `room` gives empty memory with at least this capacity for a frame.
    pub fn insert(&mut self, segment: &Segment<'_>, room: impl FnOnce(usize) -> BytesMut) -> Inserted {
        if segment.number > MAX_NUMBER {
            return Inserted::Refused;
        }
        let floor = segment.number.saturating_sub(segment.behind.into());
        self.give_up_before(floor);
        let Some(at) = segment.number.checked_sub(self.next) else {
            return Inserted::Old;
        };
        if at >= MAX_AHEAD {
            return Inserted::Refused;
        }
        let at = at as usize;
        if self.slots.len() <= at {
            self.slots.resize_with(at + 1, || Slot::Unheard);
            self.give_up_before(floor);
        }
        let slot = &mut self.slots[at];
        match slot {
            Slot::Whole(_) | Slot::GivenUp => return Inserted::Old,
            Slot::Partial(_) => {}
            Slot::Unheard => {
                if at > 0 && self.held_bytes + segment.length > self.limit_bytes {
                    return Inserted::Refused;
                }
                self.held_bytes += segment.length;
                *slot = Slot::Partial(Partial::new(segment, room(segment.length)));
            }
        }
        let Slot::Partial(partial) = slot else {
            return Inserted::Old;
        };
        let inserted = partial.insert(segment);
        if partial.missing == 0 {
            *slot = Slot::Whole(std::mem::take(&mut partial.bytes).freeze());
        }
        inserted
    }

    /// The next frame in order, if it is whole.
    pub fn take(&mut self) -> Option<Bytes> {
        while let Some(slot) = self.slots.pop_front() {
            match slot {
                Slot::Whole(frame) => {
                    self.next += 1;
                    self.held_bytes -= frame.len();
                    return Some(frame);
                }
                Slot::GivenUp => {
                    self.next += 1;
                    self.lost += 1;
                }
                slot => {
                    self.slots.push_front(slot);
                    break;
                }
            }
        }
        None
    }

    /// Whether something behind the front waits for it: a frame, or a part of one.
    pub fn is_blocked(&self) -> bool {
        self.slots.len() > 1
    }

    /// Waits no longer for what is missing in front of the first whole frame.
    pub fn give_up_front(&mut self) {
        let front = self
            .slots
            .iter()
            .position(|slot| matches!(slot, Slot::Whole(_)))
            .unwrap_or(self.slots.len().saturating_sub(1));
        self.give_up_before(self.next + front as u64);
    }

    /// The highest number of which something has arrived; 0 if nothing ever has.
    pub fn seen(&self) -> u64 {
        self.next + self.slots.len() as u64 - 1
    }

    /// Bytes of frames that have begun to arrive and were not given out.
    pub fn held_bytes(&self) -> usize {
        self.held_bytes
    }

    /// Frames given up since the last call.
    pub fn take_lost(&mut self) -> u64 {
        std::mem::take(&mut self.lost)
    }

    /// What is missing up to the last segment seen, oldest first; as many frames as a report can name. Of the
    /// last frame nothing may be missing.
    pub fn gaps(&self) -> impl Iterator<Item = Gap> {
        let last = self.slots.len().saturating_sub(1);
        self.slots
            .iter()
            .enumerate()
            .filter_map(move |(at, slot)| {
                let missing = match slot {
                    Slot::Unheard => u64::MAX,
                    // The segments after it are still on their way.
                    Slot::Partial(partial) if at == last => partial.missing_inside(),
                    Slot::Partial(partial) => partial.missing,
                    Slot::Whole(_) | Slot::GivenUp => return None,
                };
                let behind = (last - at) as u16;
                Some(Gap { behind, missing })
            })
            .take(MAX_GAPS)
    }

    fn give_up_before(&mut self, number: u64) {
        // Numbers that were never heard of are skipped in one step, however many they are.
        let heard_of = self.next + self.slots.len() as u64;
        let inside = number.min(heard_of).saturating_sub(self.next) as usize;
        for slot in self.slots.iter_mut().take(inside) {
            match slot {
                Slot::Whole(_) | Slot::GivenUp => continue,
                Slot::Partial(partial) => self.held_bytes -= partial.length,
                Slot::Unheard => {}
            }
            *slot = Slot::GivenUp;
        }
        let nothing_whole = self.slots.iter().all(|slot| matches!(slot, Slot::GivenUp));
        if number > heard_of && nothing_whole {
            self.lost += number - self.next;
            self.slots.clear();
            self.next = number;
        }
    }
}

impl Partial {
    fn new(segment: &Segment<'_>, mut bytes: BytesMut) -> Self {
        bytes.clear();
        Self {
            bytes,
            length: segment.length,
            size: segment.size,
            missing: u64::MAX >> (64 - segment.count()),
        }
    }

    fn insert(&mut self, segment: &Segment<'_>) -> Inserted {
        if (segment.length, segment.size) != (self.length, self.size) {
            return Inserted::Refused;
        }
        let bit = 1 << segment.index;
        if self.missing & bit == 0 {
            return Inserted::Old;
        }
        self.missing &= !bit;
        let (start, end) = (segment.offset(), segment.offset() + segment.bytes.len());
        if start >= self.bytes.len() {
            // In order, as nearly always, nothing is filled with zeros.
            self.bytes.resize(start, 0);
            self.bytes.extend_from_slice(segment.bytes);
        } else {
            self.bytes[start..end].copy_from_slice(segment.bytes);
        }
        Inserted::Taken
    }

    /// What is missing before the last segment that has arrived.
    fn missing_inside(&self) -> u64 {
        let arrived = self.bytes.len().div_ceil(self.size);
        self.missing & (u64::MAX >> (64 - arrived.max(1)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZE: usize = 100;

    fn frame(number: u64, length: usize) -> Vec<u8> {
        (0..length).map(|at| (number as usize * 31 + at) as u8).collect()
    }

    fn segments(number: u64, behind: u16, frame: &[u8]) -> Vec<Segment<'_>> {
        let segment = |(index, bytes)| Segment {
            session: 1,
            number,
            behind,
            length: frame.len(),
            size: SIZE,
            index: index as u8,
            report_at_once: false,
            bytes,
        };
        frame.chunks(SIZE).enumerate().map(segment).collect()
    }

    fn insert(assembly: &mut Assembly, segment: &Segment<'_>) -> Inserted {
        assembly.insert(segment, BytesMut::with_capacity)
    }

    fn taken(assembly: &mut Assembly) -> Vec<Vec<u8>> {
        std::iter::from_fn(|| assembly.take())
            .map(|frame| frame.to_vec())
            .collect()
    }

    #[test]
    fn a_frame_comes_out_whole_in_whatever_order_its_segments_come_and_only_once() {
        let frame = frame(1, 1234);
        let mut order: Vec<_> = segments(1, 0, &frame);
        for rotation in 0..order.len() {
            order.rotate_left(1);
            if rotation % 2 == 0 {
                order.reverse();
            }
            let mut assembly = Assembly::new(10_000);
            for segment in &order {
                assert_eq!(insert(&mut assembly, segment), Inserted::Taken);
                assert_eq!(insert(&mut assembly, segment), Inserted::Old);
            }
            assert_eq!(taken(&mut assembly), vec![frame.clone()]);
            assert_eq!(assembly.held_bytes(), 0);
            assert_eq!(insert(&mut assembly, &order[0]), Inserted::Old);
        }
    }

    #[test]
    fn a_frame_waits_for_the_one_before_it_and_what_is_missing_is_named() {
        let (first, second, third) = (frame(1, 250), frame(2, 100), frame(3, 450));
        let mut assembly = Assembly::new(10_000);
        insert(&mut assembly, &segments(1, 0, &first)[0]);
        insert(&mut assembly, &segments(1, 0, &first)[2]);
        insert(&mut assembly, &segments(3, 2, &third)[2]);
        let gaps: Vec<Gap> = assembly.gaps().collect();
        let gap = |behind, missing| Gap { behind, missing };
        assert_eq!(gaps, [gap(2, 0b010), gap(1, u64::MAX), gap(0, 0b00011)]);
        assert_eq!(assembly.gaps().count(), 3);
        for segment in segments(2, 1, &second) {
            insert(&mut assembly, &segment);
        }
        assert!(taken(&mut assembly).is_empty() && assembly.is_blocked());
        insert(&mut assembly, &segments(1, 0, &first)[1]);
        assert_eq!(taken(&mut assembly), vec![first, second]);
        assert_eq!(assembly.seen(), 3);
        for segment in &segments(3, 0, &third)[..2] {
            insert(&mut assembly, segment);
        }
        // Not whole, but all that is known to have been sent is here.
        assert_eq!(assembly.gaps().collect::<Vec<_>>(), [gap(0, 0)]);
    }

    #[test]
    fn what_the_sender_gave_up_holds_nothing_back_and_what_is_whole_is_kept() {
        let (second, fifth) = (frame(2, 100), frame(5, 100));
        let mut assembly = Assembly::new(10_000);
        insert(&mut assembly, &segments(1, 0, &frame(1, 250))[0]);
        insert(&mut assembly, &segments(2, 1, &second)[0]);
        insert(&mut assembly, &segments(5, 1, &fifth)[0]);
        assert_eq!(taken(&mut assembly), vec![second]);
        assert_eq!(assembly.take_lost(), 2);
        assert_eq!(
            assembly.gaps().next(),
            Some(Gap {
                behind: 1,
                missing: u64::MAX
            })
        );
        assembly.give_up_front();
        assert_eq!(taken(&mut assembly), vec![fifth]);
        assert_eq!((assembly.take_lost(), assembly.held_bytes()), (1, 0));
    }

    #[test]
    fn a_jump_beyond_everything_heard_of_is_one_step() {
        let mut assembly = Assembly::new(10_000);
        let (far, frame) = (MAX_NUMBER, frame(1, 100));
        insert(&mut assembly, &segments(far, 0, &frame)[0]);
        assert_eq!(taken(&mut assembly), vec![frame]);
        assert_eq!(assembly.take_lost(), far - 1);
    }

    #[test]
    fn what_is_held_has_a_bound_and_the_frame_that_is_next_always_finds_room() {
        let mut assembly = Assembly::new(1000);
        let frames: Vec<Vec<u8>> = (1..=9).map(|number| frame(number, 400)).collect();
        for number in (2..=9u64).rev() {
            let result = insert(
                &mut assembly,
                &segments(number, number as u16 - 1, &frames[number as usize - 1])[0],
            );
            let expected = if number >= 8 {
                Inserted::Taken
            } else {
                Inserted::Refused
            };
            assert_eq!(result, expected, "{number}");
            assert!(assembly.held_bytes() <= 1000);
        }
        for segment in segments(1, 0, &frames[0]) {
            assert_eq!(insert(&mut assembly, &segment), Inserted::Taken);
        }
        assert_eq!(taken(&mut assembly), vec![frames[0].clone()]);
        let ahead = segments(MAX_AHEAD + 2, 1000, &frames[0]);
        assert_eq!(insert(&mut assembly, &ahead[0]), Inserted::Taken);
        let too_far = segments(MAX_AHEAD + 26, MAX_AHEAD as u16, &frames[0]);
        assert_eq!(insert(&mut assembly, &too_far[0]), Inserted::Refused);
    }

    #[test]
    fn a_segment_that_contradicts_its_frame_changes_nothing() {
        let frame = frame(1, 250);
        let mut assembly = Assembly::new(10_000);
        insert(&mut assembly, &segments(1, 0, &frame)[0]);
        let longer = vec![9; 251];
        assert_eq!(
            insert(&mut assembly, &segments(1, 0, &longer)[1]),
            Inserted::Refused
        );
        for segment in &segments(1, 0, &frame)[1..] {
            insert(&mut assembly, segment);
        }
        assert_eq!(taken(&mut assembly), vec![frame]);
    }
}
