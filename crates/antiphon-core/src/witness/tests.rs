use antiphon_wire::membership::{AcceptedValue, Ballot, Change, Voted};

use super::*;
use crate::membership::testing;

const CLUSTER: &str = "orders";
const ME: Incarnation = Incarnation(2);
const WITNESS: Incarnation = Incarnation(77);

fn key(byte: u8) -> ClusterKey {
    ClusterKey::from_bytes([byte; 32])
}

fn view(count: u128) -> NodeView {
    let members = (1..=count).map(|number| testing::member(Incarnation(number), number as u16));
    testing::view(members.collect())
}

fn fresh(view: &NodeView) -> VoteState {
    VoteState {
        view: VotedIn::Whole(Box::new(view.clone())),
        promised: None,
        accepted: None,
    }
}

fn told(view: &NodeView, watchers: &[u128], vote: &VoteState) -> Vec<u128> {
    let told = whom_to_tell(view, ME, &watched_by(watchers), vote);
    told.iter().map(|member| member.incarnation.0).collect()
}

fn watched_by(of: &[u128]) -> BTreeMap<Incarnation, SocketAddr> {
    let watcher = |number: &u128| {
        (
            Incarnation(*number),
            SocketAddr::from(([127, 0, 0, 1], *number as u16)),
        )
    };
    of.iter().map(watcher).collect()
}

/// What `writer` leaves of this, sealed as the node does it.
fn left_by(writer: Incarnation, key: &ClusterKey, kind: Kind, record: &LifelineRecord) -> Bytes {
    FrameCodec::new(CLUSTER, Some(key), writer).seal(kind, &encode_to_vec(record))
}

fn last_vote_record_of(view: &NodeView, vote: VoteState) -> Bytes {
    let record = last_vote(view, ME, &watched_by(&[1, 3]), vote);
    left_by(ME, &key(1), Kind::Lifeline, &record)
}

fn read(left: Bytes) -> Result<Death, Unproven> {
    Death::of(CLUSTER, &key(1), left, WITNESS)
}

#[test]
fn a_last_vote_record_gives_the_certificate_with_the_last_vote_and_whom_to_tell() {
    let view = view(3);
    let ballot = Ballot {
        round: 4,
        proposer: Incarnation(1),
    };
    let vote = VoteState {
        promised: Some(ballot),
        ..fresh(&view)
    };
    let mut death = read(last_vote_record_of(&view, vote.clone())).expect("a death");
    assert_eq!(death.dead(), ME);
    assert_eq!(
        death.tell(),
        [vec![view.members[0].addr], vec![view.members[2].addr]]
    );

    // R24: each telling is a frame of its own, or the second would be taken for a replay.
    let mut member = FrameCodec::new(CLUSTER, Some(&key(1)), Incarnation(1));
    for _ in 0..2 {
        let opened = member.open(death.frame()).expect("a frame");
        assert_eq!((opened.kind, opened.sender), (Kind::Control, WITNESS));
        let record: Record = decode_all(opened.records).expect("a record");
        let certificate = Certificate {
            dead: ME,
            vote: vote.clone(),
        };
        assert_eq!(record, Record::Witnessed(Box::new(certificate)));
    }
}

#[test]
fn an_empty_file_proves_nothing() {
    assert_eq!(read(Bytes::new()).expect_err("no proof"), Unproven::Nothing);
}

#[test]
fn a_last_vote_record_that_a_kill_cut_short_proves_nothing_wherever_it_was_cut() {
    let whole = last_vote_record_of(&view(3), fresh(&view(3)));
    let before = last_vote_record_of(&view(2), fresh(&view(2)));
    assert!(before.len() < whole.len());
    for cut in 1..whole.len() {
        // The length is there first; what is behind the cut is what was there before, or nothing.
        let mut torn = whole[..cut].to_vec();
        torn.extend_from_slice(before.get(cut..).unwrap_or_default());
        torn.resize(whole.len(), 0);
        assert!(
            matches!(read(torn.into()), Err(Unproven::Sealed(_))),
            "cut at {cut}"
        );
        let short = Bytes::copy_from_slice(&whole[..cut]);
        assert!(matches!(read(short), Err(Unproven::Sealed(_))), "short at {cut}");
    }
}

#[test]
fn what_another_key_or_cluster_or_kind_of_frame_sealed_proves_nothing() {
    let view = view(3);
    let record = last_vote(&view, ME, &watched_by(&[1]), fresh(&view));
    let other_key = left_by(ME, &key(2), Kind::Lifeline, &record);
    assert_eq!(
        read(other_key).expect_err("no proof"),
        Unproven::Sealed(OpenError::Key)
    );
    let control = left_by(ME, &key(1), Kind::Control, &record);
    assert_eq!(read(control).expect_err("no proof"), Unproven::Senseless);
    let left = left_by(ME, &key(1), Kind::Lifeline, &record);
    let elsewhere = Death::of("payments", &key(1), left, WITNESS);
    assert_eq!(
        elsewhere.expect_err("no proof"),
        Unproven::Sealed(OpenError::OtherCluster)
    );
}

#[test]
fn a_record_of_a_lifeline_or_a_vote_that_cannot_be_is_no_last_vote_record() {
    let view = view(3);
    let sealed = |record: &LifelineRecord| left_by(ME, &key(1), Kind::Lifeline, record);
    let vote = LifelineRecord::Vote(fresh(&view));
    assert_eq!(read(sealed(&vote)).expect_err("no proof"), Unproven::Senseless);

    // Accepted without a promise.
    let senseless = VoteState {
        accepted: Some(AcceptedValue {
            ballot: Ballot {
                round: 1,
                proposer: ME,
            },
            value: Voted::Whole(Box::new(view.clone())),
        }),
        ..fresh(&view)
    };
    assert_eq!(
        read(last_vote_record_of(&view, senseless)).expect_err("no proof"),
        Unproven::Senseless
    );

    let stranger = last_vote(&view, ME, &watched_by(&[1]), fresh(&view));
    let stranger = left_by(Incarnation(9), &key(1), Kind::Lifeline, &stranger);
    assert_eq!(read(stranger).expect_err("no proof"), Unproven::Senseless);
}

#[test]
fn whom_to_tell_is_bounded_whatever_was_left() {
    let view = view(3);
    let addr = view.members[0].addr;
    let record = LifelineRecord::LastVoteRecord {
        vote: fresh(&view),
        tell: vec![vec![addr; MAX_ADDRESSES + 1]; MAX_TOLD + 1],
    };
    let death = read(left_by(ME, &key(1), Kind::Lifeline, &record)).expect("a death");
    assert_eq!(death.tell().len(), MAX_TOLD);
    assert!(
        death
            .tell()
            .iter()
            .all(|addresses| addresses.len() == MAX_ADDRESSES)
    );
}

#[test]
fn in_a_large_view_others_than_the_watchers_are_told_too() {
    let view = view(1000);
    let told = told(&view, &[1, 3, 4, 5], &fresh(&view));
    assert_eq!(told[..4], [1, 3, 4, 5]);
    assert_eq!(told.len(), MAX_TOLD);
    assert!(!told.contains(&ME.0), "itself");
    assert!(
        told.iter().any(|number| *number > 800),
        "from all over the view: {told:?}"
    );

    let small = super::tests::view(5);
    assert_eq!(
        super::tests::told(&small, &[1, 3, 4, 5], &fresh(&small)),
        [1, 3, 4, 5]
    );
}

#[test]
fn the_newcomers_of_a_view_that_was_accepted_and_not_installed_are_told_too() {
    let ballot = Ballot {
        round: 0,
        proposer: Incarnation(1),
    };
    let (before, after) = (view(2), view(4));
    let change = Change {
        number: after.number,
        wire_level: after.wire_level,
        departed: Vec::new(),
        joined: after.members[2..].to_vec(),
        merged: Vec::new(),
    };
    for value in [Voted::Whole(Box::new(after)), Voted::Change(Box::new(change))] {
        let vote = VoteState {
            promised: Some(ballot),
            accepted: Some(AcceptedValue { ballot, value }),
            ..fresh(&before)
        };
        assert_eq!(told(&before, &[1], &vote), [1, 3, 4]);
    }
}
