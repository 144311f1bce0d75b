//! What the host refuses a node or locator ([`Lack`]): logged for people once in a while, and told on
//! request.

use std::collections::BTreeMap;
use std::time::Duration;

use antiphon_core::Time;
use antiphon_net::Lack;

/// The same is told again after this long.
const TOLD_EVERY: Duration = Duration::from_secs(60);
/// The transport notices a lack again within this long, as long as it lasts: nodes dial all the time.
const LASTS: Duration = Duration::from_secs(10);

/// What was refused, and when.
#[derive(Debug, Default)]
pub(crate) struct Lacks {
    seen: BTreeMap<Lack, Seen>,
}

#[derive(Debug)]
struct Seen {
    last: Time,
    told: Time,
}

impl Lacks {
    /// Remembers a lack. Whether it is to be told now.
    pub(crate) fn note(&mut self, now: Time, lack: Lack) -> bool {
        let Some(seen) = self.seen.get_mut(&lack) else {
            self.seen.insert(lack, Seen { last: now, told: now });
            return true;
        };
        seen.last = now;
        let due = now.since(seen.told) >= TOLD_EVERY;
        if due {
            seen.told = now;
        }
        due
    }

    /// What lacks at present.
    pub(crate) fn present(&self, now: Time) -> Vec<Lack> {
        let lasting = self.seen.iter().filter(|(_, seen)| now.since(seen.last) < LASTS);
        lasting.map(|(lack, _)| *lack).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_lacks_all_the_time_is_told_once_a_minute() {
        let mut lacks = Lacks::default();
        let at = |seconds| Time::ZERO + Duration::from_secs(seconds);
        let told = (0..120).filter(|second| lacks.note(at(*second), Lack::Files));
        assert_eq!(told.count(), 2);
        assert!(lacks.note(at(120), Lack::Memory), "another is told at once");
        assert_eq!(lacks.present(at(121)), [Lack::Files, Lack::Memory]);
        assert_eq!(lacks.present(at(140)), [], "it is there again");
    }
}
