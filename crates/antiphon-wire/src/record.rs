//! Records: what a frame holds. A frame is a run of records until its end.

use bytes::Bytes;

use crate::codec::put_varint;
use crate::enquiry::Enquiry;
use crate::group::{GroupControl, GroupData};
use crate::membership::{Certificate, Discovery, Heartbeat, MembershipMessage, Pulse};
use crate::{Block, Incarnation, Wire, wire_enum, wire_struct};

wire_enum! {
    /// One record of a frame.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub enum Record {
        /// Before membership: unreliable, repeated by timers, idempotent.
        Discovery = 0 (Discovery),
        /// Life, acknowledgement of views and suspicions; unreliable.
        Heartbeat = 1 (Heartbeat),
        /// Part of the reliable ordered control channel between two incarnations.
        Channel = 2 (ChannelRecord),
        /// Group messages, rows and repairs' requests; reliable by the group's log, not by the channel.
        Group = 3 (GroupData),
        /// Which addresses of two nodes reach each other; unreliable, repeated by timers.
        Beat = 4 (Beat),
        /// Which nodes hear this? Sent by IP multicast, repeated by a timer.
        MulticastProbe = 5 {
            /// The sender's count of probes, from 1.
            round: u64,
            /// Anything, of any length: it makes the probe as large as a packet, and no receiver reads it.
            filler: Bytes,
        },
        /// What was heard of a peer's multicast probes; unreliable, repeated with each probe heard.
        MulticastHeard = 6 {
            /// The incarnation that probed; any other drops it.
            to: Incarnation,
            /// The latest of its probes that came here.
            round: u64,
        },
        /// Pass this frame on to these (R20): the direct path to them is dead. Alone in its frame.
        Relay = 7 {
            /// The receivers, at most [`MAX_RELAYED_TO`](crate::frame::MAX_RELAYED_TO).
            to: Vec<Incarnation>,
            /// As it was sealed.
            frame: Bytes,
        },
        /// A frame that another node asked the sender of this one to pass on. Alone in its frame.
        Relayed = 8 {
            /// As it was sealed.
            frame: Bytes,
        },
        /// Which members the sender hears, and which hear it; unreliable, repeated by a timer.
        Paths = 9 (Paths),
        /// A proof of death from a witness that saw the process end (R10). Taken only where frames are sealed
        /// with a key; idempotent.
        Witnessed = 10 (Box<Certificate>),
        /// The sender lives; the first record of a frame of kind probe, and nowhere else. After it there may
        /// be one [`Record::Heartbeat`] and then one [`Record::Paths`], each if it fits.
        Probe = 11 {
            /// The incarnation this is for; any other drops the frame.
            to: Incarnation,
            /// The sender hears little of `to`, and wants probes in turn.
            asks: bool,
        },
        /// What lets members of a large view believe in it; unreliable.
        Pulse = 12 (Pulse),
        /// A question what a node would answer if another one joined, and the answer; idempotent.
        Enquiry = 16 (Enquiry),
    }
}

impl Record {
    /// The record up to the shared bytes at its end, the bytes of a block or of a chunk: for frames that
    /// share those bytes. `None` if it does not end with such bytes.
    pub fn encode_before_block(&self) -> Option<(Vec<u8>, &Bytes)> {
        let (mark, shared, ends) = match self {
            Record::Group(GroupData::Batch {
                group,
                view,
                sender,
                first,
                stable,
                ask,
                messages,
            }) => {
                let mark = GroupData::Batch {
                    group: *group,
                    view: *view,
                    sender: *sender,
                    first: *first,
                    stable: *stable,
                    ask: *ask,
                    messages: Block::default(),
                };
                // An empty block is its count and its length: two zeros.
                (mark, messages.bytes(), 2)
            }
            Record::Group(GroupData::Tell {
                group,
                view,
                to,
                first,
                messages,
            }) => {
                let mark = GroupData::Tell {
                    group: *group,
                    view: *view,
                    to: *to,
                    first: *first,
                    messages: Block::default(),
                };
                (mark, messages.bytes(), 2)
            }
            Record::Group(GroupData::Chunk {
                group,
                object,
                index,
                bytes,
            }) => {
                let mark = GroupData::Chunk {
                    group: *group,
                    object: *object,
                    index: *index,
                    bytes: Bytes::new(),
                };
                // No bytes are their length: a zero.
                (mark, bytes, 1)
            }
            _ => return None,
        };
        let mut bytes = Vec::with_capacity(96);
        Record::Group(mark).encode(&mut bytes);
        bytes.truncate(bytes.len() - ends);
        match self {
            Record::Group(GroupData::Batch { messages, .. } | GroupData::Tell { messages, .. }) => {
                messages.encode_prefix(&mut bytes)
            }
            _ => put_varint(&mut bytes, shared.len() as u64),
        }
        Some((bytes, shared))
    }
}

wire_struct! {
    /// A node that has several addresses, or a peer with several, sends this to each address of that peer
    /// from time to time. Its arrival shows that the address works. Its content says which of the sender's
    /// own addresses work.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct Beat {
        /// The incarnation this is for; any other drops it.
        pub to: Incarnation,
        /// The number of the receiver's address that this was sent to, from 0.
        pub link: u8,
        /// The sender's count of beats to this receiver, the same for all addresses, from 1.
        pub round: u64,
        /// For each address of the sender: the highest round of the receiver's that came there; 0 is none.
        pub heard: Vec<u64>,
    }
}

wire_struct! {
    /// The direct paths between a member and the others, as far as something is wrong with them. A member
    /// that is not named hears the sender, and the sender hears it, directly and steadily.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct Paths {
        /// The sender's count of such reports, from 1; an earlier report that comes later is void.
        pub round: u64,
        /// The round since which they all say the same.
        pub since: u64,
        /// The others, each at most once; absent if it is said in other rounds since then.
        pub paths: Option<Vec<Path>>,
    }
}

wire_struct! {
    /// The paths between the sender of a report and one other member.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct Path {
        /// The other.
        pub member: Incarnation,
        /// How the sender hears it directly.
        pub hears: Directly,
        /// How the other said that it hears the sender directly.
        pub heard: Directly,
        /// The member that last passed on to the sender what it heard of the other, if any did lately.
        pub through: Option<Incarnation>,
    }
}

wire_enum! {
    /// How one member hears another without a node in between.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
    pub enum Directly {
        /// As it should.
        Steadily = 0,
        /// It does, and did not a while ago.
        Lately = 1,
        /// Not.
        Never = 2,
    }
}

wire_struct! {
    /// A run of consecutive messages on the control channel from the frame's sender to `to`,
    /// and what the sender has received on the channel in the other direction.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct ChannelRecord {
        /// The incarnation this is for; any other drops it.
        pub to: Incarnation,
        /// All messages of the opposite direction up to and including this one were received; 0 is none.
        pub ack: u64,
        /// The sequence number of the first of `messages` (from 1).
        pub first: u64,
        /// The messages, each an encoded [`Control`]; empty for a pure acknowledgement.
        pub messages: Vec<Bytes>,
    }
}

wire_enum! {
    /// A message of the reliable control channel.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub enum Control {
        /// Of the membership layer.
        Membership = 0 (MembershipMessage),
        /// Of the group layer. Handled by the receiver only once it has installed the node view it names.
        Group = 1 (GroupControl),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::encode_to_vec;
    use crate::{BlockBuilder, GroupId, GroupViewId, Incarnation, ViewId};

    #[test]
    fn a_record_without_its_block_and_then_the_block_are_the_bytes_of_the_record() {
        let group = GroupId(u64::MAX / 7);
        let view = GroupViewId {
            node: ViewId {
                epoch: 1,
                counter: 1 << 20,
            },
            number: 300,
            k: 9,
        };
        for payloads in [&[][..], &[0], &[1, 0, 127], &[128; 40], &[59_000]] {
            let mut builder = BlockBuilder::default();
            for length in payloads {
                builder.push(&vec![7; *length]);
            }
            let messages = builder.finish();
            let batch = GroupData::Batch {
                group,
                view,
                sender: 63,
                first: u64::MAX / 3,
                stable: 1 << 40,
                ask: true,
                messages: messages.clone(),
            };
            let tell = GroupData::Tell {
                group,
                view,
                to: Incarnation(u128::MAX / 5),
                first: 1 << 50,
                messages,
            };
            for record in [batch, tell].map(Record::Group) {
                let (before, block) = record.encode_before_block().expect("it ends with a block");
                assert_eq!(
                    [&before, &block[..]].concat(),
                    encode_to_vec(&record),
                    "{payloads:?}"
                );
            }
        }
        for length in [0, 1, 300, 60_000] {
            let chunk = Record::Group(GroupData::Chunk {
                group,
                object: 1 << 40,
                index: 4000,
                bytes: vec![7; length].into(),
            });
            let (before, bytes) = chunk.encode_before_block().expect("a chunk");
            assert_eq!([&before, &bytes[..]].concat(), encode_to_vec(&chunk), "{length}");
        }
        let ack = Record::Group(GroupData::Ack {
            group,
            view,
            to: 1,
            held: 1,
            consumed: 1,
            ordered: 0,
        });
        assert_eq!(ack.encode_before_block(), None);
    }
}
