//! Those who ask: `antiphon members`, `why`, `view`, `doctor` and `recover`, with real processes, and the
//! lines that they speak.

#[path = "../common/mod.rs"]
mod common;
mod console;
mod doctor;
mod exits;
mod limits;
mod recover;
mod stdout;
mod verdicts;
