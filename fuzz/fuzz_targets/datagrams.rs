//! Arbitrary datagrams at one session: what decodes has one encoding, and what is held of frames has its
//! bound.
#![no_main]

use antiphon_wire::datagram::{Assembly, Datagram, MAX_GAPS, decode};
use antiphon_wire::frame::MAX_FRAME_BYTES;
use bytes::BytesMut;
use libfuzzer_sys::fuzz_target;

const LIMIT: usize = 100_000;

fuzz_target!(|data: &[u8]| {
    one(data);
    // A session: datagrams behind their lengths, two bytes each.
    let mut assembly = Assembly::new(LIMIT);
    let mut rest = data;
    while let Some((length, more)) = rest.split_first_chunk::<2>() {
        let length = usize::from(u16::from_le_bytes(*length)).min(more.len());
        let (bytes, more) = more.split_at(length);
        rest = more;
        let Some(Datagram::Segment(segment)) = one(bytes) else {
            continue;
        };
        assembly.insert(&segment, BytesMut::with_capacity);
        assert!(assembly.held_bytes() <= LIMIT + MAX_FRAME_BYTES);
        assert!(assembly.gaps().count() <= MAX_GAPS);
        if segment.report_at_once {
            assembly.give_up_front();
        }
        while assembly.take().is_some() {}
    }
});

fn one(bytes: &[u8]) -> Option<Datagram<'_>> {
    let datagram = decode(bytes).ok()?;
    let mut written = Vec::new();
    datagram.encode(&mut written);
    if !matches!(datagram, Datagram::Hello(_)) {
        assert_eq!(written, bytes);
    }
    Some(datagram)
}
