//! Arbitrary bytes as a message of the control channel: refused or read, and what is read has no second
//! encoding.
#![no_main]

use antiphon_wire::NodeView;
use antiphon_wire::codec::{Reader, Wire, encode_to_vec};
use antiphon_wire::record::Control;
use bytes::Bytes;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    canonical::<Control>(data);
    canonical::<NodeView>(data);
});

fn canonical<T: Wire>(data: &[u8]) {
    let mut reader = Reader::new(Bytes::copy_from_slice(data));
    if let Ok(value) = T::decode(&mut reader) {
        assert_eq!(encode_to_vec(&value), data[..data.len() - reader.remaining()], "one encoding");
    }
}
