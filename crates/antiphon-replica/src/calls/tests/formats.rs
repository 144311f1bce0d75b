//! Bytes from peers: whatever comes is counted, and does no harm.

use std::time::Duration;

use antiphon_core::Time;
use antiphon_core::wire::Incarnation;
use bytes::Bytes;

use super::super::format::{Answer, Request, ToAll, Told, encode};
use super::super::{Call, CallId, Calls, Config, Event, MAX_CALL_BYTES, MAX_VERB_BYTES, Rule, Target};
use crate::replica::tests::group::{Chance, view_of};

const NOW: Time = Time::from_micros(5);

fn member(n: u128) -> Incarnation {
    Incarnation(n << 100)
}

fn calls() -> Calls {
    calls_since(Time::ZERO)
}

fn calls_since(begun: Time) -> Calls {
    let mut calls = Calls::new(member(1), begun, Config::default());
    calls.serve("work").expect("room for a verb");
    let members = [member(1), member(2)];
    calls.handle_view(NOW, &view_of(1, &members, &members));
    calls
}

fn request(number: u64) -> Request<'static> {
    Request {
        number,
        depth: 0,
        millis: 1_000,
        verb: "work",
        payload: b"payload",
    }
}

#[test]
fn messages_without_sense_are_counted_and_named() {
    let mut calls = calls();
    let long = "v".repeat(MAX_VERB_BYTES + 1);
    let large = vec![0; MAX_CALL_BYTES + 1];
    let told = [
        vec![],
        vec![9, 9, 9],
        [encode(&Told::Cancel { number: 1, all: true }), vec![0]].concat(),
        encode(&Told::Request(request(0))),
        encode(&Told::Request(Request {
            verb: &long,
            ..request(2)
        })),
        encode(&Told::Request(Request {
            payload: &large,
            ..request(2)
        })),
        encode(&Told::Reply {
            number: 77,
            load: 0,
            micros: 0,
            answer: Answer::Reply(b"to nothing"),
        }),
    ];
    for (n, bytes) in told.into_iter().enumerate() {
        calls.handle_told(NOW, member(2), &bytes.into());
        assert!(matches!(calls.poll_event(), Some(Event::Malformed { .. })), "{n}");
        assert_eq!(calls.malformed(), n as u64 + 1);
    }
}

/// Its server did not know yet that it had left and was back.
#[test]
fn an_answer_to_a_call_before_a_member_left_is_for_no_call_after_it_joined_again() {
    let ask = |calls: &mut Calls| {
        let call = Call {
            target: Target::Member(member(2)),
            verb: "work".to_owned(),
            payload: Bytes::new(),
            rule: Rule::First,
            deadline: Duration::from_secs(1),
            within: None,
        };
        calls.call(NOW, call).expect("the call is taken")
    };
    let before = ask(&mut calls());
    let mut calls = calls_since(NOW);
    let after = ask(&mut calls);
    calls.outputs(NOW, |_| true);
    let mut reply = |to: CallId| {
        let reply = Told::Reply {
            number: to.0,
            load: 0,
            micros: 0,
            answer: Answer::Reply(b"reply"),
        };
        calls.handle_told(NOW, member(2), &encode(&reply).into());
        calls.poll_event()
    };
    assert_eq!(reply(before), None);
    assert!(matches!(reply(after), Some(Event::Ended { call, result: Ok(_) }) if call == after));
}

#[test]
fn a_number_that_does_not_rise_runs_no_handler() {
    let mut calls = calls();
    for number in [3, 3, 2] {
        calls.handle_told(NOW, member(2), &encode(&Told::Request(request(number))).into());
    }
    assert!(matches!(calls.poll_event(), Some(Event::Request { .. })));
    assert!(matches!(calls.poll_event(), Some(Event::Malformed { .. })));
    assert_eq!(calls.malformed(), 2);
    assert_eq!(calls.load(), 1);
}

#[test]
fn damaged_messages_do_no_harm() {
    let mut chance = Chance(3);
    let mut calls = calls();
    for n in 0..20_000_u64 {
        let mut bytes = match n % 5 {
            0 => encode(&Told::Request(request(n))),
            1 => encode(&ToAll::Request(request(n))),
            2 => encode(&Told::Cancel { number: n, all: true }),
            3 => encode(&Told::Serving {
                load: 3,
                verbs: ["work", "play"].into(),
            }),
            _ => encode(&Told::Reply {
                number: n,
                load: 1,
                micros: 7,
                answer: Answer::Error(b"no"),
            }),
        };
        let at = chance.below(bytes.len());
        match chance.below(3) {
            0 => bytes[at] ^= 1 << chance.below(8),
            1 => bytes.truncate(at),
            _ => bytes.insert(at, chance.below(256) as u8),
        }
        let bytes = Bytes::from(bytes);
        if chance.percent(50) {
            calls.handle_told(NOW, member(2), &bytes);
        } else {
            calls.handle_message(NOW, member(2), &bytes);
        }
        while calls.poll_event().is_some() {}
        calls.outputs(NOW, |_| true);
    }
    assert!(calls.malformed() > 0);
}

/// These bytes are what members of other versions send and expect.
#[test]
fn the_bytes_stay_as_they_are() {
    assert_eq!(
        encode(&Told::Request(request(300))),
        [&[0, 172, 2, 0, 232, 7, 4][..], b"work", &[7], b"payload"].concat()
    );
    assert_eq!(encode(&Told::Cancel { number: 1, all: true }), [1, 1, 1]);
    let reply = Told::Reply {
        number: 1,
        load: 2,
        micros: 3,
        answer: Answer::Reply(b"x"),
    };
    assert_eq!(encode(&reply), [2, 1, 2, 3, 0, 1, b'x']);
    let serving = Told::Serving {
        load: 1,
        verbs: ["b", "a"].into(),
    };
    assert_eq!(encode(&serving), [3, 1, 2, 1, b'a', 1, b'b']);
    assert_eq!(encode(&ToAll::Request(request(1)))[..2], [0, 1]);
}
