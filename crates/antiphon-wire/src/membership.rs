//! Messages of the membership layer: discovery and founding, the view slot, non-primary views, lifelines.
//!
//! [`Discovery`] goes to an address, whatever node is there, and may be lost. [`Heartbeat`] goes between
//! known incarnations and may be lost. [`MembershipMessage`] travels on the reliable ordered control channel
//! between two incarnations. [`LifelineRecord`] is written on lifelines only.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use crate::codec::encode_to_vec;
use crate::{
    Accusation, Cause, Evidence, Incarnation, Lineage, LineageMark, Member, NodeView, Subview, ViewDigest,
    ViewId, wire_enum, wire_struct,
};

/// The highest wire level this build speaks.
pub const WIRE_LEVEL: u8 = 1;

wire_struct! {
    /// A try at deciding a slot. Higher rounds win; among equal rounds the proposer decides. Round 0 belongs
    /// to the elder of the previous view alone.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
    pub struct Ballot {
        /// Rises with each try.
        pub round: u32,
        /// The node that proposes.
        pub proposer: Incarnation,
    }
}

wire_struct! {
    /// Which primary view is being decided.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
    pub struct SlotId {
        /// The chain of views.
        pub lineage: Lineage,
        /// The view to be decided; its acceptors are the members of the view before.
        pub next: ViewId,
    }
}

wire_struct! {
    /// A member that departs, by its incarnation: the reader knows the view it was in.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct Gone {
        /// The member.
        pub member: Incarnation,
        /// Why.
        pub cause: Cause,
        /// The members that said so, and what they saw.
        pub accusers: Vec<Accusation>,
    }
}

wire_struct! {
    /// A view as its difference to the one before: what a proposal of a large view is made of.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct Change {
        /// The view's number.
        pub number: u32,
        /// Its wire level.
        pub wire_level: u8,
        /// Members that it does not have any more, by seniority.
        pub departed: Vec<Gone>,
        /// Members that it has and the view before does not, by seniority.
        pub joined: Vec<Member>,
        /// Joined members that come from other lineages, by where they come from.
        pub merged: Vec<Subview>,
    }
}

impl Change {
    /// A short name for it, with all its fields included.
    pub fn digest(&self) -> ViewDigest {
        ViewDigest::of(&encode_to_vec(self))
    }
}

impl VotedIn {
    /// The chain of views.
    pub fn lineage(&self) -> Lineage {
        match self {
            VotedIn::Whole(view) => view.lineage,
            VotedIn::Named { lineage, .. } => *lineage,
        }
    }

    /// Which view.
    pub fn id(&self) -> ViewId {
        match self {
            VotedIn::Whole(view) => view.primary_id(),
            VotedIn::Named { id, .. } => *id,
        }
    }
}

wire_enum! {
    /// A vote that many members give in the same words.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
    pub enum Ayes {
        /// Cast in the fast ballot for the view with this digest.
        Cast = 0 {
            /// Which view.
            value: ViewDigest,
        },
        /// Promised, having accepted that.
        Promise = 1 {
            /// The try.
            ballot: Ballot,
            /// In which try something was accepted.
            accepted_in: Option<Ballot>,
            /// What was, if so.
            accepted: Option<ViewDigest>,
        },
        /// Accepted.
        Accepted = 2 {
            /// The try.
            ballot: Ballot,
        },
    }
}

wire_enum! {
    /// What all members of a large view must know; neighbours hand it on.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub enum Rumour {
        /// What a member says of itself and of the members that it observes. A later version replaces an
        /// earlier one.
        Opinion = 0 {
            /// The member.
            of: Incarnation,
            /// Rises with each change.
            version: u32,
            /// Whether it is in the primary view.
            primary: bool,
            /// Whether it wants to leave.
            leaving: bool,
            /// The highest wire level it speaks.
            wire_level: u8,
            /// The observed members whose edges are down.
            suspicions: Vec<Suspicion>,
        },
        /// A member asks for votes in the fast ballot.
        Ask = 1 {
            /// The member that asks.
            by: Incarnation,
            /// The change to vote for.
            change: Box<Change>,
        },
        /// `Prepare`, of the ballot's proposer.
        Prepare = 2 {
            /// The try.
            ballot: Ballot,
            /// As there.
            proofs: Vec<Proof>,
            /// As there.
            removing: Vec<Incarnation>,
        },
        /// `Accept`, of the ballot's proposer.
        Accept = 3 {
            /// The try.
            ballot: Ballot,
            /// As there.
            change: Box<Change>,
            /// As there.
            proofs: Vec<Proof>,
        },
        /// Members that vote alike: bit i of byte j is the member of rank 8 j + i.
        Tally = 4 {
            /// What they say.
            what: Ayes,
            /// The members that say it.
            by: Vec<u8>,
        },
        /// A view that some vote is about.
        Value = 5 (Box<Change>),
        /// A proof of death.
        Certificate = 6 (Box<Certificate>),
        /// The view with this digest is decided.
        Decided = 7 {
            /// Which.
            value: ViewDigest,
        },
    }
}

wire_enum! {
    /// The view that a vote was given in.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub enum VotedIn {
        /// All of it.
        Whole = 0 (Box<NodeView>),
        /// A large view, by its name.
        Named = 1 {
            /// The chain of views.
            lineage: Lineage,
            /// Its place there.
            id: ViewId,
            /// How it differs from the view before, if the voter had that.
            change: Option<Box<Change>>,
        },
    }
}

wire_enum! {
    /// A view that was voted for.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub enum Voted {
        /// All of it.
        Whole = 0 (Box<NodeView>),
        /// For a large view, the difference to the view that the vote was given in.
        Change = 1 (Box<Change>),
    }
}

wire_struct! {
    /// A value that an acceptor accepted.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct AcceptedValue {
        /// In which try.
        pub ballot: Ballot,
        /// The view proposed.
        pub value: Voted,
    }
}

wire_struct! {
    /// All that an acceptor has ever voted in the slot after the view it has installed.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct VoteState {
        /// The primary view it has installed.
        pub view: VotedIn,
        /// The highest ballot it promised.
        pub promised: Option<Ballot>,
        /// The last value it accepted.
        pub accepted: Option<AcceptedValue>,
    }
}

wire_struct! {
    /// A proof of death: the lifeline of `dead` ended with a FIN, or its witness saw its process end; these
    /// were its last votes.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct Certificate {
        /// The member whose process is gone.
        pub dead: Incarnation,
        /// Its last votes.
        pub vote: VoteState,
    }
}

wire_struct! {
    /// A certificate as used by a ballot: enough for an acceptor to check that it may be used.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
    pub struct Proof {
        /// The member whose process is gone.
        pub dead: Incarnation,
        /// Its last promise in this slot.
        pub promised: Option<Ballot>,
    }
}

wire_enum! {
    /// Between the proposers and acceptors of one slot.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub enum SlotMessage {
        /// Phase 1: promise to ignore lower ballots, and tell what you accepted.
        Prepare = 0 {
            /// The try.
            ballot: Ballot,
            /// The certificates by which the quorum is reduced.
            proofs: Vec<Proof>,
            /// Members without proof of death that the proposer wants to remove if it is free to choose.
            removing: Vec<Incarnation>,
        },
        /// The answer to `Prepare`.
        Promise = 1 {
            /// The try.
            ballot: Ballot,
            /// What this acceptor accepted last.
            accepted: Option<AcceptedValue>,
        },
        /// Phase 2: accept this view. Also sent to nodes that join in it.
        Accept = 2 {
            /// The try.
            ballot: Ballot,
            /// The view proposed.
            value: Box<NodeView>,
            /// The certificates by which the quorum is reduced.
            proofs: Vec<Proof>,
        },
        /// The answer to `Accept`.
        Accepted = 3 {
            /// The try.
            ballot: Ballot,
        },
        /// A refusal.
        Nack = 4 {
            /// The try.
            ballot: Ballot,
            /// The higher ballot already promised.
            promised: Option<Ballot>,
            /// Members to be removed that this acceptor hears well.
            hears: Vec<Incarnation>,
        },
        /// Engine `cut`: the sender has cast its vote in the fast ballot for this view, and asks for the
        /// votes of others. Also sent to nodes that join in it.
        Fast = 5 {
            /// The view.
            value: Box<NodeView>,
        },
        /// Engine `cut`: the sender has cast its vote in the fast ballot for the view with this digest.
        Cast = 6 {
            /// Which view.
            value: ViewDigest,
        },
    }
}

wire_struct! {
    /// A node as it presents itself before it is a member.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct NodeRecord {
        /// The configured name.
        pub name: String,
        /// Where it is reached.
        pub addr: SocketAddr,
        /// Where else it is reached, best first.
        pub further: Vec<SocketAddr>,
        /// Free for the application.
        pub metadata: BTreeMap<String, String>,
        /// Votes it has in quorums.
        pub weight: u16,
        /// The highest wire level it speaks.
        pub wire_level: u8,
        /// The membership engine it runs: 0 is `coordinator`, 1 is `cut`.
        pub engine: u8,
        /// The partition policy it runs: 0 is `majority`, 1 is `any`.
        pub policy: u8,
    }
}

wire_struct! {
    /// Where a member stands in its lineage.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct Standing {
        /// The chain of views.
        pub lineage: Lineage,
        /// The last primary view installed.
        pub view: ViewId,
        /// That view's number.
        pub number: u32,
        /// The weight of that view's members together.
        pub weight: u32,
        /// Whether the member is in the primary view now.
        pub primary: bool,
        /// The membership engine of the lineage, as in [`NodeRecord::engine`].
        pub engine: u8,
        /// Its partition policy, as in [`NodeRecord::policy`].
        pub policy: u8,
        /// What an operator overrode to found the lineage, as far as the member knows.
        pub overrides: Option<Origin>,
    }
}

wire_struct! {
    /// Where a node comes from, if it was a member before.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
    pub struct Origin {
        /// The chain of views.
        pub lineage: Lineage,
        /// The last primary view of it that the node had installed.
        pub view: ViewId,
    }
}

wire_struct! {
    /// A node that a locator knows of.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct KnownNode {
        /// Where it is reached.
        pub addr: SocketAddr,
        /// Whether it was a member of a primary view when it was heard.
        pub member: bool,
        /// How long ago that was, in seconds.
        pub age_s: u32,
    }
}

wire_enum! {
    /// Before membership, and between clusters that do not know each other.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub enum Discovery {
        /// Who is there? Sent to seeds, repeated; a node without a view answers with its own.
        Seek = 0 {
            /// The node that asks.
            node: NodeRecord,
            /// The digest of its seed list.
            seeds: u64,
            /// How many nodes founding must see; 0 if it goes by the seed list.
            expect: u16,
            /// Whether it is an acceptor of the founding slot.
            founder: bool,
            /// Where it stands, if it is a member.
            standing: Option<Standing>,
            /// Other candidates it has heard of.
            others: Vec<SocketAddr>,
            /// Whether this is an answer, which is not answered.
            reply: bool,
        },
        /// A member's answer to `Seek`.
        Here = 1 {
            /// Where the sender is reached.
            addr: SocketAddr,
            /// Where it stands.
            standing: Standing,
            /// The member to ask for admission.
            coordinator: Incarnation,
            /// Where the coordinator is reached.
            coordinator_addr: SocketAddr,
        },
        /// Admit me. Repeated until the coordinator probes.
        Join = 2 {
            /// The node that asks.
            node: NodeRecord,
            /// The highest view number that the same process has seen, in any lineage; 0 if none. The view
            /// that admits it has a higher one.
            number: u32,
            /// Policy `any`: where it was a member last, if it was.
            from: Option<Origin>,
        },
        /// You cannot be admitted.
        Refused = 3 {
            /// Which incarnation is refused.
            to: Incarnation,
            /// Which side must change what.
            reason: String,
            /// Whether trying again is pointless until the configuration changes.
            fatal: bool,
        },
        /// You are no longer a member.
        Removed = 4 {
            /// Which incarnation was removed.
            who: Incarnation,
            /// Where the sender stands.
            standing: Standing,
            /// Why, as text for people.
            cause: String,
        },
        /// A locator's answer to `Seek`.
        Known = 5 {
            /// Where the locator is reached.
            addr: SocketAddr,
            /// For how long it has been listening, in milliseconds: members may not have found it yet.
            up_ms: u32,
            /// Other nodes it has heard of: members first, then the latest heard.
            nodes: Vec<KnownNode>,
        },
        /// Here is a node. Sent by multicast, to nodes that look for others there.
        Announce = 6 {
            /// Where it is reached.
            addr: SocketAddr,
            /// Whether it is in a primary view.
            member: bool,
        },
        /// Policy `any`: our lineage would give way to yours. Will you stay where you are?
        Yield = 7 {
            /// The sender: there may be no room for it.
            node: NodeRecord,
            /// Where it stands.
            standing: Standing,
            /// Echoed by the answer.
            nonce: u64,
        },
        /// Policy `any`, the answer to `Yield`: the sender gives way to no lineage for a while.
        Stay = 8 {
            /// Where the sender is reached.
            addr: SocketAddr,
            /// Where it stands.
            standing: Standing,
            /// The nonce of the question.
            nonce: u64,
        },
    }
}

wire_struct! {
    /// A member that the sender of a heartbeat doubts.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct Suspicion {
        /// The member doubted.
        pub member: Incarnation,
        /// Why.
        pub evidence: Evidence,
        /// For how long, in milliseconds.
        pub for_ms: u32,
    }
}

wire_struct! {
    /// A sign of life between members, with what each should know of the other's state.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct Heartbeat {
        /// The sender's count of heartbeats, from 1; an earlier heartbeat that comes later is void.
        pub round: u64,
        /// The chain of views.
        pub lineage: LineageMark,
        /// The last primary view installed.
        pub view: ViewId,
        /// Whether the sender is in the primary view now.
        pub primary: bool,
        /// Whether the sender wants to leave.
        pub leaving: bool,
        /// The highest wire level the sender speaks.
        pub wire_level: u8,
        /// All members that the sender doubts now: it withdraws its doubt of any member that is not listed.
        pub suspicions: Vec<Suspicion>,
        /// Engine `cut`, in large views: a sum over all rumours known. An observer with another sum tells the
        /// sender all rumours.
        pub rumours: u32,
        /// What the two need of each other to believe in their view; nothing in large views.
        pub lease: Option<LeaseNote>,
    }
}

wire_struct! {
    /// What a heartbeat says of leases: how long its sender believes an answer, and which heartbeat it
    /// answers.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct LeaseNote {
        /// The incarnation this is for. Any other drops it, though it may use the rest.
        pub to: Incarnation,
        /// For how long the sender believes in its view after a heartbeat that a quorum answered, in
        /// milliseconds; 0 is without end.
        pub length_ms: u32,
        /// The `round` of the last heartbeat of the receiver that the sender has noted in the same view; 0 if
        /// none.
        pub answers: u64,
        /// Whether the sender does not believe now, and wants an answer at once.
        pub asks: bool,
        /// Whether the sender has voted for a view after this one, and so answers no member.
        pub voted: bool,
        /// Members that the sender is about to have removed. A member that takes the sender for the leader
        /// does not answer them either.
        pub withheld: Vec<Incarnation>,
    }
}

wire_enum! {
    /// Engine `cut`, in large views: tells all members for how long they may believe in their view. It goes
    /// from neighbour to neighbour, unreliably; each pulse is replaced by the next. Its sender packs the sets
    /// of ranks.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub enum Pulse {
        /// A tick: from one member to all.
        Tick = 0 {
            /// The primary view it is about.
            view: ViewId,
            /// The rank of the member that made it.
            maker: u16,
            /// The maker's count of ticks in this view, from 1.
            number: u32,
            /// For how long it is good, in milliseconds.
            length_ms: u32,
            /// Members that had answered the tick before this one when this one was made. A member that
            /// answers this tick may let them believe for that.
            fresh: Vec<u8>,
            /// `fresh` of the tick before, if a quorum has answered that tick. These members believe, counted
            /// from their answers to the tick before it.
            renewed: Option<Vec<u8>>,
        },
        /// Answers on their way back to the maker.
        Echo = 1 {
            /// As in the tick.
            view: ViewId,
            /// As in the tick.
            maker: u16,
            /// As in the tick.
            number: u32,
            /// The members that answer.
            who: Vec<u8>,
            /// Whether the receiver goes on passing ticks on to the sender.
            edge: Edge,
        },
    }
}

wire_enum! {
    /// What one neighbour asks of another that passes ticks on, in the terms of Plumtree.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum Edge {
        /// The tick came by it first.
        Keep = 0,
        /// The tick had come by another edge.
        Prune = 1,
        /// No tick comes.
        Graft = 2,
    }
}

wire_enum! {
    /// Reliable, between members, candidates and joiners.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub enum MembershipMessage {
        /// Deciding the next primary view.
        Slot = 0 {
            /// Which view.
            slot: SlotId,
            /// What is said.
            message: SlotMessage,
        },
        /// Deciding the founding view.
        Founding = 1 {
            /// The digest of the seed list: acceptors of another list refuse.
            seeds: u64,
            /// The message.
            message: SlotMessage,
        },
        /// This primary view is decided.
        Decide = 2 (Box<NodeView>),
        /// The answer to `Decide`: known here.
        Confirm = 3 {
            /// The chain of views.
            lineage: Lineage,
            /// The view decided.
            view: ViewId,
        },
        /// Send the primary views after this one.
        Pull = 4 {
            /// The chain of views.
            lineage: Lineage,
            /// The last one held.
            after: ViewId,
        },
        /// A proof of death.
        Certificate = 5 (Box<Certificate>),
        /// Are you there and ready to be admitted?
        JoinProbe = 6 {
            /// Echoed by the answer.
            nonce: u64,
        },
        /// The answer to `JoinProbe`.
        JoinReady = 7 {
            /// The nonce of the probe.
            nonce: u64,
        },
        /// I want to leave.
        Leave = 8,
        /// Shall we be this non-primary view?
        Gather = 9 (Box<NodeView>),
        /// Yes.
        Gathered = 10 {
            /// The primary view it is based on.
            base: ViewId,
            /// The attempt.
            attempt: u32,
        },
        /// No: a higher attempt was seen, or another primary view is known.
        Scatter = 11 {
            /// The last primary view installed here.
            base: ViewId,
            /// The highest attempt seen here.
            attempt: u32,
        },
        /// All said yes: install it.
        Assemble = 12 {
            /// The primary view it is based on.
            base: ViewId,
            /// The attempt.
            attempt: u32,
        },
        /// Our lineage gives way to another one that was met: start over and join it.
        Dissolve = 13 {
            /// Where the other lineage stands.
            into: Standing,
            /// Where a member of it is reached.
            addr: SocketAddr,
        },
        /// Engine `cut`, in large views: what was heard since the last time.
        Rumours = 14 {
            /// The chain of views.
            lineage: Lineage,
            /// The primary view they are about.
            view: ViewId,
            /// What was heard.
            rumours: Vec<Rumour>,
        },
        /// Policy `any`: shall we go on as a lineage of our own, with this first view? Answered as `Gather`
        /// is.
        Separate = 15 {
            /// Rises with each try of one base, as that of a non-primary view.
            attempt: u32,
            /// The view. All that departed did so as separated from the base.
            view: Box<NodeView>,
        },
        /// `Gather` in views whose members are not all neighbours. Both sides have the base, so only the
        /// members that stay are named.
        GatherRanks = 16 {
            /// The chain of views.
            lineage: Lineage,
            /// The primary view it is based on.
            base: ViewId,
            /// The attempt.
            attempt: u32,
            /// For how long the sender has gone without the others, in milliseconds. All of them depart by
            /// its word.
            for_ms: u32,
            /// The members that stay: bit i of byte j is the member of rank 8 j + i in the base.
            by: Vec<u8>,
        },
        /// `Separate` in views whose members are not all neighbours.
        SeparateRanks = 17 {
            /// The chain of views that is left.
            lineage: Lineage,
            /// The primary view it is based on.
            base: ViewId,
            /// Rises with each try of one base.
            attempt: u32,
            /// The lineage to be.
            into: Lineage,
            /// The number of its first view.
            number: u32,
            /// The members that go on in it, as in `GatherRanks`.
            by: Vec<u8>,
        },
    }
}

/// A witness is asked to tell at most so many members.
pub const MAX_TOLD: usize = 32;

wire_enum! {
    /// What a watched process writes on its lifelines, and leaves to its witness.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub enum LifelineRecord {
        /// The first record.
        Hello = 0 {
            /// The watched end's address as it sees it.
            local: SocketAddr,
            /// The watching end's address as the watched one sees it.
            remote: SocketAddr,
            /// All votes so far.
            vote: VoteState,
        },
        /// The votes after a new promise or acceptance, written before the vote goes anywhere.
        Vote = 1 (VoteState),
        /// The process leaves in order: what follows proves nothing.
        Goodbye = 2,
        /// To the witness of the process alone (R10): all votes so far. It replaces what the process left
        /// there before.
        LastVoteRecord = 3 {
            /// What it voted last.
            vote: VoteState,
            /// Members to tell of the death: for each, where it is reached, best first. At most [`MAX_TOLD`].
            tell: Vec<Vec<SocketAddr>>,
        },
    }
}
