//! One value at least of every record and message, for the golden vectors. Names are part of the vectors:
//! keep them.

mod group;
mod membership;

use std::collections::BTreeMap;

pub(crate) use self::membership::lifelines;
use antiphon_wire::record::{Beat, ChannelRecord, Control, Directly, Path, Paths, Record};
use antiphon_wire::{
    Accusation, Cause, Departure, Evidence, Incarnation, Lineage, Member, NodeView, NodeViewId, Subview,
    ViewId,
};
use bytes::Bytes;

pub(crate) fn member(number: u8) -> Member {
    Member {
        incarnation: incarnation(number),
        name: format!("node-{number}"),
        addr: format!("192.0.2.{number}:7400").parse().expect("an address"),
        further: if number == 1 {
            vec!["[2001:db8::1]:7400".parse().expect("an address")]
        } else {
            Vec::new()
        },
        metadata: if number == 1 {
            [("rack".to_owned(), "r1".to_owned())].into()
        } else {
            BTreeMap::new()
        },
        weight: 1,
    }
}

pub(crate) fn incarnation(number: u8) -> Incarnation {
    Incarnation(0x1111_1111_1111_1111_1111_1111_1111_1111 * u128::from(number))
}

pub(crate) fn view_id() -> ViewId {
    ViewId { epoch: 1, counter: 4 }
}

pub(crate) fn lineage() -> Lineage {
    Lineage(0xabcd_ef01_2345_6789_abcd_ef01_2345_6789)
}

pub(crate) fn primary() -> NodeView {
    let departure = |number, cause, evidence| Departure {
        member: member(number),
        cause,
        accusers: vec![Accusation {
            accuser: incarnation(1),
            evidence,
            before_ms: 120,
        }],
    };
    NodeView {
        lineage: lineage(),
        id: NodeViewId::Primary { id: view_id() },
        number: 28_000_000,
        members: vec![member(1), member(2)],
        joined: vec![incarnation(2)],
        departed: vec![
            departure(3, Cause::Crashed, Evidence::ProofOfDeath),
            departure(4, Cause::Crashed, Evidence::Silent { for_ms: 1500 }),
            departure(
                5,
                Cause::Unreachable { from: incarnation(1) },
                Evidence::ConnectionLost,
            ),
            departure(
                6,
                Cause::Superseded { by: incarnation(7) },
                Evidence::FlushStalled,
            ),
            Departure {
                member: member(8),
                cause: Cause::Left,
                accusers: Vec::new(),
            },
        ],
        merged: Vec::new(),
        wire_level: 1,
    }
}

pub(crate) fn separated() -> NodeView {
    NodeView {
        id: NodeViewId::Primary {
            id: ViewId { epoch: 2, counter: 1 },
        },
        members: vec![member(2)],
        joined: Vec::new(),
        departed: vec![Departure {
            member: member(1),
            cause: Cause::Separated {
                lineage: Lineage(7),
                view: view_id(),
            },
            accusers: Vec::new(),
        }],
        ..primary()
    }
}

pub(crate) fn views() -> Vec<(&'static str, NodeView)> {
    let non_primary = NodeView {
        id: NodeViewId::NonPrimary {
            base: view_id(),
            attempt: 2,
            proposer: incarnation(2),
        },
        members: vec![member(2)],
        joined: Vec::new(),
        departed: Vec::new(),
        ..primary()
    };
    let recovered = NodeView {
        id: NodeViewId::Primary {
            id: ViewId { epoch: 2, counter: 1 },
        },
        members: vec![member(2)],
        joined: Vec::new(),
        departed: vec![Departure {
            member: member(1),
            cause: Cause::Overridden {
                lineage: Lineage(7),
                view: view_id(),
            },
            accusers: Vec::new(),
        }],
        ..primary()
    };
    let merging = NodeView {
        departed: Vec::new(),
        merged: vec![Subview {
            lineage: Lineage(7),
            view: ViewId { epoch: 2, counter: 9 },
            members: vec![incarnation(2)],
        }],
        ..primary()
    };
    vec![
        ("primary view with every cause of a decision", primary()),
        ("non-primary view", non_primary),
        ("recovered view", recovered),
        ("view of a component that went on by itself", separated()),
        ("view in which two components meet", merging),
    ]
}

pub(crate) fn records() -> Vec<(&'static str, Record)> {
    let link = |messages| ChannelRecord {
        to: incarnation(2),
        ack: 300,
        first: 7,
        messages,
    };
    let mut records = vec![
        (
            "channel record that only acknowledges",
            Record::Channel(link(Vec::new())),
        ),
        (
            "channel record with two messages",
            Record::Channel(link(vec![Bytes::from_static(b"one"), Bytes::from_static(b"two")])),
        ),
        (
            "beat to the second address of a node, by one with two",
            Record::Beat(Beat {
                to: incarnation(2),
                link: 1,
                round: 300,
                heard: vec![299, 0],
            }),
        ),
        (
            "multicast probe",
            Record::MulticastProbe {
                round: 300,
                filler: Bytes::from_static(&[0; 3]),
            },
        ),
        (
            "answer to a multicast probe",
            Record::MulticastHeard {
                to: incarnation(2),
                round: 300,
            },
        ),
        (
            "frame to be passed on",
            Record::Relay {
                to: vec![incarnation(2), incarnation(3)],
                frame: Bytes::from_static(b"a sealed frame"),
            },
        ),
        (
            "frame that was passed on",
            Record::Relayed {
                frame: Bytes::from_static(b"a sealed frame"),
            },
        ),
        (
            "sign of life that asks for one",
            Record::Probe {
                to: incarnation(2),
                asks: true,
            },
        ),
        (
            "all paths are well",
            Record::Paths(Paths {
                round: 1,
                since: 1,
                paths: Some(Vec::new()),
            }),
        ),
        (
            "all paths are as they were",
            Record::Paths(Paths {
                round: 308,
                since: 300,
                paths: None,
            }),
        ),
        (
            "a cut, and a path that works again",
            Record::Paths(Paths {
                round: 300,
                since: 300,
                paths: Some(vec![
                    Path {
                        member: incarnation(2),
                        hears: Directly::Never,
                        heard: Directly::Steadily,
                        through: Some(incarnation(3)),
                    },
                    Path {
                        member: incarnation(4),
                        hears: Directly::Lately,
                        heard: Directly::Never,
                        through: None,
                    },
                ]),
            }),
        ),
    ];
    records.push(("what a witness saw", membership::witnessed()));
    records.extend(membership::records());
    records.extend(group::records());
    records
}

pub(crate) fn controls() -> Vec<(&'static str, Control)> {
    let mut controls = membership::controls();
    controls.extend(group::controls());
    controls
}
