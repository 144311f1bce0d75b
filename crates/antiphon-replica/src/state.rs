//! The bytes of a machine's state: the definition of the machine, then values in [postcard], one after the
//! other.
//!
//! ```text
//! definition │ numbers of the state │ count │ entry, entry, … │ digest
//! ```
//! Entries stand one after the other in the order of their keys, so that a state can be written and read
//! piece by piece. The digest at the end is [`Machine::digest`](crate::Machine::digest): what was read is
//! what was written.
//!
//! Reading trusts nothing: every length is checked before it is used, and whatever comes in a state that this
//! machine could not have written is an error that names it.
//!
//! [postcard]: https://postcard.jamesmunns.com/wire-format

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::RestoreError;

/// Writes a state.
pub(crate) struct Writer(Vec<u8>);

impl Writer {
    pub(crate) fn new(definition: &str) -> Self {
        let mut writer = Self(Vec::new());
        writer.put(definition);
        writer
    }

    pub(crate) fn put<T: Serialize + ?Sized>(&mut self, value: &T) {
        let bytes = std::mem::take(&mut self.0);
        // Fails for types without a fixed layout (sequences of unknown length) and full buffers; there are
        // none.
        self.0 = postcard::to_extend(value, bytes).expect("a type of ours can be written");
    }

    pub(crate) fn finish(self) -> Bytes {
        self.0.into()
    }
}

/// Reads a state.
pub(crate) struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    /// Begins to read, if the state is of a machine with this definition.
    pub(crate) fn new(state: &'a [u8], definition: &str) -> Result<Self, RestoreError> {
        let mut reader = Self(state);
        let other: &str = reader.take("definition")?;
        if other != definition {
            return Err(wrong(format!(
                "the state is of a machine defined as {other:?}, here it is {definition:?}"
            )));
        }
        Ok(reader)
    }

    pub(crate) fn take<T: Deserialize<'a>>(&mut self, what: &str) -> Result<T, RestoreError> {
        let (value, rest) = postcard::take_from_bytes(self.0)
            .map_err(|error| wrong(format!("the state breaks off in its {what}: {error}")))?;
        self.0 = rest;
        Ok(value)
    }

    /// The end: nothing follows but the digest of what was read.
    pub(crate) fn finish(mut self, digest: u64) -> Result<(), RestoreError> {
        let written: u64 = self.take("digest")?;
        ensure(written == digest, || {
            format!("the state says that its digest is {written:016x}, but it is {digest:016x}")
        })?;
        ensure(self.0.is_empty(), || {
            format!("{} bytes follow the state", self.0.len())
        })
    }
}

/// What must hold for a state, and what to say if it does not.
pub(crate) fn ensure(holds: bool, reason: impl FnOnce() -> String) -> Result<(), RestoreError> {
    if holds { Ok(()) } else { Err(wrong(reason())) }
}

fn wrong(reason: String) -> RestoreError {
    RestoreError { reason }
}

/// Restores a state that a member made up: what it wrote with some bytes changed, and with a digest that
/// fits.
#[cfg(test)]
pub(crate) fn restore_forged<M: crate::Machine>(
    machine: &mut M,
    mut state: Vec<u8>,
    changes: &[(proptest::sample::Index, u8)],
) -> Result<(), RestoreError> {
    let digest = |digest: u64| postcard::to_stdvec(&digest).unwrap();
    let written = machine.digest().expect("all of ours have one");
    state.truncate(state.len() - digest(written).len());
    let beginning = postcard::to_stdvec(&machine.definition()).unwrap().len();
    for (at, byte) in changes {
        let at = beginning + at.index(state.len() - beginning);
        state[at] ^= byte;
    }
    let error = match machine.restore(&[&state[..], &digest(0)].concat()) {
        Err(error) => error,
        Ok(()) => return Ok(()),
    };
    let Some((_, true_digest)) = error.reason.split_once("but it is ") else {
        return Err(error);
    };
    let true_digest = u64::from_str_radix(true_digest, 16).unwrap();
    machine.restore(&[state, digest(true_digest)].concat())
}
