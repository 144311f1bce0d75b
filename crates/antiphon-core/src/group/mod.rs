//! Groups: named closed sets of members with their own views and ordered messages.
//!
//! A group derives from node views and needs no agreement of its own. The elder of the node view says where a
//! group is, or names its founder ([`directory`]). The group's leader takes in joins and leaves. A
//! [flush](crate::flush) carries all members from one view to the next. Between flushes each member has a
//! [log](log) per sender. A [stream](stream) keeps the logs complete, acknowledged and bounded, and an [order
//! engine](crate::order) says what is delivered next. [`credit`] counts bytes from a sender to the
//! applications of all members, its own included. `slow.rs` says what happens to a member whose application
//! does not read. A direct message from one member to one other goes beside all that ([`direct`]).
//!
//! ```text
//!             join                    view k                        view k+1
//!  you ──────► elder: where? ──► leader: join ──► │ messages │ flush │ messages │ …
//!              or: found it           (batched)   │ own, others'     │
//! ```
//!
//! # What a group relies on
//! - The node hands in every primary node view, in order. A non-primary one suspends all groups (R17).
//! - Control messages are reliable and ordered per pair, and come with the node view they were sent under. A
//!   control message that was sent under another view than the present one is dropped. Nothing from before is
//!   needed, because at each primary view all members report, ask, or begin again. For the same reason no
//!   ballot rule besides "this view" is needed.
//! - Data records may be lost, doubled, reordered and late.
//!
//! # Which part imports which
//! `group/`, `order/` and `flush/` stand on each other as in this table. Each line imports only lines above
//! it, and a test of the repository checks that.
//!
//! | what | knows |
//! |---|---|
//! | [`log`], `reached`, `large`, `cut`, `standstill`, `nodes`, `effect` | the messages of one sender; the node view |
//! | [`order`](crate::order) | which message of the logs is next |
//! | [`stream`], the pairs of [`direct`] | the messages of one view |
//! | [`flush`](crate::flush) | the way to the next view: it reads the stream, and says what it wants done |
//! | all other files here | one group, which does that (`flushing.rs`, `install.rs`); all groups of a node |
//!
//! # What it never does
//! A group delivers nothing under a non-primary view. It forgets nothing that a survivor may still miss. It
//! sends nothing again under another view: a message that was accepted during a flush goes out in the next
//! view, once.

pub(crate) mod context;
pub(crate) mod credit;
pub(crate) mod cut;
mod data;
pub(crate) mod direct;
pub(crate) mod directory;
pub(crate) mod effect;
pub(crate) mod entry;
mod exit;
mod flushing;
mod install;
pub(crate) mod large;
pub(crate) mod log;
pub(crate) mod member;
pub(crate) mod memory;
pub(crate) mod nodes;
pub(crate) mod object;
mod objections;
pub(crate) mod queue;
pub(crate) mod reached;
pub(crate) mod slow;
pub(crate) mod standstill;
pub(crate) mod stream;
mod terms;
mod tested;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use antiphon_wire::group::{GroupData, GroupMessage};
use antiphon_wire::{Block, GroupId, Incarnation, Member, NodeView, ViewId};

pub(crate) use self::context::Context;
use self::context::{Floor, MAX_FORMER};
use self::credit::Credit;
use self::directory::Directory;
pub use self::effect::{Effect, MAX_GROUP_MEMBERS};
use self::member::{Group, Phase};
use self::nodes::Nodes;
pub(crate) use self::terms::terms_of;
use crate::flush::state::Ghost;
use crate::random::Random;
use crate::{
    Dissemination, GroupEvent, GroupHandle, GroupOptions, Profile, SendError, TellError, Ticket, Time,
};

/// The windows a group may ask for.
const WINDOW_BYTES: std::ops::RangeInclusive<u32> = 1 << 16..=64 << 20;
/// The most groups of a node.
pub(crate) const MAX_GROUPS: usize = 4096;
/// No joiner's first message has this number. Decisions take twice as much, so all that it sends fits them.
const MAX_FIRST: u64 = 1 << 62;
/// Data held while a first view is under way.
const MAX_STRAYS: usize = 256;
/// The most groups whose last view is remembered.
const MAX_FLOORS: usize = 4096;

/// All groups of one node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Groups {
    profile: Profile,
    random: Random,
    now: Time,
    me: Incarnation,
    nodes: Nodes,
    former: VecDeque<Member>,
    suspended: bool,
    directory: Directory,
    groups: BTreeMap<GroupHandle, Group>,
    next_handle: u32,
    by_id: BTreeMap<GroupId, GroupHandle>,
    floors: BTreeMap<GroupId, Floor>,
    /// For each group that this incarnation was in, how the numbers of its messages go on.
    sent: BTreeMap<String, (u64, Credit)>,
    /// The same for groups that are not in there any more.
    sent_elsewhere: u64,
    ghosts: Vec<Ghost>,
    /// Groups to forget.
    over: Vec<GroupHandle>,
    strays: VecDeque<(Incarnation, GroupData)>,
    effects: VecDeque<Effect>,
    loopback: VecDeque<GroupMessage>,
    packed: bool,
    /// The number of the last object that this node sent, in any group.
    last_object: u64,
    nonsense: u64,
}

/// Lends a context and one group at a time.
macro_rules! context {
    ($groups:ident) => {
        Context {
            now: $groups.now,
            me: $groups.me,
            node: &$groups.nodes,
            former: &$groups.former,
            suspended: $groups.suspended,
            profile: &$groups.profile,
            random: &mut $groups.random,
            effects: &mut $groups.effects,
            loopback: &mut $groups.loopback,
            floors: &mut $groups.floors,
            sent: &mut $groups.sent,
            ghosts: &mut $groups.ghosts,
            over: &mut $groups.over,
            last_object: &mut $groups.last_object,
            nonsense: &mut $groups.nonsense,
        }
    };
}
// It uses the macro.
mod dispatch;

impl Groups {
    /// No groups yet, and no incarnation: [`Groups::handle_new_incarnation`] comes first.
    pub(crate) fn new(profile: Profile, random: Random) -> Self {
        let nodes = Nodes {
            id: ViewId { epoch: 0, counter: 0 },
            number: 0,
            members: Vec::new(),
            names: Vec::new(),
        };
        Self {
            profile,
            random,
            now: Time::ZERO,
            me: Incarnation(0),
            nodes,
            former: VecDeque::new(),
            suspended: true,
            directory: Directory::default(),
            groups: BTreeMap::new(),
            next_handle: 0,
            by_id: BTreeMap::new(),
            floors: BTreeMap::new(),
            sent: BTreeMap::new(),
            sent_elsewhere: 1,
            ghosts: Vec::new(),
            over: Vec::new(),
            strays: VecDeque::new(),
            effects: VecDeque::new(),
            loopback: VecDeque::new(),
            packed: true,
            last_object: 0,
            nonsense: 0,
        }
    }

    /// The same from a seed, for exploration outside the crate.
    pub fn seeded(profile: Profile, seed: [u64; 4]) -> Self {
        Self::new(profile, Random::new(seed))
    }

    /// This node has another incarnation from now on: all membership in groups is void. Groups that had been
    /// joined report this to the application and are joined again under the next primary view.
    pub fn handle_new_incarnation(&mut self, now: Time, me: Incarnation, cause: Option<String>) {
        self.begin(now);
        let old = (self.me != Incarnation(0)).then_some(self.me);
        self.me = me;
        self.nodes.members.clear();
        self.nodes.names.clear();
        self.suspended = true;
        self.directory = Directory::default();
        self.floors.clear();
        self.strays.clear();
        self.loopback.clear();
        self.by_id.clear();
        let mut ctx = context!(self);
        self.groups
            .retain(|_, group| group.start_over(&mut ctx, old, cause.as_deref()));
        self.sent.clear();
        self.sent_elsewhere = 1;
    }

    /// A node view was installed: each primary one, in order; a non-primary one suspends.
    pub fn handle_node_view(&mut self, now: Time, view: &Arc<NodeView>) {
        self.begin(now);
        if !view.is_primary() {
            self.suspended = true;
            self.directory = Directory::default();
            self.loopback.clear();
            let mut ctx = context!(self);
            for group in self.groups.values_mut() {
                group.handle_non_primary(&mut ctx);
            }
            return;
        }
        // The membership of this node decides or looks through each view before it is installed.
        assert!(
            self.nodes.members.is_empty() || view.primary_id() > self.nodes.id || planted!(),
            "R5: node view {} is handed to the groups after {:?}",
            view.id,
            self.nodes.id
        );
        let members: Vec<_> = view.members.iter().map(|member| member.incarnation).collect();
        self.directory = Directory::new(&members);
        self.nodes = Nodes {
            id: view.primary_id(),
            number: view.number,
            members,
            names: view.members.iter().map(|member| member.name.clone()).collect(),
        };
        self.former
            .extend(view.departed.iter().map(|departure| departure.member.clone()));
        let surplus = self.former.len().saturating_sub(MAX_FORMER);
        self.former.drain(..surplus);
        let was_suspended = std::mem::replace(&mut self.suspended, false);
        self.loopback.clear();
        if !self.groups.is_empty() || self.nodes.members.len() <= directory::ALL_REPORT {
            self.report_groups();
        }
        let mut ctx = context!(self);
        for group in self.groups.values_mut() {
            group.handle_primary(&mut ctx, was_suspended);
        }
        self.finish();
    }

    /// R12: every member tells the elder its groups before the elder grants anything.
    fn report_groups(&mut self) {
        let groups = self.groups.values().filter_map(Group::report).collect();
        let mut ctx = context!(self);
        if let Some(elder) = ctx.elder() {
            ctx.send(elder, GroupMessage::Report { groups });
        }
    }

    /// A control message of a peer, sent under its primary view `view`, which is not later than this node's.
    pub fn handle_message(&mut self, now: Time, from: Incarnation, view: ViewId, message: GroupMessage) {
        self.begin(now);
        // R13: what was sent under another node view than the present one belongs to a ballot that is over
        // (or, for a grant, is void, R12). The sender begins again as soon as it has the present view.
        if self.suspended || view != self.nodes.id || !self.nodes.members.contains(&from) {
            return;
        }
        self.dispatch(from, message);
        self.finish();
    }

    /// An unreliable record of a peer.
    pub fn handle_data(&mut self, now: Time, from: Incarnation, record: GroupData) {
        self.begin(now);
        let group = data_group(&record);
        if let Some(handle) = self.find(group) {
            let mut ctx = context!(self);
            if let Some(group) = self.groups.get_mut(&handle) {
                group.handle_data(&mut ctx, from, record);
            }
            self.finish();
        } else if self
            .groups
            .values()
            .any(|group| matches!(group.phase, Phase::Joining { .. }))
        {
            // Survivors may use a view before this joiner has it.
            if self.strays.len() >= MAX_STRAYS {
                self.strays.pop_front();
            }
            self.strays.push_back((from, record));
        }
    }

    /// A record of a frame that receivers hand on: handles it, and returns the next receiver of the frame.
    pub fn handle_chained(&mut self, now: Time, from: Incarnation, record: GroupData) -> Option<Incarnation> {
        let handle = self.find(data_group(&record));
        let ctx = context!(self);
        let next = handle
            .and_then(|handle| self.groups.get_mut(&handle))
            .and_then(|group| group.hand_on(&ctx, from, &record));
        self.handle_data(now, from, record);
        next
    }

    /// Whether frames may have to be handed on by this node.
    pub(crate) fn hand_on(&self) -> bool {
        let chain = |group: &Group| group.options.dissemination == Dissemination::Chain;
        self.groups.values().any(chain)
    }

    /// Whether messages may come by multicast: if not, no member needs to call.
    pub(crate) fn multicasts(&self) -> bool {
        let multicasts = |group: &Group| group.options.dissemination == Dissemination::Multicast;
        self.groups.values().any(multicasts)
    }

    /// Joins or founds a group. An error says what is wrong with the name or the options.
    pub fn join(&mut self, now: Time, name: &str, options: GroupOptions) -> Result<GroupHandle, String> {
        self.begin(now);
        let bad_name = name.is_empty()
            || name.len() > antiphon_wire::MAX_NAME_BYTES
            || name.chars().any(char::is_control);
        if bad_name {
            return Err(format!(
                "the group name {name:?} must have 1 to 64 bytes and no control characters"
            ));
        }
        if options
            .slow_after
            .is_some_and(|after| !crate::config::SLOW_AFTER.contains(&after))
        {
            return Err("slow_after must be 1 s to 1 h, or none for never".to_owned());
        }
        if !WINDOW_BYTES.contains(&options.window_bytes) {
            return Err(format!(
                "window_bytes is {}; it must be 65536 to 67108864",
                options.window_bytes
            ));
        }
        if self.named(name).is_some() {
            return Err(format!(
                "this node is in the group {name:?} already, or is leaving it"
            ));
        }
        if self.groups.len() >= MAX_GROUPS {
            return Err(format!(
                "this node is in {MAX_GROUPS} groups, the most it can be in"
            ));
        }
        let handle = GroupHandle(self.next_handle);
        self.next_handle += 1;
        let nonce = self.random.next_u64();
        let mut group = Group::new(handle, name.to_owned(), options, now, nonce);
        let elsewhere = self.sent_elsewhere;
        let earlier = self.sent.remove(name);
        group.continue_from(earlier.unwrap_or_else(|| (elsewhere, Credit::new(elsewhere))));
        if !self.suspended {
            let mut ctx = context!(self);
            group.locate(&mut ctx);
        }
        self.groups.insert(handle, group);
        self.finish();
        Ok(handle)
    }

    /// Sends messages to a group, all or none.
    pub fn send_block(
        &mut self,
        now: Time,
        group: GroupHandle,
        first: Ticket,
        block: Block,
    ) -> Result<(), SendError> {
        self.begin(now);
        let mut ctx = context!(self);
        let group = self.groups.get_mut(&group).ok_or(SendError::NoSuchGroup)?;
        group.send_block(&mut ctx, first, block)
    }

    /// The application has taken this many more messages of the group.
    pub fn consumed(&mut self, now: Time, group: GroupHandle, messages: u64) {
        self.begin(now);
        let mut ctx = context!(self);
        if let Some(group) = self.groups.get_mut(&group) {
            group.consumed(&mut ctx, messages);
        }
        self.finish();
    }

    /// Tells one member of a group something.
    pub fn tell(
        &mut self,
        now: Time,
        group: GroupHandle,
        to: Incarnation,
        payload: &[u8],
    ) -> Result<Ticket, TellError> {
        self.begin(now);
        let ctx = context!(self);
        let group = self.groups.get_mut(&group).ok_or(TellError::NoSuchGroup)?;
        group.tell(&ctx, to, payload)
    }

    /// The application has taken this many more direct messages of this member.
    pub fn told_consumed(&mut self, now: Time, group: GroupHandle, from: Incarnation, messages: u64) {
        self.begin(now);
        let mut ctx = context!(self);
        if let Some(group) = self.groups.get_mut(&group) {
            group.told_consumed(&mut ctx, from, messages);
        }
    }

    /// Leaves a group in order.
    pub fn leave_group(&mut self, now: Time, handle: GroupHandle) {
        self.begin(now);
        let mut ctx = context!(self);
        let Some(group) = self.groups.get_mut(&handle) else {
            return;
        };
        if group.leave(&mut ctx) {
            group.end(&mut ctx, GroupEvent::Left);
            self.over.push(handle);
        }
        self.finish();
    }

    /// Leaves all groups, for the node's own leave.
    pub fn leave_all(&mut self, now: Time) {
        let handles: Vec<_> = self.groups.keys().copied().collect();
        for handle in handles {
            self.leave_group(now, handle);
        }
    }

    /// Whether this node is in no group, and none needs anything of it.
    pub fn is_idle(&self) -> bool {
        self.groups.is_empty()
    }

    /// A deadline given by [`Groups::next_timeout`] has passed.
    pub fn handle_timeout(&mut self, now: Time) {
        self.begin(now);
        let mut ctx = context!(self);
        for group in self.groups.values_mut() {
            if group.next_timeout().is_some_and(|at| at <= now) {
                group.timeout(&mut ctx);
            }
        }
        self.finish();
        let over = |group: &&Group| matches!(&group.phase, Phase::Ghost { until, .. } if *until <= now);
        let over = self.groups.values().filter(over).map(|group| group.handle);
        self.over.extend(over);
        self.forget_over();
    }

    /// This node did not run for so long. The nodes that it waits for had no more time than it had itself.
    pub fn forgive(&mut self, missed: Duration) {
        for group in self.groups.values_mut() {
            match &mut group.phase {
                Phase::Member(membership) => membership.flush.forgive(missed),
                Phase::Ghost { until, .. } => *until = *until + missed,
                Phase::Locating { .. } | Phase::Joining { .. } | Phase::Refused => {}
            }
        }
    }

    /// When [`Groups::handle_timeout`] wants to be called.
    pub fn next_timeout(&self) -> Option<Time> {
        // Under a non-primary view nothing is due: the next primary view begins everything again.
        if self.suspended {
            return None;
        }
        self.groups.values().filter_map(Group::next_timeout).min()
    }

    /// The next thing to do. Drain it when a batch of inputs is over: what was sent meanwhile is packed into
    /// frames.
    pub fn poll_effect(&mut self) -> Option<Effect> {
        if self.effects.is_empty() && !std::mem::replace(&mut self.packed, true) {
            let mut ctx = context!(self);
            for group in self.groups.values_mut() {
                group.pack(&mut ctx);
            }
        }
        self.effects.pop_front()
    }

    /// Whether a group of this node has this member.
    pub(crate) fn has(&self, member: Incarnation) -> bool {
        self.groups.values().any(|group| match &group.phase {
            Phase::Member(membership) => membership.stream.members.contains(&member),
            Phase::Locating { .. } | Phase::Joining { .. } | Phase::Ghost { .. } | Phase::Refused => false,
        })
    }

    /// The other members of this node's groups, and of which of them.
    pub(crate) fn companions(&self) -> BTreeMap<Incarnation, BTreeSet<GroupHandle>> {
        let mut companions: BTreeMap<Incarnation, BTreeSet<GroupHandle>> = BTreeMap::new();
        for (handle, group) in &self.groups {
            if let Phase::Member(membership) = &group.phase {
                let others = membership.stream.members.iter();
                for member in others.filter(|member| **member != self.me) {
                    companions.entry(*member).or_default().insert(*handle);
                }
            }
        }
        companions
    }

    /// How many control messages of peers made no sense.
    pub fn nonsense(&self) -> u64 {
        self.nonsense
    }

    fn begin(&mut self, now: Time) {
        self.now = self.now.max(now);
        self.packed = false;
    }

    /// Handles what this node has sent to itself.
    fn finish(&mut self) {
        loop {
            self.forget_over();
            let Some(message) = self.loopback.pop_front() else {
                break;
            };
            self.dispatch(self.me, message);
        }
        for ghost in std::mem::take(&mut self.ghosts) {
            let handle = GroupHandle(self.next_handle);
            self.next_handle += 1;
            self.groups
                .insert(handle, Group::of_ghost(handle, self.now, ghost));
        }
        if self.floors.len() > MAX_FLOORS {
            self.floors.pop_first();
        }
        if self.sent.len() > MAX_FLOORS
            && let Some((_, (next, _))) = self.sent.pop_first()
        {
            self.sent_elsewhere = self.sent_elsewhere.max(next);
        }
    }

    fn forget_over(&mut self) {
        for handle in self.over.drain(..) {
            self.groups.remove(&handle);
            self.by_id.retain(|_, known| *known != handle);
        }
    }

    /// The group with this id. A node that left it and has joined it again is a member first.
    fn find(&mut self, id: GroupId) -> Option<GroupHandle> {
        let member = |group: &Group| group.id() == Some(id) && !matches!(group.phase, Phase::Ghost { .. });
        if let Some(handle) = self.by_id.get(&id)
            && self.groups.get(handle).is_some_and(member)
        {
            return Some(*handle);
        }
        self.by_id.remove(&id);
        if let Some(group) = self.groups.values().find(|group| member(group)) {
            self.by_id.insert(id, group.handle);
            return Some(group.handle);
        }
        self.groups
            .values()
            .find(|group| group.id() == Some(id))
            .map(|group| group.handle)
    }

    /// The group of this name, unless this node has left it.
    fn named(&self, name: &str) -> Option<GroupHandle> {
        let wanted = |group: &&Group| group.name == name && !matches!(group.phase, Phase::Ghost { .. });
        self.groups.values().find(wanted).map(|group| group.handle)
    }
}

fn data_group(record: &GroupData) -> GroupId {
    match record {
        GroupData::Batch { group, .. }
        | GroupData::Orders { group, .. }
        | GroupData::Ack { group, .. }
        | GroupData::Nak { group, .. }
        | GroupData::OrderNak { group, .. }
        | GroupData::Pull { group, .. }
        | GroupData::Repair { group, .. }
        | GroupData::PullOrders { group, .. }
        | GroupData::RepairOrders { group, .. }
        | GroupData::Token { group, .. }
        | GroupData::TokenHeld { group, .. }
        | GroupData::Offer { group, .. }
        | GroupData::Want { group, .. }
        | GroupData::Chunk { group, .. }
        | GroupData::Held { group, .. }
        | GroupData::Tell { group, .. }
        | GroupData::TellAck { group, .. }
        | GroupData::Rows { group, .. } => *group,
    }
}
