//! Arbitrary bytes as a frame with a key: nothing that was not sealed with it is ever opened.
#![no_main]

use antiphon_wire::Incarnation;
use antiphon_wire::frame::{self, ClusterKey, FrameCodec, Kind};
use bytes::Bytes;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let key = ClusterKey::from_bytes([7; 32]);
    let mut codec = FrameCodec::new("fuzz", Some(&key), Incarnation(1));
    let mut alice = FrameCodec::new("fuzz", Some(&key), Incarnation(2));
    // The corpus holds no sealed frame, and no one guesses a tag.
    assert!(codec.open(Bytes::copy_from_slice(data)).is_err());
    let sealed = alice.seal(Kind::Control, b"an honest frame of some bytes");
    // The input replaces the rest of an honest frame, from a place it names.
    if let Some((&at, noise)) = data.split_first() {
        let mut forged = sealed.to_vec();
        let at = usize::from(at) % forged.len();
        forged.truncate(at);
        forged.extend_from_slice(noise);
        if forged != sealed {
            assert!(codec.open(Bytes::from(forged)).is_err(), "forged from byte {at}");
        }
    }
    assert!(codec.open(sealed).is_ok(), "refused frames change nothing");
    let records = &data[..data.len().min(frame::MAX_RECORDS_BYTES)];
    let sealed = alice.seal(Kind::Bulk, records);
    assert_eq!(codec.open(sealed).expect("honest").records, records);
});
