//! The lines to a program.

use std::io::Write;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};

/// Lines to a program. They are written in a thread of their own: a program that is stopped reads nothing.
#[derive(Debug)]
pub(crate) struct Mouth(Mutex<Option<Sender<Vec<u8>>>>);

impl Mouth {
    pub(crate) fn new(mut to: impl Write + Send + 'static) -> Arc<Self> {
        let (mouth, words) = channel::<Vec<u8>>();
        std::thread::spawn(move || {
            for line in words {
                if to.write_all(&line).is_err() {
                    return;
                }
            }
        });
        Arc::new(Self(Mutex::new(Some(mouth))))
    }

    /// Says a line. False if the program is known to read no more.
    pub(crate) fn say(&self, line: impl Into<Vec<u8>>) -> bool {
        let mut line = line.into();
        line.push(b'\n');
        let mouth = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        mouth.as_ref().is_some_and(|mouth| mouth.send(line).is_ok())
    }

    /// Says no more, once what was said is written.
    pub(crate) fn close(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
}
