//! The witness: a proof of death where no lifeline gives one (R10).
//!
//! A lifeline proves a death only if its FIN gets through: not behind a proxy or a stateful firewall, not
//! when the cable is cut for longer than keepalive, not to members that have died as well. A process on the
//! same host needs no network to see another one end. So whoever started the node keeps its *last-vote
//! record*, and hands it over when the node's process is gone.
//!
//! ```text
//!   supervisor (parent)                      node (child)                                members
//!   makes a file in memory, starts child ──► opens it
//!                                            view installed: last-vote record ─► file
//!                                            vote: last-vote record ─► file, … and only then the vote travels ─►
//!   waits for its child ◄─────────────────── process exit, however it comes
//!   reads the file: [`Death`] ────────────── Witnessed(certificate), sealed with the key ──────────────► the same as the end
//!   again and again, until each has taken it or is not there                                             of a lifeline
//! ```
//!
//! # What makes it a proof
//! - *The process is gone*: the supervisor waits for a child of its own that nobody else can wait for. Until
//!   then the number of the process is not used again, and the wait ends when the last of its threads has.
//!   There is nothing that merely looks so: no connection to be closed or passed on, no end of a stream to be
//!   told from another.
//! - *It is the process that voted*: the node holds a lock of the file while it may write there, which ends
//!   with the last copy of its descriptor. Who waited for a wrapper or for one half of a fork finds the lock
//!   held, and has no proof;
//! - *These were its last votes*: a last-vote record is all that was voted, and takes the place of the one
//!   before in a single write that is done before any later output
//!   ([`Output::LastVoteRecord`](crate::Output::LastVoteRecord)). What was written is there for the
//!   supervisor once the process is gone; nothing is on the way. A vote that is not in the file never left
//!   the process.
//! - *They are this process's*: the last-vote record is sealed by the incarnation that it is about, with the
//!   cluster key.
//!
//! A stream with its records and its end would need both looked at, in order: an end that code made, followed
//! by votes that nobody wrote and a kill, reads exactly as a kill. The file has one state at a time, and no
//! end.
//!
//! # When there is no proof
//! The file is empty: the node was no member yet, has left in order, is between two incarnations, or a
//! last-vote record could not be written whole and was discarded (which happens before the vote travels). The
//! file does not open: a kill in the middle of a write, which the key's tag shows. There is no key: then
//! whoever reaches a port could declare deaths, so neither side does it.
//!
//! # Who dies when
//! - *the node, at any step*: that is the case. Before its first view it has no last-vote record; between a
//!   write and the vote, the last-vote record shows a vote that nobody got, as a lifeline may;
//! - *the supervisor before the node*: the node does not notice. The proof is the lifelines' alone from then
//!   on;
//! - *the supervisor after the node, before anybody took the certificate*: no proof. A supervisor that is
//!   started anew knows nothing of the old process and says nothing of it;
//! - *both* (power, the whole control group out of memory): no proof;
//! - *the member that took it*: the supervisor tells the others as well, and each shares it. Two certificates
//!   of one death are one.
//! - *the node is stopped, or hangs*: it has not ended, so nothing is said.
//!
//! # What is assumed
//! As for lifelines, no image of a node's memory runs twice: no checkpoint of the process that is restored
//! elsewhere. A fork without exec keeps the lock, which is safe. Whoever can write into the memory of the
//! node's user can forge a death, and could take the key as well.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::SocketAddr;

use antiphon_wire::codec::{decode_all, encode_to_vec};
use antiphon_wire::frame::{ClusterKey, FrameCodec, Kind, MAX_RECORDS_BYTES, OpenError};
use antiphon_wire::membership::{Certificate, LifelineRecord, MAX_TOLD, VoteState, Voted, VotedIn};
use antiphon_wire::record::Record;
use antiphon_wire::{Incarnation, MAX_ADDRESSES, Member, NodeView};
use bytes::Bytes;

use crate::membership::vote_is_sound;

/// What a member of this view leaves to its witness now.
pub(crate) fn last_vote(
    view: &NodeView,
    me: Incarnation,
    watchers: &BTreeMap<Incarnation, SocketAddr>,
    vote: VoteState,
) -> LifelineRecord {
    let vote = match planted!(WitnessForgetsLastVote) {
        true => VoteState {
            promised: None,
            accepted: None,
            ..vote
        },
        false => vote,
    };
    let addresses = |member: &Member| {
        [member.addr]
            .into_iter()
            .chain(member.further.iter().copied())
            .collect()
    };
    let tell = whom_to_tell(view, me, watchers, &vote);
    LifelineRecord::LastVoteRecord {
        tell: tell.into_iter().map(addresses).collect(),
        vote,
    }
}

/// Whom the witness tells: who watches this node; the newcomers of the view that it accepted last, who may go
/// on without it before it has installed that; and of the others some from all over the view, in case that
/// all who watch it have died with it.
fn whom_to_tell<'a>(
    view: &'a NodeView,
    me: Incarnation,
    watchers: &BTreeMap<Incarnation, SocketAddr>,
    vote: &'a VoteState,
) -> Vec<&'a Member> {
    let others = || view.members.iter().filter(|member| member.incarnation != me);
    let watch = others().filter(|member| watchers.contains_key(&member.incarnation));
    let accepted: &[Member] = match vote.accepted.as_ref().map(|accepted| &accepted.value) {
        Some(Voted::Whole(next)) => &next.members,
        Some(Voted::Change(change)) => &change.joined,
        None => &[],
    };
    let newcomers = accepted
        .iter()
        .filter(|member| !view.contains(member.incarnation));
    let apart = view.members.len().div_ceil(MAX_TOLD).max(1);
    let mut told = BTreeSet::new();
    watch
        .chain(newcomers)
        .chain(others().step_by(apart))
        .filter(|member| told.insert(member.incarnation))
        .take(MAX_TOLD)
        .collect()
}

/// The death of a process that its witness has seen, with the last votes that it left.
#[derive(Debug)]
pub struct Death {
    certificate: Box<Certificate>,
    tell: Vec<Vec<SocketAddr>>,
    codec: FrameCodec,
}

impl Death {
    /// What follows from a last-vote record *once the process that wrote it is gone*, which the caller has
    /// seen.
    /// `witness` is an incarnation of the caller's own, from fresh entropy: it seals what members are told.
    ///
    /// # Errors
    /// [`Unproven`]: nothing follows from it.
    pub fn of(
        cluster: &str,
        key: &ClusterKey,
        last_vote: Bytes,
        witness: Incarnation,
    ) -> Result<Self, Unproven> {
        if last_vote.is_empty() {
            return Err(Unproven::Nothing);
        }
        let mut codec = FrameCodec::new(cluster, Some(key), witness);
        let opened = codec.open(last_vote).map_err(Unproven::Sealed)?;
        if opened.kind != Kind::Lifeline {
            return Err(Unproven::Senseless);
        }
        let Ok(LifelineRecord::LastVoteRecord { vote, mut tell }) = decode_all(opened.records) else {
            return Err(Unproven::Senseless);
        };
        let dead = opened.sender;
        let is_its_own = match &vote.view {
            VotedIn::Whole(view) => view.contains(dead),
            VotedIn::Named { .. } => true,
        };
        if !is_its_own || !vote_is_sound(&vote) {
            return Err(Unproven::Senseless);
        }
        tell.truncate(MAX_TOLD);
        tell.iter_mut()
            .for_each(|addresses| addresses.truncate(MAX_ADDRESSES));
        tell.retain(|addresses| !addresses.is_empty());
        let death = Self {
            certificate: Box::new(Certificate { dead, vote }),
            tell,
            codec,
        };
        if death.record().len() > MAX_RECORDS_BYTES {
            return Err(Unproven::Senseless);
        }
        Ok(death)
    }

    /// Who is dead.
    pub fn dead(&self) -> Incarnation {
        self.certificate.dead
    }

    /// Whom to tell: for each, where it is reached, best first. At most [`MAX_TOLD`].
    pub fn tell(&self) -> &[Vec<SocketAddr>] {
        &self.tell
    }

    /// A frame that tells it. Each is taken once: one that may have arrived is not sent again, but another is
    /// made.
    pub fn frame(&mut self) -> Bytes {
        let record = self.record();
        self.codec.seal(Kind::Control, &record)
    }

    fn record(&self) -> Vec<u8> {
        encode_to_vec(&Record::Witnessed(self.certificate.clone()))
    }
}

/// Why nothing follows from the end of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Unproven {
    /// It has left no last-vote record.
    Nothing,
    /// What it left does not open.
    Sealed(OpenError),
    /// What it left is no last-vote record, or one that cannot be believed.
    Senseless,
}

impl fmt::Display for Unproven {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Unproven::Nothing => f.write_str(
                "it left no last vote: it was no member yet, has left in order, or could not write it",
            ),
            Unproven::Sealed(OpenError::Key) => f.write_str(
                "its last vote was sealed with another key: was the key file replaced while it ran?",
            ),
            Unproven::Sealed(_) => f.write_str("its last vote was cut short by its end"),
            Unproven::Senseless => {
                f.write_str("its last vote cannot be read: does an older or newer program run the node?")
            }
        }
    }
}

impl std::error::Error for Unproven {}

antiphon_wire::written_as_text!(Unproven);

#[cfg(test)]
mod tests;
