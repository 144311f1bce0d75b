//! Panics in programs' own code, where they must not end a member.

use std::panic::{AssertUnwindSafe, catch_unwind};

/// What a function of the program's returns; a panic is an error with its text.
///
/// # Errors
/// Those of the function, and its panic.
pub fn unpanicked<T>(run: impl FnOnce() -> Result<T, String>) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<&str>().copied();
        let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
        Err(format!("it panicked: {}", text.unwrap_or("without a text")))
    })
}
