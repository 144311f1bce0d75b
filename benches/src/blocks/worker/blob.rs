//! A state of one large value that does not change, beside a count that does: what a joiner takes, and what
//! writers do meanwhile.

use std::sync::Arc;
use std::time::{Duration, Instant};

use antiphon::replicated::{At, Config, Machine, Replicated, RestoreError, Snapshot, SnapshotError};
use antiphon::{Cluster, Incarnation};
use bytes::Bytes;

use super::load;
use super::words::{Pace, Time};
use crate::Failure;
use crate::blocks::Figures;

/// What a joiner holds while the state comes: minutes of what the writers write.
const HELD_BYTES: usize = 512 << 20;

/// So many writes of a member are under way at once if it has no rate.
const AT_ONCE: usize = 64;
/// Of a part.
const PART_BYTES: usize = 1 << 20;

/// The machine.
pub(super) struct Blob {
    parts: Vec<Bytes>,
    /// The next one, while the state comes.
    part: Vec<u8>,
    count: Option<u64>,
}

/// The count, then all parts.
#[derive(Clone)]
pub(super) struct Parts {
    count: Bytes,
    parts: Arc<[Bytes]>,
    /// How many are read, and how much of the next.
    at: (usize, usize),
}

impl Snapshot for Parts {
    fn read(&mut self, about: usize) -> Result<Bytes, SnapshotError> {
        if !self.count.is_empty() {
            return Ok(std::mem::take(&mut self.count));
        }
        let (part, from) = self.at;
        let Some(bytes) = self.parts.get(part) else {
            return Ok(Bytes::new());
        };
        let to = bytes.len().min(from + about);
        self.at = if to < bytes.len() {
            (part, to)
        } else {
            (part + 1, 0)
        };
        Ok(bytes.slice(from..to))
    }

    fn bytes(&self) -> u64 {
        (self.parts.len() * PART_BYTES) as u64
    }
}

/// A write: adds a part, or only counts what it carries.
#[derive(serde::Serialize, serde::Deserialize)]
pub(super) struct Command {
    fill: bool,
    payload: Bytes,
}

impl Machine for Blob {
    type Command = Command;
    type Reply = u64;
    type Event = ();
    type Snapshot = Parts;

    fn apply(&mut self, _at: At, _from: Incarnation, command: Command, _events: &mut Vec<()>) -> u64 {
        if command.fill {
            self.parts.push(vec![0x5a; PART_BYTES].into());
        }
        let count = self.count.get_or_insert(0);
        *count += 1;
        *count
    }

    fn snapshot(&self) -> Parts {
        Parts {
            count: Bytes::copy_from_slice(&self.count.unwrap_or(0).to_be_bytes()),
            parts: self.parts.as_slice().into(),
            at: (0, 0),
        }
    }

    fn restore(&mut self, state: &[u8], _complete: bool) -> Result<usize, RestoreError> {
        let mut rest = state;
        if self.count.is_none() {
            let Some((count, parts)) = state.split_first_chunk() else {
                return Ok(0);
            };
            self.count = Some(u64::from_be_bytes(*count));
            rest = parts;
        }
        while !rest.is_empty() {
            let (bytes, after) = rest.split_at(rest.len().min(PART_BYTES - self.part.len()));
            self.part.extend_from_slice(bytes);
            if self.part.len() == PART_BYTES {
                let next = Vec::with_capacity(PART_BYTES);
                self.parts.push(std::mem::replace(&mut self.part, next).into());
            }
            rest = after;
        }
        Ok(state.len())
    }

    fn definition(&self) -> String {
        "blob 1".to_owned()
    }
}

/// Joins, and tells how long it took until the state was here.
pub(super) async fn open(cluster: &Cluster, bytes: u64) -> Result<(Replicated<Blob>, Figures), Failure> {
    let from = Instant::now();
    let make = || Blob {
        parts: Vec::new(),
        part: Vec::with_capacity(PART_BYTES),
        count: None,
    };
    let config = Config {
        held_bytes: HELD_BYTES,
        max_state_bytes: bytes + 1024,
        ..Config::default()
    };
    let blob = cluster.replicated("blob", make).config(config).join().await;
    let blob = blob.map_err(|error| error.to_string())?;
    let seconds = from.elapsed().as_secs_f64();
    let bytes = blob
        .read(|blob| blob.parts.len() * PART_BYTES)
        .map_err(|error| error.to_string())?;
    let figures = [
        ("seconds".to_owned(), seconds),
        ("bytes".to_owned(), bytes as f64),
    ];
    Ok((blob, figures.into()))
}

/// Waits until so many members have the state, and makes it so large.
pub(super) async fn fill(blob: &Replicated<Blob>, bytes: u64, members: usize) -> Result<(), Failure> {
    load::until_synced(blob.watch_status(), members).await?;
    for _ in 0..bytes / PART_BYTES as u64 {
        let part = Command {
            fill: true,
            payload: Bytes::new(),
        };
        let added = blob.write_acked(part).await;
        added.map_err(|error| error.to_string())?;
    }
    Ok(())
}

/// Writes at a rate: each write is due at its time, and its latency counts from there, also if it was late
/// because others were. Without a rate, each of some tasks writes when its last write was answered.
pub(super) async fn write(blob: &Replicated<Blob>, pace: Pace, time: Time) -> Result<Figures, Failure> {
    let payload = Bytes::from(vec![b'x'; pace.bytes]);
    let Some(per_second) = pace.per_second else {
        let blob = blob.clone();
        return load::run(AT_ONCE, time, move |_, _| {
            let (blob, payload) = (blob.clone(), payload.clone());
            async move {
                let written = blob.write(Command { fill: false, payload }).await;
                written.map(drop).map_err(|error| error.to_string())
            }
        })
        .await;
    };
    let latencies = Arc::new(std::sync::Mutex::new(load::histogram()?));
    let interval = Duration::from_secs_f64(1.0 / f64::from(per_second.max(1)));
    let from = Instant::now() + time.warmup();
    let until = from + time.measured();
    let (mut due, mut writing) = (Instant::now(), tokio::task::JoinSet::new());
    while due < until {
        tokio::time::sleep_until(due.into()).await;
        while due <= Instant::now() {
            let (blob, latencies, since) = (blob.clone(), latencies.clone(), due);
            let command = Command {
                fill: false,
                payload: payload.clone(),
            };
            writing.spawn(async move {
                blob.write(command).await.map_err(|error| error.to_string())?;
                if (from..until).contains(&since) {
                    let mut latencies = latencies
                        .lock()
                        .unwrap_or_else(std::sync::PoisonError::into_inner);
                    load::record(&mut latencies, since.elapsed());
                }
                Ok::<(), Failure>(())
            });
            due += interval;
        }
        while let Some(done) = writing.try_join_next() {
            done.map_err(|error| error.to_string())??;
        }
    }
    while let Some(done) = writing.join_next().await {
        done.map_err(|error| error.to_string())??;
    }
    let latencies = latencies
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner);
    Ok(load::figures(&latencies, time.measured()))
}
