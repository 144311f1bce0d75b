//! Arbitrary bytes as commands of peers: envelopes, datagrams and RESP are refused, or within their bounds.
#![no_main]

use antiphon_commands::fuzzing;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| fuzzing::peer(data));
