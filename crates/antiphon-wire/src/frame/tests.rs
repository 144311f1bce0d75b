use super::*;

const ALICE: Incarnation = Incarnation(0x0123_4567_89ab_cdef_0011_2233_4455_6677);
const BOB: Incarnation = Incarnation(7);

fn key(fill: u8) -> ClusterKey {
    ClusterKey::from_bytes([fill; 32])
}

/// Alice seals and Bob opens, without and with a key.
fn pairs() -> [(FrameCodec, FrameCodec); 2] {
    [None, Some(key(9))].map(|key| {
        (
            FrameCodec::new("shop", key.as_ref(), ALICE),
            FrameCodec::new("shop", key.as_ref(), BOB),
        )
    })
}

#[test]
fn what_was_sealed_is_opened_with_its_kind_and_sender() {
    for (mut alice, mut bob) in pairs() {
        for kind in Kind::ALL {
            for records in [&b""[..], b"x", &[5; MAX_RECORDS_BYTES]] {
                let frame = alice.seal(kind, records);
                assert_eq!(frame.len(), MIN_FRAME_BYTES + records.len());
                assert_eq!(peek(&frame), Ok((kind, ALICE)));
                let opened = bob.open(frame).expect("an honest frame");
                assert_eq!(
                    opened,
                    Opened {
                        kind,
                        sender: ALICE,
                        records: Bytes::copy_from_slice(records)
                    }
                );
            }
        }
    }
}

#[test]
fn one_sealing_serves_all_destinations_and_a_keyed_frame_hides_its_records() {
    let key = key(9);
    let mut alice = FrameCodec::new("shop", Some(&key), ALICE);
    let frame = alice.seal(Kind::Bulk, b"the secret of the shop");
    assert!(!frame.windows(6).any(|window| window == b"secret"));
    for me in 1..5 {
        let mut receiver = FrameCodec::new("shop", Some(&key), Incarnation(me));
        assert_eq!(
            &receiver.open(frame.clone()).expect("for everyone").records[..],
            b"the secret of the shop"
        );
    }
}

#[test]
fn a_frame_sealed_around_a_block_has_the_bytes_of_one_sealed_in_one_piece() {
    for (around, _) in pairs() {
        for length in [0, 1, WORTH_SHARING - 1, WORTH_SHARING, MAX_RECORDS_BYTES - 7] {
            for kind in Kind::ALL {
                let (mut around, mut whole) = (around.clone(), around.clone());
                let block = Bytes::from(vec![5; length]);
                let records = [b"four", &block[..], b"the"].concat();
                let expected = whole.seal(kind, &records);
                let frame = around.seal_around(kind, b"four", &block, b"the");
                assert_eq!(frame.to_bytes(), expected, "{kind:?}, {length} bytes");
            }
        }
    }
}

#[test]
fn any_damaged_byte_is_refused_in_both_modes_and_the_frame_itself_is_still_good_after() {
    for (mut alice, mut bob) in pairs() {
        let frame = alice.seal(Kind::Control, b"some records");
        for at in 0..frame.len() {
            for bit in 0..8 {
                let mut damaged = frame.to_vec();
                damaged[at] ^= 1 << bit;
                let refused = bob.open(Bytes::from(damaged)).expect_err("damaged");
                let expected = match at {
                    0..2 => OpenError::NotAFrame,
                    2 => OpenError::Version(1 ^ 1 << bit),
                    // Kind: either another kind whose tag does not fit, or none.
                    3 => refused,
                    4..12 => OpenError::OtherCluster,
                    12..16 => OpenError::Key,
                    _ => OpenError::BadTag,
                };
                assert_eq!(refused, expected, "byte {at} bit {bit}");
                assert_ne!(refused, OpenError::Replayed);
            }
        }
        bob.open(frame).expect("refused frames change nothing");
    }
}

#[test]
fn a_frame_cut_short_or_made_longer_is_refused() {
    for (mut alice, mut bob) in pairs() {
        let frame = alice.seal(Kind::Control, b"some records");
        for length in 0..frame.len() {
            let refused = bob.open(frame.slice(..length)).expect_err("cut short");
            let expected = if length < MIN_FRAME_BYTES {
                OpenError::NotAFrame
            } else {
                OpenError::BadTag
            };
            assert_eq!(refused, expected, "{length} bytes");
            assert_eq!(peek(&frame[..length]).is_err(), length < MIN_FRAME_BYTES);
        }
        let longer = [&frame[..], &[0; 5]].concat();
        assert_eq!(bob.open(Bytes::from(longer)), Err(OpenError::BadTag));
        let mut huge = frame.to_vec();
        huge.resize(MAX_FRAME_BYTES + 1, 0);
        assert_eq!(bob.open(Bytes::from(huge)), Err(OpenError::NotAFrame));
    }
}

#[test]
fn a_newer_version_is_named_whatever_its_header_looks_like() {
    let mut bob = FrameCodec::new("shop", None, BOB);
    let frame = Bytes::copy_from_slice(&[MAGIC[0], MAGIC[1], 9, 1, 2, 3]);
    let refused = bob.open(frame).expect_err("version 9");
    assert_eq!(refused, OpenError::Version(9));
    assert!(refused.to_string().ends_with("upgrade this node"));
    assert!(OpenError::Version(0).to_string().ends_with("upgrade the sender"));
}

#[test]
fn another_cluster_or_key_is_told_apart_from_damage() {
    let mut bob = FrameCodec::new("shop", Some(&key(9)), BOB);
    let refused = |codec: &mut FrameCodec, frame| codec.open(frame).expect_err("foreign");
    let mut other_name = FrameCodec::new("bank", Some(&key(9)), ALICE);
    assert_eq!(
        refused(&mut bob, other_name.seal(Kind::Control, b"")),
        OpenError::OtherCluster
    );
    let mut other_key = FrameCodec::new("shop", Some(&key(8)), ALICE);
    assert_eq!(
        refused(&mut bob, other_key.seal(Kind::Control, b"")),
        OpenError::Key
    );
    let mut no_key = FrameCodec::new("shop", None, ALICE);
    assert_eq!(refused(&mut bob, no_key.seal(Kind::Control, b"")), OpenError::Key);
    let mut plain_bob = FrameCodec::new("shop", None, BOB);
    assert_eq!(
        refused(&mut plain_bob, other_key.seal(Kind::Control, b"")),
        OpenError::Key
    );
}

#[test]
fn a_frame_sealed_as_someone_else_is_refused_in_keyed_mode() {
    let key = key(9);
    let mut alice = FrameCodec::new("shop", Some(&key), ALICE);
    let mut forged = alice.seal(Kind::Control, b"I am Bob").to_vec();
    forged[16..32].copy_from_slice(&BOB.0.to_le_bytes());
    let mut carol = FrameCodec::new("shop", Some(&key), Incarnation(3));
    assert_eq!(carol.open(Bytes::from(forged)), Err(OpenError::BadTag));
}

#[test]
fn a_repeated_frame_is_refused_and_a_late_one_is_not() {
    for (mut alice, mut bob) in pairs() {
        let frames: Vec<Bytes> = (0..3).map(|_| alice.seal(Kind::Bulk, b"m")).collect();
        let other_kind = alice.seal(Kind::Control, b"m");
        for at in [2, 0, 1] {
            bob.open(frames[at].clone()).expect("in any order");
        }
        for frame in &frames {
            assert_eq!(bob.open(frame.clone()), Err(OpenError::Replayed));
        }
        bob.open(other_kind).expect("kinds count apart");
    }
}

#[test]
fn a_frame_behind_the_window_is_refused_and_the_last_one_inside_is_not() {
    for (mut alice, mut bob) in pairs() {
        let frames: Vec<Bytes> = (0..=REPLAY_WINDOW)
            .map(|_| alice.seal(Kind::Control, b""))
            .collect();
        bob.open(frames[REPLAY_WINDOW as usize].clone())
            .expect("the newest");
        assert_eq!(bob.open(frames[0].clone()), Err(OpenError::Replayed));
        bob.open(frames[1].clone()).expect("the oldest inside");
    }
}

#[test]
fn a_thousand_strangers_do_not_grow_the_table_beyond_its_bound() {
    let mut bob = FrameCodec::new("shop", None, BOB);
    for sender in 0..2 * MAX_SENDERS as u128 {
        let mut stranger = FrameCodec::new("shop", None, Incarnation(1000 + sender));
        bob.open(stranger.seal(Kind::Control, b""))
            .expect("plain frames are believed");
        assert!(bob.senders.len() <= MAX_SENDERS);
    }
}

#[test]
fn strangers_without_the_key_leave_no_trace_in_the_table() {
    let mut bob = FrameCodec::new("shop", Some(&key(9)), BOB);
    let mut alice = FrameCodec::new("shop", Some(&key(9)), ALICE);
    let honest = alice.seal(Kind::Control, b"hello");
    for sender in 0..100u128 {
        let mut forged = honest.to_vec();
        forged[16..32].copy_from_slice(&sender.to_le_bytes());
        assert_eq!(bob.open(Bytes::from(forged)), Err(OpenError::BadTag));
    }
    assert_eq!(bob.senders.len(), 0);
    bob.open(honest).expect("the honest one");
    assert_eq!(bob.senders.len(), 1);
}

#[test]
fn the_sender_heard_longest_ago_makes_room() {
    let key = key(9);
    let mut bob = FrameCodec::new("shop", Some(&key), BOB);
    let mut alice = FrameCodec::new("shop", Some(&key), ALICE);
    let mut quiet = FrameCodec::new("shop", Some(&key), Incarnation(1));
    let (alices, quiets) = (alice.seal(Kind::Control, b""), quiet.seal(Kind::Control, b""));
    bob.open(quiets.clone()).expect("first");
    bob.open(alices.clone()).expect("second");
    for sender in 0..MAX_SENDERS as u128 - 1 {
        bob.open(alice.seal(Kind::Control, b""))
            .expect("alice keeps talking");
        let mut stranger = FrameCodec::new("shop", Some(&key), Incarnation(1000 + sender));
        bob.open(stranger.seal(Kind::Control, b"")).expect("a new member");
    }
    assert_eq!(bob.open(alices), Err(OpenError::Replayed), "alice is still known");
    bob.open(quiets).expect("the quiet one was forgotten");
}

#[test]
fn the_same_calls_give_the_same_bytes() {
    for (alice, _) in pairs() {
        let (mut one, mut two) = (alice.clone(), alice);
        for kind in Kind::ALL {
            assert_eq!(one.seal(kind, b"same"), two.seal(kind, b"same"));
        }
    }
}

#[test]
fn a_plain_frame_is_opened_without_a_copy() {
    let mut alice = FrameCodec::new("shop", None, ALICE);
    let mut bob = FrameCodec::new("shop", None, BOB);
    let frame = alice.seal(Kind::Bulk, b"payload");
    let place = frame[HEADER_BYTES..].as_ptr();
    assert_eq!(bob.open(frame.clone()).expect("honest").records.as_ptr(), place);
}

#[test]
fn a_key_is_read_from_hex_and_never_shown() {
    let text = format!("  {}\n", "0f".repeat(32));
    let key = ClusterKey::parse(&text).expect("64 digits");
    assert_eq!(key, ClusterKey::from_bytes([0x0f; 32]));
    assert_eq!(key, ClusterKey::parse(&text.to_uppercase()).expect("capitals"));
    let marked = format!("\u{feff}{text}\n");
    assert_eq!(key, ClusterKey::parse(&marked).expect("behind a byte order mark"));
    assert!(!format!("{key:?}").contains("0f"));
    assert!(!format!("{:?}", FrameCodec::new("shop", Some(&key), ALICE)).contains("15, 15"));
    assert_eq!(ClusterKey::parse(""), Err(KeyError::Length { digits: 0 }));
    assert_eq!(
        ClusterKey::parse(&"0f".repeat(33)),
        Err(KeyError::Length { digits: 66 })
    );
    assert_eq!(
        ClusterKey::parse(&"0g".repeat(32)),
        Err(KeyError::NotHex { at: 1 })
    );
    assert_eq!(
        ClusterKey::parse(&"é".repeat(32)),
        Err(KeyError::NotHex { at: 0 })
    );
}

#[test]
fn sealing_and_opening_a_full_frame_is_faster_than_a_slow_network() {
    for (mode, (mut alice, mut bob)) in ["plain", "keyed"].into_iter().zip(pairs()) {
        let records = vec![3; MAX_RECORDS_BYTES];
        let start = std::time::Instant::now();
        let rounds = 200;
        for _ in 0..rounds {
            let frame = alice.seal(Kind::Bulk, &records);
            bob.open(frame).expect("honest");
        }
        let megabytes = rounds as f64 * MAX_FRAME_BYTES as f64 / 1e6;
        let rate = megabytes / start.elapsed().as_secs_f64();
        println!("{mode}: {rate:.0} MB/s sealed and opened");
        // A bound that only an accidental copy per byte or a software cipher would miss, also on a busy
        // machine.
        assert!(rate > 20.0, "{mode} mode seals and opens only {rate:.0} MB/s");
    }
}
