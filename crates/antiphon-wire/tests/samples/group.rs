//! Every message and record of the group layer.

use antiphon_wire::block::{After, PIECE_BYTES, Tag};
use antiphon_wire::group::{
    CutSpan, Decision, DepartedSender, DepartureCause, GroupControl, GroupData, GroupMessage, GroupReport,
    GroupTerms, Joiner, Reach, Run, Span, Standing, TellsHeard,
};
use antiphon_wire::object::{ChunkSpan, Digest, ObjectRecord};
use antiphon_wire::record::{Control, Record};
use antiphon_wire::{Block, BlockBuilder, GroupId, GroupViewId, Level};

use super::{incarnation, member, view_id};

const GROUP: GroupId = GroupId(0x0123_4567_89ab_cdef);

fn view(k: u32) -> GroupViewId {
    GroupViewId {
        node: view_id(),
        number: 28_000_000,
        k,
    }
}

fn span() -> Span {
    Span {
        sender: 2,
        first: 9,
        count: 300,
    }
}

fn decision() -> Box<Decision> {
    Box::new(Decision {
        id: view(4),
        from: view(3),
        cut: vec![300, 0, 7],
        holders: vec![vec![0, 1], vec![], vec![1]],
        beyond: vec![CutSpan {
            span: span(),
            holders: vec![1],
        }],
        ordered: 307,
        order_holders: vec![0],
        members: vec![incarnation(1), incarnation(2), incarnation(4)],
        start: vec![301, 1, 1],
        joined: vec![Joiner {
            incarnation: incarnation(4),
            nonce: u64::MAX,
            first: 1,
        }],
        left: vec![incarnation(5)],
        crashed: vec![incarnation(3)],
        causes: vec![DepartureCause {
            incarnation: incarnation(3),
            cause: "slow: it".to_owned(),
        }],
        safe: true,
        told: vec![TellsHeard {
            member: 1,
            heard: vec![(0, 1), (2, 300)],
        }],
    })
}

pub(crate) fn controls() -> Vec<(&'static str, Control)> {
    let name = || "orders".to_owned();
    let terms = GroupTerms {
        order: 1,
        window_bytes: 1 << 20,
        dissemination: 1,
        slow_after_ms: 30_000,
        engine: 1,
        max_object_bytes: 1 << 28,
    };
    let report = || GroupReport {
        name: name(),
        group: GROUP,
        view: view(3),
        members: vec![incarnation(1)],
    };
    let (group, view, target) = (GROUP, view(3), view(4));
    let at = Standing::At {
        view,
        held: vec![300, 0, 7],
        beyond: vec![span()],
        nulls: vec![256, 0, 7],
        ordered: 307,
        decision: Some(decision()),
        safe: true,
        held_cut: Some(decision()),
        told: vec![(0, 1), (2, 300)],
    };
    let flush_report = |standing| GroupMessage::FlushReport {
        group,
        target,
        standing,
    };
    let messages = vec![
        (
            "group report",
            GroupMessage::Report {
                groups: vec![report()],
            },
        ),
        (
            "group report of one in no group",
            GroupMessage::Report { groups: Vec::new() },
        ),
        ("group announce", GroupMessage::Announce(report())),
        (
            "group dissolved",
            GroupMessage::Dissolved {
                group,
                name: name(),
                k: 9,
            },
        ),
        ("group lookup", GroupMessage::Lookup { name: name() }),
        (
            "group located",
            GroupMessage::Located {
                name: name(),
                leader: incarnation(1),
            },
        ),
        ("group grant", GroupMessage::Grant { name: name(), k: 9 }),
        ("group declined", GroupMessage::Declined { name: name() }),
        (
            "group join",
            GroupMessage::Join {
                name: name(),
                terms,
                nonce: u64::MAX,
                first: 1,
            },
        ),
        (
            "group moved",
            GroupMessage::Moved {
                name: name(),
                leader: Some(incarnation(2)),
            },
        ),
        (
            "group moved, nobody knows where",
            GroupMessage::Moved {
                name: name(),
                leader: None,
            },
        ),
        (
            "group refused",
            GroupMessage::Refused {
                name: name(),
                reason: "fifo, not total".to_owned(),
            },
        ),
        ("group leave", GroupMessage::Leave { group }),
        ("group resume", GroupMessage::Resume { group, view }),
        (
            "flush start",
            GroupMessage::FlushStart {
                group,
                name: name(),
                view,
                target,
            },
        ),
        ("flush report of a joiner", flush_report(Standing::Joining)),
        ("flush report of a member", flush_report(at)),
        (
            "flush report of one that is gone",
            flush_report(Standing::Gone { removed: None }),
        ),
        (
            "flush report of one that was removed",
            flush_report(Standing::Gone {
                removed: Some("flush-stalled: it".to_owned()),
            }),
        ),
        (
            "flush refused",
            GroupMessage::FlushRefused {
                group,
                promised: target,
            },
        ),
        (
            "flush cut",
            GroupMessage::FlushCut {
                group,
                decision: decision(),
            },
        ),
        (
            "complete",
            GroupMessage::Complete {
                group,
                target,
                decision: decision(),
                installed: true,
            },
        ),
        (
            "first view",
            GroupMessage::FirstView {
                group,
                name: name(),
                terms,
                decision: decision(),
                departed: vec![DepartedSender {
                    incarnation: incarnation(3),
                    last: 7,
                    beyond: vec![(9, 300)],
                    k: 4,
                }],
                gone: vec![member(3)],
            },
        ),
        ("installed", GroupMessage::Installed { group, view }),
        ("settled", GroupMessage::Settled { group, view }),
        (
            "removed",
            GroupMessage::Removed {
                group,
                view,
                cause: "silent".to_owned(),
            },
        ),
        ("check", GroupMessage::Check { group, view }),
        ("overdue", GroupMessage::Overdue { group, view }),
        (
            "slow",
            GroupMessage::Slow {
                group,
                view,
                for_us: 31_500_000,
                cause: "slow: it".to_owned(),
            },
        ),
        ("cut held", GroupMessage::CutHeld { group, target }),
        ("cut safe", GroupMessage::CutSafe { group, target }),
        ("report wanted", GroupMessage::ReportWanted),
    ];
    let control = |body| {
        Control::Group(GroupControl {
            view: view_id(),
            body,
        })
    };
    messages
        .into_iter()
        .map(|(name, body)| (name, control(body)))
        .collect()
}

fn block(payloads: &[&[u8]]) -> Block {
    let mut builder = BlockBuilder::default();
    for payload in payloads {
        builder.push(payload);
    }
    builder.finish()
}

fn tagged() -> Block {
    let mut builder = BlockBuilder::default();
    for after in [After::Nothing, After::One(1), After::All(300)] {
        builder.push_tagged(Tag { scope: 17, after }, b"one");
    }
    builder.finish()
}

fn last_piece(of: &'static [u8]) -> Block {
    let pieces = Block::large(of.into()).pieces();
    pieces.last().expect("a message has a piece at least")
}

pub(crate) fn records() -> Vec<(&'static str, Record)> {
    let (group, view) = (GROUP, view(3));
    let batch = |messages| GroupData::Batch {
        group,
        view,
        sender: 2,
        first: 300,
        stable: 299,
        ask: true,
        messages,
    };
    let runs = vec![
        Run {
            sender: 2,
            count: 300,
        },
        Run { sender: 0, count: 1 },
    ];
    let mut safe = BlockBuilder::default();
    safe.set_level(Level::Safe);
    safe.push(b"one");
    let records = vec![
        ("batch", batch(block(&[b"one", b""]))),
        ("batch of a safe message", batch(safe.finish())),
        ("batch of messages with tags", batch(tagged())),
        ("batch that is a mark", batch(block(&[]))),
        ("batch of nulls", batch(Block::nulls(1000))),
        (
            "batch with the last piece of a payload",
            batch(last_piece(b"end")),
        ),
        (
            "batch with the second and last piece of a payload",
            batch(last_piece(&[7; PIECE_BYTES + 3])),
        ),
        (
            "orders",
            GroupData::Orders {
                group,
                view,
                first: 7,
                stable: 6,
                ask: false,
                runs: runs.clone(),
            },
        ),
        (
            "token",
            GroupData::Token {
                group,
                view,
                hop: 300,
                first: 7,
                runs: runs.clone(),
            },
        ),
        (
            "token held",
            GroupData::TokenHeld {
                group,
                view,
                hop: 300,
            },
        ),
        (
            "ack",
            GroupData::Ack {
                group,
                view,
                to: 2,
                held: 300,
                consumed: 299,
                ordered: 7,
            },
        ),
        (
            "nak",
            GroupData::Nak {
                group,
                view,
                sender: 2,
                first: 300,
                end: 310,
            },
        ),
        (
            "order nak",
            GroupData::OrderNak {
                group,
                view,
                first: 7,
            },
        ),
        (
            "pull",
            GroupData::Pull {
                group,
                view,
                sender: 2,
                first: 300,
                end: 310,
            },
        ),
        (
            "repair",
            GroupData::Repair {
                group,
                view,
                sender: 2,
                first: 300,
                last: true,
                messages: block(&[b"one"]),
            },
        ),
        (
            "pull orders",
            GroupData::PullOrders {
                group,
                view,
                first: 7,
            },
        ),
        (
            "repair orders",
            GroupData::RepairOrders {
                group,
                view,
                first: 7,
                runs,
            },
        ),
        (
            "rows",
            GroupData::Rows {
                group,
                view,
                ask: true,
                reach: vec![
                    Reach {
                        column: 2,
                        until: 301,
                    },
                    Reach { column: 0, until: 1 },
                ],
            },
        ),
        (
            "batch with the record of an object",
            batch(Block::object(&ObjectRecord {
                object: 300,
                length: 70_000_000,
                digest: Digest(0x0f0e_0d0c_0b0a_0908_0706_0504_0302_0100),
            })),
        ),
        (
            "offer",
            GroupData::Offer {
                group,
                view,
                object: 300,
                length: 70_000_000,
                wrong: None,
            },
        ),
        (
            "offer to one whose copy is wrong",
            GroupData::Offer {
                group,
                view,
                object: 300,
                length: 70_000_000,
                wrong: Some(Digest(1 << 100)),
            },
        ),
        (
            "want",
            GroupData::Want {
                group,
                view,
                object: 300,
                next: 200,
                until: 208,
                again: vec![ChunkSpan { first: 200, end: 202 }],
            },
        ),
        (
            "chunk",
            GroupData::Chunk {
                group,
                object: 300,
                index: 1166,
                bytes: b"end"[..].into(),
            },
        ),
        (
            "held",
            GroupData::Held {
                group,
                view,
                object: 300,
                digest: Digest(1 << 100),
            },
        ),
        (
            "tell",
            GroupData::Tell {
                group,
                view,
                to: incarnation(2),
                first: 300,
                messages: block(&[b"one", b""]),
            },
        ),
        (
            "tell that is a mark",
            GroupData::Tell {
                group,
                view,
                to: incarnation(2),
                first: 302,
                messages: block(&[]),
            },
        ),
        (
            "tell ack",
            GroupData::TellAck {
                group,
                view,
                to: incarnation(2),
                heard: 300,
                until: 310,
                consumed: 299,
            },
        ),
    ];
    records
        .into_iter()
        .map(|(name, record)| (name, Record::Group(record)))
        .collect()
}
