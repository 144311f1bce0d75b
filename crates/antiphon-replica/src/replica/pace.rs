//! How much of a state is under way to a joiner at once: enough to fill the path, and little more.
//!
//! What queues before a source's link holds up what writers say by it, and chunks fill any queue. A queue
//! shows in the answers: they come later than the fastest one did. So a source begins with an eighth of what
//! may be under way, takes a chunk more for each window that was answered in time, and gives up a quarter for
//! one that was late (delay-based congestion control, as TCP Vegas has it: Brakmo and Peterson, 1995). Over a
//! long path without a queue that ends at all that may be under way; over a full one at what the path holds
//! and [`LATE`] of queue. Answers over a long path vary by more than that without any queue, and writes take
//! as long: there half of the fastest answer is the bound.

use std::collections::VecDeque;
use std::time::Duration;

use antiphon_core::Time;

/// A queue may hold up an answer for so long, or for half of the fastest one.
const LATE: Duration = Duration::from_micros(500);
/// Of what may be under way, a source begins with one part in so many, and never takes less.
const PARTS: usize = 8;
/// Chunks in the least window: enough that a joiner, which says what it has for each of them, does so in
/// time.
const CHUNKS: usize = 4;
/// The most of the state in one direct message: what fits it beside a few numbers.
const MAX_CHUNK_BYTES: usize = 56 << 10;

pub(super) struct Pace {
    least: usize,
    most: usize,
    window: usize,
    /// The fastest answer.
    fastest: Option<Duration>,
    /// Where each chunk under way ends, and when it was told.
    told: VecDeque<(u64, Time)>,
    /// The window changes by the first answer from here on: what was told after the last change.
    judged: u64,
}

impl Pace {
    /// Never more than `most` bytes.
    pub(super) fn new(most: usize) -> Self {
        let most = most.max(CHUNKS);
        let least = (most / PARTS).max(CHUNKS);
        Self {
            least,
            most,
            window: least,
            fastest: None,
            told: VecDeque::new(),
            judged: 0,
        }
    }

    pub(super) fn chunk_bytes(&self) -> usize {
        (self.least / CHUNKS).min(MAX_CHUNK_BYTES)
    }

    /// The least that is ever under way, if there is so much: a joiner answers by its quarters.
    pub(super) fn least(&self) -> usize {
        self.least
    }

    /// Bytes that may be under way now.
    pub(super) fn window(&self) -> u64 {
        self.window as u64
    }

    /// A chunk that ends here was told.
    pub(super) fn told(&mut self, now: Time, end: u64) {
        self.told.push_back((end, now));
    }

    /// The joiner has all up to here.
    pub(super) fn received(&mut self, now: Time, upto: u64) {
        let mut last = None;
        while let Some((end, at)) = self.told.front().copied().filter(|(end, _)| *end <= upto) {
            self.told.pop_front();
            last = Some((end, now.since(at)));
        }
        let Some((end, took)) = last else { return };
        let fastest = self.fastest.map_or(took, |fastest| fastest.min(took));
        self.fastest = Some(fastest);
        if end <= self.judged {
            return;
        }
        // What is under way now was told before the window changes.
        self.judged = self.told.back().map_or(end, |(end, _)| *end);
        self.window = if took <= fastest + LATE.max(fastest / 2) {
            self.window + self.chunk_bytes()
        } else {
            self.window - self.window / 4
        };
        self.window = self.window.clamp(self.least, self.most);
        assert!(self.window >= self.chunk_bytes(), "a chunk fits the window");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOST: usize = 768 << 10;

    struct Transfer {
        pace: Pace,
        now_us: u64,
        sent: u64,
        received: u64,
    }

    impl Transfer {
        fn new(most: usize) -> Self {
            Self {
                pace: Pace::new(most),
                now_us: 0,
                sent: 0,
                received: 0,
            }
        }

        /// Goes on over a path of this delay and rate for so long; how long the last chunk took.
        fn over(&mut self, delay_us: u64, bytes_per_us: u64, for_us: u64) -> u64 {
            self.with_jitter(delay_us, 0, bytes_per_us, for_us)
        }

        /// The same; every third chunk takes so much longer, and those behind it wait for it.
        fn with_jitter(&mut self, delay_us: u64, jitter_us: u64, bytes_per_us: u64, for_us: u64) -> u64 {
            let chunk = self.pace.chunk_bytes() as u64;
            let (until_us, mut free_at, mut took) = (self.now_us + for_us, 0, 0);
            let mut arrivals: VecDeque<(u64, u64, u64)> = VecDeque::new();
            let mut last_at = 0;
            while self.now_us < until_us || self.received < self.sent {
                while self.now_us < until_us && self.sent + chunk <= self.received + self.pace.window() {
                    self.sent += chunk;
                    self.pace.told(Time::from_micros(self.now_us), self.sent);
                    free_at = self.now_us.max(free_at) + chunk / bytes_per_us;
                    let late = if (self.sent / chunk).is_multiple_of(3) {
                        jitter_us
                    } else {
                        0
                    };
                    last_at = (free_at + delay_us + late).max(last_at);
                    arrivals.push_back((last_at, self.sent, self.now_us));
                }
                let (at, upto, from) = arrivals.pop_front().expect("the window is never shut");
                (self.now_us, self.received, took) = (at, upto, at - from);
                self.pace.received(Time::from_micros(at), upto);
            }
            took
        }
    }

    #[test]
    fn a_long_path_without_a_queue_gets_all_that_may_be_under_way() {
        let mut transfer = Transfer::new(MOST);
        transfer.over(20_000, 1_250, 3_000_000);
        assert_eq!(transfer.pace.window(), MOST as u64);
    }

    #[test]
    fn a_long_path_that_varies_is_not_taken_for_a_full_one() {
        let mut transfer = Transfer::new(MOST);
        transfer.with_jitter(20_000, 5_000, 1_250, 3_000_000);
        assert_eq!(transfer.pace.window(), MOST as u64);
    }

    #[test]
    fn before_a_full_link_no_more_queues_than_an_answer_may_be_late() {
        let mut transfer = Transfer::new(MOST);
        // 1 Gbit/s: a window of all would be 6 ms of queue.
        let took = transfer.over(100, 125, 1_000_000);
        assert!((600..1_300).contains(&took), "{took} us");
        let window = transfer.pace.window();
        assert!(window < 160 << 10, "{window} bytes");
    }

    #[test]
    fn when_answers_come_late_all_of_a_sudden_less_is_under_way_and_never_none() {
        let mut transfer = Transfer::new(MOST);
        transfer.over(20_000, 1_250, 3_000_000);
        transfer.over(60_000, 1_250, 3_000_000);
        assert_eq!(transfer.pace.window(), (MOST / PARTS) as u64);
    }

    #[test]
    fn the_smallest_budget_lets_a_byte_through() {
        for most in [0, 1, 5] {
            let mut transfer = Transfer::new(most);
            assert_eq!(transfer.pace.chunk_bytes(), 1);
            transfer.over(10, 1, 1_000);
            assert!(transfer.received > 100);
        }
    }
}
