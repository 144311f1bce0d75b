//! Arbitrary bytes as a frame without a key: refused or opened, never a panic; what opens is as it was
//! sealed.
#![no_main]

use antiphon_wire::Incarnation;
use antiphon_wire::frame::{self, FrameCodec, HEADER_BYTES, Kind, TAG_BYTES};
use bytes::Bytes;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let mut codec = FrameCodec::new("fuzz", None, Incarnation(1));
    let peeked = frame::peek(data);
    if let Ok(opened) = codec.open(Bytes::copy_from_slice(data)) {
        assert_eq!(peeked, Ok((opened.kind, opened.sender)));
        assert_eq!(opened.records, data[HEADER_BYTES..data.len() - TAG_BYTES]);
        assert!(codec.open(Bytes::copy_from_slice(data)).is_err(), "replayed");
    }
    // The same bytes behind a good header and tag come out as they went in; a flipped one is refused.
    let records = &data[..data.len().min(frame::MAX_RECORDS_BYTES)];
    let sealed = FrameCodec::new("fuzz", None, Incarnation(2)).seal(Kind::Bulk, records);
    assert_eq!(codec.open(sealed.clone()).expect("honest").records, records);
    let mut damaged = sealed.to_vec();
    let at = records.iter().fold(0usize, |sum, byte| sum.wrapping_mul(31) + usize::from(*byte)) % damaged.len();
    damaged[at] ^= 1 << (at % 8);
    assert!(codec.open(Bytes::from(damaged)).is_err(), "damaged at {at}");
});
