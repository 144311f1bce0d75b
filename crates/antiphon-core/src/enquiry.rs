//! Enquiries: what a node would say to one with other settings, asked without coming, and what it answers.
//!
//! ```text
//!   Ask ─► membership: where it stands, what it objects to ─┐
//!      └─► groups: whose options differ ────────────────────┴─► Answer, to each address that wants one
//! ```
//! A locator is asked the same way, and tells whom it knows: whoever has only locators can so ask nodes, too.
//!
//! Invariant: an enquiry changes nothing but what is sent back: nobody becomes a candidate, a joiner or a
//! peer by it, so an enquirer that dies at any moment is missed by nobody.
//!
//! An answer goes to addresses that the enquirer names, and is larger than the question. So that a node
//! cannot be made to dial the world or to flood somebody, it answers [`MOST_A_SECOND`] enquiries a second,
//! whoever asks, each at no more addresses than a node has, at each once, and of each group once; an address
//! of its own gets none.
//!
//! [`MOST_A_SECOND`]: crate::pace::MOST_A_SECOND

use std::collections::BTreeSet;
use std::net::SocketAddr;

use antiphon_wire::MAX_ADDRESSES;
use antiphon_wire::enquiry::{Answer, Ask, Enquiry, GroupAsked, KnownThere, MAX_GROUPS_ASKED};
use antiphon_wire::frame::{FrameCodec, Kind, OpenError};
use antiphon_wire::membership::NodeRecord;
use antiphon_wire::record::Record;
use antiphon_wire::{Incarnation, Reader, Wire, codec::encode_to_vec};
use bytes::Bytes;

use crate::config::MAX_SEEDS;
use crate::text::printable;
use crate::{Config, ConfigError, GroupOptions, Node, Time, group, membership};

/// A locator's answer is read up to here.
const MAX_KNOWN: usize = 128;
impl Node {
    /// What an enquirer is told, with where it goes; nothing if the question makes no sense, or if too many
    /// were asked.
    pub(crate) fn answers(&mut self, now: Time, ask: &Ask) -> Vec<(SocketAddr, Record)> {
        let bounded = ask.answer_to.len() <= MAX_ADDRESSES && ask.groups.len() <= MAX_GROUPS_ASKED;
        if !bounded || !self.enquiries().allows(now) {
            return Vec::new();
        }
        let Some(mut answer) = self.membership().answer(now, ask) else {
            return Vec::new();
        };
        answer.groups = self.groups().objections(&ask.groups);
        let own = |to: &SocketAddr| *to == self.config().addr || self.config().further.contains(to);
        let answers = wanted_at(ask, own).into_iter().map(|to| {
            let answer = Answer { to, ..answer.clone() };
            (to, Record::Enquiry(Enquiry::Answer(Box::new(answer))))
        });
        answers.collect()
    }
}

/// Where an answer is to go: to each address once, and to none of one's own.
pub(crate) fn wanted_at(ask: &Ask, own: impl Fn(&SocketAddr) -> bool) -> BTreeSet<SocketAddr> {
    let bounded = ask.answer_to.iter().take(MAX_ADDRESSES);
    bounded.filter(|to| !own(to)).copied().collect()
}

/// What came to an enquirer.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Told {
    /// A node said what it would say to the one asked about.
    Node(Box<Answer>),
    /// A locator said whom it knows.
    Locator(KnownThere),
}

/// Asks nodes what they would say to one with these settings. It is no node: it has an incarnation only
/// because frames have a sender.
#[derive(Debug)]
pub struct Enquirer {
    codec: FrameCodec,
    ask: Ask,
}

impl Enquirer {
    /// An enquirer for a node with these settings that would join these groups. `seed` must be fresh entropy.
    /// Answers are wanted at these addresses, at most eight.
    ///
    /// # Errors
    /// [`ConfigError`] if a node with these settings could not start.
    pub fn new(
        config: &Config,
        groups: &[(String, GroupOptions)],
        seed: [u64; 3],
        answer_to: Vec<SocketAddr>,
    ) -> Result<Self, ConfigError> {
        config.validate()?;
        let me = Incarnation((u128::from(seed[0]) << 64) | u128::from(seed[1]));
        let mut ask = membership::ask_of(config, seed[2], answer_to);
        for (name, options) in groups.iter().take(MAX_GROUPS_ASKED) {
            crate::config::validate_name("group", name)?;
            options.validate()?;
            ask.groups.push(GroupAsked {
                name: name.clone(),
                terms: group::terms_of(options),
            });
        }
        Ok(Self {
            codec: FrameCodec::new(&config.cluster, config.key.as_ref(), me),
            ask,
        })
    }

    /// The question, sealed, for the node of this number: to be sent once. Its answer is told by the number.
    pub fn question(&mut self, number: u16) -> Bytes {
        let ask = Ask {
            nonce: self.ask.nonce.wrapping_add(number.into()),
            ..self.ask.clone()
        };
        let record = Record::Enquiry(Enquiry::Ask(Box::new(ask)));
        self.codec.seal(Kind::Control, &encode_to_vec(&record))
    }

    /// The node asked about, as it would present itself.
    pub fn node(&self) -> &NodeRecord {
        &self.ask.node
    }

    /// Whether the node asked about would be one of those that found the cluster.
    pub fn founder(&self) -> bool {
        self.ask.founder
    }

    /// The digest of the seed list asked about, to compare with [`Answer::seeds`].
    pub fn seeds(&self) -> u64 {
        self.ask.seeds
    }

    /// Opens a frame that came to one of the addresses: the answers in it, with the numbers of the nodes and
    /// locators asked.
    ///
    /// # Errors
    /// Why the frame was refused.
    pub fn open(&mut self, frame: Bytes) -> Result<Vec<(u16, Told)>, OpenError> {
        let opened = self.codec.open(frame)?;
        let mut reader = Reader::new(opened.records);
        let mut answers = Vec::new();
        while !reader.is_empty() {
            match Record::decode(&mut reader) {
                Ok(Record::Enquiry(Enquiry::Answer(answer))) => {
                    let number = answer.nonce.wrapping_sub(self.ask.nonce);
                    let answer = believable(*answer).map(|answer| Told::Node(Box::new(answer)));
                    answers.extend(u16::try_from(number).ok().zip(answer));
                }
                Ok(Record::Enquiry(Enquiry::Known(mut known))) => {
                    let number = known.nonce.wrapping_sub(self.ask.nonce);
                    known.nodes.truncate(MAX_KNOWN);
                    known
                        .nodes
                        .retain(|node| node.addr.port() != 0 && !node.addr.ip().is_unspecified());
                    answers.extend(u16::try_from(number).ok().zip(Some(Told::Locator(known))));
                }
                Ok(_) => {}
                // What does not decode makes the rest unreadable.
                Err(_) => break,
            }
        }
        Ok(answers)
    }
}

/// An answer as it may be shown to people; `None` if no node gives such a one.
fn believable(mut answer: Answer) -> Option<Answer> {
    let coordinator = answer.coordinator.as_ref();
    if !crate::sound::record_is_sound(&answer.node)
        || coordinator.is_some_and(|(name, _)| !crate::sound::name_is_sound(name))
    {
        return None;
    }
    if let Some(objection) = &mut answer.objection {
        objection.reason = printable(&objection.reason);
    }
    answer.missing.truncate(MAX_SEEDS);
    answer.groups.truncate(MAX_GROUPS_ASKED);
    for (name, reason) in &mut answer.groups {
        (*name, *reason) = (printable(name), printable(reason));
    }
    Some(answer)
}
