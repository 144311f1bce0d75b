//! Arbitrary records, rightly sealed by a stranger, to a whole node that leads a cluster of its own and a
//! group: whatever they say, it does not panic. Also the same bytes as the record of a lifeline, and to a
//! locator, which stays within its bounds.
#![no_main]

use std::net::SocketAddr;
use std::time::Duration;

use antiphon_core::wire::Incarnation;
use antiphon_core::wire::frame::{FrameCodec, Kind, MAX_RECORDS_BYTES};
use antiphon_core::{Config, GroupOptions, LifelineEvent, Locator, MAX_LOCATED, Node, Time};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let addr = SocketAddr::from(([127, 0, 0, 1], 7400));
    let stranger = SocketAddr::from(([127, 0, 0, 1], 7401));
    let mut config = Config::new("fuzz", "target", addr);
    config.found = true;
    let mut now = Time::from_micros(1);
    let mut node = Node::new(config, [1, 2, 3, 4], now).expect("a good configuration");
    let mut sealer = FrameCodec::new("fuzz", None, Incarnation(7));
    let mut locator = Locator::new("fuzz", addr, None, [1, 2, 3, 4], Time::ZERO).expect("a good configuration");
    let _ = node.join_group(now, "orders", GroupOptions::default());
    settle(&mut node, &mut now);
    assert!(node.view().is_some(), "it has founded");
    // Lengths cut the input into frames, so that one input is a conversation.
    let mut rest = &data[..data.len().min(MAX_RECORDS_BYTES)];
    while let Some((&length, tail)) = rest.split_first() {
        let (records, tail) = tail.split_at(tail.len().min(usize::from(length) * 4));
        rest = tail;
        for kind in [Kind::Control, Kind::Bulk] {
            let _ = node.handle_frame(now, stranger, sealer.seal(kind, records));
        }
        let _ = node.handle_multicast(now, stranger, sealer.seal(Kind::Multicast, records));
        let _ = node.handle_probe(now, sealer.seal(Kind::Probe, records));
        let record = sealer.seal(Kind::Lifeline, records);
        let event = LifelineEvent::Record { connection: 1, local: addr, remote: stranger, record };
        let _ = node.handle_lifeline(now, event);
        let _ = locator.handle_frame(now, sealer.seal(Kind::Control, records));
        while locator.poll_output().is_some() {}
        assert!(locator.located(now).len() <= MAX_LOCATED);
        settle(&mut node, &mut now);
    }
});

fn settle(node: &mut Node, now: &mut Time) {
    for _ in 0..20 {
        while node.poll_output().is_some() {}
        while node.poll_event().is_some() {}
        *now = *now + Duration::from_millis(50);
        if node.poll_timeout().is_some_and(|at| at <= *now) {
            node.handle_timeout(*now);
        }
    }
}
