//! Bytes of peers: what is encoded is decoded, and nothing that is not does harm.

use std::borrow::Cow;
use std::sync::Arc;

use antiphon_core::Time;
use antiphon_core::wire::Incarnation;
use bytes::Bytes;
use proptest::prelude::*;

use super::super::agreed::Agreed;
use super::super::clock::Clock;
use super::super::format::{Body, Ordered, Point, Seen, Told, decode, encode};
use super::super::joiner::{Incoming, Offer};
use super::super::{Config, Event, Output, Replica};
use super::ledger::Ledger;
use crate::AgreedTime;

proptest! {
    #[test]
    fn what_is_sent_is_what_is_read(stamp: Option<u64>, request: u64, all: bool, bytes: Vec<u8>) {
        let message = Ordered {
            stamp: stamp.map(|millis| AgreedTime { millis }),
            body: Body::Command { request, all, command: Cow::Borrowed(&bytes) },
        };
        let encoded = encode(&message);
        prop_assert_eq!(decode(&encoded), Some(message));
        let told = Told::Chunk { point: Point::default(), offset: request, check: 1, bytes: &bytes };
        let encoded = encode(&told);
        prop_assert_eq!(decode(&encoded), Some(told));
        let mut longer = encode(&Told::Applied { upto: request });
        longer.push(0);
        prop_assert_eq!(decode::<Told<'_>>(&longer), None, "nothing may follow");
    }

    #[test]
    fn no_bytes_of_a_peer_do_harm(messages: Vec<(bool, Vec<u8>)>, kinds: Vec<(u8, u64, u64)>) {
        let me = Incarnation(1);
        let broken = Arc::default();
        let make = move || Ledger::new(10, Arc::clone(&broken), "l");
        let mut replica = Replica::new(me, Config::default(), make);
        let peer = Incarnation(2);
        let mut joiner = kinds.len() % 2 == 0;
        let joined = if joiner { vec![me] } else { vec![me, peer] };
        let view = super::group::view_of(1, &[me, peer], &joined);
        replica.handle_view(Time::ZERO, &view);
        let drawn = kinds.iter().map(|(kind, a, b)| {
            let point = Point { view: *a as u32 % 3, messages: *b % 4 };
            match kind % 9 {
                0 => (true, encode(&told_offer(point, *a))),
                1 => (true, encode(&Told::Chunk { point, offset: *a, check: *b, bytes: &[1, 2] })),
                2 => (true, encode(&Told::Received { point, bytes: *a })),
                3 => (true, encode(&Told::Applied { upto: *a })),
                4 => (false, ordered(Body::Digest { round: *a, digest: Some(*b) })),
                5 => (false, ordered(Body::Synced {
                    source: peer.into(),
                    point,
                    seen: Some(Seen { serial: *a, time: AgreedTime { millis: *b }, view: *a, messages: *b }),
                })),
                7 => (true, encode(&Told::Failed { point, reason: "é".repeat(*b as usize % 2_000).into() })),
                6 => (false, ordered(Body::Founded { point })),
                _ => {
                    let command = Cow::Borrowed(&[0xff; 9][..]);
                    (false, ordered(Body::Command { request: *a, all: true, command }))
                }
            }
        });
        for (tell, bytes) in messages.into_iter().chain(drawn) {
            let before = replica.malformed();
            if tell {
                replica.handle_told(Time::ZERO, peer, &bytes);
            } else {
                replica.handle_message(Time::ZERO, peer, &Bytes::from(bytes));
            }
            let mut named = 0;
            while let Some(event) = replica.poll_event() {
                named += u64::from(matches!(event, Event::Malformed { .. }));
            }
            prop_assert_eq!(replica.malformed() - before, named);
            joiner = false;
        }
        replica.outputs(Time::ZERO, |_| joiner);
    }
}

#[test]
fn a_joiner_that_says_it_has_what_it_was_not_sent_is_named_and_gets_no_more_than_its_budget() {
    let [me, joiner] = [1, 2].map(Incarnation);
    let broken = Arc::default();
    let make = move || Ledger::new(8 << 20, Arc::clone(&broken), "l");
    let mut replica = Replica::new(me, Config::default(), make);
    replica.handle_view(Time::ZERO, &super::group::view_of(1, &[me], &[me]));
    replica.handle_view(Time::ZERO, &super::group::view_of(2, &[me, joiner], &[joiner]));
    let point = Point { view: 2, messages: 0 };
    let mut told = 0;
    for _ in 0..9 {
        replica.outputs(Time::ZERO, |output| {
            let Output::Tell { payload, .. } = output else {
                return true;
            };
            told += payload.len();
            true
        });
        if let Some(reading) = replica.poll_reading() {
            replica.handle_read(reading.run());
        }
    }
    let begins_with = Config::default().transfer_bytes / 8;
    assert!((begins_with / 2..begins_with + 2_000).contains(&told), "{told}");
    assert!(!replica.wants_reading(), "enough is ready");
    for bytes in [u64::MAX, u64::MAX / 2, 1 << 20] {
        replica.handle_told(Time::ZERO, joiner, &encode(&Told::Received { point, bytes }));
        replica.outputs(Time::ZERO, |output| panic!("{output:?}"));
    }
    assert_eq!(replica.malformed(), 3);
}

#[test]
fn a_state_with_counts_that_no_group_reaches_is_refused() {
    let point = Point { view: 1, messages: 2 };
    let taken = |index, commands| {
        let mut agreed = Agreed::found(Incarnation(2).into(), Vec::new(), point, 0, 0);
        (agreed.index, agreed.commands) = (index, commands);
        let agreed = encode(&agreed);
        let offer = Offer {
            source: Incarnation(2).into(),
            point,
            clock: Clock::start(Time::ZERO, AgreedTime::default()),
            bytes: 1,
            budget: 1,
        };
        let mut incoming = Incoming::new(offer, Ledger::new(0, Arc::default(), "l"));
        let check = twox_hash::XxHash3_64::oneshot(&agreed);
        incoming.chunk(0, check, &agreed).is_ok_and(|last| !last)
    };
    let most = u64::MAX >> 1;
    assert!(taken(most, most));
    assert!(!taken(most + 1, 0) && !taken(0, u64::MAX));
}

fn told_offer(point: Point, bytes: u64) -> Told<'static> {
    Told::Offer {
        point,
        definition: "l; replica format 3, digests every 1024, safe messages, found anew: no",
        bytes,
        budget: bytes,
        time: AgreedTime::default(),
    }
}

fn ordered(body: Body<'_>) -> Vec<u8> {
    encode(&Ordered {
        stamp: Some(AgreedTime { millis: u64::MAX }),
        body,
    })
}
