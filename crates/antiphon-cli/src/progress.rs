//! Shows a waiting person what goes on.

use std::io::IsTerminal as _;

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
            eprint!("\r\x1b[K{text}");
            self.shown = true;
        }
    }

    pub(crate) fn clear(&mut self) {
        if self.shown {
            eprint!("\r\x1b[K");
            self.shown = false;
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.clear();
    }
}
