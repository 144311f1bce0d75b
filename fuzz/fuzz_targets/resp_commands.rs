//! Arbitrary bytes as what a client of Redis says: commands within their bounds, the same wherever they are
//! cut.
#![no_main]

use antiphon_agent::socket::fuzzing;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| fuzzing::resp(data));
