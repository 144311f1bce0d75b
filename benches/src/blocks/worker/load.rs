//! A load: tasks that do one thing after the other, of which some time counts.

use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use antiphon::replicated::ReplicaStatusWatch;
use hdrhistogram::Histogram;

use super::words::Time;
use crate::Failure;
use crate::blocks::Figures;

/// Latencies are kept up to this.
const LONGEST_NS: u64 = 100_000_000_000;

/// Where a load is; it begins with 0, and warms up.
const COUNTS: u8 = 1;
const OVER: u8 = 2;

/// What tells the tasks of a load whether they count and go on.
#[derive(Clone, Default)]
pub(super) struct Course(Arc<AtomicU8>);

impl Course {
    /// Whether it is over.
    pub(super) fn is_over(&self) -> bool {
        self.0.load(Ordering::Relaxed) == OVER
    }

    fn counts(&self) -> bool {
        self.0.load(Ordering::Relaxed) == COUNTS
    }
}

/// Waits until so many members have the state.
pub(super) async fn until_synced(mut status: ReplicaStatusWatch, members: usize) -> Result<(), Failure> {
    while status.current().synced().count() < members {
        let changed = status.changed().await;
        changed.ok_or_else(|| Failure::from("left before all members had the state"))?;
    }
    Ok(())
}

/// Runs tasks, each of which does `one` (given its number, and how often it did it before) again and again.
/// The figures are `rate`, how often per second all did it, and how long one took: `p50_us`, `p99_us`.
///
/// # Errors
/// The first error ends the load.
pub(crate) async fn run<F>(
    tasks: usize,
    time: Time,
    one: impl Fn(usize, u64) -> F + Clone + Send + 'static,
) -> Result<Figures, Failure>
where
    F: Future<Output = Result<(), Failure>> + Send,
{
    run_beside(tasks, time, one, async {}, async {}).await
}

/// The same of something that tells itself how long it took.
pub(crate) async fn run_timed<F>(
    tasks: usize,
    time: Time,
    one: impl Fn(usize, u64) -> F + Clone + Send + 'static,
) -> Result<Figures, Failure>
where
    F: Future<Output = Result<Duration, Failure>> + Send,
{
    run_timed_beside(tasks, time, one, async {}, async {}).await
}

/// The same, with what is done when it begins to count, and when it has counted.
pub(super) async fn run_beside<F>(
    tasks: usize,
    time: Time,
    one: impl Fn(usize, u64) -> F + Clone + Send + 'static,
    begins: impl Future<Output = ()>,
    ends: impl Future<Output = ()>,
) -> Result<Figures, Failure>
where
    F: Future<Output = Result<(), Failure>> + Send,
{
    let timed = move |task, count| {
        let one = one(task, count);
        async move {
            let from = Instant::now();
            one.await?;
            Ok(from.elapsed())
        }
    };
    run_timed_beside(tasks, time, timed, begins, ends).await
}

async fn run_timed_beside<F>(
    tasks: usize,
    time: Time,
    one: impl Fn(usize, u64) -> F + Clone + Send + 'static,
    begins: impl Future<Output = ()>,
    ends: impl Future<Output = ()>,
) -> Result<Figures, Failure>
where
    F: Future<Output = Result<Duration, Failure>> + Send,
{
    let course = Course::default();
    // One for all tasks: some hundred of them would be more than a cache has room for, and be part of what is
    // measured.
    let latencies = Arc::new(Mutex::new(histogram()?));
    let running: Vec<_> = (0..tasks)
        .map(|task| {
            let (one, course, latencies) = (one.clone(), course.clone(), latencies.clone());
            tokio::spawn(async move {
                for count in 0.. {
                    if course.is_over() {
                        break;
                    }
                    let took = one(task, count).await?;
                    if course.counts() {
                        record(&mut lock(&latencies), took);
                    }
                }
                Ok::<_, Failure>(())
            })
        })
        .collect();
    tokio::time::sleep(time.warmup()).await;
    begins.await;
    let from = Instant::now();
    course.0.store(COUNTS, Ordering::Relaxed);
    tokio::time::sleep(time.measured()).await;
    let took = from.elapsed();
    course.0.store(OVER, Ordering::Relaxed);
    ends.await;
    for task in running {
        task.await
            .map_err(|error| format!("a task of the load: {error}"))??;
    }
    Ok(figures(&lock(&latencies), took))
}

fn lock(latencies: &Mutex<Histogram<u64>>) -> MutexGuard<'_, Histogram<u64>> {
    latencies.lock().unwrap_or_else(PoisonError::into_inner)
}

pub(crate) fn histogram() -> Result<Histogram<u64>, Failure> {
    Histogram::new_with_bounds(1, LONGEST_NS, 3).map_err(|error| error.to_string())
}

pub(crate) fn record(latencies: &mut Histogram<u64>, took: Duration) {
    latencies.saturating_record(u64::try_from(took.as_nanos()).unwrap_or(LONGEST_NS).max(1));
}

pub(crate) fn figures(latencies: &Histogram<u64>, took: Duration) -> Figures {
    let quantile = |quantile| latencies.value_at_quantile(quantile) as f64 / 1000.0;
    Figures::from([
        ("rate".to_owned(), latencies.len() as f64 / took.as_secs_f64()),
        ("p50_us".to_owned(), quantile(0.5)),
        ("p99_us".to_owned(), quantile(0.99)),
    ])
}
