//! The output of commands on standard output. The reader there may have stopped to read.

use std::fmt::Arguments;
use std::io::Write;

use super::exit::{Exit, Failed};

/// Writes a line and hands it over at once; as `println!`, but a reader that has gone is an error that ends
/// the command in order.
macro_rules! say {
    ($($text:tt)*) => { $crate::say::line(format_args!($($text)*)) };
}
pub(crate) use say;

/// See [`say!`].
///
/// # Errors
/// [`Exit::StdoutClosed`] if nobody reads any more.
pub(crate) fn line(text: Arguments<'_>) -> Result<(), Failed> {
    let mut stdout = std::io::stdout().lock();
    writeln!(stdout, "{text}")
        .and_then(|()| stdout.flush())
        .map_err(|error| Failed {
            exit: Exit::StdoutClosed,
            message: format!("standard output: {error}"),
        })
}
