//! This node's own attention: how much of the time it ran when it wanted to.
//!
//! A node that was stopped, or gets too little processor, hears late what came in time. It must not take that
//! for the silence of others. Two things show it: a gap without any input, though a timer was due long before
//! its end, and timers that are served late. What the node missed is given to every peer. If
//! it was much, the application is told, since the operator of the host should know.

use std::time::Duration;

use crate::Time;

/// What was missed is summed up over this many heartbeats.
const WINDOW_BEATS: u32 = 50;
/// Missing this much of the window is worth telling: a tenth.
const WORTH_TELLING_BEATS: u32 = 5;
/// What is later than this part of a heartbeat is summed up, though only what is later than a heartbeat is
/// forgiven: a quota takes the processor away for less than a tenth of a second at a time, and nine times of
/// ten.
const SLIGHTLY_LATE: u32 = 10;
/// How late timers are served is known for as long as this many heartbeats, and for up to twice as long.
const LAG_BEATS: u32 = 5;
/// A node's lag is at most this many heartbeats: what waits for longer because of it must come to its end,
/// even where a host is busy for ever.
const MOST_LAG_BEATS: u32 = 2;

/// Measures gaps and lateness of one node.
#[derive(Debug)]
pub(crate) struct Attention {
    heartbeat: Duration,
    last_active: Option<Time>,
    /// Since when what was missed is summed up, and the sum.
    window: Option<(Time, Duration)>,
    told: bool,
    /// How late the latest timer was served since then, and in the time before.
    lag_since: Time,
    lag: Duration,
    lag_before: Duration,
}

impl Attention {
    pub(crate) fn new(heartbeat: Duration) -> Self {
        Self {
            heartbeat,
            last_active: None,
            window: None,
            told: false,
            lag_since: Time::ZERO,
            lag: Duration::ZERO,
            lag_before: Duration::ZERO,
        }
    }

    /// An input has come, or the timer that was due then. Returns for how long this node did not run although
    /// it should have.
    pub(crate) fn awake(&mut self, now: Time, due: Option<Time>) -> Option<Duration> {
        let gap = self.last_active.map_or(Duration::ZERO, |last| now.since(last));
        self.last_active = Some(now);
        let due = due.filter(|_| !planted!(LateTimersAreNothing));
        let late = due.map_or(Duration::ZERO, |due| now.since(due));
        if due.is_some() {
            self.note_lag(now, late);
        }
        // Where nothing was due, nothing woke it.
        let stopped = gap > self.heartbeat * 2 && (due.is_none() || late > self.heartbeat);
        // What came meanwhile came while it did not look; no more than that.
        let missed = match due {
            Some(_) => late.min(if stopped { gap - self.heartbeat } else { gap }),
            None if stopped => gap - self.heartbeat,
            None => Duration::ZERO,
        };
        if missed > self.heartbeat / SLIGHTLY_LATE {
            self.sum_up(now, missed);
        }
        ((stopped || late > self.heartbeat) && !missed.is_zero()).then_some(missed)
    }

    fn note_lag(&mut self, now: Time, late: Duration) {
        let over = now.since(self.lag_since) >= self.heartbeat * LAG_BEATS;
        if over {
            (self.lag_since, self.lag_before, self.lag) = (now, self.lag, Duration::ZERO);
        }
        self.lag = self.lag.max(late);
    }

    /// How late timers are served these days: the latest of the last [`LAG_BEATS`] heartbeats at least, up to
    /// [`MOST_LAG_BEATS`].
    pub(crate) fn lag(&self) -> Duration {
        self.lag.max(self.lag_before).min(self.heartbeat * MOST_LAG_BEATS)
    }

    fn sum_up(&mut self, now: Time, missed: Duration) {
        let began = now - missed;
        let window = self.window.get_or_insert((began, Duration::ZERO));
        if now.since(window.0) > self.heartbeat * WINDOW_BEATS + missed {
            *window = (began, Duration::ZERO);
            self.told = false;
        }
        window.1 += missed;
    }

    /// How much was missed, in which time, if that is worth telling and was not told yet.
    pub(crate) fn take_news(&mut self, now: Time) -> Option<(Duration, Duration)> {
        let (since, missed) = self.window?;
        if self.told || missed < self.heartbeat * WORTH_TELLING_BEATS {
            return None;
        }
        self.told = true;
        Some((missed, now.since(since)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BEAT: Duration = Duration::from_millis(200);

    fn at(ms: u64) -> Time {
        Time::from_micros(ms * 1000)
    }

    #[test]
    fn a_stop_is_told_once_and_the_next_one_again() {
        let mut attention = Attention::new(BEAT);
        for ms in (0..1_000).step_by(100) {
            assert_eq!(attention.awake(at(ms), Some(at(ms))), None);
        }
        assert_eq!(attention.take_news(at(900)), None);
        let missed = Duration::from_millis(2_900);
        assert_eq!(attention.awake(at(4_000), Some(at(1_000))), Some(missed));
        assert_eq!(attention.take_news(at(4_000)), Some((missed, missed)));
        for ms in (4_100..30_000).step_by(100) {
            assert_eq!(attention.awake(at(ms), Some(at(ms))), None);
            assert_eq!(attention.take_news(at(ms)), None);
        }
        attention.awake(at(33_000), None);
        assert!(attention.take_news(at(33_000)).is_some());
    }

    #[test]
    fn the_latest_timer_of_a_second_is_known_for_one_or_two() {
        let mut attention = Attention::new(BEAT);
        let mut lags = |ms: u64, late: u64| {
            attention.awake(at(ms), Some(at(ms - late)));
            attention.lag()
        };
        assert_eq!(lags(1_000, 2), Duration::from_millis(2));
        assert_eq!(lags(1_100, 70), Duration::from_millis(70));
        assert_eq!(lags(2_000, 1), Duration::from_millis(70));
        assert_eq!(lags(2_900, 3), Duration::from_millis(70));
        assert_eq!(lags(3_000, 1), Duration::from_millis(3));
        attention.awake(at(3_050), None);
        assert_eq!(attention.lag(), Duration::from_millis(3), "nothing was due");
        attention.awake(at(33_000), Some(at(3_100)));
        assert_eq!(attention.lag(), BEAT * 2, "a stop");
    }

    #[test]
    fn a_quota_of_a_tenth_of_the_processor_is_told_and_forgives_nobody() {
        let mut attention = Attention::new(BEAT);
        let mut told = 0;
        for beat in 1..=100u64 {
            let due = beat * 200;
            assert_eq!(attention.awake(at(due + 90), Some(at(due))), None);
            told += u64::from(attention.take_news(at(due + 90)).is_some());
        }
        assert_eq!(told, 2, "once in ten seconds");
    }

    #[test]
    fn a_late_timer_after_something_that_came_in_the_same_moment_missed_nothing() {
        let mut attention = Attention::new(BEAT);
        attention.awake(at(1_000), None);
        attention.awake(at(1_350), None);
        assert_eq!(attention.awake(at(1_350), Some(at(1_100))), None);
    }

    #[test]
    fn timers_that_are_always_late_add_up() {
        let mut attention = Attention::new(BEAT);
        let mut told = 0;
        let mut missed = Duration::ZERO;
        for beat in 1..=40u64 {
            let due = beat * 500;
            attention.awake(at(due - 50), None);
            missed += attention.awake(at(due + 250), Some(at(due))).unwrap();
            told += u64::from(attention.take_news(at(due + 250)).is_some());
        }
        assert_eq!(told, 2, "once in ten seconds");
        assert_eq!(missed, Duration::from_millis(250) * 40);
        assert_eq!(
            attention.awake(at(20_400), Some(at(20_300))),
            None,
            "a little late is nothing"
        );
    }

    #[test]
    fn a_node_that_has_nothing_to_do_for_long_is_not_starved() {
        let mut attention = Attention::new(BEAT);
        for wake in 1..100 {
            let due = at(wake * 2_900);
            assert_eq!(attention.awake(due, Some(due)), None);
            assert_eq!(attention.take_news(due), None);
        }
        // It slept past what was due.
        let late = Duration::from_millis(5_000);
        assert_eq!(
            attention.awake(at(100 * 2_900 + 5_000), Some(at(100 * 2_900))),
            Some(late)
        );
    }
}
