use std::collections::BTreeMap;

use super::*;
use antiphon_api::{Payload, ViewMember, ViewName};

/// A stream in a few words: `V1:ab` a view, `a1` message 1 of a, `S` suspended, `R` resync, `!a1` a refused send,
/// `?1` a receipt for ticket 1, `N1:ab` a primary node view.
fn record(name: &str, stayed: bool, asked: &str, stream: &str) -> Record {
    let mut lines = Vec::new();
    let mut view: Option<(String, Vec<String>)> = None;
    for word in stream.split_whitespace() {
        let group = "g".to_owned();
        let list = |text: &str| text.chars().map(String::from).collect::<Vec<_>>();
        lines.push(if let Some(rest) = word.strip_prefix('V') {
            let (id, members) = rest.split_once(':').unwrap();
            let (id, members) = (format!("{id}.1"), list(members));
            let before = view
                .as_ref()
                .map(|(_, members)| members.clone())
                .unwrap_or_default();
            let line = Event::View {
                group,
                id: id.clone(),
                joined: members.iter().filter(|m| !before.contains(m)).cloned().collect(),
                left: vec![],
                crashed: before.iter().filter(|m| !members.contains(m)).cloned().collect(),
                causes: BTreeMap::new(),
                transitional: members.iter().filter(|m| before.contains(m)).cloned().collect(),
                members: members.clone(),
                primary: true,
            };
            view = Some((id, members));
            line
        } else if let Some(rest) = word.strip_prefix('N') {
            let (number, members) = rest.split_once(':').unwrap();
            let number = number.parse().unwrap();
            let member = |name: String| ViewMember {
                incarnation: name.clone(),
                addr: String::new(),
                further: Vec::new(),
                metadata: BTreeMap::new(),
                name,
            };
            Event::NodeView {
                id: ViewName::Primary(number),
                number,
                primary: true,
                members: list(members).into_iter().map(member).collect(),
                size: None,
                joined: vec![],
                left: vec![],
                crashed: vec![],
            }
        } else if word == "S" {
            Event::Suspended { group }
        } else if word == "R" {
            view = None;
            Event::Resync {
                group,
                cause: String::new(),
            }
        } else if let Some(payload) = word.strip_prefix('!') {
            Event::Refused {
                group: Some(group),
                reason: "not primary".into(),
                fatal: false,
                request: Some(serde_json::json!({"send": {"group": "g", "payload": payload}})),
            }
        } else if let Some(ticket) = word.strip_prefix('?') {
            Event::Receipt {
                group,
                ticket: ticket.parse().unwrap(),
                outcome: "unknown".into(),
            }
        } else {
            Event::Message {
                group,
                view: view.as_ref().map(|(id, _)| id.clone()).unwrap_or_default(),
                sender: word[..1].to_owned(),
                seq: word[1..].split('#').next().unwrap().parse().unwrap(),
                payload: Payload::Text(word.to_owned()),
                safe: false,
                scope: None,
            }
        });
    }
    Record {
        name: name.into(),
        asked: asked.split_whitespace().map(String::from).collect(),
        lines,
        stayed,
    }
}

fn judged(records: &[Record]) -> Sheet {
    judge(records, "g", true)
}

/// Expects these counts: lost, duplicated, order violations, view violations, invented.
#[track_caller]
fn expect(records: &[Record], expected: [u64; 5]) -> Sheet {
    let sheet = judged(records);
    let counts: [u64; 5] = [
        sheet.lost,
        sheet.duplicated,
        sheet.order_violations,
        sheet.view_violations,
        sheet.invented,
    ];
    assert_eq!(counts, expected, "{:#?}", sheet.findings);
    assert_eq!(sheet.holds(), counts == [0; 5]);
    assert_eq!(sheet.findings.is_empty(), sheet.holds());
    sheet
}

#[test]
fn a_group_that_lost_a_killed_member_and_kept_every_promise_passes() {
    let sheet = expect(
        &[
            record("a", true, "a1 a2", "V1:abc a1 b1 V2:ab a2"),
            record("b", true, "b1", "V1:abc a1 b1 V2:ab a2"),
            // Delivered less than the survivors: it promised nothing.
            record("c", false, "c1", "V1:abc a1"),
        ],
        [0, 0, 0, 0, 0],
    );
    assert_eq!((sheet.sent, sheet.refused), (4, 0));
    assert_eq!(
        sheet.nodes["a"],
        NodeCount {
            sent: 2,
            refused: 0,
            delivered: 3
        }
    );
    assert_eq!(sheet.nodes["c"].delivered, 1);
}

#[test]
fn a_message_that_one_survivor_delivered_and_another_did_not_is_lost() {
    let mut records = [
        record("a", true, "", "V1:abc c1 V2:ab"),
        record("b", true, "", "V1:abc V2:ab"),
        record("c", false, "c1", "V1:abc"),
    ];
    expect(&records, [1, 0, 0, 0, 0]);
    // Also if it comes late, in the next view: then it is in two views, too.
    records[1] = record("b", true, "", "V1:abc V2:ab c1");
    let sheet = judged(&records);
    assert!(
        sheet.lost >= 1 && sheet.order_violations == 1,
        "{:#?}",
        sheet.findings
    );
}

#[test]
fn members_of_the_last_view_are_compared_too() {
    expect(
        &[
            record("a", true, "a1 a2", "V1:ab a1 a2"),
            record("b", true, "", "V1:ab a1"),
        ],
        [1, 0, 0, 0, 0],
    );
}

#[test]
fn a_message_taken_from_a_node_that_stayed_and_seen_nowhere_is_lost() {
    expect(&[record("a", true, "a1 a2", "V1:a a1")], [1, 0, 0, 0, 0]);
    // Not if the node was killed, refused it, or said what became of it.
    expect(&[record("a", false, "a1 a2", "V1:a a1")], [0, 0, 0, 0, 0]);
    let sheet = expect(&[record("a", true, "a1 x2", "V1:a a1 !x2")], [0, 0, 0, 0, 0]);
    assert_eq!((sheet.sent, sheet.refused), (1, 1));
    expect(
        &[record("a", true, "x0 a1 x2", "V1:a !x0 a1 ?2")],
        [0, 0, 0, 0, 0],
    );
    expect(
        &[record("a", true, "x0 a1 x2", "V1:a !x0 a1 ?1")],
        [1, 0, 0, 0, 0],
    );
}

#[test]
fn a_gap_in_a_senders_numbers_is_lost_even_if_all_agree_on_it() {
    expect(
        &[
            record("a", true, "", "V1:ab b1 b4 V2:a"),
            record("b", false, "b1 b2 b3 b4", "V1:ab b1 b2 b3 b4"),
        ],
        [2, 0, 0, 0, 0],
    );
}

#[test]
fn a_message_delivered_twice_is_duplicated_also_across_views() {
    expect(&[record("a", true, "a1 a2", "V1:a a1 a2 a1")], [0, 1, 0, 0, 0]);
    let sheet = judged(&[
        record("a", true, "a1", "V1:ab a1 V2:a a1"),
        record("b", false, "", "V1:ab"),
    ]);
    assert_eq!(sheet.duplicated, 1);
}

#[test]
fn two_orders_among_those_that_move_together_are_a_violation() {
    let records = [
        record("a", true, "a1 a2", "V1:ab a1 b1 a2"),
        record("b", true, "b1", "V1:ab b1 a1 a2"),
    ];
    expect(&records, [0, 0, 1, 0, 0]);
    assert!(
        judge(&records, "g", false).holds(),
        "fifo promises nothing across senders"
    );
    let backwards = [
        record("a", true, "a1 a2", "V1:ab a2 a1"),
        record("b", true, "", "V1:ab a2 a1"),
    ];
    assert_eq!(
        judge(&backwards, "g", false).order_violations,
        2,
        "fifo orders each sender"
    );
}

#[test]
fn a_killed_sequencer_may_have_delivered_in_an_order_that_nobody_learned() {
    expect(
        &[
            record("a", false, "a1", "V1:abc c1 b1 a1"),
            record("b", true, "b1", "V1:abc b1 c1 V2:bc"),
            record("c", true, "c1", "V1:abc b1 c1 V2:bc"),
        ],
        [0, 0, 0, 0, 0],
    );
}

#[test]
fn a_minority_that_comes_back_begins_a_new_life() {
    expect(
        &[
            record("a", true, "a1 a2 a3 x4", "V1:abc a1 S !x4 R V3:bca"),
            record("b", true, "b1", "V1:abc a1 b1 V2:bc V3:bca"),
            record("c", true, "", "V1:abc a1 b1 V2:bc V3:bca"),
        ],
        // a2 and a3 were taken before the cut was noticed, and nobody ever said what became of them.
        [2, 0, 0, 0, 0],
    );
    expect(
        &[
            record("a", true, "a1 a2 x4", "V1:abc a1 S !x4 R ?2 V3:bca"),
            record("b", true, "b1", "V1:abc a1 b1 V2:bc V3:bca"),
            record("c", true, "", "V1:abc a1 b1 V2:bc V3:bca"),
        ],
        [0, 0, 0, 0, 0],
    );
}

#[test]
fn a_restarted_sender_counts_from_one_again() {
    expect(
        &[
            record("a", true, "", "V1:ab b1 b2 V2:a V3:ab b1#again"),
            record("b", false, "b1 b2", "V1:ab b1 b2"),
            record("b", true, "b1#again", "V3:ab b1#again"),
        ],
        [0, 0, 0, 0, 0],
    );
}

#[test]
fn a_message_while_suspended_or_outside_its_view_is_a_violation() {
    expect(
        &[
            record("a", true, "", "V1:ab S b1 V2:a"),
            record("b", false, "b1", "V1:ab"),
        ],
        [0, 0, 0, 1, 0],
    );
    expect(
        &[record("a", true, "", "a1 V1:a"), record("a", false, "a1", "")],
        [0, 0, 0, 1, 0],
    );
}

#[test]
fn views_that_disagree_or_run_backwards_are_violations() {
    assert!(judged(&[record("a", true, "", "V1:ab"), record("b", true, "", "V1:b")]).view_violations > 0);
    expect(
        &[
            record("a", true, "", "V2:ab V1:a"),
            record("b", false, "", "V2:ab"),
        ],
        [0, 0, 0, 1, 0],
    );
    expect(&[record("a", false, "", "V1:b")], [0, 0, 0, 1, 0]);
}

#[test]
fn a_transitional_set_that_claims_too_much_or_too_little_is_a_violation() {
    // b came to V3 from V2, a directly from V1; both claim to have come together.
    expect(
        &[
            record("a", true, "", "V1:abc V3:ab"),
            record("b", true, "", "V1:abc V2:abc V3:ab"),
        ],
        [0, 0, 0, 1, 0],
    );
}

#[test]
fn an_incomplete_difference_is_a_violation() {
    let mut broken = record("a", true, "", "V1:abc V2:a");
    if let Event::View { crashed, .. } = &mut broken.lines[1] {
        crashed.pop();
    }
    expect(&[broken], [0, 0, 0, 1, 0]);
}

#[test]
fn what_nobody_sent_is_invented() {
    expect(
        &[
            record("a", true, "", "V1:ab b1"),
            record("b", true, "", "V1:ab b1"),
        ],
        [0, 0, 0, 0, 2],
    );
}

#[test]
fn two_primaries_are_found() {
    expect(
        &[
            record("a", true, "", "N1:abc N2:ab"),
            record("c", true, "", "N1:abc N2:c"),
        ],
        [0, 0, 0, 1, 0],
    );
    expect(&[record("a", true, "", "N1:ab N2:cd")], [0, 0, 0, 1, 0]);
    expect(&[record("a", true, "", "N2:a N1:a")], [0, 0, 0, 1, 0]);
    let sheet = expect(
        &[
            record("a", true, "", "N1:ab N2:a"),
            record("b", false, "", "N1:ab"),
        ],
        [0, 0, 0, 0, 0],
    );
    assert_eq!(sheet.view_changes.len(), 2);
}
