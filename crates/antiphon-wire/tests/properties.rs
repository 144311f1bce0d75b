//! Properties of the codec and the frames over generated values.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::net::SocketAddr;

use antiphon_wire::codec::{Reader, Wire, decode_all, encode_to_vec, put_varint, varint_len};
use antiphon_wire::datagram::{self, Assembly, Datagram, MAX_SEGMENTS, Segment};
use antiphon_wire::frame::{self, ClusterKey, FrameCodec, Kind, OpenError, REPLAY_WINDOW};
use antiphon_wire::level::WireLevels;
use antiphon_wire::record::{ChannelRecord, Record};
use antiphon_wire::stream::{StreamDecoder, length_prefix};
use antiphon_wire::{Block, BlockBuilder, DecodeError, GroupId, Incarnation, Lineage, Member, ViewId};
use bytes::{Bytes, BytesMut};
use proptest::collection::{btree_map, vec};
use proptest::prelude::*;
use proptest::sample::Index;

/// A value survives the wire, has one encoding, and no proper prefix of it is taken for a value.
fn survives<T: Wire + PartialEq + Debug>(value: &T) -> Result<(), TestCaseError> {
    let bytes = Bytes::from(encode_to_vec(value));
    prop_assert_eq!(&decode_all::<T>(bytes.clone()).expect("our own encoding"), value);
    for length in 0..bytes.len() {
        prop_assert!(
            decode_all::<T>(bytes.slice(..length)).is_err(),
            "cut to {} bytes",
            length
        );
    }
    let longer = Bytes::from([&bytes[..], &[0]].concat());
    prop_assert_eq!(decode_all::<T>(longer), Err(DecodeError::TrailingBytes));
    Ok(())
}

/// Whatever bytes decode to encodes to the same bytes: there is no second way to write a value.
fn canonical<T: Wire>(bytes: &Bytes) -> Result<(), TestCaseError> {
    let mut reader = Reader::new(bytes.clone());
    if let Ok(value) = T::decode(&mut reader) {
        let taken = bytes.len() - reader.remaining();
        prop_assert_eq!(&encode_to_vec(&value)[..], &bytes[..taken]);
    }
    Ok(())
}

fn members() -> impl Strategy<Value = Member> {
    let words = || "[a-zäöü🦀]{0,8}";
    (
        any::<u128>(),
        words(),
        proptest::collection::vec(any::<SocketAddr>(), 1..4),
        btree_map(words(), words(), 0..4),
        any::<u16>(),
    )
        .prop_map(|(incarnation, name, addrs, metadata, weight)| Member {
            incarnation: Incarnation(incarnation),
            name,
            addr: plain(addrs[0]),
            further: addrs[1..].iter().copied().map(plain).collect(),
            metadata,
            weight,
        })
}

/// Flow labels and scope ids are local to a host and do not travel.
fn plain(addr: SocketAddr) -> SocketAddr {
    SocketAddr::new(addr.ip(), addr.port())
}

fn link_records() -> impl Strategy<Value = ChannelRecord> {
    (
        any::<u128>(),
        any::<u64>(),
        any::<u64>(),
        vec(vec(any::<u8>(), 0..20), 0..6),
    )
        .prop_map(|(to, ack, first, messages)| ChannelRecord {
            to: Incarnation(to),
            ack,
            first,
            messages: messages.into_iter().map(Bytes::from).collect(),
        })
}

proptest! {
    #[test]
    fn blocks_and_runs_of_nulls_survive(
        payloads in vec(vec(any::<u8>(), 0..200), 0..20),
        nulls in any::<u32>(),
        junk in vec(any::<u8>(), 0..64),
    ) {
        let mut builder = BlockBuilder::default();
        for payload in &payloads {
            builder.push(payload);
        }
        survives(&builder.finish())?;
        survives(&Block::nulls(nulls))?;
        canonical::<Block>(&Bytes::from(junk))?;
    }

    #[test]
    fn integers_survive(a: u8, b: u16, c: u32, d: u64, e: u128, f: bool) {
        survives(&a)?;
        survives(&b)?;
        survives(&c)?;
        survives(&d)?;
        survives(&e)?;
        survives(&f)?;
    }

    #[test]
    fn texts_bytes_and_options_survive(text: String, bytes in vec(any::<u8>(), 0..300), option: Option<u64>) {
        survives(&text)?;
        survives(&Bytes::from(bytes))?;
        survives(&option)?;
        survives(&option.map(Box::new))?;
    }

    #[test]
    fn lists_maps_and_pairs_survive(
        list in vec(any::<u64>(), 0..100),
        map in btree_map(any::<u32>(), any::<String>(), 0..20),
        pair: (u16, Option<String>),
    ) {
        survives(&list)?;
        survives(&map)?;
        survives(&pair)?;
    }

    #[test]
    fn identities_addresses_and_members_survive(
        id: u128, group: u64, epoch: u32, counter: u32, addr: SocketAddr, member in members(),
    ) {
        survives(&Incarnation(id))?;
        survives(&Lineage(id))?;
        survives(&GroupId(group))?;
        survives(&ViewId { epoch, counter })?;
        survives(&plain(addr))?;
        survives(&member)?;
    }

    #[test]
    fn link_records_survive(record in link_records()) {
        survives(&record)?;
        survives(&Record::Channel(record))?;
    }

    #[test]
    fn random_bytes_never_panic_and_what_decodes_is_canonical(bytes in vec(any::<u8>(), 0..200)) {
        let bytes = Bytes::from(bytes);
        canonical::<u16>(&bytes)?;
        canonical::<u64>(&bytes)?;
        canonical::<bool>(&bytes)?;
        canonical::<String>(&bytes)?;
        canonical::<Option<Bytes>>(&bytes)?;
        canonical::<Vec<u32>>(&bytes)?;
        canonical::<BTreeMap<u8, u16>>(&bytes)?;
        canonical::<SocketAddr>(&bytes)?;
        canonical::<antiphon_wire::NodeView>(&bytes)?;
        canonical::<Record>(&bytes)?;
        canonical::<antiphon_wire::record::Control>(&bytes)?;
    }

    #[test]
    fn varints_have_one_length_and_padded_ones_are_refused(value: u64, padding in 1usize..4) {
        let mut bytes = Vec::new();
        put_varint(&mut bytes, value);
        prop_assert_eq!(bytes.len(), varint_len(value));
        *bytes.last_mut().expect("a varint has a byte") |= 0x80;
        bytes.extend(std::iter::repeat_n(0x80, padding - 1));
        bytes.push(0);
        prop_assert_eq!(decode_all::<u64>(Bytes::from(bytes)), Err(DecodeError::Invalid));
    }

    #[test]
    fn integers_too_wide_for_their_type_are_refused(value in u64::from(u32::MAX) + 1..) {
        let bytes = Bytes::from(encode_to_vec(&value));
        prop_assert_eq!(decode_all::<u32>(bytes.clone()), Err(DecodeError::Invalid));
        prop_assert_eq!(decode_all::<u16>(bytes), Err(DecodeError::Invalid));
    }

    #[test]
    fn a_count_beyond_the_bytes_that_follow_is_refused_before_any_element(count in 21u64.., tail in vec(any::<u8>(), 0..20)) {
        let mut bytes = Vec::new();
        put_varint(&mut bytes, count);
        bytes.extend(tail);
        let bytes = Bytes::from(bytes);
        prop_assert_eq!(decode_all::<Vec<u8>>(bytes.clone()), Err(DecodeError::TooLong));
        prop_assert_eq!(decode_all::<String>(bytes.clone()), Err(DecodeError::TooLong));
        prop_assert_eq!(decode_all::<Bytes>(bytes.clone()), Err(DecodeError::TooLong));
        prop_assert_eq!(decode_all::<BTreeMap<u8, u8>>(bytes), Err(DecodeError::TooLong));
    }

    #[test]
    fn damage_anywhere_in_a_frame_is_refused(
        keyed: bool, records in vec(any::<u8>(), 0..500), at: Index, flip in 1u8..,
    ) {
        let (mut alice, mut bob) = pair(keyed);
        let frame = alice.seal(Kind::Bulk, &records);
        let mut damaged = frame.to_vec();
        let at = at.index(damaged.len());
        damaged[at] ^= flip;
        prop_assert!(bob.open(Bytes::from(damaged)).is_err());
        prop_assert_eq!(bob.open(frame).expect("the honest frame").records, records);
    }

    #[test]
    fn random_bytes_behind_a_good_header_are_refused(keyed: bool, noise in vec(any::<u8>(), 16..300)) {
        let (mut alice, mut bob) = pair(keyed);
        let mut frame = alice.seal(Kind::Control, b"").to_vec();
        frame.truncate(frame::HEADER_BYTES);
        frame.extend(noise);
        prop_assert_eq!(bob.open(Bytes::from(frame)), Err(OpenError::BadTag));
    }

    #[test]
    fn the_replay_window_admits_exactly_what_is_new_and_recent(order in vec(0usize..6000, 1..200)) {
        let mut alice = FrameCodec::new("shop", None, Incarnation(1));
        let mut bob = FrameCodec::new("shop", None, Incarnation(2));
        let frames: Vec<Bytes> = (0..6000).map(|_| alice.seal(Kind::Control, b"")).collect();
        let mut seen = std::collections::BTreeSet::new();
        for at in order {
            let newest = seen.last().copied().unwrap_or(0);
            let too_old = newest > at && newest - at >= REPLAY_WINDOW as usize;
            let expected = !seen.contains(&at) && !too_old;
            prop_assert_eq!(bob.open(frames[at].clone()).is_ok(), expected, "frame {} after {}", at, newest);
            seen.insert(at);
        }
    }

    #[test]
    fn a_stream_yields_its_frames_however_it_is_cut(
        lengths in vec(0usize..400, 1..20), cuts in vec(1usize..300, 1..50),
    ) {
        let mut alice = FrameCodec::new("shop", None, Incarnation(1));
        let frames: Vec<Bytes> = lengths.iter().map(|n| alice.seal(Kind::Bulk, &vec![0; *n])).collect();
        let mut stream: Vec<u8> = frames.iter().flat_map(|f| [&length_prefix(f.len())[..], f].concat()).collect();
        let mut decoder = StreamDecoder::new();
        let mut got = Vec::new();
        for cut in cuts.iter().cycle() {
            let rest = stream.split_off(stream.len().min(*cut));
            decoder.extend(&stream);
            while let Some(frame) = decoder.next_frame().expect("a good stream") {
                got.push(frame);
            }
            stream = rest;
            if stream.is_empty() {
                break;
            }
        }
        prop_assert_eq!(got, frames);
    }

    #[test]
    fn whatever_decodes_as_a_datagram_has_that_one_encoding(
        kind in 1u8..6,
        rest in vec(any::<u8>(), 0..120),
    ) {
        let bytes = [&datagram::MAGIC[..], &[datagram::DATAGRAM_VERSION, kind], &rest].concat();
        if let Ok(read) = datagram::decode(&bytes) {
            let mut written = Vec::new();
            read.encode(&mut written);
            // A hello is as long as its sender likes, and an address may be written as IPv4 or as mapped.
            if !matches!(read, Datagram::Hello(_)) {
                prop_assert_eq!(written, bytes);
            }
        }
    }

    #[test]
    fn frames_in_segments_come_out_in_order_whatever_is_doubled_or_reordered(
        lengths in vec(frame::MIN_FRAME_BYTES..4000, 1..12),
        size in 64usize..2000,
        order in vec(any::<Index>(), 0..400),
    ) {
        let frames: Vec<Vec<u8>> = (1u8..).zip(&lengths).map(|(fill, length)| vec![fill; *length]).collect();
        let segments: Vec<Segment<'_>> = (1u64..).zip(&frames).flat_map(|(number, frame)| cut(number, frame, size)).collect();
        let mut assembly = Assembly::new(1 << 20);
        let mut got = Vec::new();
        let shuffled = order.iter().map(|index| index.get(&segments));
        // Then all of them once more, so that none is missing.
        for segment in shuffled.chain(&segments) {
            let mut bytes = Vec::new();
            Datagram::Segment(*segment).encode(&mut bytes);
            let Ok(Datagram::Segment(read)) = datagram::decode(&bytes) else {
                panic!("our own encoding")
            };
            assembly.insert(&read, BytesMut::with_capacity);
            got.extend(std::iter::from_fn(|| assembly.take()).map(|frame| frame.to_vec()));
            prop_assert!(assembly.held_bytes() <= lengths.iter().sum());
        }
        prop_assert!(got == frames, "{} of {} frames, or other bytes", got.len(), frames.len());
        prop_assert_eq!((assembly.held_bytes(), assembly.gaps().count()), (0, 0));
    }

    #[test]
    fn an_assembly_is_bounded_whatever_it_is_fed(
        segments in vec((1u64..2000, any::<u16>(), 56usize..65_537, 1usize..65_536, any::<u8>()), 1..200),
        limit in 0usize..200_000,
    ) {
        let bytes = vec![1; frame::MAX_FRAME_BYTES];
        let mut assembly = Assembly::new(limit);
        for (number, behind, length, size, index) in segments {
            let count = length.div_ceil(size);
            if count > MAX_SEGMENTS {
                continue;
            }
            let index = index % count as u8;
            let start = usize::from(index) * size;
            let segment = Segment {
                session: 1,
                number,
                behind: behind % number.min(u16::MAX.into()) as u16,
                length,
                size,
                index,
                report_at_once: false,
                bytes: &bytes[..size.min(length - start)],
            };
            assembly.insert(&segment, BytesMut::with_capacity);
            prop_assert!(assembly.held_bytes() <= limit + frame::MAX_FRAME_BYTES);
            prop_assert!(assembly.gaps().count() <= datagram::MAX_GAPS);
            if number % 7 == 0 {
                assembly.give_up_front();
            }
            while let Some(frame) = assembly.take() {
                prop_assert!(frame.iter().all(|byte| *byte == 1));
            }
        }
    }

    #[test]
    fn two_sides_negotiate_the_same_level_or_both_refuse(a: u8, b: u8, c: u8, d: u8) {
        let (ours, theirs) = (WireLevels { min: a, max: b }, WireLevels { min: c, max: d });
        match (ours.negotiate(theirs), theirs.negotiate(ours)) {
            (Ok(level), Ok(same)) => {
                prop_assert_eq!(level, same);
                prop_assert!(ours.contains(level) && theirs.contains(level));
            }
            (Err(_), Err(_)) => {}
            (one, other) => prop_assert!(false, "{:?} and {:?}", one, other),
        }
    }
}

fn cut(number: u64, frame: &[u8], size: usize) -> Vec<Segment<'_>> {
    let size = size.max(frame.len().div_ceil(MAX_SEGMENTS));
    let segment = |(index, bytes)| Segment {
        session: 1,
        number,
        behind: number as u16 - 1,
        length: frame.len(),
        size,
        index,
        report_at_once: false,
        bytes,
    };
    (0u8..).zip(frame.chunks(size)).map(segment).collect()
}

fn pair(keyed: bool) -> (FrameCodec, FrameCodec) {
    let key = keyed.then(|| ClusterKey::from_bytes([4; 32]));
    let codec = |me| FrameCodec::new("shop", key.as_ref(), Incarnation(me));
    (codec(1), codec(2))
}

#[test]
fn varints_at_every_width_are_the_shortest_and_the_widest_fits() {
    for bits in 0..64 {
        for value in [1u64 << bits, (1 << bits) - 1, (1 << bits) | 1] {
            let bytes = encode_to_vec(&value);
            assert_eq!(bytes.len(), varint_len(value));
            assert_eq!(decode_all::<u64>(Bytes::from(bytes)), Ok(value));
        }
    }
    assert_eq!(varint_len(u64::MAX), 10);
    let overflowing = [&[0xff; 9][..], &[2]].concat();
    assert_eq!(
        decode_all::<u64>(Bytes::from(overflowing)),
        Err(DecodeError::Invalid)
    );
    let endless = vec![0xff; 11];
    assert_eq!(decode_all::<u64>(Bytes::from(endless)), Err(DecodeError::Invalid));
}

#[test]
fn a_map_whose_keys_do_not_ascend_is_refused() {
    for keys in [[1u8, 1], [2, 1]] {
        let bytes = vec![2, keys[0], 0, keys[1], 0];
        assert_eq!(
            decode_all::<BTreeMap<u8, u8>>(Bytes::from(bytes)),
            Err(DecodeError::Invalid)
        );
    }
}
