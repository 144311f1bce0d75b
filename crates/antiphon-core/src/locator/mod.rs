//! A locator: a small server that knows where the cluster's nodes are, and tells newcomers.
//!
//! ```text
//!   node without a view ── Seek, at each round ────────► locator    remembers it: waiting
//!   member ─────────────── Seek, every few seconds ────► locator    remembers it: a member, of which lineage
//!                       ◄── Known { members, others } ──
//! ```
//! It speaks the wire and has the key of the cluster, but it is not one of its nodes: it never votes or
//! founds, and is never in a view. It tells addresses to ask ([`crate::Hints`]). A node believes only what it
//! then hears from there. So a locator that is out of date, has forgotten everything, or lies, delays nodes
//! and can do no more.
//!
//! There may be several locators. They know nothing of each other, since every node registers with each of
//! them: what one knows, the others learn by themselves.
//!
//! # What it answers
//! To a node without a view: members heard lately, and other nodes that wait. Unless there are a few members,
//! also the nodes that it heard long ago (before it was started again, if its state was kept). To a member:
//! nodes that wait, and members of other lineages. So two clusters that were founded under one name meet, and
//! newcomers whose own hints lead nowhere are found. To an enquirer (`antiphon doctor`): what it would say to
//! a node without a view ([`crate::Enquirer`]).
//!
//! # Bounds
//! [`MAX_LOCATED`] nodes, by address; the node heard longest ago makes room. What was not heard for a day is
//! forgotten. An answer names at most [`MAX_ANSWER`]. Nothing is sent unless asked: one answer for a frame,
//! to one address, and no more than [`crate::replies`] lets it. A node that asks and is not answered is not
//! remembered, and asks again. Without a key, anybody that reaches a locator may speak to it. But no speaker
//! can have it dial the world, flood another host, or forget all others at once.
//!
//! # When…
//! - *it dies*: newcomers find nothing by it. Newcomers that have other hints, another locator or seeds go on
//!   with these; members are not concerned. It may die at any step, since no answer depends on an earlier
//!   one;
//! - *it starts again without its state*: it knows within a few seconds which nodes are there, as all
//!   register again. Its answers say for how long it has been there. As long as a member need not have found
//!   it yet, no node takes its answers for "there is no cluster" and founds one;
//! - *it starts again with its state*: the same, and it answers with what it knew, marked by age;
//! - *it starts first, or last*: nodes ask again and again;
//! - *all is restarted at once*: nodes register as waiting, learn of each other, and found by `expect` or
//!   their seeds.

use std::cmp::Reverse;
use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::time::Duration;

use antiphon_wire::codec::encode_to_vec;
use antiphon_wire::enquiry::{Ask, Enquiry, KnownThere};
use antiphon_wire::frame::{FrameCodec, Kind, OpenError};
use antiphon_wire::membership::{Discovery, KnownNode, NodeRecord, Standing};
use antiphon_wire::record::Record;
use antiphon_wire::{Incarnation, Lineage, MAX_ADDRESSES, Reader, Wire};
use bytes::Bytes;

use crate::config::validate_name;
use crate::enquiry::wanted_at;
use crate::pace::Pace;
use crate::random::Random;
use crate::replies::Replies;
use crate::sound::record_is_sound;
use crate::{Class, ClusterKey, ConfigError, Output, Time};

/// The most nodes that a locator remembers.
pub const MAX_LOCATED: usize = 1024;
/// The most nodes that an answer names.
const MAX_ANSWER: usize = 128;
/// A node that was heard within this long is there, as far as a locator knows: members of the slowest profile
/// register four times a minute at least.
const PRESENT_WITHIN: Duration = Duration::from_secs(90);
/// An address is not answered again within this long.
const APART: Duration = Duration::from_millis(10);
/// What was not heard for this long is forgotten.
const REMEMBERED_FOR: Duration = Duration::from_secs(24 * 60 * 60);
/// With this many present members nobody needs to try old addresses.
const ENOUGH_MEMBERS: usize = 3;

/// A node as a locator knows it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct Located {
    /// Its name.
    pub name: String,
    /// Where it is reached.
    pub addr: SocketAddr,
    /// The lineage of the primary view it was in when it was heard; `None` if it was in none.
    pub member_of: Option<Lineage>,
    /// How long ago it was heard.
    #[cfg_attr(
        feature = "serde",
        serde(rename = "age_ms", with = "antiphon_wire::json::millis")
    )]
    pub age: Duration,
}

impl std::fmt::Display for Located {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let what = match self.member_of {
            Some(_) => "is a member",
            None => "looks for its cluster",
        };
        write!(f, "{} at {} {what}", self.name, self.addr)
    }
}

/// What a locator has done since it began.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct LocatorCounters {
    /// Nodes that asked and were answered.
    pub answered: u64,
    /// Nodes that asked and got no answer, because too many did.
    pub unanswered: u64,
    /// Frames that did not open, as from nodes with another key, or made no sense.
    pub refused: u64,
}

#[derive(Debug)]
struct Acquaintance {
    name: String,
    member_of: Option<Lineage>,
    heard: Time,
    /// How many answers it got since it was new here: they go to its addresses by turns.
    answers: usize,
    /// What has to be added to the time since `heard`: more than zero if the locator was started again since.
    older: Duration,
}

impl Acquaintance {
    fn age(&self, now: Time) -> Duration {
        now.since(self.heard) + self.older
    }
}

/// A locator's state machine: frames in, frames out. It needs no timer.
#[derive(Debug)]
pub struct Locator {
    addr: SocketAddr,
    began: Time,
    replies: Replies,
    enquiries: Pace,
    codec: FrameCodec,
    known: BTreeMap<SocketAddr, Acquaintance>,
    outputs: VecDeque<Output>,
    news: VecDeque<Located>,
    refused: u64,
    answered: u64,
    unanswered: u64,
}

impl Locator {
    /// A locator for the cluster of this name, reached at `addr`, that begins to listen `now`. `seed` must be
    /// fresh entropy in a product.
    ///
    /// # Errors
    /// [`ConfigError`] if the name or the address cannot work.
    pub fn new(
        cluster: &str,
        addr: SocketAddr,
        key: Option<&ClusterKey>,
        seed: [u64; 4],
        now: Time,
    ) -> Result<Self, ConfigError> {
        validate_name("cluster", cluster)?;
        if addr.port() == 0 || addr.ip().is_unspecified() {
            return Err(ConfigError::Conflict {
                reason:
                    "the advertised address must be one that nodes can dial: give a concrete address and port"
                        .into(),
            });
        }
        let me = Incarnation(Random::new(seed).next_u128());
        Ok(Self {
            addr,
            began: now,
            replies: Replies::new(now),
            enquiries: Pace::default(),
            codec: FrameCodec::new(cluster, key, me),
            known: BTreeMap::new(),
            outputs: VecDeque::new(),
            news: VecDeque::new(),
            refused: 0,
            answered: 0,
            unanswered: 0,
        })
    }

    /// What an earlier start of this locator knew. What was heard since wins.
    pub fn restore(&mut self, now: Time, located: impl IntoIterator<Item = Located>) {
        for node in located.into_iter().take(MAX_LOCATED) {
            if validate_name("name", &node.name).is_ok() && node.age < REMEMBERED_FOR {
                self.known.entry(node.addr).or_insert(Acquaintance {
                    name: node.name,
                    member_of: node.member_of,
                    heard: now,
                    answers: 0,
                    older: node.age,
                });
            }
        }
        self.make_room(now);
    }

    /// A frame arrived.
    ///
    /// # Errors
    /// Why it was refused before anything in it was read; nothing changed.
    pub fn handle_frame(&mut self, now: Time, frame: Bytes) -> Result<(), OpenError> {
        let opened = self.codec.open(frame).inspect_err(|_| self.refused += 1)?;
        let mut reader = Reader::new(opened.records);
        let mut seek = None;
        while !reader.is_empty() {
            match Record::decode(&mut reader) {
                // Of several, the last is the latest.
                Ok(Record::Discovery(Discovery::Seek {
                    node,
                    standing,
                    reply,
                    ..
                })) => seek = Some((node, standing, reply)),
                Ok(Record::Enquiry(Enquiry::Ask(ask))) => self.asked(now, &ask),
                // A node that takes a locator for a node says other things, too.
                Ok(_) => {}
                Err(_) => {
                    self.refused += 1;
                    break;
                }
            }
        }
        if let Some((node, standing, reply)) = seek
            && record_is_sound(&node)
            && node.addr != self.addr
        {
            self.sought(now, node, standing, reply);
        }
        Ok(())
    }

    /// The next thing to do.
    pub fn poll_output(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    /// The next node that is new here, or became a member, or is not one any more.
    pub fn poll_news(&mut self) -> Option<Located> {
        self.news.pop_front()
    }

    /// All nodes known, in the order of their addresses.
    pub fn located(&self, now: Time) -> Vec<Located> {
        self.known
            .iter()
            .map(|(addr, known)| Located {
                name: known.name.clone(),
                addr: *addr,
                member_of: known.member_of,
                age: known.age(now),
            })
            .collect()
    }

    /// What it has done so far.
    pub fn counters(&self) -> LocatorCounters {
        LocatorCounters {
            answered: self.answered,
            unanswered: self.unanswered,
            refused: self.refused,
        }
    }

    fn sought(&mut self, now: Time, node: NodeRecord, standing: Option<Standing>, reply: bool) {
        let member_of = standing
            .filter(|standing| standing.primary)
            .map(|standing| standing.lineage);
        let answers = self.known.get(&node.addr).map_or(0, |known| known.answers);
        // It is not known here which of its addresses works; it asks again and again.
        let addrs: Vec<SocketAddr> = [node.addr].into_iter().chain(node.further).collect();
        let to = addrs[answers % addrs.len()];
        if !self.replies.allow(now, to, APART) {
            self.unanswered += 1;
            return;
        }
        let seen = self.known.insert(
            node.addr,
            Acquaintance {
                name: node.name.clone(),
                member_of,
                heard: now,
                answers: answers.wrapping_add(1),
                older: Duration::ZERO,
            },
        );
        let old = seen.is_some_and(|seen| {
            seen.name == node.name && seen.member_of == member_of && seen.age(now) <= PRESENT_WITHIN
        });
        if !old {
            self.make_room(now);
            // Perhaps nobody listens.
            if self.news.len() >= MAX_LOCATED {
                self.news.pop_front();
            }
            self.news.push_back(Located {
                name: node.name,
                addr: node.addr,
                member_of,
                age: Duration::ZERO,
            });
        }
        assert!(
            self.known.len() <= MAX_LOCATED && self.news.len() <= MAX_LOCATED,
            "locator: {} nodes are remembered, and {} are news",
            self.known.len(),
            self.news.len()
        );
        if !reply {
            let nodes = self.answer(now, node.addr, member_of);
            self.answered += 1;
            let answer = Record::Discovery(Discovery::Known {
                addr: self.addr,
                up_ms: self.up_ms(now),
                nodes,
            });
            self.outputs.push_back(Output::Frame {
                to,
                class: Class::Control,
                frame: self.codec.seal(Kind::Control, &encode_to_vec(&answer)).into(),
            });
        }
    }

    /// An enquirer is told what a newcomer would be told. The locator remembers no node for it.
    fn asked(&mut self, now: Time, ask: &Ask) {
        if ask.answer_to.len() > MAX_ADDRESSES || !self.enquiries.allows(now) {
            self.unanswered += 1;
            return;
        }
        self.answered += 1;
        let nodes = self.answer(now, ask.node.addr, None);
        for to in wanted_at(ask, |to| *to == self.addr) {
            let known = Record::Enquiry(Enquiry::Known(KnownThere {
                nonce: ask.nonce,
                to,
                up_ms: self.up_ms(now),
                nodes: nodes.clone(),
            }));
            self.outputs.push_back(Output::Frame {
                to,
                class: Class::Control,
                frame: self.codec.seal(Kind::Control, &encode_to_vec(&known)).into(),
            });
        }
    }

    fn up_ms(&self, now: Time) -> u32 {
        u32::try_from(now.since(self.began).as_millis()).unwrap_or(u32::MAX)
    }

    /// The nodes of which the node at this address is told.
    fn answer(&self, now: Time, to: SocketAddr, member_of: Option<Lineage>) -> Vec<KnownNode> {
        let mut nodes: Vec<(bool, KnownNode)> = self
            .known
            .iter()
            .filter(|(addr, known)| **addr != to && (member_of.is_none() || known.member_of != member_of))
            .map(|(addr, known)| {
                let age = known.age(now);
                let node = KnownNode {
                    addr: *addr,
                    member: known.member_of.is_some(),
                    age_s: u32::try_from(age.as_secs()).unwrap_or(u32::MAX),
                };
                (age <= PRESENT_WITHIN, node)
            })
            .collect();
        let members = nodes
            .iter()
            .filter(|(present, node)| *present && node.member)
            .count();
        if members >= ENOUGH_MEMBERS || member_of.is_some() {
            nodes.retain(|(present, _)| *present);
        }
        nodes.sort_by_key(|(present, node)| (Reverse(*present), Reverse(node.member), node.age_s));
        nodes.into_iter().take(MAX_ANSWER).map(|(_, node)| node).collect()
    }

    fn make_room(&mut self, now: Time) {
        self.known.retain(|_, known| known.age(now) < REMEMBERED_FOR);
        while self.known.len() > MAX_LOCATED {
            let oldest = self
                .known
                .iter()
                .max_by_key(|(_, known)| known.age(now))
                .map(|(addr, _)| *addr);
            oldest.map(|oldest| self.known.remove(&oldest));
        }
    }
}

#[cfg(test)]
mod tests;
