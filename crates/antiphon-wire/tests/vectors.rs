//! The golden vectors in `vectors/`: files that every implementation reads.
//!
//! Each is checked in both directions: the value encodes to the bytes, and the bytes decode to the value. To
//! write them anew after a deliberate change of the wire format:
//!
//! ```text
//! ANTIPHON_WRITE_VECTORS=1 cargo test -p antiphon-wire --test vectors
//! ```
//! and read the difference: bytes that changed for an existing name are a break of the wire level (R24).

mod samples;

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::net::SocketAddr;
use std::path::PathBuf;

use antiphon_wire::codec::{Wire, decode_all, encode_to_vec};
use antiphon_wire::datagram::{self, Datagram, Gap, Hello, Report, Segment, Welcome};
use antiphon_wire::frame::{self, ClusterKey, FrameCodec, Kind};
use antiphon_wire::membership::LifelineRecord;
use antiphon_wire::record::{Control, Record};
use antiphon_wire::stream::{StreamDecoder, length_prefix};
use antiphon_wire::{DecodeError, Incarnation, NodeView};
use bytes::Bytes;
use serde_json::{Value, json};

/// Compares a vector file with what this build makes, or writes it when asked to.
fn check(file: &str, made: Vec<Value>) {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("vectors")
        .join(file);
    if std::env::var_os("ANTIPHON_WRITE_VECTORS").is_some() {
        // One vector a line: a change shows as the lines of what changed.
        let lines: Vec<String> = made.iter().map(|vector| format!("  {vector}")).collect();
        std::fs::write(&path, format!("[\n{}\n]\n", lines.join(",\n"))).expect("vectors/ can be written");
    }
    let written: Vec<Value> =
        serde_json::from_str(&std::fs::read_to_string(&path).expect("the vector file")).expect("JSON");
    let by_name = |vectors: &[Value]| -> BTreeMap<String, Value> {
        vectors
            .iter()
            .map(|vector| (text(vector, "name").to_owned(), vector.clone()))
            .collect()
    };
    let (written, made) = (by_name(&written), by_name(&made));
    for (name, vector) in &made {
        assert_eq!(
            written.get(name),
            Some(vector),
            "{file}: {name} is not as written there"
        );
    }
    assert_eq!(
        written.len(),
        made.len(),
        "{file} holds vectors that no test makes"
    );
}

/// The vectors as they stand in the file.
fn read(file: &str) -> Vec<Value> {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("vectors")
        .join(file);
    serde_json::from_str(&std::fs::read_to_string(path).expect("the vector file")).expect("JSON")
}

fn text<'a>(vector: &'a Value, field: &str) -> &'a str {
    vector[field]
        .as_str()
        .unwrap_or_else(|| panic!("{field} of {vector} is a text"))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn unhex(text: &str) -> Vec<u8> {
    assert!(text.len().is_multiple_of(2), "hex digits come in pairs");
    (0..text.len())
        .step_by(2)
        .map(|at| u8::from_str_radix(&text[at..at + 2], 16).expect("hex"))
        .collect()
}

/// A vector of a value, after its bytes were decoded to it again.
fn vector<T: Wire + Debug + PartialEq>(name: &str, kind: &str, value: &T) -> Value {
    let bytes = encode_to_vec(value);
    assert_eq!(
        &decode_all::<T>(Bytes::from(bytes.clone())).expect("our own encoding"),
        value,
        "{name}"
    );
    json!({ "name": name, "type": kind, "value": format!("{value:?}"), "hex": hex(&bytes) })
}

#[test]
fn primitives_are_written_as_the_vectors_say() {
    let bytes = Bytes::from_static;
    let addr = |text: &str| -> SocketAddr { text.parse().expect("an address") };
    let map: BTreeMap<String, u16> = [("a".to_owned(), 1), ("b".to_owned(), 300)].into();
    check(
        "primitives.json",
        vec![
            vector("byte", "u8", &200u8),
            vector("false", "bool", &false),
            vector("true", "bool", &true),
            vector("varint zero", "u64", &0u64),
            vector("varint of one byte, largest", "u64", &127u64),
            vector("varint of two bytes, smallest", "u64", &128u64),
            vector("varint 300", "u16", &300u16),
            vector("varint of a u32, largest", "u32", &u32::MAX),
            vector("varint of a u64, largest", "u64", &u64::MAX),
            vector("u128", "u128", &0x0011_2233_4455_6677_8899_aabb_ccdd_eeffu128),
            vector(
                "incarnation",
                "incarnation",
                &Incarnation(0x0011_2233_4455_6677_8899_aabb_ccdd_eeff),
            ),
            vector("empty text", "text", &String::new()),
            vector("text", "text", &"grüße".to_owned()),
            vector("bytes", "bytes", &bytes(b"\x00\x01\xff")),
            vector("nothing", "option<u64>", &None::<u64>),
            vector("something", "option<u64>", &Some(300u64)),
            vector("list", "list<u64>", &vec![1u64, 300, 0]),
            vector("map", "map<text, u16>", &map),
            vector("IPv4 address", "address", &addr("192.0.2.1:7400")),
            vector("IPv6 address", "address", &addr("[2001:db8::1]:7400")),
        ],
    );
}

#[test]
fn malformed_primitives_are_refused_as_the_vectors_say() {
    fn refused<T: Wire + Debug>(name: &str, kind: &str, bytes: &[u8]) -> Value {
        let error: DecodeError = decode_all::<T>(Bytes::copy_from_slice(bytes)).expect_err(name);
        json!({ "name": name, "type": kind, "hex": hex(bytes), "error": format!("{error:?}") })
    }
    check(
        "refused.json",
        vec![
            refused::<u64>("varint padded with a zero", "u64", &[0x80, 0x00]),
            refused::<u64>(
                "varint beyond 64 bits",
                "u64",
                &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2],
            ),
            refused::<u64>("varint cut short", "u64", &[0x80]),
            refused::<u16>("varint too wide for a u16", "u16", &[0x80, 0x80, 0x04]),
            refused::<bool>("flag that is neither", "bool", &[2]),
            refused::<String>("text that is not UTF-8", "text", &[1, 0xff]),
            refused::<Bytes>("length beyond the bytes", "bytes", &[4, 1, 2, 3]),
            refused::<Bytes>("length of 4 GiB", "bytes", &[0xff, 0xff, 0xff, 0xff, 0x0f]),
            refused::<Vec<u8>>("count beyond the bytes", "list<u8>", &[2, 1]),
            refused::<BTreeMap<u8, u8>>("map keys that descend", "map<u8, u8>", &[2, 2, 0, 1, 0]),
            refused::<BTreeMap<u8, u8>>("map key twice", "map<u8, u8>", &[2, 1, 0, 1, 0]),
            refused::<SocketAddr>("address of neither family", "address", &[5, 0, 0, 0, 0, 0]),
            refused::<u8>("byte left over", "u8", &[1, 2]),
        ],
    );
}

#[test]
fn records_and_messages_are_written_as_the_vectors_say() {
    let mut vectors = Vec::new();
    vectors.extend(
        samples::views()
            .iter()
            .map(|(name, value)| vector(name, "NodeView", value)),
    );
    vectors.extend(
        samples::records()
            .iter()
            .map(|(name, value)| vector(name, "Record", value)),
    );
    vectors.extend(
        samples::controls()
            .iter()
            .map(|(name, value)| vector(name, "Control", value)),
    );
    vectors.extend(
        samples::lifelines()
            .iter()
            .map(|(name, value)| vector(name, "LifelineRecord", value)),
    );
    check("records.json", vectors);
}

#[test]
fn damaged_vectors_never_panic_and_what_still_decodes_has_that_one_encoding() {
    fn mutated<T: Wire>(bytes: &[u8]) {
        let attempt = |bytes: &[u8]| {
            if let Ok(value) = decode_all::<T>(Bytes::copy_from_slice(bytes)) {
                assert_eq!(hex(&encode_to_vec(&value)), hex(bytes));
            }
        };
        for at in 0..bytes.len() {
            attempt(&bytes[..at]);
            let mut bytes = bytes.to_vec();
            for value in [0, 1, 0x7f, 0x80, 0xff, bytes[at] ^ 1, bytes[at].wrapping_add(1)] {
                bytes[at] = value;
                attempt(&bytes);
            }
        }
    }
    for vector in read("records.json") {
        let bytes = unhex(text(&vector, "hex"));
        match text(&vector, "type") {
            "NodeView" => mutated::<NodeView>(&bytes),
            "Record" => mutated::<Record>(&bytes),
            "Control" => mutated::<Control>(&bytes),
            "LifelineRecord" => mutated::<LifelineRecord>(&bytes),
            other => panic!("a vector of unknown type {other}"),
        }
    }
}

const KINDS: [(&str, Kind); 6] = [
    ("control", Kind::Control),
    ("bulk", Kind::Bulk),
    ("lifeline", Kind::Lifeline),
    ("chain", Kind::Chain),
    ("multicast", Kind::Multicast),
    ("probe", Kind::Probe),
];

#[test]
fn frames_are_sealed_as_the_vectors_say() {
    let sender = Incarnation(0x0123_4567_89ab_cdef_0011_2233_4455_6677);
    let key = "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f";
    let mut vectors = Vec::new();
    for key in [None, Some(key)] {
        let cluster_key = key.map(|key| ClusterKey::parse(key).expect("64 digits"));
        let mut codec = FrameCodec::new("shop", cluster_key.as_ref(), sender);
        for (kind_name, kind) in KINDS {
            for (nonce, records) in [(1, &b""[..]), (2, b"records")] {
                let mode = if key.is_some() { "keyed" } else { "plain" };
                vectors.push(json!({
                    "name": format!("{mode} {kind_name} frame {nonce}"),
                    "cluster": "shop",
                    "key": key,
                    "sender": hex(&encode_to_vec(&sender)),
                    "kind": kind_name,
                    "nonce": nonce,
                    "records": hex(records),
                    "frame": hex(&codec.seal(kind, records)),
                }));
            }
        }
    }
    check("frames.json", vectors);
}

#[test]
fn frames_of_the_vectors_are_opened() {
    let vectors = read("frames.json");
    assert!(!vectors.is_empty());
    for vector in vectors {
        let key = vector["key"]
            .as_str()
            .map(|key| ClusterKey::parse(key).expect("a key"));
        let mut codec = FrameCodec::new(text(&vector, "cluster"), key.as_ref(), Incarnation(9));
        let frame = Bytes::from(unhex(text(&vector, "frame")));
        let opened = codec.open(frame.clone()).expect("a good frame");
        assert_eq!(hex(&opened.records), text(&vector, "records"));
        assert_eq!(hex(&encode_to_vec(&opened.sender)), text(&vector, "sender"));
        assert!(KINDS.contains(&(text(&vector, "kind"), opened.kind)));
        assert_eq!(frame::peek(&frame), Ok((opened.kind, opened.sender)));
        assert_eq!(
            &frame[32..40],
            vector["nonce"].as_u64().expect("a number").to_le_bytes()
        );
    }
}

#[test]
fn streams_are_cut_as_the_vectors_say() {
    let frames: Vec<Vec<u8>> = vec![vec![1; frame::MIN_FRAME_BYTES], vec![2; 300]];
    let good: Vec<u8> = frames
        .iter()
        .flat_map(|f| [&length_prefix(f.len())[..], f].concat())
        .collect();
    let mut short = (frame::MIN_FRAME_BYTES as u32 - 1).to_le_bytes().to_vec();
    short.extend([0; 10]);
    let streams = [
        ("two frames", good.clone()),
        ("a frame and half of another", good[..200].to_vec()),
        ("a length of 4 GiB", vec![0xff, 0xff, 0xff, 0xff]),
        (
            "one byte more than the largest frame",
            65_537u32.to_le_bytes().to_vec(),
        ),
        ("shorter than a header and a tag", short),
        ("an HTTP request", b"GET / HTTP/1.1\r\n".to_vec()),
    ];
    let cut = |stream: &[u8]| {
        let mut decoder = StreamDecoder::new();
        decoder.extend(stream);
        let mut cut = Vec::new();
        loop {
            match decoder.next_frame() {
                Ok(Some(frame)) => cut.push(hex(&frame)),
                Ok(None) => break json!({ "frames": cut, "pending": decoder.pending() }),
                Err(error) => break json!({ "frames": cut, "refused_length": error.length }),
            }
        }
    };
    let vectors = streams
        .iter()
        .map(|(name, stream)| json!({ "name": name, "stream": hex(stream), "result": cut(stream) }))
        .collect();
    check("streams.json", vectors);
}

#[test]
fn datagrams_are_written_and_refused_as_the_vectors_say() {
    let hello = |session, advertised: &str| {
        Datagram::Hello(Hello {
            session,
            flow: 0x0102_0304_0506_0708,
            advertised: advertised.parse().expect("an address"),
        })
    };
    let segment = |index, report_at_once, bytes| {
        Datagram::Segment(Segment {
            session: 9,
            number: 300,
            behind: 2,
            length: 100,
            size: 60,
            index,
            report_at_once,
            bytes,
        })
    };
    let good = [
        ("first hello", hello(0, "192.0.2.1:7400")),
        ("second hello", hello(9, "[2001:db8::1]:7400")),
        (
            "welcome",
            Datagram::Welcome(Welcome {
                flow: 1,
                session: 9,
                window: 1 << 20,
                size: 1472,
                open: true,
            }),
        ),
        ("segment in the middle", segment(0, false, &[7; 60])),
        ("last segment, to be reported at once", segment(1, true, &[7; 40])),
        (
            "report of two gaps",
            Datagram::Report(Report {
                flow: 1,
                seen: 300,
                window: 65_536,
                waited_us: 250,
                gaps: vec![
                    Gap {
                        behind: 2,
                        missing: u64::MAX,
                    },
                    Gap {
                        behind: 0,
                        missing: 0,
                    },
                ],
            }),
        ),
        ("unknown session", Datagram::Unknown { session: 9 }),
    ];
    let mut vectors = Vec::new();
    for (name, value) in &good {
        let mut bytes = Vec::new();
        value.encode(&mut bytes);
        assert_eq!(datagram::decode(&bytes).as_ref(), Ok(value), "{name}");
        vectors.push(json!({ "name": name, "value": format!("{value:?}"), "datagram": hex(&bytes) }));
    }
    let mut segment_bytes = Vec::new();
    good[3].1.encode(&mut segment_bytes);
    let changed = |at: usize, value: u8| {
        let mut bytes = segment_bytes.clone();
        bytes[at] = value;
        bytes
    };
    let bad = [
        ("a frame", vec![0xa7, 0x1f, 1, 2]),
        ("a newer version", changed(2, 2)),
        ("an unknown kind", changed(3, 6)),
        ("an index behind the last segment", changed(26, 2)),
        ("an unknown flag", changed(27, 2)),
        (
            "a segment without its last byte",
            segment_bytes[..segment_bytes.len() - 1].to_vec(),
        ),
    ];
    for (name, bytes) in bad {
        let error = datagram::decode(&bytes).expect_err(name);
        vectors.push(json!({ "name": name, "datagram": hex(&bytes), "error": format!("{error:?}") }));
    }
    check("datagrams.json", vectors);
}
