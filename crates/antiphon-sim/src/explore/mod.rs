//! Exhaustive exploration (R26): every order of events there is, in small worlds.
//!
//! The simulator draws some runs out of very many and makes them long and rich. This does the opposite:
//! worlds of two to four members, few events, and **all** their runs. Both drive the shipping code.
//!
//! - [`slot`]: deciding one primary view, and the next: R1, R2 and R3.
//! - [`flush`]: getting a group from one view to the next while leaders die and a joiner waits.
//! - [`search`]: visits every state once, and finds a shortest schedule to a violation.
//! - [`study`]: which worlds are explored, in CI and in full, and the planted mistakes that must be found.
//!
//! `antiphon-sim explore slot` and `antiphon-sim explore flush` run the small sizes; `--full` the large ones.

pub mod flush;
pub mod search;
pub mod slot;
pub mod study;
