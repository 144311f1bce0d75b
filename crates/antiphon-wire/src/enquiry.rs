//! Enquiries: a program that never joins asks what a node would answer if it joined.
//!
//! ```text
//!   enquirer                                             node
//!   TCP, preamble «ATPQ», one control frame: Ask ──────►  opens it as any other
//!        ◄── a notice on the same connection: taken, or why not ([`Notice`]), and its end
//!        ◄── a control frame to each address of `answer_to`: Answer, as to a peer; from a locator Known
//! ```
//! The notice is for an enquirer whose frame is refused: it tells a wrong key from another cluster's name. A
//! node never writes anything else on a connection that others dialled, and it writes the notice only if the
//! dialler asks for it. The answer takes the same way as an answer to a joining node, so its arrival shows
//! that this way works.
//!
//! An enquiry changes nothing at the node but its counters: an enquirer is no candidate, no joiner, and not
//! remembered.

use std::net::SocketAddr;

use crate::group::GroupTerms;
use crate::membership::{KnownNode, NodeRecord, Standing};
use crate::{wire_enum, wire_struct};

/// Groups that one enquiry may ask about.
pub const MAX_GROUPS_ASKED: usize = 64;

wire_enum! {
    /// A question to a node, and its answer.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub enum Enquiry {
        /// What would you say to this node?
        Ask = 0 (Box<Ask>),
        /// The answer.
        Answer = 1 (Box<Answer>),
        /// A locator's answer: the nodes that it knows.
        Known = 2 (KnownThere),
    }
}

wire_struct! {
    /// What a node would present of itself, and where to answer.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct Ask {
        /// Repeated by the answer.
        pub nonce: u64,
        /// The node.
        pub node: NodeRecord,
        /// The digest of its seed list.
        pub seeds: u64,
        /// Whether it is an acceptor of the founding slot.
        pub founder: bool,
        /// The groups it would join, with their terms.
        pub groups: Vec<GroupAsked>,
        /// Where to answer: at most as many as a node has addresses. Each gets an answer.
        pub answer_to: Vec<SocketAddr>,
    }
}

wire_struct! {
    /// A group that a node would join.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct GroupAsked {
        /// Its name.
        pub name: String,
        /// What the node would join it with.
        pub terms: GroupTerms,
    }
}

wire_struct! {
    /// What a node says to an [`Ask`].
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct Answer {
        /// That of the question.
        pub nonce: u64,
        /// Which of the addresses of `answer_to` this goes to.
        pub to: SocketAddr,
        /// The node that answers, as it presents itself.
        pub node: NodeRecord,
        /// The digest of its seed list.
        pub seeds: u64,
        /// Where it stands; none before its first view.
        pub standing: Option<Standing>,
        /// The members of its view; 0 before its first.
        pub members: u16,
        /// The name and address of the member that admits others; none before its first view.
        pub coordinator: Option<(String, SocketAddr)>,
        /// Whether a member of that name and address is heard now.
        pub present: bool,
        /// Before its first view: the seeds it misses.
        pub missing: Vec<SocketAddr>,
        /// Why the node would not be admitted.
        pub objection: Option<Objection>,
        /// Groups asked for that this node is in and that would refuse the node, and why.
        pub groups: Vec<(String, String)>,
    }
}

wire_struct! {
    /// A locator's answer to an [`Ask`]: the same as it would tell a newcomer.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct KnownThere {
        /// That of the question.
        pub nonce: u64,
        /// Which of the addresses of `answer_to` this goes to.
        pub to: SocketAddr,
        /// For how long it has been listening, in milliseconds.
        pub up_ms: u32,
        /// Nodes it has heard of: members first, then the latest heard.
        pub nodes: Vec<KnownNode>,
    }
}

wire_struct! {
    /// Why a node would not be admitted.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct Objection {
        /// Which side must change what.
        pub reason: String,
        /// Whether trying again is pointless until the configuration changes.
        pub fatal: bool,
    }
}

/// The bytes of a notice.
pub const NOTICE_BYTES: usize = 8;
const NOTICE_MAGIC: [u8; 4] = *b"ATPN";

/// What a node says on a connection that asked for it: what became of its first frame. It is not
/// authenticated, and only useful to people.
///
/// ```text
/// | "ATPN" 4 | frame version 1 | wire level 1 | verdict 1 | 0 |
/// ```
/// This layout is the same in every frame version.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Notice {
    /// The frame version that the node speaks.
    pub version: u8,
    /// The highest wire level that it speaks.
    pub wire_level: u8,
    /// What became of the frame.
    pub verdict: Verdict,
}

/// What became of the first frame of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Verdict {
    /// It was authentic.
    Taken,
    /// It was no frame.
    NotAFrame,
    /// It has another frame version.
    Version,
    /// It belongs to a cluster of another name.
    OtherCluster,
    /// It was sealed with another key, or only one side has a key.
    Key,
    /// Its tag does not fit its bytes: it was damaged, or sealed with another key of the same id.
    BadTag,
    /// It was authentic, but the witness's record in it is of no use there. The node is in no view with the
    /// dead member; it may be later.
    Unused,
    /// Something that this build has no name for.
    Other(u8),
}

impl Notice {
    /// Its bytes.
    pub fn encode(&self) -> [u8; NOTICE_BYTES] {
        let verdict = match self.verdict {
            Verdict::Taken => 0,
            Verdict::NotAFrame => 1,
            Verdict::Version => 2,
            Verdict::OtherCluster => 3,
            Verdict::Key => 4,
            Verdict::BadTag => 5,
            Verdict::Unused => 6,
            Verdict::Other(code) => code,
        };
        let [a, b, c, d] = NOTICE_MAGIC;
        [a, b, c, d, self.version, self.wire_level, verdict, 0]
    }

    /// Reads one; `None` if the bytes are none.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; NOTICE_BYTES] = bytes.try_into().ok()?;
        if bytes[..4] != NOTICE_MAGIC || bytes[7] != 0 {
            return None;
        }
        Some(Self {
            version: bytes[4],
            wire_level: bytes[5],
            verdict: match bytes[6] {
                0 => Verdict::Taken,
                1 => Verdict::NotAFrame,
                2 => Verdict::Version,
                3 => Verdict::OtherCluster,
                4 => Verdict::Key,
                5 => Verdict::BadTag,
                6 => Verdict::Unused,
                code => Verdict::Other(code),
            },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_notice_of_any_code_is_read_as_it_was_written_and_nothing_else_is_one() {
        for code in 0..=u8::MAX {
            let mut bytes = *b"ATPN\x01\x02\x00\x00";
            bytes[6] = code;
            let notice = Notice::decode(&bytes).expect("a notice");
            assert_eq!((notice.version, notice.wire_level), (1, 2));
            assert_eq!(notice.encode(), bytes);
        }
        for length in 0..NOTICE_BYTES {
            assert_eq!(Notice::decode(&b"ATPN\x01\x01\x00\x00"[..length]), None);
        }
        assert_eq!(Notice::decode(b"HTTP/1.1"), None);
        assert_eq!(Notice::decode(b"ATPN\x01\x01\x00\x01"), None);
        assert_eq!(Notice::decode(b"ATPN\x01\x01\x00\x00\x00"), None);
    }
}
