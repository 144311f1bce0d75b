//! How much is said to whoever asks, at the address that he names as his own.
//!
//! A question that comes from nowhere is answered at an address inside of it, since nothing goes back on the
//! connection that brought it. So whoever may speak to a node or a locator, without a key anybody who reaches
//! it, could have it dial and flood others. Therefore an address is not answered again within a moment, and
//! addresses that were not answered lately, each of which may cost a connection, have an allowance. What is
//! not answered is asked again by those who mean it.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use crate::Time;

/// So many new addresses are answered at once: all nodes of a cluster that starts.
const AT_ONCE: u32 = 2048;
/// And so many more each second. With what a connection outlives its use, these stay below the connections
/// that a transport opens.
const PER_SECOND: u32 = 128;
/// An address that was answered within this long has its connection.
const CONNECTED_FOR: Duration = Duration::from_secs(8);

/// Whom was answered lately, and how many more may be.
#[derive(Debug)]
pub(crate) struct Replies {
    lately: BTreeMap<SocketAddr, Time>,
    left: u32,
    refilled: Time,
}

impl Replies {
    /// Nobody was answered yet.
    pub(crate) fn new(now: Time) -> Self {
        Self {
            lately: BTreeMap::new(),
            left: AT_ONCE,
            refilled: now,
        }
    }

    /// Whether an address may be answered now, this long at least after it was answered before; if so, it
    /// counts.
    pub(crate) fn allow(&mut self, now: Time, to: SocketAddr, apart: Duration) -> bool {
        self.refill(now);
        match self.lately.get(&to) {
            Some(at) if now.since(*at) < apart => return false,
            Some(at) if now.since(*at) < CONNECTED_FOR => {}
            _ if self.left == 0 => return false,
            _ => self.left -= 1,
        }
        self.lately.insert(to, now);
        true
    }

    fn refill(&mut self, now: Time) {
        let due = now.since(self.refilled).as_micros() * u128::from(PER_SECOND) / 1_000_000;
        if due > 0 {
            self.refilled = now;
            let due = u32::try_from(due).unwrap_or(u32::MAX);
            self.left = self.left.saturating_add(due).min(AT_ONCE);
            self.lately.retain(|_, at| now.since(*at) < CONNECTED_FOR);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn addr(number: u32) -> SocketAddr {
        SocketAddr::from((std::net::Ipv4Addr::from(0x0a00_0000 + number), 7400))
    }

    #[test]
    fn who_asks_again_is_answered_and_not_too_often_and_strangers_have_an_allowance() {
        let at = |ms: u64| Time::from_micros(ms * 1000);
        let apart = Duration::from_millis(10);
        let mut replies = Replies::new(at(0));
        assert!(replies.allow(at(0), addr(1), apart));
        assert!(!replies.allow(at(9), addr(1), apart));
        assert!(replies.allow(at(10), addr(1), apart));
        let answered = |replies: &mut Replies, now, from: u32| {
            (from..from + 10_000)
                .filter(|number| replies.allow(now, addr(*number), apart))
                .count()
        };
        let first = answered(&mut replies, at(10), 1_000);
        assert!(
            (AT_ONCE as usize - 1..=AT_ONCE as usize + 1).contains(&first),
            "{first}"
        );
        assert_eq!(answered(&mut replies, at(1_010), 20_000), PER_SECOND as usize);
        assert!(
            replies.allow(at(1_020), addr(1), apart),
            "whoever has a connection"
        );
        assert!(replies.lately.len() <= 2 * AT_ONCE as usize);
        assert!(replies.allow(at(60_000), addr(1), apart));
        assert_eq!(replies.lately.len(), 1);
    }
}
