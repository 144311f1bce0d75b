//! Arbitrary bytes as the records of a frame: refused or read, never a panic, and what is read has no second
//! encoding.
#![no_main]

use antiphon_wire::codec::{Reader, Wire, encode_to_vec};
use antiphon_wire::record::{Control, Record};
use bytes::Bytes;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let mut reader = Reader::new(Bytes::copy_from_slice(data));
    while !reader.is_empty() {
        let at = data.len() - reader.remaining();
        let Ok(record) = Record::decode(&mut reader) else { return };
        let end = data.len() - reader.remaining();
        assert!(end > at, "a record has bytes");
        assert_eq!(encode_to_vec(&record), data[at..end], "one encoding");
        if let Record::Channel(link) = record {
            for message in link.messages {
                let bytes = message.clone();
                let mut reader = Reader::new(message);
                if let Ok(control) = Control::decode(&mut reader) {
                    assert_eq!(encode_to_vec(&control), bytes[..bytes.len() - reader.remaining()]);
                }
            }
        }
    }
});
