//! Loads of requests: what UPerf of JGroups does, and one call at a time.

use std::sync::Arc;
use std::time::Duration;

use antiphon::calls::{Call, Calls, Rule, Target};
use antiphon::{Cluster, Incarnation};
use bytes::Bytes;

use super::load;
use super::words::{Mix, Time};
use crate::Failure;
use crate::blocks::Figures;

const LOOK_EVERY: Duration = Duration::from_millis(5);
const DEADLINE: Duration = Duration::from_secs(10);

/// Joins, serves `get` (so many bytes) and `put`, and waits until all members are there.
pub(super) async fn open(cluster: &Cluster, bytes: usize, members: usize) -> Result<Calls, Failure> {
    let group = cluster
        .group("calls")
        .join()
        .await
        .map_err(|error| error.to_string())?;
    let calls = Calls::new(group);
    let value = Bytes::from(vec![b'x'; bytes]);
    let failed = |refusal: antiphon::calls::Refusal| format!("{refusal:?}");
    calls
        .serve_bytes("get", move |_| {
            let value = value.clone();
            async move { Ok(value) }
        })
        .map_err(failed)?;
    calls
        .serve_bytes("put", |_| async { Ok(Bytes::new()) })
        .map_err(failed)?;
    while calls.members().len() < members {
        tokio::time::sleep(LOOK_EVERY).await;
    }
    Ok(calls)
}

/// Of five requests, four get from one other member, and one puts to two.
pub(super) async fn mix(calls: &Calls, me: Incarnation, mix: Mix, time: Time) -> Result<Figures, Failure> {
    let others: Vec<Incarnation> = calls.members().iter().map(|member| member.incarnation).collect();
    let others: Arc<[Incarnation]> = others.into_iter().filter(|other| *other != me).collect();
    if others.is_empty() {
        return Err("there is no other member to call".to_owned());
    }
    let (calls, value) = (calls.clone(), Bytes::from(vec![b'x'; mix.bytes]));
    let key = Bytes::from_static(&[0; 8]);
    let one = move |task: usize, count: u64| {
        let at = task + count as usize;
        let other = |further: usize| others[(at + further) % others.len()];
        let puts = !mix.gets_only && count % 5 == 4;
        let call = Call {
            target: match puts {
                true if others.len() > 1 => Target::Members(vec![other(0), other(1)]),
                _ => Target::Member(other(0)),
            },
            verb: if puts { "put" } else { "get" }.to_owned(),
            payload: if puts { value.clone() } else { key.clone() },
            rule: Rule::All,
            deadline: DEADLINE,
            within: None,
        };
        let calls = calls.clone();
        async move {
            calls
                .call(call)
                .await
                .map(drop)
                .map_err(|error| format!("{error:?}"))
        }
    };
    load::run(mix.callers, time, one).await
}
