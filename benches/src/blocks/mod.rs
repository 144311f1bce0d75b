//! Requests, locks, maps and state: what is built on the group, beside what others have for the same job.
//!
//! ```text
//!  benchmark ── crew ──┬── worker on host 1 ── Cluster, map, locks, calls, …
//!      │               ├── worker on host 2        (`antiphon-bench worker`, one process and one thread each)
//!      │               └── …      ▲ stdin: what to do     │ stdout: what came of it
//!      └── java, etcd: the peers, one process for each host, told and heard in the same way
//! ```
//! - [`worker`]: one node and its loads, through the library's public API alone; [`crew`]: all of them.
//! - [`java`]: peers that run in a JVM, and how any peer is told and heard; [`etcd`], [`grpc`].
//! - [`map`], [`locks`], [`failover`], [`rpc`], [`versions`], [`state`], [`delivery`]: a benchmark each.

mod crew;
pub(crate) mod delivery;
mod etcd;
pub(crate) mod failover;
mod grpc;
mod java;
pub(crate) mod locks;
pub(crate) mod map;
pub(crate) mod rpc;
pub(crate) mod state;
pub(crate) mod versions;
pub(crate) mod worker;

use std::collections::BTreeMap;

use rustix::time::{ClockId, clock_gettime};

pub(crate) use self::java::Peer;
use crate::report::Case;
use crate::{Common, Failure};

/// What a worker or a peer measured, by name.
pub(crate) type Figures = BTreeMap<String, f64>;

/// The mean of a figure over all that told it.
fn mean(figures: &[Figures], name: &str) -> f64 {
    sum(figures, name) / figures.len().max(1) as f64
}

fn sum(figures: &[Figures], name: &str) -> f64 {
    told(figures, name).sum()
}

/// The least of a figure: what holds at all.
fn least(figures: &[Figures], name: &str) -> f64 {
    told(figures, name).min_by(f64::total_cmp).unwrap_or(f64::NAN)
}

/// The most of a figure: what holds for all.
fn most(figures: &[Figures], name: &str) -> f64 {
    told(figures, name).max_by(f64::total_cmp).unwrap_or(f64::NAN)
}

/// What each told; if one did not, nothing is a number, and no sample: a sum without it would look slow.
fn told(figures: &[Figures], name: &str) -> impl Iterator<Item = f64> {
    let is_whole = figures.iter().all(|told| told.contains_key(name));
    figures.iter().map(move |told| match told.get(name) {
        Some(figure) if is_whole => *figure,
        _ => f64::NAN,
    })
}

/// The clock that all processes of this machine share.
pub(crate) fn clock_us() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000 + now.tv_nsec as u64 / 1000
}

impl Common {
    /// Adds a peer's sample. What of a peer cannot be measured is told in the case, and the rest goes on.
    pub(crate) fn add_peer(&self, case: &mut Case, series: &str, sample: Result<f64, Failure>) {
        let sample = sample.and_then(|sample| match sample.is_finite() && sample > 0.0 {
            true => Ok(sample),
            false => Err(format!("it was measured as {sample}")),
        });
        match sample {
            Ok(sample) => case.add(series, sample),
            Err(failure) if self.smoke => eprintln!("SKIPPED {series}: {failure}"),
            Err(failure) => case.fail(series, false, &failure),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_one_of_many_did_not_tell_is_no_number() {
        let of = |rate: f64| Figures::from([("rate".to_owned(), rate)]);
        let all = [of(1.0), of(3.0)];
        let four = [mean, sum, least, most].map(|figure| figure(&all, "rate"));
        assert_eq!(four, [2.0, 4.0, 1.0, 3.0]);
        let but_one = [of(1.0), Figures::new()];
        let four = [mean, sum, least, most].map(|figure| figure(&but_one, "rate"));
        assert!(four.iter().all(|figure| figure.is_nan()), "{four:?}");
    }
}
