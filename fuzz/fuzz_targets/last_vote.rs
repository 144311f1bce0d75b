//! Arbitrary bytes as what a node left to its witness: nothing, or a death that fits a frame and names few to
//! tell.
#![no_main]

use antiphon_core::witness::Death;
use antiphon_wire::frame::{self, ClusterKey, FrameCodec, Kind, MAX_FRAME_BYTES};
use antiphon_wire::membership::MAX_TOLD;
use antiphon_wire::{Incarnation, MAX_ADDRESSES};
use bytes::Bytes;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let key = ClusterKey::from_bytes([7; 32]);
    let read = |left| Death::of("fuzz", &key, left, Incarnation(1));
    // No one guesses a tag.
    assert!(read(Bytes::copy_from_slice(data)).is_err());
    let mut node = FrameCodec::new("fuzz", Some(&key), Incarnation(2));
    let record = &data[..data.len().min(frame::MAX_RECORDS_BYTES)];
    if let Ok(mut death) = read(node.seal(Kind::Lifeline, record)) {
        assert_eq!(death.dead(), Incarnation(2));
        assert!(death.tell().len() <= MAX_TOLD);
        assert!(death.tell().iter().all(|addresses| (1..=MAX_ADDRESSES).contains(&addresses.len())));
        assert!(death.frame().len() <= MAX_FRAME_BYTES);
    }
});
