//! The bytes of a machine's state: the definition of the machine, then values in [postcard], one after the
//! other.
//!
//! ```text
//! definition │ numbers of the state │ count │ entry, entry, … │ digest
//! ```
//! Entries stand one after the other in the order of their keys. So a snapshot ([`ByEntry`]) is written from
//! the key where it was left, a few entries at a time, and a joiner takes entry by entry ([`restore`]):
//! neither ever has the bytes of the whole. The digest at the end is
//! [`Machine::digest`](crate::Machine::digest): what was read is what was written.
//!
//! Reading trusts nothing: every length is checked before it is used, and whatever comes in a state that this
//! machine could not have written is an error that names it.
//!
//! [postcard]: https://postcard.jamesmunns.com/wire-format

use std::sync::Arc;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::ordered::{AsKey, Ordered};
use crate::{RestoreError, Snapshot, SnapshotError};

/// Writes a piece of a state.
pub struct Writer(Vec<u8>);

impl Writer {
    pub(crate) fn put<T: Serialize + ?Sized>(&mut self, value: &T) {
        let bytes = std::mem::take(&mut self.0);
        // Fails for types without a fixed layout (sequences of unknown length) and full buffers; there are
        // none.
        self.0 = postcard::to_extend(value, bytes).expect("a type of ours can be written");
    }
}

/// A state of entries, as it is written.
pub trait Entries: Clone + Send + 'static {
    type Key: Clone + Send + 'static;

    fn definition(&self) -> &str;

    /// The numbers of the state, and how many entries there are.
    fn write_beginning(&self, to: &mut Writer);

    /// Entries behind this one, until there are about so many bytes: see [`write_after`].
    fn write_entries(&self, after: Option<&Self::Key>, about: usize, to: &mut Writer) -> Option<Self::Key>;

    fn digest(&self) -> u64;

    /// About how many bytes it takes.
    fn bytes(&self) -> u64;
}

/// Writes entries behind this one, at least one, until there are about so many bytes. The key of the last, or
/// none: those were all.
pub(crate) fn write_after<K: AsKey + Clone, V: Clone>(
    entries: &Ordered<K, V>,
    after: Option<&K>,
    about: usize,
    to: &mut Writer,
    put: impl Fn(&K, &V, &mut Writer),
) -> Option<K> {
    let mut entries = entries.after(after);
    loop {
        let (key, value) = entries.next()?;
        put(key, value, to);
        if to.0.len() >= about {
            return Some(key.clone());
        }
    }
}

/// A snapshot of a state of entries. It is read from the key where it was left: each piece costs the way to
/// that, and nothing is kept between pieces.
#[derive(Debug, Clone)]
pub struct ByEntry<S, K> {
    state: S,
    next: Next<K>,
    written: u64,
}

#[derive(Debug, Clone)]
enum Next<K> {
    Beginning,
    After(K),
    Nothing,
}

impl<S, K> ByEntry<S, K> {
    pub(crate) fn new(state: S) -> Self {
        Self {
            state,
            next: Next::Beginning,
            written: 0,
        }
    }
}

impl<S: Entries> Snapshot for ByEntry<S, S::Key> {
    fn read(&mut self, about: usize) -> Result<Bytes, SnapshotError> {
        let mut writer = Writer(Vec::with_capacity(about));
        let after = match &self.next {
            Next::Beginning => {
                writer.put(self.state.definition());
                self.state.write_beginning(&mut writer);
                None
            }
            Next::After(key) => Some(key),
            Next::Nothing => return Ok(Bytes::new()),
        };
        let last = self.state.write_entries(after, about, &mut writer);
        if last.is_none() {
            writer.put(&self.state.digest());
        }
        self.next = last.map_or(Next::Nothing, Next::After);
        self.written += writer.0.len() as u64;
        Ok(writer.0.into())
    }

    fn bytes(&self) -> u64 {
        self.state.bytes().saturating_sub(self.written)
    }
}

/// A machine whose state consists of entries, as it takes one.
pub(crate) trait Restore {
    fn restoring(&mut self) -> &mut Restoring;

    /// The same that its state says.
    fn defined(&self) -> Arc<str>;

    /// Takes the numbers of the state, from here on without entries. Gives how many follow.
    fn begin(&mut self, reader: &mut Reader<'_>) -> Result<u64, Stop>;

    /// Takes the next entry.
    fn take_entry(&mut self, reader: &mut Reader<'_>) -> Result<(), Stop>;

    /// The digest of what was taken, when that is all.
    fn end(&mut self) -> Result<u64, RestoreError>;
}

/// How far a machine is with the state that it takes.
#[derive(Debug, Clone, Default)]
pub(crate) enum Restoring {
    #[default]
    Beginning,
    /// So many entries follow.
    Entries(u64),
    Complete,
}

/// [`Machine::restore`](crate::Machine::restore).
pub(crate) fn restore(
    machine: &mut impl Restore,
    state: &[u8],
    complete: bool,
) -> Result<usize, RestoreError> {
    let mut reader = Reader {
        rest: state,
        complete,
    };
    let mut taken = 0;
    loop {
        match step(machine, &mut reader) {
            Ok(goes_on) => {
                taken = state.len() - reader.rest.len();
                if !goes_on {
                    break;
                }
            }
            Err(Stop::NotHere) => break,
            Err(Stop::Wrong(error)) => {
                *machine.restoring() = Restoring::Beginning;
                return Err(error);
            }
        }
    }
    if complete {
        *machine.restoring() = Restoring::Beginning;
    }
    Ok(taken)
}

/// Takes what comes next. Whether anything follows.
fn step(machine: &mut impl Restore, reader: &mut Reader<'_>) -> Result<bool, Stop> {
    *machine.restoring() = match *machine.restoring() {
        Restoring::Beginning => {
            let (other, own): (&str, _) = (reader.take("definition")?, machine.defined());
            ensure(*other == *own, || {
                format!("the state is of a machine defined as {other:?}, here it is {own:?}")
            })?;
            Restoring::Entries(machine.begin(reader)?)
        }
        Restoring::Entries(0) => {
            let written: u64 = reader.take("digest")?;
            let digest = machine.end()?;
            ensure(written == digest, || {
                format!("the state says that its digest is {written:016x}, but it is {digest:016x}")
            })?;
            Restoring::Complete
        }
        Restoring::Entries(left) => {
            machine.take_entry(reader)?;
            Restoring::Entries(left - 1)
        }
        Restoring::Complete => {
            let left = reader.rest.len();
            ensure(left == 0, || format!("{left} bytes follow the state"))?;
            return Ok(false);
        }
    };
    Ok(true)
}

/// Reads what is here of a state.
pub(crate) struct Reader<'a> {
    rest: &'a [u8],
    complete: bool,
}

/// Why no more of a state is read.
pub(crate) enum Stop {
    /// The rest is to come.
    NotHere,
    Wrong(RestoreError),
}

impl From<RestoreError> for Stop {
    fn from(error: RestoreError) -> Self {
        Self::Wrong(error)
    }
}

impl<'a> Reader<'a> {
    pub(crate) fn take<T: Deserialize<'a>>(&mut self, what: &str) -> Result<T, Stop> {
        match postcard::take_from_bytes(self.rest) {
            Ok((value, rest)) => {
                self.rest = rest;
                Ok(value)
            }
            Err(postcard::Error::DeserializeUnexpectedEnd) if !self.complete => Err(Stop::NotHere),
            Err(error) => Err(Stop::Wrong(wrong(format!(
                "the state breaks off in its {what}: {error}"
            )))),
        }
    }
}

/// What must hold for a state, and what to say if it does not.
pub(crate) fn ensure(holds: bool, reason: impl FnOnce() -> String) -> Result<(), RestoreError> {
    if holds { Ok(()) } else { Err(wrong(reason())) }
}

fn wrong(reason: String) -> RestoreError {
    RestoreError { reason }
}

/// A machine takes the state of a snapshot that is read about so many bytes at a time, and comes in parts of
/// so many. Gives the bytes.
#[cfg(test)]
pub(crate) fn restore_in_parts<M: crate::Machine>(
    machine: &mut M,
    mut snapshot: M::Snapshot,
    about: usize,
    part: usize,
) -> Vec<u8> {
    let mut state = Vec::new();
    loop {
        let piece = snapshot.read(about).unwrap();
        if piece.is_empty() {
            break;
        }
        state.extend_from_slice(&piece);
    }
    let (mut here, mut taken) = (0, 0);
    while here < state.len() {
        here = (here + part).min(state.len());
        taken += machine.restore(&state[taken..here], false).unwrap();
    }
    assert_eq!(
        machine.restore(&state[taken..], true).unwrap(),
        state.len() - taken
    );
    state
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
    let error = match machine.restore(&[&state[..], &digest(0)].concat(), true) {
        Err(error) => error,
        Ok(_) => return Ok(()),
    };
    let Some((_, true_digest)) = error.reason.split_once("but it is ") else {
        return Err(error);
    };
    let true_digest = u64::from_str_radix(true_digest, 16).unwrap();
    machine
        .restore(&[state, digest(true_digest)].concat(), true)
        .map(drop)
}
