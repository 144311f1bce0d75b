//! The alarm that wakes the driver at the core's deadlines.
//!
//! The deadlines move all the time, mostly to later, and to set a timer costs more than a small turn of the
//! driver. So if the timer is set to an earlier time, it stays: it rings for nothing, and is set anew.
//!
//! On Linux it is a timer of the kernel, for which the runtime waits as for a socket. The runtime's own
//! timers are a wheel of milliseconds: it wakes an idle node once more per heartbeat to move a timer from one
//! of its rings to another, and it stands still while the host is suspended. The kernel's timer is exact, and
//! rings when the host wakes. Elsewhere it is a timer of the runtime; so it is on a simulated host, since its
//! time is the runtime's.

use std::io;
use std::pin::Pin;
use std::time::Duration;

use antiphon_core::Time;
use tokio::time::{Instant, Sleep};

use super::clock::Clock;
use crate::host::Host;

/// Deadlines further away are looked at again by then.
const FAR: Duration = Duration::from_secs(3600);

/// Rings at the earliest of the times it was set to.
pub(super) struct Alarm {
    timer: Timer,
    set: Option<Time>,
}

impl Alarm {
    /// Must be called on a tokio runtime.
    ///
    /// # Errors
    /// What the system says: no descriptor is left.
    pub(super) fn new(host: &Host) -> io::Result<Self> {
        Ok(Self {
            timer: Timer::new(host)?,
            set: None,
        })
    }

    /// Is to ring at `deadline` at the latest.
    pub(super) fn set(&mut self, clock: &Clock, deadline: Time) {
        if self.set.is_some_and(|set| set <= deadline) {
            return;
        }
        let now = clock.now();
        let wait = deadline.since(now).min(FAR);
        if !wait.is_zero() {
            self.timer.set(wait);
        }
        self.set = Some(now + wait);
    }

    /// Waits until it rings; without end if it is not set.
    ///
    /// # Cancel safety
    /// It rings on if this is dropped.
    pub(super) async fn rings(&mut self, clock: &Clock) {
        let Some(set) = self.set else {
            return std::future::pending().await;
        };
        // It may still ring for a former time.
        while clock.now() < set {
            self.timer.rings().await;
        }
        self.set = None;
    }
}

enum Timer {
    #[cfg(any(target_os = "linux", target_os = "android"))]
    Kernel(kernel::Timer),
    Runtime(Pin<Box<Sleep>>),
}

impl Timer {
    fn new(host: &Host) -> io::Result<Self> {
        #[cfg(any(target_os = "linux", target_os = "android"))]
        if !host.is_simulated() {
            return kernel::Timer::new().map(Timer::Kernel);
        }
        let _ = host;
        Ok(Timer::Runtime(Box::pin(tokio::time::sleep(Duration::ZERO))))
    }

    /// Sets it to ring after `wait`, which is not zero.
    fn set(&mut self, wait: Duration) {
        match self {
            #[cfg(any(target_os = "linux", target_os = "android"))]
            Timer::Kernel(timer) => timer.set(wait),
            Timer::Runtime(sleep) => sleep.as_mut().reset(Instant::now() + wait),
        }
    }

    /// Whether it has rung since the last call, for its present time or for a former one.
    async fn rings(&mut self) {
        match self {
            #[cfg(any(target_os = "linux", target_os = "android"))]
            Timer::Kernel(timer) => timer.rings().await,
            Timer::Runtime(sleep) => {
                sleep.as_mut().await;
                // Rung for too early by another clock: not again at once.
                sleep.as_mut().reset(Instant::now() + Duration::from_millis(1));
            }
        }
    }
}

#[cfg(any(target_os = "linux", target_os = "android"))]
mod kernel {
    use std::io;
    use std::os::fd::OwnedFd;
    use std::time::Duration;

    use rustix::time::{
        Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
        timerfd_settime,
    };
    use tokio::io::Interest;
    use tokio::io::unix::AsyncFd;

    pub(super) struct Timer(AsyncFd<OwnedFd>);

    impl Timer {
        #[allow(
            deprecated,
            reason = "its successor is unsafe, for the sake of types that lend a descriptor they do not own; this one owns it"
        )]
        pub(super) fn new() -> io::Result<Self> {
            let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
            let timer = timerfd_create(TimerfdClockId::Boottime, flags)?;
            Ok(Self(AsyncFd::with_interest(timer, Interest::READABLE)?))
        }

        /// To ring after `wait`, which is not zero: that would stop it.
        pub(super) fn set(&mut self, wait: Duration) {
            let none = Timespec {
                tv_sec: 0,
                tv_nsec: 0,
            };
            let once = Itimerspec {
                it_interval: none,
                it_value: Timespec {
                    // At most an hour.
                    tv_sec: wait.as_secs() as i64,
                    tv_nsec: wait.subsec_nanos().into(),
                },
            };
            // Fails for what is no timer or no time only.
            if let Err(error) = timerfd_settime(&self.0, TimerfdTimerFlags::empty(), &once) {
                tracing::error!(target: "antiphon::net", %error, "cannot set a timer");
            }
        }

        /// Waits until it has rung since the last call, for its present time or for a former one. It is not
        /// read: to set it anew takes back that it has rung.
        pub(super) async fn rings(&mut self) {
            match self.0.readable().await {
                Ok(mut rung) => rung.clear_ready(),
                // The runtime is shutting down, and drops the driver.
                Err(_) => std::future::pending().await,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    async fn not_within(alarm: &mut Alarm, clock: &Clock, wait: u64) {
        tokio::time::timeout(Duration::from_millis(wait), alarm.rings(clock))
            .await
            .expect_err("it rang");
    }

    #[tokio::test]
    async fn it_rings_for_the_earliest_deadline_and_again_for_what_is_set_then() {
        let clock = Clock::start(Host::default());
        let mut alarm = Alarm::new(&Host::default()).unwrap();
        let in_millis = |millis| clock.now() + Duration::from_millis(millis);
        let start = Instant::now();
        alarm.set(&clock, in_millis(500));
        alarm.set(&clock, in_millis(40));
        alarm.set(&clock, in_millis(200));
        not_within(&mut alarm, &clock, 5).await;
        alarm.rings(&clock).await;
        let rang = start.elapsed();
        assert!((40..200).contains(&rang.as_millis()), "{rang:?}");
        not_within(&mut alarm, &clock, 20).await;
        let start = Instant::now();
        alarm.set(&clock, in_millis(30));
        alarm.rings(&clock).await;
        assert!(start.elapsed() >= Duration::from_millis(30));
    }

    #[tokio::test]
    async fn what_it_was_set_to_before_does_not_ring_for_what_is_set_now() {
        let clock = Clock::start(Host::default());
        let mut alarm = Alarm::new(&Host::default()).unwrap();
        alarm.set(&clock, clock.now());
        // It has rung in the system, and nobody has waited for it.
        std::thread::sleep(Duration::from_millis(5));
        alarm.rings(&clock).await;
        alarm.set(&clock, clock.now() + Duration::from_millis(100));
        not_within(&mut alarm, &clock, 30).await;
        alarm.rings(&clock).await;
    }

    #[tokio::test]
    async fn a_deadline_that_is_over_or_without_end_is_one_all_the_same() {
        let clock = Clock::start(Host::default());
        let mut alarm = Alarm::new(&Host::default()).unwrap();
        alarm.set(&clock, Time::from_micros(u64::MAX));
        not_within(&mut alarm, &clock, 20).await;
        alarm.set(&clock, Time::ZERO);
        alarm.rings(&clock).await;
    }
}
