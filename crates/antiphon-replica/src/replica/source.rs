//! The source's side of transfers: one snapshot for all joiners of a point, read piece by piece as they take
//! it.
//!
//! ```text
//!  snapshot ── clone ──► Reading ── elsewhere ──► Pieces: chunks, ready to be told ──► ready ──► told
//!     at the point       while little is ready    encoded, with their checks           when its pace allows
//! ```
//! The snapshot is taken under the owner's lock, and costs nothing; to read and encode it costs time, so that
//! is for the owner to do where it holds up nobody ([`Reading`]). One thing is read at a time, for the joiner
//! that has the least ready. So a source keeps for a joiner what its budget allows to be under way, what is
//! ready, and what its machine has changed since the point: a joiner that takes slowly costs no more.
//!
//! Each chunk has the hash of its bytes and of all before it, so a joiner that has taken the last one has
//! what was read, all of it, in its order. The last chunk is empty.

use std::collections::{BTreeMap, VecDeque};

use antiphon_core::Time;
use bytes::Bytes;
use twox_hash::XxHash3_64;

use super::agreed::{Agreed, Transfer};
use super::format::{self, Member, Point, Told};
use super::pace::Pace;
use crate::{AgreedTime, Machine, Snapshot, SnapshotError, unpanicked};

/// What this member gives to joiners.
pub(super) struct Sources<M: Machine> {
    outgoing: BTreeMap<Member, Outgoing<M::Snapshot>>,
    /// The owner reads.
    reading: bool,
    /// Transfers that were begun.
    begun: u64,
    /// Bytes that may be under way to one joiner at most. About so many are read at once, when less is ready.
    budget: usize,
}

struct Outgoing<S> {
    /// No other transfer has it.
    number: u64,
    point: Point,
    offered: bool,
    /// The state, about.
    bytes: u64,
    state: State<S>,
    /// Read, and not told yet.
    ready: VecDeque<Chunk>,
    ready_bytes: usize,
    sent: u64,
    received: u64,
    pace: Pace,
}

enum State<S> {
    Here(Rest<S>),
    /// The owner reads it.
    Away,
    /// All is read.
    Read,
    Failed(SnapshotError),
}

/// What is left to be read.
struct Rest<S> {
    /// What all members agree on, which comes first.
    agreed: Bytes,
    snapshot: S,
    point: Point,
    offset: u64,
    /// Of all before it.
    check: u64,
    chunk_bytes: usize,
}

/// A direct message, ready to be told.
#[derive(Debug)]
struct Chunk {
    payload: Bytes,
    /// Where it ends in the state.
    end: u64,
    bytes: usize,
}

/// A state that is to be read for a joiner, from [`Replica::poll_reading`](super::Replica::poll_reading).
pub struct Reading<S> {
    joiner: Member,
    number: u64,
    /// How much to read.
    bytes: usize,
    rest: Rest<S>,
}

/// What was read of it, for [`Replica::handle_read`](super::Replica::handle_read).
pub struct Pieces<S> {
    joiner: Member,
    number: u64,
    chunks: Vec<Chunk>,
    state: State<S>,
}

impl<S: Snapshot> Reading<S> {
    /// Reads about as much as may be under way. It takes as long as the machine's snapshot takes, and may be
    /// done anywhere.
    pub fn run(self) -> Pieces<S> {
        let Self {
            joiner,
            number,
            bytes: wanted,
            mut rest,
        } = self;
        let (mut chunks, mut bytes) = (Vec::new(), 0);
        let state = loop {
            let piece = match caught(|| rest.piece(wanted - bytes)) {
                Ok(piece) => piece,
                Err(error) => break State::Failed(error),
            };
            bytes += piece.len();
            let ends = piece.is_empty();
            if ends {
                chunks.push(rest.chunk(&[]));
            }
            chunks.extend(piece.chunks(rest.chunk_bytes).map(|bytes| rest.chunk(bytes)));
            if ends {
                break State::Read;
            }
            if bytes >= wanted {
                break State::Here(rest);
            }
        };
        Pieces {
            joiner,
            number,
            chunks,
            state,
        }
    }
}

/// A snapshot that panics has no state for this joiner. If the panic ended this member, the next source would
/// meet it as well, and so each in turn.
fn caught<T>(read: impl FnOnce() -> Result<T, SnapshotError>) -> Result<T, SnapshotError> {
    let read = || read().map_err(|error| error.reason);
    unpanicked(read).map_err(|reason| SnapshotError { reason })
}

impl<S: Snapshot> Rest<S> {
    /// The next bytes: of a snapshot that gives little at a time, as much as a chunk takes.
    fn piece(&mut self, about: usize) -> Result<Bytes, SnapshotError> {
        if !self.agreed.is_empty() {
            return Ok(std::mem::take(&mut self.agreed));
        }
        let first = self.snapshot.read(about)?;
        if first.is_empty() || first.len() >= self.chunk_bytes {
            return Ok(first);
        }
        let mut piece = Vec::from(first);
        while piece.len() < self.chunk_bytes {
            let next = self.snapshot.read(self.chunk_bytes - piece.len())?;
            if next.is_empty() {
                break;
            }
            piece.extend_from_slice(&next);
        }
        Ok(piece.into())
    }

    fn chunk(&mut self, bytes: &[u8]) -> Chunk {
        self.check = XxHash3_64::oneshot_with_seed(self.check, bytes);
        let told = Told::Chunk {
            point: self.point,
            offset: self.offset,
            check: self.check,
            bytes,
        };
        self.offset += bytes.len() as u64;
        Chunk {
            payload: format::encode_about(bytes.len(), &told).into(),
            end: self.offset,
            bytes: bytes.len(),
        }
    }
}

/// A direct message to a joiner, and how far it brings the transfer.
pub(super) enum Part {
    Offer(Bytes),
    Chunk(Bytes),
    /// There is no state to give, and why.
    Failed(Bytes, String),
}

impl Part {
    pub(super) fn payload(&self) -> &Bytes {
        let (Self::Offer(payload) | Self::Chunk(payload) | Self::Failed(payload, _)) = self;
        payload
    }
}

impl<M: Machine> Sources<M> {
    pub(super) fn new(budget: usize) -> Self {
        Self {
            outgoing: BTreeMap::new(),
            reading: false,
            begun: 0,
            budget: budget.max(1),
        }
    }

    /// This member gives the state of the present point to these joiners.
    pub(super) fn begin(&mut self, joiners: &[Member], agreed: &Agreed, machine: &M) {
        if joiners.is_empty() {
            return;
        }
        let point = agreed.point;
        let mut taken = caught(|| {
            let snapshot = machine.snapshot();
            Ok((snapshot.bytes(), vec![snapshot; joiners.len()]))
        });
        let agreed = Bytes::from(format::encode(agreed));
        for joiner in joiners {
            self.begun += 1;
            let pace = Pace::new(self.budget);
            let rest = |snapshot| Rest {
                agreed: agreed.clone(),
                snapshot,
                point,
                offset: 0,
                check: 0,
                chunk_bytes: pace.chunk_bytes(),
            };
            let (bytes, state) = match &mut taken {
                Ok((bytes, snapshots)) => {
                    let snapshot = snapshots.pop().expect("there is one for each");
                    (*bytes, State::Here(rest(snapshot)))
                }
                Err(error) => (0, State::Failed(error.clone())),
            };
            let outgoing = Outgoing {
                number: self.begun,
                point,
                offered: false,
                // The machine says it.
                bytes: bytes.saturating_add(agreed.len() as u64),
                state,
                ready: VecDeque::new(),
                ready_bytes: 0,
                sent: 0,
                received: 0,
                pace,
            };
            self.outgoing.insert(*joiner, outgoing);
        }
    }

    /// Ends the transfers that are not agreed any more.
    pub(super) fn keep(&mut self, me: Member, transfers: &BTreeMap<Member, Transfer>) {
        self.outgoing.retain(|joiner, outgoing| {
            let agreed = transfers.get(joiner);
            agreed.is_some_and(|transfer| transfer.source == me && transfer.point == outgoing.point)
        });
    }

    /// What is read now comes back all the same.
    pub(super) fn clear(&mut self) {
        self.outgoing.clear();
    }

    pub(super) fn joiners(&self) -> Vec<Member> {
        self.outgoing.keys().copied().collect()
    }

    /// Whether there is something to read.
    pub(super) fn wants_reading(&self) -> bool {
        let wants = |outgoing: &Outgoing<_>| outgoing.wants_reading(self.budget);
        !self.reading && self.outgoing.values().any(wants)
    }

    /// What is to be read next, if nothing is read now.
    pub(super) fn poll_reading(&mut self) -> Option<Reading<M::Snapshot>> {
        if self.reading {
            return None;
        }
        let bytes = self.budget;
        let wanting = self.outgoing.iter_mut().filter(|(_, to)| to.wants_reading(bytes));
        let (joiner, outgoing) = wanting.min_by_key(|(_, outgoing)| outgoing.ready_bytes)?;
        let State::Here(rest) = std::mem::replace(&mut outgoing.state, State::Away) else {
            return None;
        };
        self.reading = true;
        Some(Reading {
            joiner: *joiner,
            number: outgoing.number,
            bytes,
            rest,
        })
    }

    pub(super) fn read(&mut self, pieces: Pieces<M::Snapshot>) {
        self.reading = false;
        let outgoing = self.outgoing.get_mut(&pieces.joiner);
        if let Some(outgoing) = outgoing.filter(|outgoing| outgoing.number == pieces.number) {
            outgoing.state = pieces.state;
            outgoing.ready_bytes += pieces.chunks.iter().map(|chunk| chunk.bytes).sum::<usize>();
            outgoing.ready.extend(pieces.chunks);
        }
    }

    /// A joiner says how much it has. False if it was not sent so much.
    pub(super) fn received(&mut self, now: Time, joiner: Member, point: Point, bytes: u64) -> bool {
        match self.outgoing.get_mut(&joiner) {
            Some(outgoing) if outgoing.point == point => {
                let possible = bytes <= outgoing.sent;
                if possible {
                    outgoing.received = bytes.max(outgoing.received);
                    outgoing.pace.received(now, outgoing.received);
                }
                possible
            }
            // It speaks of a transfer that has ended.
            _ => true,
        }
    }

    /// What to tell a joiner next, if its pace allows.
    pub(super) fn next(&mut self, joiner: Member, definition: &str, time: AgreedTime) -> Option<Part> {
        let outgoing = self.outgoing.get(&joiner)?;
        let (point, bytes, pace) = (outgoing.point, outgoing.bytes, &outgoing.pace);
        // What is ready was read before it failed, and is of no use without the rest.
        if let State::Failed(SnapshotError { reason }) = &outgoing.state {
            let told = Told::Failed {
                point,
                reason: shortened(reason).into(),
            };
            return Some(Part::Failed(format::encode(&told).into(), reason.clone()));
        }
        if !outgoing.offered {
            let told = Told::Offer {
                point,
                definition,
                bytes,
                budget: pace.least() as u64,
                time,
            };
            return Some(Part::Offer(format::encode(&told).into()));
        }
        let chunk = outgoing.ready.front()?;
        let fits = chunk.end <= outgoing.received.saturating_add(pace.window());
        fits.then(|| Part::Chunk(chunk.payload.clone()))
    }

    /// The layer below took it.
    pub(super) fn sent(&mut self, now: Time, joiner: Member, part: &Part) {
        let Some(outgoing) = self.outgoing.get_mut(&joiner) else {
            return;
        };
        match part {
            Part::Offer(_) => outgoing.offered = true,
            Part::Chunk(_) => {
                if let Some(chunk) = outgoing.ready.pop_front() {
                    outgoing.sent = chunk.end;
                    outgoing.pace.told(now, chunk.end);
                    outgoing.ready_bytes -= chunk.bytes;
                }
            }
            Part::Failed(..) => {
                outgoing.offered = true;
                outgoing.state = State::Read;
                outgoing.ready.clear();
                outgoing.ready_bytes = 0;
            }
        }
    }
}

impl<S> Outgoing<S> {
    fn wants_reading(&self, budget: usize) -> bool {
        matches!(self.state, State::Here(_)) && self.ready_bytes < budget
    }
}

/// What fits into a message of it.
pub(super) fn shortened(reason: &str) -> &str {
    let end = (0..=SnapshotError::MAX_BYTES.min(reason.len()))
        .rev()
        .find(|end| reason.is_char_boundary(*end));
    &reason[..end.unwrap_or(0)]
}
