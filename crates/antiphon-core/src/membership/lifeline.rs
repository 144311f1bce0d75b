//! Lifelines: a proof of death that carries the last vote (R2, R9).
//!
//! ```text
//!   watched process                                   watching member
//!   Open ──► Opened ──► Hello(4-tuple, votes) ───────► agrees with what the socket shows?
//!   promise or acceptance ──► Vote(votes) ───────────► remembered
//!     … and only then does the vote travel in a frame
//!   leave decided ──► Goodbye ───────────────────────► from here on a FIN proves nothing
//!   process exit ──► the kernel sends FIN ───────────► certificate: dead, and this was its last vote
//!   anything else ──► reset ─────────────────────────► a suspicion
//! ```
//!
//! Only process exit gives a FIN: every close by code is a reset. TCP delivers the records before the FIN, so the
//! watching side knows every vote that can have gone anywhere. A lifeline that cannot take a record is reset before
//! the vote travels.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::time::Duration;

use antiphon_wire::codec::{decode_all, encode_to_vec};
use antiphon_wire::membership::{LifelineRecord, VoteState};
use antiphon_wire::{Incarnation, NodeView};
use bytes::Bytes;

use super::check;
use crate::{LifelineCommand, LifelineEnd, Time};

/// Up to this many members, everyone watches everyone.
const FULL_MESH: usize = 16;
/// In larger views this many successors by rank watch a member, and the elder.
const WATCHERS: usize = 8;
/// More inbound lifelines than this are not looked at; they then prove nothing.
const MAX_INBOUND: usize = 1024;

#[derive(Debug)]
enum Outbound {
    Opening,
    Open,
    /// It failed; dial again then.
    Closed {
        retry: Time,
    },
}

#[derive(Debug)]
struct Inbound {
    writer: Incarnation,
    /// Whether both ends see the same connection. If not, something in between could have ended it.
    agrees: bool,
    goodbye: bool,
    vote: Option<VoteState>,
}

/// What the end of an inbound lifeline means.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Ended {
    /// The process is gone, and this was its last vote.
    Dead { writer: Incarnation, vote: VoteState },
    /// Something broke.
    Broken { writer: Incarnation },
    /// Nothing follows from it.
    Nothing,
}

/// Both sides of this node's lifelines.
#[derive(Debug, Default)]
pub(crate) struct Lifelines {
    outbound: BTreeMap<Incarnation, (SocketAddr, Outbound, u32)>,
    inbound: BTreeMap<u64, Inbound>,
}

/// Who watches `me` in this view.
fn watchers(view: &NodeView, me: Incarnation) -> BTreeMap<Incarnation, SocketAddr> {
    let count = view.members.len();
    let rank = view.rank(me).unwrap_or(0);
    let watches = |position: usize| {
        count <= FULL_MESH || position == 0 || (1..=WATCHERS).contains(&((position + count - rank) % count))
    };
    view.members
        .iter()
        .enumerate()
        .filter(|(position, member)| member.incarnation != me && watches(*position))
        .map(|(_, member)| (member.incarnation, member.addr))
        .collect()
}

impl Lifelines {
    /// A primary view was installed: these shall watch me now.
    pub(crate) fn follow(&mut self, view: &NodeView, me: Incarnation, commands: &mut Vec<LifelineCommand>) {
        let wanted = watchers(view, me);
        let superfluous: BTreeSet<Incarnation> = self
            .outbound
            .keys()
            .filter(|to| !wanted.contains_key(to))
            .copied()
            .collect();
        for to in superfluous {
            self.outbound.remove(&to);
            commands.push(LifelineCommand::Reset { to });
        }
        for (to, addr) in wanted {
            self.outbound.entry(to).or_insert_with(|| {
                commands.push(LifelineCommand::Open { to, addr });
                (addr, Outbound::Opening, 0)
            });
        }
    }

    /// An outbound lifeline is connected: its first record tells all votes so far.
    pub(crate) fn opened(
        &mut self,
        to: Incarnation,
        local: SocketAddr,
        remote: SocketAddr,
        vote: VoteState,
    ) -> Option<LifelineCommand> {
        let (_, state, failures) = self.outbound.get_mut(&to)?;
        *state = Outbound::Open;
        *failures = 0;
        Some(write(to, &LifelineRecord::Hello { local, remote, vote }))
    }

    /// An outbound lifeline is gone: it is dialled again with back-off.
    pub(crate) fn failed(&mut self, now: Time, to: Incarnation, retry: Duration) {
        if let Some((_, state, failures)) = self.outbound.get_mut(&to) {
            *state = Outbound::Closed {
                retry: now + retry * (1 << (*failures).min(5)),
            };
            *failures += 1;
        }
    }

    /// Writes a record to every open lifeline.
    pub(crate) fn write_all(&self, record: &LifelineRecord) -> Vec<LifelineCommand> {
        self.outbound
            .iter()
            .filter(|(_, (_, state, _))| matches!(state, Outbound::Open))
            .map(|(to, _)| write(*to, record))
            .collect()
    }

    /// Resets everything that watches this incarnation: it ends, but its process does not.
    pub(crate) fn reset_all(&mut self) -> Vec<LifelineCommand> {
        std::mem::take(&mut self.outbound)
            .into_keys()
            .map(|to| LifelineCommand::Reset { to })
            .collect()
    }

    /// Dials again what is due.
    pub(crate) fn tick(&mut self, now: Time, commands: &mut Vec<LifelineCommand>) {
        for (to, (addr, state, _)) in &mut self.outbound {
            if matches!(state, Outbound::Closed { retry } if *retry <= now) {
                *state = Outbound::Opening;
                // A late report of the last one's end must not leave two side by side: only one shows all votes.
                commands.push(LifelineCommand::Reset { to: *to });
                commands.push(LifelineCommand::Open { to: *to, addr: *addr });
            }
        }
    }

    pub(crate) fn next_deadline(&self) -> Option<Time> {
        self.outbound
            .values()
            .filter_map(|(_, state, _)| match state {
                Outbound::Closed { retry } => Some(*retry),
                Outbound::Opening | Outbound::Open => None,
            })
            .min()
    }

    /// A record arrived. Returns the votes it shows.
    pub(crate) fn record(
        &mut self,
        connection: u64,
        local: SocketAddr,
        remote: SocketAddr,
        sender: Incarnation,
        record: Bytes,
    ) -> Option<&VoteState> {
        let record: LifelineRecord = decode_all(record).ok()?;
        match record {
            LifelineRecord::Hello {
                local: theirs,
                remote: mine,
                vote,
            } => {
                if self.inbound.contains_key(&connection)
                    || self.inbound.len() >= MAX_INBOUND
                    || !check::vote_is_sound(&vote)
                {
                    return None;
                }
                // R9: a proxy or address translation in between could end the connection by itself.
                let agrees = theirs == remote && mine == local;
                let inbound = Inbound {
                    writer: sender,
                    agrees,
                    goodbye: false,
                    vote: Some(vote),
                };
                self.inbound.entry(connection).or_insert(inbound).vote.as_ref()
            }
            LifelineRecord::Vote(vote) => {
                let inbound = self
                    .inbound
                    .get_mut(&connection)
                    .filter(|inbound| inbound.writer == sender)?;
                // A last vote that cannot be believed is none.
                inbound.vote = check::vote_is_sound(&vote).then_some(vote);
                inbound.vote.as_ref()
            }
            LifelineRecord::Goodbye => {
                let inbound = self
                    .inbound
                    .get_mut(&connection)
                    .filter(|inbound| inbound.writer == sender)?;
                inbound.goodbye = true;
                None
            }
        }
    }

    /// An inbound lifeline ended.
    pub(crate) fn ended(&mut self, connection: u64, end: LifelineEnd) -> Ended {
        let Some(Inbound {
            writer,
            agrees,
            goodbye,
            vote,
        }) = self.inbound.remove(&connection)
        else {
            return Ended::Nothing;
        };
        // R9: a reset may come from a firewall, and a reset socket reads as ended, too.
        let gone = end == LifelineEnd::Fin || planted!(FinAfterResetIsProof);
        match vote {
            _ if goodbye => Ended::Nothing,
            Some(vote) if gone && agrees => Ended::Dead { writer, vote },
            _ => Ended::Broken { writer },
        }
    }
}

fn write(to: Incarnation, record: &LifelineRecord) -> LifelineCommand {
    LifelineCommand::Write {
        to,
        record: Bytes::from(encode_to_vec(record)),
    }
}
