//! Arbitrary requests of HTTP: refused with a reason, or taken apart into names, parameters and conditions.
#![no_main]

use antiphon_agent::socket::fuzzing;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| fuzzing::http(data));
