//! The source's side of transfers: one image for all joiners of a point, written when the first chunk is
//! sent.
//!
//! Nothing is queued: a chunk is cut from the image when the layer below has room for it, and no more than
//! the budget is under way to one joiner. A joiner that reads slowly costs its source the image, and nothing
//! else.

use std::collections::BTreeMap;

use bytes::Bytes;
use twox_hash::XxHash3_64;

use super::agreed::{Agreed, Transfer};
use super::format::{self, Image, Member, Point, Told};
use crate::{AgreedTime, Machine, SnapshotError};

/// Of the state in one direct message.
pub(super) const CHUNK_BYTES: u64 = 32 << 10;

/// What this member gives to joiners.
pub(super) struct Sources<M: Machine> {
    images: BTreeMap<Point, Source<M::Snapshot>>,
    outgoing: BTreeMap<Member, Outgoing>,
}

enum Source<S> {
    Taken(Box<Agreed>, S),
    Written { bytes: Bytes, digest: u64 },
    Failed(SnapshotError),
}

#[derive(Debug)]
struct Outgoing {
    point: Point,
    offered: bool,
    sent: u64,
    received: u64,
}

/// A direct message to a joiner, and how far it brings the transfer.
pub(super) struct Part {
    pub(super) payload: Bytes,
    sent: u64,
    /// Why there is no state to give.
    pub(super) failed: Option<String>,
}

impl<M: Machine> Sources<M> {
    pub(super) fn new() -> Self {
        Self {
            images: BTreeMap::new(),
            outgoing: BTreeMap::new(),
        }
    }

    /// This member gives the state of the present point to a joiner.
    pub(super) fn begin(&mut self, joiner: Member, agreed: &Agreed, machine: &M) {
        let point = agreed.point;
        self.images
            .entry(point)
            .or_insert_with(|| Source::Taken(Box::new(agreed.clone()), machine.snapshot()));
        let outgoing = Outgoing {
            point,
            offered: false,
            sent: 0,
            received: 0,
        };
        self.outgoing.insert(joiner, outgoing);
    }

    /// Ends the transfers that are not agreed any more.
    pub(super) fn keep(&mut self, me: Member, transfers: &BTreeMap<Member, Transfer>) {
        if self.outgoing.is_empty() {
            return;
        }
        self.outgoing.retain(|joiner, outgoing| {
            let agreed = transfers.get(joiner);
            agreed.is_some_and(|transfer| transfer.source == me && transfer.point == outgoing.point)
        });
        let outgoing = &self.outgoing;
        self.images
            .retain(|point, _| outgoing.values().any(|to| to.point == *point));
    }

    pub(super) fn clear(&mut self) {
        self.images.clear();
        self.outgoing.clear();
    }

    pub(super) fn joiners(&self) -> Vec<Member> {
        self.outgoing.keys().copied().collect()
    }

    /// A joiner says how much it has. False if it was not sent so much.
    pub(super) fn received(&mut self, joiner: Member, point: Point, bytes: u64) -> bool {
        match self.outgoing.get_mut(&joiner) {
            Some(outgoing) if outgoing.point == point => {
                let possible = bytes <= outgoing.sent;
                if possible {
                    outgoing.received = bytes.max(outgoing.received);
                }
                possible
            }
            // It speaks of a transfer that has ended.
            _ => true,
        }
    }

    /// What to tell a joiner next, if its budget allows.
    pub(super) fn next(
        &mut self,
        joiner: Member,
        budget: u64,
        definition: &str,
        time: AgreedTime,
    ) -> Option<Part> {
        let outgoing = self.outgoing.get(&joiner)?;
        let point = outgoing.point;
        let (image, digest) = match written::<M>(self.images.get_mut(&point)?) {
            Ok(written) => written,
            Err(_) if outgoing.offered => return None,
            Err(SnapshotError { reason }) => {
                let told = Told::Failed {
                    point,
                    reason: shortened(&reason).into(),
                };
                return Some(Part {
                    payload: format::encode(&told).into(),
                    sent: 0,
                    failed: Some(reason),
                });
            }
        };
        let total = image.len() as u64;
        if !outgoing.offered {
            let told = Told::Offer {
                point,
                definition,
                total,
                digest,
                time,
            };
            return Some(Part {
                payload: format::encode(&told).into(),
                sent: 0,
                failed: None,
            });
        }
        let room = outgoing
            .received
            .saturating_add(budget)
            .min(total)
            .saturating_sub(outgoing.sent);
        let end = outgoing.sent + room.min(CHUNK_BYTES);
        // Whole chunks only, except the last.
        if room == 0 || room < CHUNK_BYTES && end < total {
            return None;
        }
        let bytes = &image[outgoing.sent as usize..end as usize];
        let told = Told::Chunk {
            point,
            offset: outgoing.sent,
            check: XxHash3_64::oneshot(bytes),
            bytes,
        };
        Some(Part {
            payload: format::encode(&told).into(),
            sent: end,
            failed: None,
        })
    }

    /// The layer below took it.
    pub(super) fn sent(&mut self, joiner: Member, part: &Part) {
        if let Some(outgoing) = self.outgoing.get_mut(&joiner) {
            outgoing.offered = true;
            outgoing.sent = part.sent;
        }
    }
}

fn written<M: Machine>(source: &mut Source<M::Snapshot>) -> Result<(Bytes, u64), SnapshotError> {
    if let Source::Taken(agreed, snapshot) = source {
        *source = match M::write(snapshot) {
            Ok(machine) => {
                let image = Image {
                    agreed: Agreed::clone(agreed),
                    machine: &machine,
                };
                let bytes = Bytes::from(format::encode(&image));
                let digest = XxHash3_64::oneshot(&bytes);
                Source::Written { bytes, digest }
            }
            Err(error) => Source::Failed(error),
        };
    }
    match source {
        Source::Written { bytes, digest } => Ok((bytes.clone(), *digest)),
        Source::Failed(error) => Err(error.clone()),
        Source::Taken(..) => unreachable!("it was written above"),
    }
}

/// What fits into a message of it.
pub(super) fn shortened(reason: &str) -> &str {
    let end = (0..=SnapshotError::MAX_BYTES.min(reason.len()))
        .rev()
        .find(|end| reason.is_char_boundary(*end));
    &reason[..end.unwrap_or(0)]
}
