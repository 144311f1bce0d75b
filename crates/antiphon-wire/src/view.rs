//! Node views: the agreed lists that everything else derives from.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;

use crate::codec::encode_to_vec;
use crate::{Incarnation, Lineage, ViewDigest, ViewId, ViewStamp, wire_enum, wire_struct};

/// The most members a node view may have with this wire version.
pub const MAX_MEMBERS: usize = 4096;
/// The longest node, cluster or group name, in bytes.
pub const MAX_NAME_BYTES: usize = 64;
/// The most metadata entries of a node.
pub const MAX_METADATA_ENTRIES: usize = 32;
/// The most bytes of all metadata keys and values of a node together.
pub const MAX_METADATA_BYTES: usize = 4096;
/// The most addresses of a node, the first included.
pub const MAX_ADDRESSES: usize = 8;

wire_struct! {
    /// One member of the cluster: a name for people, an incarnation for the protocol.
    #[derive(Debug, Clone, PartialEq, Eq)]
    #[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
    pub struct Member {
        /// Fresh at each start; the identity the protocol uses.
        pub incarnation: Incarnation,
        /// The configured name.
        pub name: String,
        /// Where the others reach it, and what it is known by in seeds.
        pub addr: SocketAddr,
        /// Where else the others reach it, best first. At most seven.
        #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "Vec::is_empty"))]
        pub further: Vec<SocketAddr>,
        /// Free for the application: role, rack, address for other traffic. Immutable per incarnation.
        pub metadata: BTreeMap<String, String>,
        /// Votes it has in quorums (1 unless configured; 0 never counts).
        pub weight: u16,
    }
}

impl From<&Member> for Incarnation {
    fn from(member: &Member) -> Self {
        member.incarnation
    }
}

impl From<&Arc<Member>> for Incarnation {
    fn from(member: &Arc<Member>) -> Self {
        member.incarnation
    }
}

wire_enum! {
    /// What made an accuser doubt a member.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub enum Evidence {
        /// The lifeline ended with a FIN: the process is gone, and this was its last vote.
        ProofOfDeath = 0,
        /// Nothing was heard for this long.
        Silent = 1 {
            /// How long nothing was heard, in milliseconds.
            for_ms: u32,
        },
        /// A connection to it was reset or refused, and it did not answer since.
        ConnectionLost = 2,
        /// It did not report to a flush, or lead one to its end, in time.
        FlushStalled = 3,
        /// The accuser is one of its observers. Enough observers had lost it to agree on that without a
        /// leader. The evidence of each observer is known only to the members that were told, and need not be
        /// the same everywhere.
        Observed = 4,
        /// It said that it does not hear the accuser.
        Deaf = 5,
        /// Little of what it should have sent lately arrived, with gaps in between.
        Lossy = 6 {
            /// How much of it did not.
            lost_percent: u8,
        },
    }
}

wire_struct! {
    /// A member that suspected another, when and why.
    #[derive(Debug, Clone, PartialEq, Eq)]
    #[cfg_attr(feature = "serde", derive(serde::Serialize))]
    pub struct Accusation {
        /// The member that accused.
        pub accuser: Incarnation,
        /// What it saw.
        pub evidence: Evidence,
        /// How long before the proposal of the view it was made, in milliseconds.
        pub before_ms: u32,
    }
}

wire_enum! {
    /// Why a member is no longer in the view.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub enum Cause {
        /// It left in order.
        Left = 0,
        /// Its process is provably gone, or it was silent and the others agreed.
        Crashed = 1,
        /// It and a more senior member could not hear each other.
        Unreachable = 2 {
            /// The more senior member.
            from: Incarnation,
        },
        /// A new incarnation took its name and address.
        Superseded = 3 {
            /// The new incarnation.
            by: Incarnation,
        },
        /// An unsafe override: an operator had another survivor go on alone, as a new lineage, and left this
        /// member behind, whether it lived or not.
        Overridden = 4 {
            /// The lineage that was left.
            lineage: Lineage,
            /// The last primary view of it that the survivor had installed.
            view: ViewId,
        },
        /// Policy `any`: a component without a quorum went on as a lineage of its own, and this member was
        /// not in it.
        Separated = 5 {
            /// The lineage that was left.
            lineage: Lineage,
            /// The last primary view of it that the component had installed.
            view: ViewId,
        },
    }
}

wire_struct! {
    /// A member of the previous view that this view no longer has, with its whole record.
    #[derive(Debug, Clone, PartialEq, Eq)]
    #[cfg_attr(feature = "serde", derive(serde::Serialize))]
    pub struct Departure {
        /// The member as the previous view listed it.
        pub member: Member,
        /// Why it is gone.
        pub cause: Cause,
        /// The members that accused it.
        pub accusers: Vec<Accusation>,
    }
}

wire_enum! {
    /// Which kind of view, and its identity.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
    pub enum NodeViewId {
        /// Decided by the slot after the previous primary view.
        Primary = 0 {
            /// Its place in the lineage.
            id: ViewId,
        },
        /// A component without a majority, agreed by all its members; consumes no counter.
        NonPrimary = 1 {
            /// The last primary view its members installed.
            base: ViewId,
            /// Rises with each try of one proposer.
            attempt: u32,
            /// The node that proposed it.
            proposer: Incarnation,
        },
    }
}

wire_struct! {
    /// Members that come from another lineage, where they were together until it gave way to this one.
    #[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
    #[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
    pub struct Subview {
        /// The lineage that they come from.
        pub lineage: Lineage,
        /// The last primary view of it that they had installed.
        pub view: ViewId,
        /// Their present incarnations, by seniority.
        pub members: Vec<Incarnation>,
    }
}

wire_struct! {
    /// An agreed list of the cluster's members, in seniority order: rank 0 is the elder.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct NodeView {
        /// The chain of views this one belongs to.
        pub lineage: Lineage,
        /// Primary or not, and which.
        pub id: NodeViewId,
        /// The primary view's id as one number for embedders, which fits an i32. A founding takes the seconds
        /// since 2025, each next view one more, a recovery or a merge at least one more than all that its
        /// members have seen. So it strictly increases at every process. If all processes end and the cluster
        /// is founded again, the number increases if the former cluster had installed no more views than
        /// seconds had passed since its founding. Otherwise it may repeat or fall. Use [`NodeView::stamp`]
        /// where it must be sure. A non-primary view repeats the number of the primary view it is based on.
        pub number: u32,
        /// The members by seniority.
        pub members: Vec<Member>,
        /// The members that the previous primary view did not have.
        pub joined: Vec<Incarnation>,
        /// Members of the previous primary view that this one does not have.
        pub departed: Vec<Departure>,
        /// The joined members that come from other lineages, by where they come from: two components meet.
        /// Empty unless the policy is `any`.
        pub merged: Vec<Subview>,
        /// The highest wire level that every member speaks.
        pub wire_level: u8,
    }
}

impl NodeView {
    /// Whether this is a primary view.
    pub fn is_primary(&self) -> bool {
        matches!(self.id, NodeViewId::Primary { .. })
    }

    /// A short name for this view, with all its fields included.
    pub fn digest(&self) -> ViewDigest {
        ViewDigest::of(&encode_to_vec(self))
    }

    /// The place of the primary view that this one is, or is based on, among all primary views of the
    /// cluster.
    pub fn stamp(&self) -> ViewStamp {
        ViewStamp {
            lineage: self.lineage,
            view: self.primary_id(),
        }
    }

    /// The primary view this one is, or is based on.
    pub fn primary_id(&self) -> ViewId {
        match self.id {
            NodeViewId::Primary { id } => id,
            NodeViewId::NonPrimary { base, .. } => base,
        }
    }

    /// If this is the first view of a lineage that an operator had founded from one survivor: the lineage
    /// that was left, and the last primary view of it that this one had. All views of such a lineage have an
    /// epoch above 1.
    pub fn overrides(&self) -> Option<(Lineage, ViewId)> {
        self.departed.iter().find_map(|departure| match departure.cause {
            Cause::Overridden { lineage, view } => Some((lineage, view)),
            _ => None,
        })
    }

    /// If this is the first view of a lineage that a component without a quorum founded of itself (policy
    /// `any`): the lineage that was left, and the last primary view of it that its members had installed.
    pub fn separates(&self) -> Option<(Lineage, ViewId)> {
        self.departed.iter().find_map(|departure| match departure.cause {
            Cause::Separated { lineage, view } => Some((lineage, view)),
            _ => None,
        })
    }

    /// If components meet in this view: all of them, first the members that were here already. Empty
    /// otherwise.
    pub fn subviews(&self) -> Vec<Subview> {
        if self.merged.is_empty() {
            return Vec::new();
        }
        let stayed = self.members.iter().map(|member| member.incarnation);
        let id = self.primary_id();
        let here = Subview {
            lineage: self.lineage,
            view: ViewId {
                epoch: id.epoch,
                counter: id.counter.saturating_sub(1),
            },
            members: stayed.filter(|member| !self.joined.contains(member)).collect(),
        };
        std::iter::once(here).chain(self.merged.iter().cloned()).collect()
    }

    /// The most senior member. A view is never empty.
    pub fn elder(&self) -> &Member {
        &self.members[0]
    }

    /// The member with this incarnation.
    pub fn member(&self, incarnation: Incarnation) -> Option<&Member> {
        self.members
            .iter()
            .find(|member| member.incarnation == incarnation)
    }

    /// The name of a member, also of one that this view no longer has; the first digits of any other.
    pub fn name_of(&self, incarnation: Incarnation) -> String {
        let departed = self.departed.iter().map(|departure| &departure.member);
        let mut known = self.members.iter().chain(departed);
        let member = known.find(|member| member.incarnation == incarnation);
        member.map_or_else(|| incarnation.short(), |member| member.name.clone())
    }

    /// The seniority rank of this incarnation.
    pub fn rank(&self, incarnation: Incarnation) -> Option<usize> {
        self.members
            .iter()
            .position(|member| member.incarnation == incarnation)
    }

    /// Whether this incarnation is a member.
    pub fn contains(&self, incarnation: Incarnation) -> bool {
        self.rank(incarnation).is_some()
    }
}
