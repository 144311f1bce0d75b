use std::net::SocketAddr;
use std::os::fd::AsFd as _;
use std::time::{Duration, Instant};

use antiphon_core::ClusterKey;
use antiphon_core::witness::Death;
use antiphon_wire::codec::encode_to_vec;
use antiphon_wire::enquiry::{Notice, Verdict};
use antiphon_wire::frame::{FrameCodec, Kind};
use antiphon_wire::membership::{LifelineRecord, VoteState, VotedIn};
use antiphon_wire::{Incarnation, Lineage, ViewId};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};

use super::*;

/// Both sides within one process.
fn both() -> (Keeper, LastVoteRecord) {
    let keeper = Keeper::new().expect("memory");
    let last_vote = LastVoteRecord::open(&keeper.path()).expect("the same memory");
    (keeper, last_vote)
}

#[test]
fn what_was_left_last_is_read_whatever_was_left_before() {
    let (keeper, last_vote) = both();
    assert_eq!(keeper.contents().expect("readable"), Bytes::new());
    for length in [60_000, 1, 300, MAX_FRAME_BYTES] {
        let frame = vec![length as u8; length];
        last_vote.leave(Some(&frame)).expect("left");
        assert_eq!(keeper.contents().expect("readable"), frame);
    }
    last_vote.leave(None).expect("left");
    assert_eq!(keeper.contents().expect("readable"), Bytes::new());
}

#[test]
fn what_is_too_large_leaves_nothing() {
    let (keeper, last_vote) = both();
    last_vote.leave(Some(b"a vote")).expect("left");
    last_vote
        .leave(Some(&vec![0; MAX_FRAME_BYTES + 1]))
        .expect("nothing is left");
    assert_eq!(keeper.contents().expect("readable"), Bytes::new());
}

#[test]
fn who_opens_it_finds_nothing_of_whoever_had_it_before() {
    let (keeper, last_vote) = both();
    last_vote.leave(Some(b"a vote")).expect("left");
    drop(last_vote);
    let _next = LastVoteRecord::open(&keeper.path()).expect("the same memory");
    assert_eq!(keeper.contents().expect("readable"), Bytes::new());
}

#[test]
fn nothing_is_proven_while_somebody_may_write() {
    let (keeper, last_vote) = both();
    last_vote.leave(Some(b"a vote")).expect("left");
    assert_eq!(keeper.read().expect_err("held").kind(), io::ErrorKind::WouldBlock);
    // A copy, as a fork makes one, holds it as well.
    let copy = last_vote.file.try_clone().expect("a copy");
    drop(last_vote);
    assert_eq!(keeper.read().expect_err("held").kind(), io::ErrorKind::WouldBlock);
    drop(copy);
    assert_eq!(keeper.read().expect("nobody has it"), &b"a vote"[..]);
    assert_eq!(keeper.read().expect("and again"), &b"a vote"[..]);
}

#[test]
fn a_second_node_is_refused_and_the_first_ones_vote_stays() {
    let (keeper, last_vote) = both();
    last_vote.leave(Some(b"a vote")).expect("left");
    let second = LastVoteRecord::open(&keeper.path());
    assert_eq!(second.expect_err("taken").kind(), io::ErrorKind::WouldBlock);
    assert_eq!(keeper.contents().expect("readable"), &b"a vote"[..]);
}

#[test]
fn a_file_that_no_supervisor_made_is_refused_and_left_as_it_is() {
    for content in [&b""[..], b"short", b"somebody's log, longer than the mark is"] {
        let file: File = memfd_create("log", MemfdFlags::empty()).expect("memory").into();
        file.write_all_at(content, 0).expect("written");
        let other = Keeper { file };
        let refused = LastVoteRecord::open(&other.path()).expect_err("no last-vote record");
        assert_eq!(refused.kind(), io::ErrorKind::InvalidData);
        let mut left = vec![0; 100];
        let length = other.file.read_at(&mut left, 0).expect("readable");
        assert_eq!(&left[..length], content);
    }
}

#[test]
fn bytes_that_are_no_last_vote_record_are_refused() {
    let (keeper, last_vote) = both();
    for bytes in [&[1][..], &[2, 0, 0, 0, 7], &[255; 9]] {
        last_vote.file.set_len(START).expect("empty");
        last_vote.file.write_all_at(bytes, START).expect("written");
        assert_eq!(
            keeper.contents().expect_err("refused").kind(),
            io::ErrorKind::InvalidData
        );
    }
}

#[test]
fn a_vote_that_cannot_be_written_takes_the_one_before_away() {
    // Memory that takes no byte more than it has.
    let file: File = memfd_create("small", MemfdFlags::ALLOW_SEALING)
        .expect("memory")
        .into();
    file.set_len(START + 10).expect("resized");
    fcntl_add_seals(file.as_fd(), SealFlags::GROW).expect("sealed");
    let last_vote = LastVoteRecord {
        file: file.try_clone().expect("the same memory"),
    };
    let keeper = Keeper { file };
    last_vote.leave(Some(b"a vote")).expect("left");
    assert_eq!(keeper.contents().expect("readable"), &b"a vote"[..]);
    last_vote.leave(Some(b"a longer vote")).expect("nothing is left");
    assert_eq!(keeper.contents().expect("readable"), Bytes::new());
}

#[test]
fn an_earlier_vote_that_cannot_be_taken_away_is_an_error() {
    let file: File = memfd_create("fixed", MemfdFlags::ALLOW_SEALING)
        .expect("memory")
        .into();
    let last_vote = LastVoteRecord {
        file: file.try_clone().expect("the same memory"),
    };
    last_vote.leave(Some(b"a vote")).expect("left");
    fcntl_add_seals(file.as_fd(), SealFlags::GROW | SealFlags::SHRINK).expect("sealed");
    last_vote.leave(Some(b"a longer vote")).expect_err("still there");
    last_vote.leave(None).expect_err("still there");
}

/// The death of a member, to be told at these addresses.
fn death(tell: Vec<SocketAddr>) -> Death {
    let key = ClusterKey::from_bytes([5; 32]);
    let record = LifelineRecord::LastVoteRecord {
        tell: tell.into_iter().map(|addr| vec![addr]).collect(),
        vote: VoteState {
            view: VotedIn::Named {
                lineage: Lineage(3),
                id: ViewId { epoch: 1, counter: 2 },
                change: None,
            },
            promised: None,
            accepted: None,
        },
    };
    let mut codec = FrameCodec::new("c", Some(&key), Incarnation(1));
    let last_vote = codec.seal(Kind::Lifeline, &encode_to_vec(&record));
    Death::of("c", &key, last_vote, Incarnation(2)).expect("a proof")
}

/// Says this to each node that asks.
fn answers(listener: TcpListener, verdict: Verdict) {
    tokio::spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut question = [0; 64 << 10];
            let silence = Duration::from_millis(50);
            while let Ok(Ok(1..)) = tokio::time::timeout(silence, stream.read(&mut question)).await {}
            let notice = Notice {
                version: 1,
                wire_level: 1,
                verdict,
            };
            let _ = stream.write_all(&notice.encode()).await;
        }
    });
}

#[tokio::test]
async fn a_death_is_told_on_until_a_member_takes_it_whatever_others_can_make_of_it() {
    let seeking = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let member = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addrs: Vec<SocketAddr> = [&seeking, &member].map(|it| it.local_addr().unwrap()).into();
    drop(member);
    answers(seeking, Verdict::Unused);
    let comes = addrs[1];
    // It starts later than the time for which others are tried once a member has taken it.
    tokio::spawn(async move {
        tokio::time::sleep(Duration::from_secs(4)).await;
        answers(TcpListener::bind(comes).await.unwrap(), Verdict::Taken);
    });
    let begun = Instant::now();
    let handed = tell(death(addrs.clone()), addrs[0], Duration::from_secs(30)).await;
    assert_eq!((handed.taken, handed.absent, handed.unreached), (1, 0, 1));
    let took = begun.elapsed();
    assert!((4..20).contains(&took.as_secs()), "{took:?}");
}

#[tokio::test]
async fn a_patience_without_end_is_one() {
    let member = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = member.local_addr().unwrap();
    answers(member, Verdict::Taken);
    let handed = tell(death(vec![addr]), addr, Duration::MAX).await;
    assert_eq!((handed.taken, handed.unreached), (1, 0));
}

#[tokio::test]
async fn who_took_a_death_shortens_the_telling() {
    let seeking = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let member = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addrs: Vec<SocketAddr> = [&seeking, &member].map(|it| it.local_addr().unwrap()).into();
    answers(seeking, Verdict::Unused);
    answers(member, Verdict::Taken);
    let begun = Instant::now();
    let handed = tell(death(addrs.clone()), addrs[0], Duration::from_secs(30)).await;
    assert_eq!((handed.taken, handed.unreached), (1, 1));
    assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
}
