//! Every message of the membership layer.

use antiphon_wire::enquiry::{Answer, Ask, Enquiry, GroupAsked, KnownThere, Objection};
use antiphon_wire::group::GroupTerms;
use antiphon_wire::membership::{
    AcceptedValue, Ayes, Ballot, Certificate, Change, Discovery, Edge, Gone, Heartbeat, KnownNode, LeaseNote,
    LifelineRecord, MembershipMessage, NodeRecord, Origin, Proof, Pulse, Rumour, SlotId, SlotMessage,
    Standing, Suspicion, VoteState, Voted, VotedIn,
};
use antiphon_wire::record::{Control, Record};
use antiphon_wire::{Accusation, Cause, Evidence, Lineage, ViewId};

use super::{incarnation, lineage, member, primary, separated, view_id};

fn ballot() -> Ballot {
    Ballot {
        round: 3,
        proposer: incarnation(2),
    }
}

fn accepted() -> AcceptedValue {
    AcceptedValue {
        ballot: ballot(),
        value: Voted::Whole(Box::new(primary())),
    }
}

fn change() -> Box<Change> {
    Box::new(Change {
        number: 28_000_001,
        wire_level: 1,
        departed: vec![Gone {
            member: incarnation(2),
            cause: Cause::Crashed,
            accusers: vec![Accusation {
                accuser: incarnation(1),
                evidence: Evidence::Observed,
                before_ms: 0,
            }],
        }],
        joined: vec![member(3)],
        merged: Vec::new(),
    })
}

/// As in a large view.
fn brief_vote() -> VoteState {
    VoteState {
        view: VotedIn::Named {
            lineage: lineage(),
            id: view_id(),
            change: Some(change()),
        },
        promised: Some(ballot()),
        accepted: Some(AcceptedValue {
            ballot: ballot(),
            value: Voted::Change(change()),
        }),
    }
}

fn rumours() -> Vec<Rumour> {
    let value = primary().digest();
    let tally = |what, by: &[u8]| Rumour::Tally {
        what,
        by: by.to_vec(),
    };
    vec![
        Rumour::Opinion {
            of: incarnation(1),
            version: 3,
            primary: true,
            leaving: false,
            wire_level: 1,
            suspicions: vec![Suspicion {
                member: incarnation(2),
                evidence: Evidence::Silent { for_ms: 1500 },
                for_ms: 20,
            }],
        },
        Rumour::Ask {
            by: incarnation(1),
            change: change(),
        },
        Rumour::Prepare {
            ballot: ballot(),
            proofs: Vec::new(),
            removing: vec![incarnation(2)],
        },
        Rumour::Accept {
            ballot: ballot(),
            change: change(),
            proofs: Vec::new(),
        },
        tally(Ayes::Cast { value }, &[0b0110_1111, 1]),
        tally(
            Ayes::Promise {
                ballot: ballot(),
                accepted_in: None,
                accepted: None,
            },
            &[1],
        ),
        tally(
            Ayes::Promise {
                ballot: ballot(),
                accepted_in: Some(ballot()),
                accepted: Some(value),
            },
            &[2],
        ),
        tally(Ayes::Accepted { ballot: ballot() }, &[3]),
        Rumour::Value(change()),
        Rumour::Certificate(Box::new(Certificate {
            dead: incarnation(4),
            vote: brief_vote(),
        })),
        Rumour::Decided { value },
    ]
}

fn vote() -> VoteState {
    VoteState {
        view: VotedIn::Whole(Box::new(primary())),
        promised: Some(ballot()),
        accepted: Some(accepted()),
    }
}

fn standing() -> Standing {
    Standing {
        lineage: lineage(),
        view: view_id(),
        number: 28_000_000,
        weight: 5,
        primary: true,
        engine: 1,
        policy: 1,
        overrides: Some(Origin {
            lineage: lineage(),
            view: ViewId { epoch: 1, counter: 9 },
        }),
    }
}

fn node() -> NodeRecord {
    let member = member(1);
    NodeRecord {
        name: member.name,
        addr: member.addr,
        further: member.further,
        metadata: member.metadata,
        weight: 1,
        wire_level: 1,
        engine: 0,
        policy: 0,
    }
}

pub(crate) fn records() -> Vec<(&'static str, Record)> {
    let seek = |standing, reply| Discovery::Seek {
        node: node(),
        seeds: 0x0123_4567_89ab_cdef,
        expect: 0,
        founder: true,
        standing,
        others: vec![member(2).addr, "[2001:db8::3]:7400".parse().expect("an address")],
        reply,
    };
    let discovery = [
        ("seek of a candidate", seek(None, false)),
        ("seek of a member, as an answer", seek(Some(standing()), true)),
        (
            "here",
            Discovery::Here {
                addr: member(1).addr,
                standing: standing(),
                coordinator: incarnation(2),
                coordinator_addr: member(2).addr,
            },
        ),
        (
            "join",
            Discovery::Join {
                node: node(),
                number: 0,
                from: None,
            },
        ),
        (
            "join of a former member",
            Discovery::Join {
                node: node(),
                number: 44_310_400,
                from: None,
            },
        ),
        (
            "join of a node whose component gave way",
            Discovery::Join {
                node: NodeRecord { policy: 1, ..node() },
                number: 44_310_400,
                from: Some(Origin {
                    lineage: lineage(),
                    view: ViewId { epoch: 2, counter: 9 },
                }),
            },
        ),
        (
            "yield",
            Discovery::Yield {
                node: node(),
                standing: standing(),
                nonce: 77,
            },
        ),
        (
            "stay",
            Discovery::Stay {
                addr: member(2).addr,
                standing: standing(),
                nonce: 77,
            },
        ),
        (
            "refused",
            Discovery::Refused {
                to: incarnation(3),
                reason: "other seeds".to_owned(),
                fatal: true,
            },
        ),
        (
            "removed",
            Discovery::Removed {
                who: incarnation(3),
                standing: standing(),
                cause: "silent".to_owned(),
            },
        ),
        (
            "known",
            Discovery::Known {
                addr: member(3).addr,
                up_ms: 90_000,
                nodes: vec![
                    KnownNode {
                        addr: member(1).addr,
                        member: true,
                        age_s: 0,
                    },
                    KnownNode {
                        addr: "[2001:db8::3]:7400".parse().expect("an address"),
                        member: false,
                        age_s: 86_400,
                    },
                ],
            },
        ),
        (
            "announce",
            Discovery::Announce {
                addr: member(1).addr,
                member: true,
            },
        ),
    ];
    let edges = |heartbeat: &Heartbeat| {
        let suspicion = |evidence| Suspicion {
            member: incarnation(2),
            evidence,
            for_ms: 70,
        };
        let evidence = [
            Evidence::Observed,
            Evidence::Deaf,
            Evidence::Lossy { lost_percent: 80 },
        ];
        let suspicions = evidence.map(suspicion).into();
        let all = Heartbeat {
            suspicions,
            ..heartbeat.clone()
        };
        [("heartbeat of an observer of edges", all)]
    };
    let suspicion = Suspicion {
        member: incarnation(2),
        evidence: Evidence::Silent { for_ms: 900 },
        for_ms: 900,
    };
    let heartbeat = Heartbeat {
        round: 12,
        lineage: lineage().mark(),
        view: view_id(),
        primary: true,
        leaving: false,
        wire_level: 1,
        suspicions: Vec::new(),
        rumours: 0,
        lease: Some(LeaseNote {
            to: incarnation(3),
            length_ms: 1300,
            answers: 11,
            asks: false,
            voted: false,
            withheld: Vec::new(),
        }),
    };
    let heartbeats = [
        ("heartbeat", heartbeat.clone()),
        (
            "heartbeat with a suspicion",
            Heartbeat {
                suspicions: vec![suspicion],
                leaving: true,
                ..heartbeat.clone()
            },
        ),
    ];
    let enquiries = enquiries().map(|(name, enquiry)| (name, Record::Enquiry(enquiry)));
    let discovery = discovery.map(|(name, message)| (name, Record::Discovery(message)));
    let heartbeats = heartbeats
        .into_iter()
        .chain(edges(&heartbeat))
        .map(|(name, message)| (name, Record::Heartbeat(message)));
    let pulses = pulses().map(|(name, pulse)| (name, Record::Pulse(pulse)));
    let records = discovery.into_iter().chain(heartbeats);
    records.chain(enquiries).chain(pulses).collect()
}

fn pulses() -> [(&'static str, Pulse); 4] {
    let view = ViewId { epoch: 1, counter: 9 };
    let tick = |renewed| Pulse::Tick {
        view,
        maker: 0,
        number: 300,
        length_ms: 1300,
        fresh: vec![2, 7],
        renewed,
    };
    let echo = |who, edge| Pulse::Echo {
        view,
        maker: 0,
        number: 300,
        who,
        edge,
    };
    [
        ("tick", tick(None)),
        ("tick that renews", tick(Some(vec![2]))),
        ("echo", echo(vec![1, 4, 0], Edge::Keep)),
        ("graft", echo(vec![1], Edge::Graft)),
    ]
}

fn enquiries() -> [(&'static str, Enquiry); 5] {
    let terms = GroupTerms {
        order: 1,
        window_bytes: 1 << 20,
        dissemination: 0,
        slow_after_ms: 30_000,
        engine: 0,
        max_object_bytes: 256 << 20,
    };
    let ask = Ask {
        nonce: 0x0123_4567_89ab_cdef,
        node: node(),
        seeds: 77,
        founder: true,
        groups: vec![GroupAsked {
            name: "main".to_owned(),
            terms,
        }],
        answer_to: vec![member(1).addr, member(9).addr],
    };
    let forming = Answer {
        nonce: ask.nonce,
        to: member(1).addr,
        node: node(),
        seeds: 77,
        standing: None,
        members: 0,
        coordinator: None,
        present: false,
        missing: vec![member(2).addr],
        objection: None,
        groups: Vec::new(),
    };
    let member = Answer {
        standing: Some(standing()),
        members: 2,
        coordinator: Some(("node-2".to_owned(), member(2).addr)),
        present: true,
        missing: Vec::new(),
        objection: Some(Objection {
            reason: "the name is taken".to_owned(),
            fatal: false,
        }),
        groups: vec![("main".to_owned(), "has other options".to_owned())],
        ..forming.clone()
    };
    let nowhere = Ask {
        groups: Vec::new(),
        answer_to: Vec::new(),
        ..ask.clone()
    };
    [
        ("enquiry with a group", Enquiry::Ask(Box::new(ask))),
        ("enquiry that wants no answer", Enquiry::Ask(Box::new(nowhere))),
        (
            "answer of a node without a view to an enquiry",
            Enquiry::Answer(Box::new(forming)),
        ),
        (
            "answer of a member to an enquiry",
            Enquiry::Answer(Box::new(member)),
        ),
        (
            "enquiry answered by a locator",
            Enquiry::Known(KnownThere {
                nonce: 7,
                to: "[2001:db8::9]:7400".parse().expect("an address"),
                up_ms: 61_000,
                nodes: vec![KnownNode {
                    addr: "10.0.0.1:7400".parse().expect("an address"),
                    member: true,
                    age_s: 2,
                }],
            }),
        ),
    ]
}

pub(crate) fn controls() -> Vec<(&'static str, Control)> {
    let slot = |message| MembershipMessage::Slot {
        slot: SlotId {
            lineage: lineage(),
            next: ViewId { epoch: 1, counter: 5 },
        },
        message,
    };
    let proof = Proof {
        dead: incarnation(4),
        promised: Some(ballot()),
    };
    let base = view_id();
    let messages = [
        (
            "prepare",
            slot(SlotMessage::Prepare {
                ballot: ballot(),
                proofs: vec![proof],
                removing: vec![incarnation(5)],
            }),
        ),
        (
            "promise of one who accepted nothing",
            slot(SlotMessage::Promise {
                ballot: ballot(),
                accepted: None,
            }),
        ),
        (
            "promise",
            slot(SlotMessage::Promise {
                ballot: ballot(),
                accepted: Some(accepted()),
            }),
        ),
        (
            "accept",
            slot(SlotMessage::Accept {
                ballot: ballot(),
                value: Box::new(primary()),
                proofs: vec![Proof {
                    promised: None,
                    ..proof
                }],
            }),
        ),
        ("accepted", slot(SlotMessage::Accepted { ballot: ballot() })),
        (
            "nack",
            slot(SlotMessage::Nack {
                ballot: ballot(),
                promised: Some(ballot()),
                hears: vec![incarnation(3)],
            }),
        ),
        (
            "fast",
            slot(SlotMessage::Fast {
                value: Box::new(primary()),
            }),
        ),
        (
            "cast",
            slot(SlotMessage::Cast {
                value: primary().digest(),
            }),
        ),
        (
            "rumours",
            MembershipMessage::Rumours {
                lineage: lineage(),
                view: view_id(),
                rumours: rumours(),
            },
        ),
        (
            "founding",
            MembershipMessage::Founding {
                seeds: 0x0123_4567_89ab_cdef,
                message: SlotMessage::Accepted { ballot: ballot() },
            },
        ),
        ("decide", MembershipMessage::Decide(Box::new(primary()))),
        (
            "confirm",
            MembershipMessage::Confirm {
                lineage: lineage(),
                view: base,
            },
        ),
        (
            "pull",
            MembershipMessage::Pull {
                lineage: lineage(),
                after: base,
            },
        ),
        (
            "certificate",
            MembershipMessage::Certificate(Box::new(Certificate {
                dead: incarnation(4),
                vote: vote(),
            })),
        ),
        (
            "join probe",
            MembershipMessage::JoinProbe {
                nonce: 0xffff_ffff_ffff_ffff,
            },
        ),
        ("join ready", MembershipMessage::JoinReady { nonce: 1 }),
        ("leave", MembershipMessage::Leave),
        ("gather", MembershipMessage::Gather(Box::new(primary()))),
        (
            "separate",
            MembershipMessage::Separate {
                attempt: 2,
                view: Box::new(separated()),
            },
        ),
        (
            "gather by rank",
            MembershipMessage::GatherRanks {
                lineage: Lineage(7),
                base,
                attempt: 2,
                for_ms: 2500,
                by: vec![0b101, 1],
            },
        ),
        (
            "separate by rank",
            MembershipMessage::SeparateRanks {
                lineage: Lineage(7),
                base,
                attempt: 2,
                into: Lineage(8),
                number: 12,
                by: vec![0b11],
            },
        ),
        ("gathered", MembershipMessage::Gathered { base, attempt: 2 }),
        ("scatter", MembershipMessage::Scatter { base, attempt: 3 }),
        ("assemble", MembershipMessage::Assemble { base, attempt: 3 }),
        (
            "dissolve",
            MembershipMessage::Dissolve {
                into: standing(),
                addr: member(1).addr,
            },
        ),
    ];
    messages
        .map(|(name, message)| (name, Control::Membership(message)))
        .into()
}

pub(crate) fn witnessed() -> Record {
    Record::Witnessed(Box::new(Certificate {
        dead: incarnation(4),
        vote: vote(),
    }))
}

pub(crate) fn lifelines() -> Vec<(&'static str, LifelineRecord)> {
    let fresh = VoteState {
        promised: None,
        accepted: None,
        ..vote()
    };
    vec![
        (
            "lifeline hello",
            LifelineRecord::Hello {
                local: member(1).addr,
                remote: member(2).addr,
                vote: fresh,
            },
        ),
        ("lifeline vote", LifelineRecord::Vote(vote())),
        ("lifeline goodbye", LifelineRecord::Goodbye),
        (
            "lifeline last-vote record",
            LifelineRecord::LastVoteRecord {
                vote: vote(),
                tell: vec![
                    vec![member(1).addr, member(2).addr],
                    Vec::new(),
                    vec![member(3).addr],
                ],
            },
        ),
    ]
}
