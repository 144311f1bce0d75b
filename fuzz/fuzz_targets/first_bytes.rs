//! However the first bytes of a connection are cut, it speaks in one way.
#![no_main]

use antiphon_agent::socket::fuzzing;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| fuzzing::first(data));
