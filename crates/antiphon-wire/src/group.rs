//! Messages of the group layer: founding, joins, data, acknowledgements, flush.
//!
//! Control messages ([`GroupMessage`]) travel on the reliable ordered channel of a pair. A receiver ignores
//! messages that were sent under another node view than its own, because everything unfinished is begun again
//! at each primary node view. Data ([`GroupData`]) may be lost, doubled and reordered; the logs make it
//! reliable.

use bytes::Bytes;

use crate::object::{ChunkSpan, Digest};
use crate::{Block, GroupId, GroupViewId, Incarnation, Member, ViewId, wire_enum, wire_struct};

wire_struct! {
    /// A reliable control message between members of a group (or about to be), with the sender's node view.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct GroupControl {
        /// The primary node view that the sender had installed when it sent this.
        pub view: ViewId,
        /// The message.
        pub body: GroupMessage,
    }
}

wire_struct! {
    /// What a group promises; the same at all its members.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct GroupTerms {
        /// 0 is fifo, 1 is total, 2 is unordered, 3 is scoped.
        pub order: u8,
        /// Bytes a member may have sent that some member's application has not consumed.
        pub window_bytes: u32,
        /// 0 is direct, 1 is chain, 2 is multicast.
        pub dissemination: u8,
        /// Milliseconds after which a member that holds up others and reads nothing is removed; 0 is never.
        pub slow_after_ms: u32,
        /// What makes a total order: 0 is the sequencer, 1 is rotation, 2 is token; 0 in any other order.
        pub engine: u8,
        /// The most bytes of an object, and of all objects of one sender that a member holds at a time.
        pub max_object_bytes: u32,
    }
}

wire_struct! {
    /// A member's knowledge of a group, for the elder's directory.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct GroupReport {
        /// The group's name.
        pub name: String,
        /// The group.
        pub group: GroupId,
        /// The group view the reporter has installed.
        pub view: GroupViewId,
        /// Its members by group rank.
        pub members: Vec<Incarnation>,
    }
}

wire_struct! {
    /// A member that a decision adds.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct Joiner {
        /// The member.
        pub incarnation: Incarnation,
        /// Its number for this attempt to join: an answer to an earlier attempt is void.
        pub nonce: u64,
        /// The number its next message will have.
        pub first: u64,
    }
}

wire_struct! {
    /// Consecutive messages of one sender behind a gap, where delivery passes gaps.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct Span {
        /// The sender's rank.
        pub sender: u16,
        /// The number of the first.
        pub first: u64,
        /// How many.
        pub count: u64,
    }
}

wire_struct! {
    /// Messages of a departed sender behind a gap that belong to a cut.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct CutSpan {
        /// The messages.
        pub span: Span,
        /// Ranks of survivors that hold all of them.
        pub holders: Vec<u16>,
    }
}

wire_struct! {
    /// Which direct messages a member of a view that ends has taken in it.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct TellsHeard {
        /// The rank of that member, which is not in the next view.
        pub member: u16,
        /// The ranks of senders, ascending, and of each the first number that this member has not taken.
        pub heard: Vec<(u16, u64)>,
    }
}

wire_struct! {
    /// How far the messages of a departed member were delivered.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct DepartedSender {
        /// The departed member.
        pub incarnation: Incarnation,
        /// Its last message that was delivered; 0 is none. Where delivery passes gaps, the last before the
        /// first gap.
        pub last: u64,
        /// What was delivered behind gaps: numbers of first messages, and how many from each.
        pub beyond: Vec<(u64, u64)>,
        /// The `k` of the first view without it.
        pub k: u32,
    }
}

wire_struct! {
    /// The end of one group view and the beginning of the next.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct Decision {
        /// The next view.
        pub id: GroupViewId,
        /// The view it follows.
        pub from: GroupViewId,
        /// Per rank of the old view, the last number that counts there, nulls included.
        pub cut: Vec<u64>,
        /// Per rank of the old view, ranks of survivors that hold all of that prefix.
        pub holders: Vec<Vec<u16>>,
        /// What else counts of senders that departed, where delivery passes gaps.
        pub beyond: Vec<CutSpan>,
        /// How many positions of the old view's order count.
        pub ordered: u64,
        /// Ranks of survivors that hold all those order records.
        pub order_holders: Vec<u16>,
        /// The members of the next view by rank.
        pub members: Vec<Incarnation>,
        /// Per member of the next view, the number of its first message there.
        pub start: Vec<u64>,
        /// Members that the old view did not have.
        pub joined: Vec<Joiner>,
        /// Members of the old view that left in order.
        pub left: Vec<Incarnation>,
        /// Members of the old view that a node view or the leader removed.
        pub crashed: Vec<Incarnation>,
        /// Why a member of the two lists above is not in the next view, where the group itself had a reason.
        pub causes: Vec<DepartureCause>,
        /// The cut has safe messages that some participant has not delivered: no member delivers it before
        /// all hold it.
        pub safe: bool,
        /// Which direct messages were taken by members that have reported and are not in the next view.
        pub told: Vec<TellsHeard>,
    }
}

wire_struct! {
    /// Why the group removed a member that was alive.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct DepartureCause {
        /// The removed member.
        pub incarnation: Incarnation,
        /// For people; before a colon, if there is one, stands a fixed word: `slow` or `flush-stalled`.
        pub cause: String,
    }
}

wire_enum! {
    /// Where a participant of a flush stands.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub enum Standing {
        /// It waits for its first view.
        Joining = 0,
        /// It has installed this view and accepts nothing more in it except repairs.
        At = 1 {
            /// The installed view.
            view: GroupViewId,
            /// Per rank, the last number up to which it holds all.
            held: Vec<u64>,
            /// What it holds behind gaps, where delivery passes them.
            beyond: Vec<Span>,
            /// Per rank, how many of the held numbers are nulls.
            nulls: Vec<u64>,
            /// Up to which position it holds all order records.
            ordered: u64,
            /// The decision that made the view, until every member is known to have installed it.
            decision: Option<Box<Decision>>,
            /// It holds safe messages that it has not delivered.
            safe: bool,
            /// The decision on the next view for which it has said that it holds the cut.
            held_cut: Option<Box<Decision>>,
            /// The ranks of senders whose direct messages it has taken, ascending, and for each the first
            /// number that it has not taken.
            told: Vec<(u16, u64)>,
        },
        /// It is no member, and does not want to be one of the view asked about.
        Gone = 2 {
            /// Why it was removed; none if it left in order, or knows nothing of the group.
            removed: Option<String>,
        },
    }
}

wire_enum! {
    /// What a control message says.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub enum GroupMessage {
        /// To the elder, at each primary node view: all groups of the sender.
        Report = 1 {
            /// Its groups.
            groups: Vec<GroupReport>,
        },
        /// To the elder, by a group's leader: the group has a new view.
        Announce = 2 (GroupReport),
        /// To the elder: the last member has left.
        Dissolved = 3 {
            /// The group.
            group: GroupId,
            /// Its name.
            name: String,
            /// The `k` of its end.
            k: u32,
        },
        /// To the elder: where is this group?
        Lookup = 4 {
            /// Its name.
            name: String,
        },
        /// From the elder: this member leads the group (or was granted its founding).
        Located = 5 {
            /// The group's name.
            name: String,
            /// Its leader.
            leader: Incarnation,
        },
        /// From the elder: found it. Void under any later node view.
        Grant = 6 {
            /// The group's name.
            name: String,
            /// The last `k` that a group of this name had under this node view.
            k: u32,
        },
        /// To the elder: the sender is no member of this group, and does not use a grant it may have.
        Declined = 7 {
            /// The group's name.
            name: String,
        },
        /// To a group's leader.
        Join = 8 {
            /// The group's name.
            name: String,
            /// What the joiner expects of it.
            terms: GroupTerms,
            /// The attempt's number.
            nonce: u64,
            /// The number the joiner's next message will have.
            first: u64,
        },
        /// To a joiner: ask this member, or the elder again.
        Moved = 9 {
            /// The group's name.
            name: String,
            /// The leader, if the sender knows it.
            leader: Option<Incarnation>,
        },
        /// To a joiner: its options differ, or there is no room.
        Refused = 10 {
            /// The group's name.
            name: String,
            /// Both sides of the difference.
            reason: String,
        },
        /// To a group's leader: the sender wants to leave.
        Leave = 11 {
            /// The group.
            group: GroupId,
        },
        /// To a group's leader: the sender waits for a flush (it was suspended, or it was asked and nothing
        /// followed).
        Resume = 12 {
            /// The group.
            group: GroupId,
            /// The view the sender has installed.
            view: GroupViewId,
        },
        /// From the flush's leader: stop, and say what you hold.
        FlushStart = 13 {
            /// The group.
            group: GroupId,
            /// Its name.
            name: String,
            /// The view the leader has installed.
            view: GroupViewId,
            /// The view the flush is to install; its node view is the ballot.
            target: GroupViewId,
        },
        /// To the flush's leader.
        FlushReport = 14 {
            /// The group.
            group: GroupId,
            /// The flush.
            target: GroupViewId,
            /// Where the sender stands.
            standing: Standing,
        },
        /// To a flush's leader: the sender has answered a later one.
        FlushRefused = 15 {
            /// The group.
            group: GroupId,
            /// The later one.
            promised: GroupViewId,
        },
        /// From the flush's leader: deliver this, install that.
        FlushCut = 16 {
            /// The group.
            group: GroupId,
            /// What and that.
            decision: Box<Decision>,
        },
        /// From the flush's leader: before anything else, complete a view that a member has already
        /// installed, or whose cut a member has said to hold.
        Complete = 17 {
            /// The group.
            group: GroupId,
            /// The flush.
            target: GroupViewId,
            /// The decision that made that view.
            decision: Box<Decision>,
            /// A member has installed it: no need to wait until all hold its cut.
            installed: bool,
        },
        /// To a joiner, once every old member has installed the view.
        FirstView = 18 {
            /// The group.
            group: GroupId,
            /// Its name.
            name: String,
            /// What it promises.
            terms: GroupTerms,
            /// The view.
            decision: Box<Decision>,
            /// How far the messages of departed members were delivered.
            departed: Vec<DepartedSender>,
            /// The members that left or crashed with this view and are no longer in the sender's node view,
            /// as the sender last knew them: a joiner may have seen no view with them.
            gone: Vec<Member>,
        },
        /// To the new view's leader: the sender has installed it (or has left with it).
        Installed = 19 {
            /// The group.
            group: GroupId,
            /// The view.
            view: GroupViewId,
        },
        /// From the leader: all have installed the view; what came before it is not needed any more.
        Settled = 20 {
            /// The group.
            group: GroupId,
            /// The view.
            view: GroupViewId,
        },
        /// To a node that the group's members have removed while it was alive.
        Removed = 21 {
            /// The group.
            group: GroupId,
            /// The view from which on it is out.
            view: GroupViewId,
            /// Why.
            cause: String,
        },
        /// To a group's leader, at each primary node view: am I still a member?
        Check = 22 {
            /// The group.
            group: GroupId,
            /// The view the sender has installed.
            view: GroupViewId,
        },
        /// To a member: the sender's messages wait, and the receiver's application has not moved for all of
        /// the limit.
        Overdue = 23 {
            /// The group.
            group: GroupId,
            /// The view the sender has installed.
            view: GroupViewId,
        },
        /// To a group's leader, from a member whose application has stopped reading: go on without it.
        Slow = 24 {
            /// The group.
            group: GroupId,
            /// The view the sender has installed.
            view: GroupViewId,
            /// For how many microseconds it has taken nothing. Of several members, the one that stopped first
            /// is removed first.
            for_us: u64,
            /// What the next view says about it.
            cause: String,
        },
        /// To the flush's leader, of a cut with safe messages: the sender holds all of it.
        CutHeld = 25 {
            /// The group.
            group: GroupId,
            /// The flush.
            target: GroupViewId,
        },
        /// From the flush's leader: all participants hold the cut, deliver it.
        CutSafe = 26 {
            /// The group.
            group: GroupId,
            /// The flush.
            target: GroupViewId,
        },
        /// From the elder of a large view, where members without groups do not report by themselves: report.
        ReportWanted = 27,
    }
}

wire_struct! {
    /// How far a member has come in a column of what safe delivery waits for: its messages before `until`.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct Reach {
        /// In total order 0; otherwise the rank of the messages' sender.
        pub column: u16,
        /// In total order the first position whose record or message it does not hold; otherwise the first
        /// message that it does not hold.
        pub until: u64,
    }
}

wire_struct! {
    /// The next positions of a total order: the next `count` messages of the member with this rank.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct Run {
        /// The sender's rank in the view.
        pub sender: u16,
        /// How many of its messages.
        pub count: u32,
    }
}

wire_enum! {
    /// Unreliable records of a group.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub enum GroupData {
        /// Consecutive messages or nulls of one sender; with none, a mark that says how far its log reaches.
        Batch = 1 {
            /// The group.
            group: GroupId,
            /// The view they were sent in.
            view: GroupViewId,
            /// The sender's rank.
            sender: u16,
            /// The number of the first one.
            first: u64,
            /// Every member holds all before this one.
            stable: u64,
            /// The sender wants an acknowledgement at once.
            ask: bool,
            /// The messages.
            messages: Block,
        },
        /// Consecutive positions of the total order, from the sequencer or from the member that has the
        /// token; with none, a mark.
        Orders = 2 {
            /// The group.
            group: GroupId,
            /// The view.
            view: GroupViewId,
            /// The first position.
            first: u64,
            /// Every member holds all positions before this one.
            stable: u64,
            /// The sender wants an acknowledgement at once.
            ask: bool,
            /// The positions.
            runs: Vec<Run>,
        },
        /// How far the sender of this has come in the log of the member it goes to.
        Ack = 3 {
            /// The group.
            group: GroupId,
            /// The view.
            view: GroupViewId,
            /// The rank of that member; any other drops this.
            to: u16,
            /// The first number it does not hold.
            held: u64,
            /// The first message its application has not consumed, nulls not counted.
            consumed: u64,
            /// The first order position it does not hold.
            ordered: u64,
        },
        /// Please send me these messages of that sender: to the sender, or to another that may hold them.
        Nak = 4 {
            /// The group.
            group: GroupId,
            /// The view.
            view: GroupViewId,
            /// The messages' sender's rank.
            sender: u16,
            /// The first one missed.
            first: u64,
            /// The first one after the gap.
            end: u64,
        },
        /// Please send these order records again.
        OrderNak = 5 {
            /// The group.
            group: GroupId,
            /// The view.
            view: GroupViewId,
            /// The first position missed.
            first: u64,
        },
        /// In a flush: send me these messages of that sender.
        Pull = 6 {
            /// The group.
            group: GroupId,
            /// The view that ends.
            view: GroupViewId,
            /// The messages' sender's rank in it.
            sender: u16,
            /// The first message missed.
            first: u64,
            /// The first one not wanted.
            end: u64,
        },
        /// Messages of another sender: in a flush the pulled messages, before it those that a `Nak` asked
        /// for.
        Repair = 7 {
            /// The group.
            group: GroupId,
            /// The view they were sent in.
            view: GroupViewId,
            /// The messages' sender's rank in it.
            sender: u16,
            /// The number of the first message.
            first: u64,
            /// Nothing more follows without another pull.
            last: bool,
            /// The messages.
            messages: Block,
        },
        /// In a flush: send me the order records from this position on.
        PullOrders = 8 {
            /// The group.
            group: GroupId,
            /// The view that ends.
            view: GroupViewId,
            /// The first position missed.
            first: u64,
        },
        /// To the next member: the token of the order, and the positions that it carries.
        Token = 11 {
            /// The group.
            group: GroupId,
            /// The view.
            view: GroupViewId,
            /// How often it was passed on in this view.
            hop: u64,
            /// The first position that it carries. Every member holds all positions before it.
            first: u64,
            /// The positions; the next one after them is the next to be given.
            runs: Vec<Run>,
        },
        /// To the member before: the token was here.
        TokenHeld = 12 {
            /// The group.
            group: GroupId,
            /// The view.
            view: GroupViewId,
            /// How often it had been passed on.
            hop: u64,
        },
        /// In a flush: order records that were pulled.
        RepairOrders = 9 {
            /// The group.
            group: GroupId,
            /// The view that ends.
            view: GroupViewId,
            /// The first position.
            first: u64,
            /// The positions.
            runs: Vec<Run>,
        },
        /// To all members, or to the sequencer that collects rows: how far the sender of this has come, for
        /// members that wait to deliver a safe message. From that sequencer: how far all have come.
        Rows = 10 {
            /// The group.
            group: GroupId,
            /// The view.
            view: GroupViewId,
            /// The sender waits: please answer with your own.
            ask: bool,
            /// How far, in the columns that are new or asked for.
            reach: Vec<Reach>,
        },
        /// To one member: I have an object for you.
        Offer = 20 {
            /// The group.
            group: GroupId,
            /// The view the sender has installed.
            view: GroupViewId,
            /// The sender's number for it.
            object: u64,
            /// Its bytes.
            length: u32,
            /// The digest of a wrong copy that the receiver said to hold: begin again.
            wrong: Option<Digest>,
        },
        /// To an object's sender: there is room for all of it here, send these chunks.
        Want = 21 {
            /// The group.
            group: GroupId,
            /// The view the sender of this has installed.
            view: GroupViewId,
            /// The object.
            object: u64,
            /// The first chunk that is missing.
            next: u32,
            /// Chunks before this one may be sent.
            until: u32,
            /// Chunks that were sent and did not come: at most 32 spans.
            again: Vec<ChunkSpan>,
        },
        /// A chunk of the sender's object.
        Chunk = 22 {
            /// The group.
            group: GroupId,
            /// The object.
            object: u64,
            /// Which chunk.
            index: u32,
            /// Its bytes.
            bytes: Bytes,
        },
        /// To an object's sender: all of it is here, and is kept until its record is delivered.
        Held = 23 {
            /// The group.
            group: GroupId,
            /// The view the sender of this has installed.
            view: GroupViewId,
            /// The object.
            object: u64,
            /// The digest of what is here.
            digest: Digest,
        },
        /// To one member: consecutive direct messages of the sender; with none, a mark that asks for a
        /// `TellAck`.
        Tell = 30 {
            /// The group.
            group: GroupId,
            /// The view they are sent in.
            view: GroupViewId,
            /// The member that they are for; any other drops them.
            to: Incarnation,
            /// The number of the first message, among the direct messages between these two members.
            first: u64,
            /// The messages.
            messages: Block,
        },
        /// To a sender of direct messages: how far the sender of this has come in them.
        TellAck = 31 {
            /// The group.
            group: GroupId,
            /// The view the sender of this has installed.
            view: GroupViewId,
            /// The member that this is for; any other drops it.
            to: Incarnation,
            /// The first number it has not taken.
            heard: u64,
            /// What is between `heard` and this is missing: please send it again. Otherwise 0.
            until: u64,
            /// The first message its application has not consumed.
            consumed: u64,
        },
    }
}
