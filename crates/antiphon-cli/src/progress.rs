//! Shows a waiting person what goes on.

use std::io::{IsTerminal as _, Write as _};

/// One line on stderr that is written over, if a person looks at it.
pub(crate) struct Progress {
    terminal: bool,
    shown: bool,
}

impl Progress {
    pub(crate) fn new() -> Self {
        Self {
            terminal: std::io::stderr().is_terminal(),
            shown: false,
        }
    }

    pub(crate) fn show(&mut self, text: &str) {
        if self.terminal {
            write(text);
            self.shown = true;
        }
    }

    pub(crate) fn clear(&mut self) {
        if self.shown {
            write("");
            self.shown = false;
        }
    }
}

/// Over what stands there. A terminal that has gone shows nothing.
fn write(text: &str) {
    let _ = write!(std::io::stderr().lock(), "\r\x1b[K{text}");
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.clear();
    }
}
