//! Loads on a replicated map.

use std::time::Instant;

use antiphon::Cluster;
use antiphon::replicated::{Map, Version};

use super::load;
use super::words::{Get, Put, Time};
use crate::Failure;
use crate::blocks::Figures;

/// Reads of a round.
const ROUND: u64 = 1000;
/// The key by which this member asks how many changes the map has seen.
const MARK: u64 = u64::MAX;

pub(super) type Table = Map<u64, String>;

/// Joins, and waits until all members have the state.
pub(super) async fn open(cluster: &Cluster, agreed: bool, members: usize) -> Result<Table, Failure> {
    let name = if agreed { "agreed map" } else { "map" };
    let map = cluster.map(name).types("number -> text 1");
    let map = map.replicated(move |replicated| if agreed { replicated.agreed() } else { replicated });
    let map: Table = map.join().await.map_err(|error| error.to_string())?;
    load::until_synced(map.machine().watch_status(), members).await?;
    Ok(map)
}

/// Writes; `applied` is how many writes of all members this one applied per second. Each change of the map
/// takes the next version, so two versions tell how many came between.
pub(super) async fn put(map: &Table, put: Put, time: Time) -> Result<Figures, Failure> {
    let value: String = "x".repeat(put.bytes);
    let mark = async |map: &Table| -> Result<(Version, Instant), Failure> {
        let version = map
            .put(&MARK, &String::new())
            .await
            .map_err(|error| error.to_string())?;
        Ok((version, Instant::now()))
    };
    let (mut from, mut until) = (Err(Failure::new()), Err(Failure::new()));
    let writing = map.clone();
    let one = move |task: usize, count: u64| {
        let (map, value) = (writing.clone(), value.clone());
        async move {
            let key = (task as u64 + count * put.writers as u64) % put.keys.max(1);
            let written = map.put(&key, &value).await;
            written.map(drop).map_err(|error| error.to_string())
        }
    };
    let begins = async { from = mark(map).await };
    let ends = async { until = mark(map).await };
    let mut figures = load::run_beside(put.writers, time, one, begins, ends).await?;
    let ((from, began), (until, ended)) = (from?, until?);
    let changes = until.0.saturating_sub(from.0) as f64;
    figures.insert("applied".to_owned(), changes / (ended - began).as_secs_f64());
    Ok(figures)
}

/// Reads; `ns` is how long a read of one's own copy takes, the median of many short rounds: on a busy machine
/// a long one tells how often the process had to stand back.
pub(super) async fn get(map: &Table, get: Get) -> Result<Figures, Failure> {
    let failed = |error: antiphon::replicated::MapError| error.to_string();
    let value = "x".repeat(get.bytes);
    for key in 0..get.keys {
        if map
            .get(&key)
            .map_err(failed)?
            .is_none_or(|item| item.value.len() != get.bytes)
        {
            map.put(&key, &value).await.map_err(failed)?;
        }
    }
    let mut rounds = Vec::new();
    for round in 0..get.gets / ROUND {
        let from = Instant::now();
        for count in 0..ROUND {
            let key = (round * ROUND + count) % get.keys.max(1);
            let item = map.get(&key).map_err(failed)?;
            if std::hint::black_box(item).is_none() {
                return Err(format!("key {key} is gone"));
            }
        }
        rounds.push(from.elapsed().as_nanos() as f64 / ROUND as f64);
        // The node lives on this thread, and would lose its lease.
        tokio::task::yield_now().await;
    }
    rounds.sort_by(f64::total_cmp);
    let median = rounds.get(rounds.len() / 2).copied().unwrap_or(f64::NAN);
    Ok(Figures::from([("ns".to_owned(), median)]))
}
