//! Arbitrary bytes as the record of a lifeline: refused or read, and what is read has no second encoding.
#![no_main]

use antiphon_wire::codec::{decode_all, encode_to_vec};
use antiphon_wire::membership::LifelineRecord;
use bytes::Bytes;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    if let Ok(record) = decode_all::<LifelineRecord>(Bytes::copy_from_slice(data)) {
        assert_eq!(encode_to_vec(&record), data, "one encoding");
    }
});
