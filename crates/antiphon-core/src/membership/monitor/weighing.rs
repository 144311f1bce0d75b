//! When a member weighs everything. To weigh a thousand members takes a while, so what comes in together is
//! weighed together.

use std::time::Duration;

use crate::Time;

/// When this node weighed everything last, and when it does so again.
#[derive(Debug)]
pub(crate) struct Weighing {
    /// The time between two times; `None` where to weigh all takes no time to speak of.
    apart: Option<Duration>,
    last: Time,
    due: Option<Time>,
}

impl Weighing {
    pub(crate) fn new(apart: Option<Duration>) -> Self {
        Self {
            apart,
            last: Time::ZERO,
            due: None,
        }
    }

    /// Whether everything is weighed now. If not, that is due later.
    pub(crate) fn begin(&mut self, now: Time) -> bool {
        let next = self.not_before();
        if now < next {
            let sooner = self.due.filter(|at| *at > now && *at < next);
            self.due = Some(sooner.unwrap_or(next));
            return false;
        }
        self.due = None;
        if self.apart.is_some() {
            self.last = now;
        }
        true
    }

    /// Everything is to be weighed by then.
    pub(crate) fn by(&mut self, at: Time) {
        self.due = Some(self.due.map_or(at, |due| due.min(at)));
    }

    /// Nothing is weighed again before this.
    pub(crate) fn not_before(&self) -> Time {
        self.apart.map_or(Time::ZERO, |apart| self.last + apart)
    }

    /// When something is due that was put off.
    pub(crate) fn due(&self) -> Option<Time> {
        self.due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_comes_together_is_weighed_together_and_none_of_it_is_forgotten() {
        let batch = Duration::from_millis(10);
        let at = |ms: u64| Time::from_micros(ms * 1000);
        let mut weighing = Weighing::new(Some(batch));
        assert!(weighing.begin(at(100)));
        assert!(!weighing.begin(at(101)));
        assert_eq!(weighing.due(), Some(at(110)));
        weighing.by(at(105));
        assert!(!weighing.begin(at(102)));
        assert_eq!(weighing.due(), Some(at(105)), "what was to be sooner is");
        assert!(weighing.begin(at(110)));
        assert_eq!(weighing.due(), None);
    }

    #[test]
    fn a_few_members_are_weighed_with_each_input() {
        let mut weighing = Weighing::new(None);
        assert!(weighing.begin(Time::ZERO) && weighing.begin(Time::ZERO));
        assert_eq!(weighing.not_before(), Time::ZERO);
    }
}
