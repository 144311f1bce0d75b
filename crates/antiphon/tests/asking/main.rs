//! Those who ask: `antiphon members`, `why`, `view` and `doctor`, with real processes, and the lines that they speak.

#[path = "../common/mod.rs"]
mod common;
mod console;
mod doctor;
mod lines;
