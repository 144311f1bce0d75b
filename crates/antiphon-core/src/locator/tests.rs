//! Stories of one locator and the frames that nodes would send it.

use std::collections::BTreeMap;

use antiphon_wire::ViewId;
use antiphon_wire::codec::decode_all;

use super::*;
use crate::{Config, Enquirer, Told};

fn addr(port: u16) -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], port))
}

fn at(seconds: u64) -> Time {
    Time::ZERO + Duration::from_secs(seconds)
}

fn standing(lineage: u128) -> Standing {
    Standing {
        lineage: Lineage(lineage),
        view: ViewId { epoch: 1, counter: 1 },
        number: 1,
        weight: 3,
        primary: true,
        engine: 0,
        policy: 0,
        overrides: None,
    }
}

fn record(port: u16) -> NodeRecord {
    NodeRecord {
        name: format!("n{port}"),
        addr: addr(port),
        further: Vec::new(),
        metadata: BTreeMap::new(),
        weight: 1,
        wire_level: 1,
        engine: 0,
        policy: 0,
    }
}

fn seek_of(node: NodeRecord, standing: Option<Standing>) -> Discovery {
    Discovery::Seek {
        node,
        seeds: 0,
        expect: 0,
        founder: true,
        standing,
        others: Vec::new(),
        reply: false,
    }
}

/// A locator, and what speaks to it.
struct Scene {
    locator: Locator,
    voice: FrameCodec,
}

impl Scene {
    fn new() -> Self {
        Self {
            locator: Locator::new("c", addr(9), None, [1, 2, 3, 4], Time::ZERO).unwrap(),
            voice: FrameCodec::new("c", None, Incarnation(7)),
        }
    }

    fn seek(&mut self, now: Time, port: u16, standing: Option<Standing>) -> Vec<KnownNode> {
        let seek = Record::Discovery(seek_of(record(port), standing));
        let frame = self.voice.seal(Kind::Control, &encode_to_vec(&seek));
        self.locator.handle_frame(now, frame).unwrap();
        let Some(Output::Frame { to, frame, .. }) = self.locator.poll_output() else {
            panic!("no answer");
        };
        assert_eq!(to, addr(port));
        assert_eq!(self.locator.poll_output(), None);
        let mut ear = FrameCodec::new("c", None, Incarnation(8));
        let opened = ear.open(frame.to_bytes()).unwrap();
        match decode_all(opened.records).unwrap() {
            Record::Discovery(Discovery::Known {
                addr: from,
                up_ms,
                nodes,
            }) => {
                assert_eq!(from, addr(9));
                assert_eq!(u128::from(up_ms), now.since(Time::ZERO).as_millis());
                nodes
            }
            other => panic!("{other:?}"),
        }
    }
}

fn ports(nodes: &[KnownNode]) -> Vec<u16> {
    nodes.iter().map(|node| node.addr.port()).collect()
}

#[test]
fn a_newcomer_is_told_of_members_first_then_of_those_that_wait() {
    let mut scene = Scene::new();
    assert!(scene.seek(at(0), 3, None).is_empty());
    assert_eq!(ports(&scene.seek(at(1), 1, Some(standing(1)))), [3]);
    assert_eq!(
        ports(&scene.seek(at(2), 2, Some(standing(1)))),
        [3],
        "a member knows its members"
    );
    let told = scene.seek(at(4), 4, None);
    assert_eq!(ports(&told), [2, 1, 3]);
    assert_eq!(told.iter().map(|node| node.age_s).collect::<Vec<_>>(), [2, 3, 4]);
    // Members of another lineage are to meet these.
    assert_eq!(ports(&scene.seek(at(5), 5, Some(standing(2)))), [2, 1, 4, 3]);
    let news: Vec<u16> = std::iter::from_fn(|| scene.locator.poll_news())
        .map(|located| located.addr.port())
        .collect();
    assert_eq!(news, [3, 1, 2, 4, 5]);
}

#[test]
fn old_addresses_are_told_only_while_too_few_members_are_there() {
    let mut scene = Scene::new();
    scene.locator.restore(
        at(0),
        [Located {
            name: "old".to_owned(),
            addr: addr(50),
            member_of: Some(Lineage(1)),
            age: Duration::from_secs(1000),
        }],
    );
    let told = scene.seek(at(1), 1, None);
    assert_eq!((ports(&told), told[0].age_s), (vec![50], 1001));
    for port in 1..4 {
        scene.seek(at(2), port, Some(standing(1)));
    }
    assert_eq!(ports(&scene.seek(at(3), 4, None)).len(), 3);
    // All of them gone for good: better old ones than none.
    assert_eq!(ports(&scene.seek(at(1000), 5, None)).len(), 5);
    assert!(scene.seek(at(100_000), 6, None).is_empty(), "a day later");
}

#[test]
fn an_enquirer_is_told_what_a_newcomer_would_be_and_nobody_remembers_it() {
    let mut scene = Scene::new();
    scene.seek(at(1), 1, Some(standing(1)));
    scene.seek(at(2), 2, None);
    let mut config = Config::new("c", "new", addr(3));
    config.found = true;
    let mut enquirer = Enquirer::new(&config, &[], [1, 2, 3], vec![addr(3), addr(9)]).unwrap();
    let question = enquirer.question(5);
    scene.locator.handle_frame(at(3), question).unwrap();
    let Some(Output::Frame { to, frame, .. }) = scene.locator.poll_output() else {
        panic!("no answer");
    };
    assert_eq!(
        (to, scene.locator.poll_output()),
        (addr(3), None),
        "to the enquirer alone"
    );
    let told = enquirer.open(frame.to_bytes()).unwrap();
    let [(5, Told::Locator(known))] = &told[..] else {
        panic!("{told:?}");
    };
    assert_eq!((known.up_ms, ports(&known.nodes)), (3_000, vec![1, 2]));
    assert_eq!(scene.locator.located(at(3)).len(), 2);
    // However many ask.
    for _ in 0..1_000 {
        scene.locator.handle_frame(at(4), enquirer.question(1)).unwrap();
    }
    let answers = std::iter::from_fn(|| scene.locator.poll_output()).count();
    assert!((1..=16).contains(&answers), "{answers}");
}

#[test]
fn a_frame_gets_one_answer_and_goes_to_the_addresses_of_a_node_by_turns() {
    let mut scene = Scene::new();
    let mut node = record(1);
    node.further = vec![addr(2), addr(3)];
    let seek = encode_to_vec(&Record::Discovery(seek_of(node, None)));
    let mut answered = Vec::new();
    for second in 0..6 {
        let frame = scene.voice.seal(Kind::Control, &seek.repeat(300));
        scene.locator.handle_frame(at(second), frame).unwrap();
        answered.extend(
            std::iter::from_fn(|| scene.locator.poll_output()).map(|output| match output {
                Output::Frame { to, .. } => to.port(),
                other => panic!("{other:?}"),
            }),
        );
    }
    assert_eq!(answered, [1, 2, 3, 1, 2, 3]);
}

#[test]
fn a_locator_is_bounded_however_many_speak() {
    let mut scene = Scene::new();
    for port in 1000..4000 {
        let told = scene.seek(at(u64::from(port) / 100), port, None);
        assert!(told.len() <= MAX_ANSWER);
    }
    let located = scene.locator.located(at(40));
    assert_eq!(located.len(), MAX_LOCATED);
    assert!(located.iter().all(|node| node.addr.port() >= 2900), "the latest");
}

#[test]
fn frames_of_other_clusters_and_what_is_no_seek_are_not_answered() {
    let mut scene = Scene::new();
    let mut stranger = FrameCodec::new("other", None, Incarnation(7));
    let frame = stranger.seal(Kind::Control, &[]);
    assert_eq!(
        scene.locator.handle_frame(at(0), frame),
        Err(OpenError::OtherCluster)
    );
    let announce = Record::Discovery(Discovery::Announce {
        addr: addr(1),
        member: false,
    });
    let frame = scene.voice.seal(Kind::Control, &encode_to_vec(&announce));
    scene.locator.handle_frame(at(0), frame).unwrap();
    let frame = scene.voice.seal(Kind::Control, &[255, 255]);
    scene.locator.handle_frame(at(0), frame).unwrap();
    assert_eq!(scene.locator.poll_output(), None);
    let counters = scene.locator.counters();
    assert_eq!((counters.answered, counters.refused), (0, 2));
    assert!(Locator::new("", addr(1), None, [0; 4], at(0)).is_err());
    assert!(Locator::new("c", addr(0), None, [0; 4], at(0)).is_err());
}
