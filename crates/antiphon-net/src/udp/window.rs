//! What is on its way to a peer, and how much may be.
//!
//! The receiver grants a window: its share of what its kernel holds until it is read, so that this buffer
//! does not overflow. Inside of it the sender keeps a window of its own. That window grows while everything
//! arrives and shrinks when something is lost on the way: the network in between has queues as well. One
//! frame may always be on its way.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use antiphon_wire::datagram::{MAX_AHEAD, MAX_GAPS, Report, SEGMENT_HEADER_BYTES};
use antiphon_wire::frame::Frame;

use super::socket::SMALLEST_DATAGRAM;

/// What a datagram costs the kernel that holds it, beyond its bytes.
pub(super) const DATAGRAM_COST: usize = 512;
/// Below this no loss shrinks a window: a few frames.
const MIN_WINDOW: usize = 128 << 10;
/// A window before anything is known of the path.
const FIRST_WINDOW: usize = 256 << 10;
/// What a window grows by when as much as it allows has arrived.
const GROWTH: usize = 64 << 10;
/// Frames on their way at most: the receiver keeps track of twice as many.
const MAX_FRAMES: usize = MAX_AHEAD as usize / 2;
/// How often the missing part of a frame is sent again before the repair is left to the core.
const MAX_REPAIRS: u8 = 12;
/// Segments of this size pass on every path.
const SAFE_BYTES: usize = SMALLEST_DATAGRAM - SEGMENT_HEADER_BYTES;
/// After so many round trips in a row in which larger segments did not arrive, the path counts as too small.
/// In an outage the receiver reports the same, every 40 ms: half a second of it is borne.
const MAX_NARROW: u8 = 12;
/// Without a report for a round trip and this, the sender asks for one. Receivers collect for 5 ms.
const PATIENCE: Duration = Duration::from_millis(20);
const MAX_PATIENCE: Duration = Duration::from_millis(400);
/// How often it asks, each time twice as patient, before it takes the path for broken.
const MAX_SILENCE: u32 = 6;

#[derive(Debug)]
pub(super) struct Window {
    /// From number `first` on, oldest first; the front one is not settled.
    frames: VecDeque<InFlight>,
    first: u64,
    /// Costs of the frames.
    cost: usize,
    granted: usize,
    congestion: usize,
    /// Up to here the window doubles each round trip.
    threshold: usize,
    round_trip: Option<Duration>,
    shrunk: Instant,
    seen: u64,
    /// When it last heard of the receiver, asked it, or began to wait for it.
    since: Instant,
    silence: u32,
    /// Frames left to the core.
    abandoned: u64,
    narrow: Narrow,
}

/// Whether the path has become too small for large segments. A router or a tunnel may drop them without a
/// word while small ones pass. Reports go on then, so the path is not silent, but nothing large arrives.
#[derive(Debug)]
struct Narrow {
    /// Round trips in a row in which a frame lacked all its largest segments.
    times: u8,
    counted: Instant,
    /// Bytes of those segments. If others of this size arrive, they were lost by chance.
    bytes: usize,
}

#[derive(Debug)]
struct InFlight {
    frame: Frame,
    size: usize,
    sent: Instant,
    repairs: u8,
    settled: bool,
}

/// What to send again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Again {
    pub(super) number: u64,
    pub(super) frame: Frame,
    /// Bytes of a segment.
    pub(super) size: usize,
    /// Bit i: segment i.
    pub(super) segments: u64,
}

/// What to do when nothing was heard for long.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Silence {
    /// Send this and ask for a report.
    Ask(Again),
    /// The path does not work.
    Broken,
}

impl Window {
    pub(super) fn new(now: Instant, granted: usize) -> Self {
        Self {
            frames: VecDeque::new(),
            first: 1,
            cost: 0,
            granted,
            congestion: FIRST_WINDOW,
            threshold: usize::MAX,
            round_trip: None,
            shrunk: now,
            seen: 0,
            since: now,
            silence: 0,
            abandoned: 0,
            narrow: Narrow {
                times: 0,
                counted: now,
                bytes: 0,
            },
        }
    }

    /// Whether a frame of this length may leave.
    pub(super) fn has_room(&self, length: usize, size: usize) -> bool {
        self.frames.is_empty()
            || self.frames.len() < MAX_FRAMES
                && self.cost + cost(length, size) <= self.granted.min(self.congestion)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.frames.is_empty()
    }

    /// A frame leaves now, in segments of this size; gives its number.
    pub(super) fn send(&mut self, now: Instant, frame: Frame, size: usize) -> u64 {
        if self.frames.is_empty() {
            self.since = now;
        }
        self.cost += cost(frame.len(), size);
        self.frames.push_back(InFlight {
            frame,
            size,
            sent: now,
            repairs: 0,
            settled: false,
        });
        self.first + self.frames.len() as u64 - 1
    }

    /// How far a frame is ahead of the first that may be sent again.
    pub(super) fn behind(&self, number: u64) -> u16 {
        number.saturating_sub(self.first).min(u16::MAX.into()) as u16
    }

    /// The receiver said what has arrived. What it misses is put into `again`.
    pub(super) fn report(&mut self, now: Instant, report: &Report, again: &mut Vec<Again>) {
        (self.since, self.silence) = (now, 0);
        self.granted = report.window as usize;
        // An older report came late, or names what was never sent.
        let last = self.first + self.frames.len() as u64 - 1;
        if report.seen < self.seen || report.seen > last {
            return;
        }
        self.seen = report.seen;
        self.measure(now, report);
        let (before, full) = (self.cost, self.cost * 2 >= self.congestion);
        self.settle(report);
        let missing = self.collect_missing(now, report, again);
        if missing {
            self.shrink(now, self.congestion / 10 * 7);
        } else if full {
            self.grow(before - self.cost);
        }
        self.forget_settled();
    }

    fn measure(&mut self, now: Instant, report: &Report) {
        let Some(frame) = self.at(report.seen) else { return };
        if frame.repairs > 0 || frame.settled {
            return;
        }
        let waited = Duration::from_micros(report.waited_us.into());
        let sample = now.duration_since(frame.sent).saturating_sub(waited);
        self.round_trip = Some(match self.round_trip {
            Some(before) => (before * 7 + sample) / 8,
            None => sample,
        });
    }

    /// Settles all frames that the report counts as arrived.
    fn settle(&mut self, report: &Report) {
        let named = |number: u64| {
            let behind = report.seen - number;
            report.gaps.iter().any(|gap| u64::from(gap.behind) == behind)
        };
        // A full report says nothing of what comes after.
        let end = match report.gaps.last() {
            Some(gap) if report.gaps.len() >= MAX_GAPS => report.seen.saturating_sub(gap.behind.into()),
            _ => report.seen,
        };
        // The last one seen may have more segments on their way, which are no gaps yet.
        let (first, end) = (self.first, end.min(report.seen));
        for (number, frame) in (first..)
            .zip(self.frames.iter_mut())
            .take_while(|(number, _)| *number <= end)
        {
            if !frame.settled && !named(number) {
                // If it was sent again, the receiver may have given it up.
                if frame.repairs == 0 {
                    self.narrow.arrived(frame.largest().0);
                }
                frame.settled = true;
                self.cost -= cost(frame.frame.len(), frame.size);
            }
        }
    }

    /// Whether something was lost that was not known to be.
    fn collect_missing(&mut self, now: Instant, report: &Report, again: &mut Vec<Again>) -> bool {
        let round_trip = self.round_trip.unwrap_or(PATIENCE);
        let mut news = false;
        let (mut arrived, mut missing) = (0, 0);
        for gap in &report.gaps {
            let Some(number) = report.seen.checked_sub(gap.behind.into()) else {
                continue;
            };
            let Some(at) = number.checked_sub(self.first) else {
                continue;
            };
            let Some(frame) = self.frames.get_mut(at as usize) else {
                continue;
            };
            let segments = gap.missing & all(frame.frame.len().div_ceil(frame.size));
            // What was sent again may be on its way still.
            if frame.settled
                || segments == 0
                || frame.repairs > 0 && now.duration_since(frame.sent) < round_trip
            {
                continue;
            }
            news |= frame.repairs == 0;
            let (bytes, largest) = frame.largest();
            if segments & largest == largest {
                missing = bytes.max(missing);
            } else {
                arrived = bytes.max(arrived);
            }
            if frame.repairs >= MAX_REPAIRS {
                frame.settled = true;
                self.cost -= cost(frame.frame.len(), frame.size);
                self.abandoned += 1;
                continue;
            }
            frame.repairs += 1;
            frame.sent = now;
            again.push(Again {
                number,
                frame: frame.frame.clone(),
                size: frame.size,
                segments,
            });
        }
        self.narrow.arrived(arrived);
        if missing > arrived.max(SAFE_BYTES) {
            self.narrow.missing(now, missing, round_trip);
        }
        news
    }

    /// Whether only small segments arrive, however often large ones are sent again.
    pub(super) fn is_narrow(&self) -> bool {
        self.narrow.times >= MAX_NARROW
    }

    fn grow(&mut self, arrived: usize) {
        self.congestion += if self.congestion < self.threshold {
            arrived
        } else {
            // As much per window's worth that has arrived.
            GROWTH * arrived / self.congestion
        };
        self.congestion = self.congestion.min(self.granted.max(FIRST_WINDOW));
    }

    /// At most once in a round trip: what was lost together is one loss.
    fn shrink(&mut self, now: Instant, to: usize) {
        if now.duration_since(self.shrunk) < self.round_trip.unwrap_or(PATIENCE) {
            return;
        }
        self.shrunk = now;
        self.congestion = to.max(MIN_WINDOW);
        self.threshold = self.congestion;
    }

    fn forget_settled(&mut self) {
        while self.frames.front().is_some_and(|frame| frame.settled) {
            self.frames.pop_front();
            self.first += 1;
        }
    }

    /// When to do something about the receiver's silence.
    pub(super) fn deadline(&self) -> Option<Instant> {
        let patience = self.round_trip.unwrap_or_default() * 2 + PATIENCE;
        (!self.frames.is_empty()).then(|| self.since + (patience * (1 << self.silence)).min(MAX_PATIENCE))
    }

    /// Nothing was heard for long.
    pub(super) fn silent(&mut self, now: Instant) -> Silence {
        self.silence += 1;
        self.since = now;
        if self.silence > MAX_SILENCE {
            return Silence::Broken;
        }
        self.shrink(now, self.congestion / 2);
        // The receiver then knows how far the sender came, and names all that is missing.
        let Some((at, frame)) = self
            .frames
            .iter_mut()
            .enumerate()
            .rfind(|(_, frame)| !frame.settled)
        else {
            return Silence::Broken;
        };
        frame.repairs = frame.repairs.saturating_add(1);
        Silence::Ask(Again {
            number: self.first + at as u64,
            segments: 1 << (frame.frame.len().div_ceil(frame.size) - 1),
            size: frame.size,
            frame: frame.frame.clone(),
        })
    }

    /// Frames left to the core since the last call.
    pub(super) fn take_abandoned(&mut self) -> u64 {
        std::mem::take(&mut self.abandoned)
    }

    /// How many frames are not known to have arrived.
    pub(super) fn unsettled(&self) -> u64 {
        self.frames.iter().filter(|frame| !frame.settled).count() as u64
    }

    fn at(&self, number: u64) -> Option<&InFlight> {
        self.frames.get(number.checked_sub(self.first)? as usize)
    }
}

impl Narrow {
    fn arrived(&mut self, bytes: usize) {
        if bytes >= self.bytes {
            (self.times, self.bytes) = (0, 0);
        }
    }

    /// At most once in a round trip, as a loss counts.
    fn missing(&mut self, now: Instant, bytes: usize, round_trip: Duration) {
        self.bytes = self.bytes.max(bytes);
        if now.duration_since(self.counted) >= round_trip + PATIENCE {
            self.times = self.times.saturating_add(1);
            self.counted = now;
        }
    }
}

impl InFlight {
    /// Bytes of its largest segments, and which these are.
    fn largest(&self) -> (usize, u64) {
        let length = self.frame.len();
        (length.min(self.size), all(length / self.size))
    }
}

/// What a frame counts in a window.
pub(super) fn cost(length: usize, size: usize) -> usize {
    length + length.div_ceil(size) * DATAGRAM_COST
}

/// The bits of this many segments, 1 to 64.
pub(super) fn all(segments: usize) -> u64 {
    u64::MAX >> (64 - segments.clamp(1, 64))
}

#[cfg(test)]
mod tests {
    use antiphon_wire::datagram::Gap;
    use bytes::Bytes;

    use super::*;

    const SIZE: usize = 1000;
    const MS: Duration = Duration::from_millis(1);

    fn frame(length: usize) -> Frame {
        Bytes::from(vec![1; length]).into()
    }

    fn report(seen: u64, gaps: &[(u16, u64)]) -> Report {
        Report {
            flow: 1,
            seen,
            window: 1 << 20,
            waited_us: 0,
            gaps: gaps
                .iter()
                .map(|&(behind, missing)| Gap { behind, missing })
                .collect(),
        }
    }

    fn told(window: &mut Window, now: Instant, report: &Report) -> Vec<(u64, u64)> {
        let mut again = Vec::new();
        window.report(now, report, &mut again);
        again.iter().map(|again| (again.number, again.segments)).collect()
    }

    fn fill(window: &mut Window, now: Instant) -> usize {
        let mut sent = 0;
        while window.has_room(60_000, SIZE) {
            window.send(now, frame(60_000), SIZE);
            sent += 1;
        }
        sent
    }

    #[test]
    fn what_arrived_makes_room_and_the_window_grows_up_to_what_is_granted() {
        let mut now = Instant::now();
        let mut window = Window::new(now, 1 << 20);
        let (mut last, mut number) = (0, 0);
        for _ in 0..20 {
            let sent = fill(&mut window, now);
            assert!(sent >= last);
            (last, number) = (sent, number + sent as u64);
            now += MS;
            assert!(told(&mut window, now, &report(number, &[])).is_empty());
            assert!(window.is_empty());
        }
        assert_eq!(last, (1 << 20) / cost(60_000, SIZE));
    }

    #[test]
    fn one_frame_may_always_leave_however_little_is_granted() {
        let now = Instant::now();
        let mut window = Window::new(now, 10);
        assert!(window.has_room(60_000, SIZE));
        window.send(now, frame(60_000), SIZE);
        assert!(!window.has_room(100, SIZE));
    }

    #[test]
    fn what_is_missing_is_sent_again_once_in_a_round_trip_and_shrinks_the_window() {
        let mut now = Instant::now();
        let mut window = Window::new(now, 1 << 20);
        for _ in 0..4 {
            window.send(now, frame(60_000), SIZE);
        }
        let before = window.congestion;
        now += 10 * MS;
        // Frame 1 lacks segment 3, frame 2 is here, of frame 3 nothing is; it has 60 segments.
        let missing = report(4, &[(3, 0b1000), (1, u64::MAX)]);
        assert_eq!(told(&mut window, now, &missing), [(1, 0b1000), (3, all(60))]);
        assert!(window.congestion < before);
        assert_eq!(window.first, 1);
        assert!(
            told(&mut window, now + MS, &missing).is_empty(),
            "it is on its way"
        );
        assert_eq!(told(&mut window, now + 20 * MS, &missing).len(), 2);
        assert!(told(&mut window, now + 21 * MS, &report(4, &[])).is_empty());
        assert!(window.is_empty());
    }

    #[test]
    fn a_report_that_was_overtaken_settles_nothing_and_one_of_frames_never_sent_neither() {
        let now = Instant::now();
        let mut window = Window::new(now, 1 << 20);
        for _ in 0..3 {
            window.send(now, frame(100), SIZE);
        }
        told(&mut window, now + MS, &report(2, &[(1, 1)]));
        assert_eq!(window.unsettled(), 2);
        told(&mut window, now + MS, &report(1, &[]));
        told(&mut window, now + MS, &report(9, &[]));
        assert_eq!(window.unsettled(), 2);
    }

    #[test]
    fn a_report_that_names_as_much_as_it_can_settles_nothing_after_that() {
        let now = Instant::now();
        let mut window = Window::new(now, 1 << 20);
        for _ in 0..100 {
            window.send(now, frame(100), SIZE);
        }
        let gaps: Vec<(u16, u64)> = (0..MAX_GAPS as u16).map(|at| (99 - at, 1)).collect();
        assert_eq!(told(&mut window, now + MS, &report(100, &gaps)).len(), MAX_GAPS);
        assert_eq!(window.unsettled(), 100);
    }

    #[test]
    fn silence_asks_for_a_report_a_few_times_and_then_the_path_is_broken() {
        let mut now = Instant::now();
        let mut window = Window::new(now, 1 << 20);
        assert_eq!(window.deadline(), None);
        window.send(now, frame(2500), SIZE);
        window.send(now, frame(2500), SIZE);
        for _ in 0..MAX_SILENCE {
            now = window.deadline().expect("something is on its way");
            let Silence::Ask(again) = window.silent(now) else {
                panic!("not yet")
            };
            assert_eq!((again.number, again.segments), (2, 0b100));
        }
        now = window.deadline().expect("still");
        assert_eq!(window.silent(now), Silence::Broken);
    }

    /// How many reports say that of a frame of 3000 bytes only the last segment arrives, until the path
    /// counts as narrow.
    fn reports_until_narrow(window: &mut Window, mut now: Instant, size: usize, at_most: u32) -> u32 {
        let mut number = 0;
        for reports in 0..at_most {
            if window.is_narrow() {
                return reports;
            }
            if window.is_empty() {
                number = window.send(now, frame(3000), size);
            }
            now += 40 * MS;
            told(window, now, &report(number, &[(0, 0b011)]));
        }
        at_most
    }

    #[test]
    fn a_path_on_which_only_what_is_small_arrives_is_narrow_although_reports_come() {
        let now = Instant::now();
        let mut window = Window::new(now, 1 << 20);
        let reports = reports_until_narrow(&mut window, now, 1444, 100);
        assert!((12..=30).contains(&reports), "{reports} reports");
    }

    #[test]
    fn a_path_is_not_narrow_by_what_chance_takes_nor_for_segments_that_pass_everywhere() {
        let mut now = Instant::now();
        let mut window = Window::new(now, 1 << 20);
        for _ in 0..10 * MAX_NARROW {
            let number = window.send(now, frame(3000), 1444);
            now += 100 * MS;
            told(&mut window, now, &report(number, &[(0, 0b011)]));
            // Of the next frame a part arrives, and then all of both.
            let number = window.send(now, frame(3000), 1444);
            now += 100 * MS;
            told(&mut window, now, &report(number, &[(0, 0b010)]));
            told(&mut window, now, &report(number, &[]));
            assert!(window.is_empty() && !window.is_narrow());
        }
        let mut window = Window::new(now, 1 << 20);
        assert_eq!(reports_until_narrow(&mut window, now, SAFE_BYTES, 100), 100);
    }

    #[test]
    fn frames_that_arrive_whole_between_losses_show_that_the_path_is_wide() {
        let mut now = Instant::now();
        let mut window = Window::new(now, 1 << 20);
        for _ in 0..2 * MAX_NARROW {
            let number = window.send(now, frame(3000), 1444);
            now += 100 * MS;
            told(&mut window, now, &report(number, &[(0, 0b011)]));
            told(&mut window, now, &report(number, &[]));
            let number = window.send(now, frame(3000), 1444);
            now += 100 * MS;
            told(&mut window, now, &report(number, &[]));
            assert!(window.is_empty() && !window.is_narrow());
        }
    }

    #[test]
    fn a_frame_that_never_arrives_is_left_to_the_core() {
        let mut now = Instant::now();
        let mut window = Window::new(now, 1 << 20);
        window.send(now, frame(100), SIZE);
        for _ in 0..=MAX_REPAIRS {
            now += 100 * MS;
            told(&mut window, now, &report(1, &[(0, 1)]));
        }
        assert!(window.is_empty());
        assert_eq!(window.take_abandoned(), 1);
    }
}
