//! Reads all that is measured, and writes the page.

use std::collections::BTreeMap;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use antiphon::Examined;
use antiphon::inspection::State;
use antiphon_commands::Commands;
use tokio::time::timeout;

use super::families::*;
use super::page::{Family, Page};
use super::{Counts, Label};
use crate::Hub;

/// A node that does not answer within this time is said not to.
const ANSWERS_WITHIN: Duration = Duration::from_secs(2);

/// The page of a node and its agent, now.
pub(crate) async fn read(hub: &Hub) -> String {
    let examined = timeout(ANSWERS_WITHIN, hub.cluster().observer().examine()).await;
    let examined = examined.ok().and_then(Result::ok);
    let mut page = Page::default();
    page.family(&BUILD, [([env!("CARGO_PKG_VERSION")], 1.0)]);
    one(&mut page, &ANSWERS, u64::from(examined.is_some()));
    if let Some(examined) = &examined {
        node(&mut page, examined);
    }
    counted(&mut page, hub);
    if let Some(examined) = &examined {
        transport(&mut page, examined);
    }
    agent(&mut page, hub);
    page.text()
}

fn node(page: &mut Page, examined: &Examined) {
    let Examined {
        status,
        inspection,
        lacks,
        ..
    } = examined;
    let view = status.view.as_deref();
    let seated = match &inspection.state {
        State::Seated(seated) => Some(seated),
        _ => None,
    };
    let count = |count: usize| count as u64;
    page.family(&UPTIME, [([], status.uptime.as_secs_f64())]);
    let primary = view.is_some_and(|view| view.is_primary());
    one(page, &PRIMARY, u64::from(primary));
    let leased = seated.is_some_and(|seated| seated.leased);
    one(page, &LEASE, u64::from(primary && leased));
    one(page, &VIEW_NUMBER, view.map_or(0, |view| view.number.into()));
    one(
        page,
        &VIEW_MEMBERS,
        view.map_or(0, |view| count(view.members.len())),
    );
    one(
        page,
        &SUSPICIONS,
        seated.map_or(0, |seated| count(seated.doubts.len())),
    );
    one(page, &LACKS, count(lacks.len()));
    one(page, &NODE_GROUPS, count(status.groups.len()));
    let groups = || status.groups.iter();
    one(
        page,
        &UNREAD,
        count(groups().map(|group| group.unread_events).sum()),
    );
    one(
        page,
        &PENDING,
        count(groups().map(|group| group.pending_sends).sum()),
    );
}

/// What was counted of the node's events.
fn counted(page: &mut Page, hub: &Hub) {
    let meters = hub.meters();
    one(page, &VIEWS, load(&meters.views));
    one(page, &JOINED, load(&meters.joined));
    each(page, &DEPARTED, &meters.departed);
    one(page, &INCARNATIONS, load(&meters.incarnations));
}

fn transport(page: &mut Page, examined: &Examined) {
    let counters = &examined.status.transport;
    for (family, count) in [
        (&FRAMES_SENT, counters.frames_sent),
        (&FRAMES_RECEIVED, counters.frames_received),
        (&BYTES_SENT, counters.bytes_sent),
        (&BYTES_RECEIVED, counters.bytes_received),
        (&FRAMES_DROPPED, counters.frames_dropped),
        (&FRAMES_INCOMPLETE, counters.frames_incomplete),
        (&CONNECTIONS, counters.connections),
        (&CONNECTIONS_REFUSED, counters.connections_refused),
        (&SEGMENTS_SENT, counters.segments_sent),
        (&SEGMENTS_REPAIRED, counters.segments_repaired),
        (&SEGMENTS_RECEIVED, counters.segments_received),
        (&PROBES_SENT, counters.probes_sent),
        (&PROBES_RECEIVED, counters.probes_received),
        (&PROBES_DROPPED, counters.probes_dropped),
        (&DATAGRAMS_REFUSED, counters.datagrams_refused),
    ] {
        one(page, family, count);
    }
}

fn agent(page: &mut Page, hub: &Hub) {
    let meters = hub.meters();
    each(page, &OPEN, &meters.open);
    each(page, &OPENED, &meters.opened);
    one(page, &SESSIONS, hub.sessions() as u64);
    one(page, &GROUPS, hub.groups() as u64);
    {
        let operations = meters.operations.lock().unwrap_or_else(PoisonError::into_inner);
        let samples = operations.iter();
        page.family(
            &OPERATIONS,
            samples.map(|((op, outcome), count)| ([*op, *outcome], *count as f64)),
        );
    }
    one(page, &LOCAL_READS, load(&meters.local_reads));
    one(page, &MESSAGES, load(&meters.messages));
    one(page, &MALFORMED, load(&meters.malformed));
    each(page, &SLOW, &meters.slow);
    each(page, &REFUSED, &meters.refused);
    each(page, &FAILED, &meters.failed);
    commands(page, hub);
    each(page, &RELOADS, &meters.reloads);
}

fn commands(page: &mut Page, hub: &Hub) {
    let status = hub.commands().map(Commands::status);
    let queues = || status.iter().flat_map(|status| &status.queues);
    let mut counts = BTreeMap::new();
    for row in status.iter().flat_map(|status| &status.counts) {
        *counts.entry([row.side.word(), row.result.word()]).or_default() += row.count as f64;
    }
    page.family(&COMMANDS, counts);
    one(
        page,
        &COMMANDS_QUEUED,
        queues().map(|queue| queue.queued as u64).sum(),
    );
    let oldest = queues().map(|queue| queue.oldest_ms).max().unwrap_or_default();
    page.family(
        &COMMANDS_OLDEST,
        [([], Duration::from_millis(oldest).as_secs_f64())],
    );
    one(page, &COMMANDS_DROPPED, queues().map(|queue| queue.dropped).sum());
}

fn one(page: &mut Page, family: &Family, number: u64) {
    page.family(family, [([], number as f64)]);
}

fn each<L: Label>(page: &mut Page, family: &Family, counts: &Counts<L>) {
    page.family(family, counts.all().map(|(label, count)| ([label], count as f64)));
}

fn load(count: &AtomicU64) -> u64 {
    count.load(Ordering::Relaxed)
}
