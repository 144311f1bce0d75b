//! The trace, sorted by process, incarnation, group and view.

use std::collections::BTreeMap;
use std::sync::Arc;

use antiphon_core::wire::{Cause, GroupId, GroupViewId, Incarnation, Lineage, Member, NodeView, ViewId};
use antiphon_core::{BallotNote, GroupView, Outcome, TellOutcome};

use crate::agenda::Micros;
use crate::trace::{Delivery, Ending, GroupIndex, Heard, Inside, ProcessId, Seen, Settled, Slot, Trace};

/// Everything the checkers look at.
#[derive(Debug)]
pub struct History<'a> {
    /// What it was made of.
    pub trace: &'a Trace,
    /// Whether the run ended at rest.
    pub at_rest: bool,
    /// The processes of our cluster; foreign ones are left out.
    pub processes: BTreeMap<ProcessId, Facts>,
    /// One per incarnation, in the order they began.
    pub lives: Vec<Life>,
    /// Where each incarnation's life is.
    pub by_incarnation: BTreeMap<Incarnation, usize>,
    /// Which lineage each one went on from that an operator had founded, or a component by itself.
    pub parents: BTreeMap<Lineage, Lineage>,
    /// What each did about the ballots of each slot, in order.
    pub ballots: BTreeMap<(Lineage, ViewId), Vec<(Micros, BallotNote)>>,
    /// What cannot belong anywhere: group events before the first view, and the like.
    pub misplaced: Vec<(Micros, &'static str, String)>,
}

/// What the simulator knows of a process.
#[derive(Debug)]
pub struct Facts {
    /// Where it ran.
    pub slot: Slot,
    /// How it should appear in views.
    pub member: Member,
    /// How it ended, if it did.
    pub ended: Option<(Micros, Ending)>,
    /// When it was asked to leave the cluster.
    pub asked_to_leave: Option<Micros>,
    /// When it was asked to join a group.
    pub asked_to_join_group: Vec<(Micros, GroupIndex)>,
    /// When it was asked to leave a group.
    pub asked_to_leave_group: Vec<(Micros, GroupIndex)>,
    /// The receipts it got.
    pub receipts: Vec<(Micros, GroupIndex, u64, Outcome)>,
    /// The same of direct messages, with their receivers.
    pub tell_receipts: Vec<(Micros, GroupIndex, Incarnation, u64, TellOutcome)>,
}

/// One incarnation.
#[derive(Debug)]
pub struct Life {
    /// The process.
    pub process: ProcessId,
    /// Which.
    pub incarnation: Incarnation,
    /// When it began.
    pub from: Micros,
    /// How it ended.
    pub end: End,
    /// The node views it saw.
    pub views: Vec<(Micros, Arc<NodeView>)>,
    /// Its memberships of groups.
    pub stays: Vec<Stay>,
    /// What it sent, per group, in order.
    pub sends: BTreeMap<GroupIndex, Vec<Send>>,
    /// What it told others, in order.
    pub tells: Vec<Tell>,
    /// Where in `sends` each payload is.
    payloads: BTreeMap<(GroupIndex, u64), usize>,
    /// When it was told that it was expelled.
    pub expelled: Option<Micros>,
    /// When it was told that it believes in its view.
    pub believed: Vec<Micros>,
    /// Since when it does not believe in it, if it does not.
    pub lost_belief: Option<Micros>,
    /// When its lineage gave way to which other one.
    pub gave_way: Option<(Micros, Lineage)>,
    /// When an operator had it go on alone, and from what.
    pub recovered: Vec<(Micros, Lineage, ViewId)>,
}

/// How a life ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// It goes on.
    Open,
    /// Its process ended.
    Process(Micros, Ending),
    /// The same process went on as another incarnation.
    Succeeded(Micros),
}

/// A message that was sent.
#[derive(Debug, Clone)]
pub struct Send {
    /// When.
    pub at: Micros,
    /// Its ticket.
    pub ticket: u64,
    /// The hash of its bytes.
    pub payload: u64,
    /// Whether it was to be safe.
    pub safe: bool,
    /// Its scope.
    pub scope: Option<u32>,
    /// Whether it is an object: messages pass it.
    pub object: bool,
    /// The stay in which it was sent.
    pub stay: usize,
    /// The epoch of that stay.
    pub epoch: usize,
    /// How many messages the sender had delivered in that epoch before.
    pub after: usize,
}

/// A direct message as it was told.
#[derive(Debug, Clone)]
pub struct Tell {
    /// When.
    pub at: Micros,
    /// Of which group.
    pub group: GroupIndex,
    /// The receiver.
    pub to: Incarnation,
    /// Its ticket.
    pub ticket: u64,
    /// The hash of its bytes.
    pub payload: u64,
    /// The stay in which it was told.
    pub stay: usize,
    /// The epoch of that stay.
    pub epoch: usize,
}

/// One membership of a group, from its first view on.
#[derive(Debug)]
pub struct Stay {
    /// Which group of the plan.
    pub group: GroupIndex,
    /// Its identity.
    pub key: GroupKey,
    /// The views, and what was delivered in each.
    pub epochs: Vec<Epoch>,
    /// How it ended.
    pub end: StayEnd,
    /// When it did, unless that was with the life.
    pub ended: Option<Micros>,
    /// Whether it ended while the node held back what it had taken: it did not believe in its view.
    pub held_back: bool,
}

/// How a membership ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StayEnd {
    /// With the life, or not at all.
    Open,
    /// The application left.
    Left,
    /// The state became void.
    Resync,
}

/// A group's identity across lineages: where one goes on from another by an operator's word, its groups go
/// on, too.
pub(super) type GroupKey = (Lineage, GroupId);

/// A view's identity across components: two components may make views of one group with the same id.
pub(super) type ViewKey = (Lineage, GroupId, GroupViewId);

/// A view, and what was delivered in it.
#[derive(Debug)]
pub struct Epoch {
    /// The lineage of the node view that it was made in.
    pub lineage: Lineage,
    /// The view.
    pub view: Arc<GroupView>,
    /// When it was installed.
    pub at: Micros,
    /// What was delivered in it, in order.
    pub log: Vec<Delivery>,
    /// When each was.
    pub times: Vec<Micros>,
    /// After how many of them the transitional notice came, and its members.
    pub transitional: Option<(usize, Vec<Incarnation>)>,
    /// What it was told directly, and when.
    pub told: Vec<(Micros, Delivery)>,
    /// When the primary was lost in it.
    pub suspended: Option<Micros>,
}

impl Epoch {
    /// Its identity.
    pub fn key(&self) -> (Lineage, GroupId, GroupViewId) {
        (self.lineage, self.view.group, self.view.id)
    }

    /// What was delivered before the flush.
    pub fn regular(&self) -> &[Delivery] {
        match &self.transitional {
            Some((count, _)) => &self.log[..*count],
            None => &self.log,
        }
    }
}

impl Life {
    /// The lineage it belongs to, once it saw a view.
    pub fn lineage(&self) -> Option<Lineage> {
        self.views.first().map(|(_, view)| view.lineage)
    }

    /// The primary views it saw.
    pub fn primaries(&self) -> impl Iterator<Item = &(Micros, Arc<NodeView>)> {
        self.views.iter().filter(|(_, view)| view.is_primary())
    }

    /// Whether it goes on at the end of the run.
    pub fn is_open(&self) -> bool {
        self.end == End::Open
    }
}

impl<'a> History<'a> {
    /// Sorts a trace.
    pub fn new(trace: &'a Trace) -> Self {
        let mut history = Self {
            trace,
            at_rest: trace.settled == Settled::AtRest,
            processes: BTreeMap::new(),
            lives: Vec::new(),
            by_incarnation: BTreeMap::new(),
            parents: parents(trace),
            ballots: BTreeMap::new(),
            misplaced: Vec::new(),
        };
        let mut current: BTreeMap<ProcessId, usize> = BTreeMap::new();
        for line in &trace.lines {
            if let Seen::Started {
                slot,
                member,
                foreign: false,
            } = &line.what
            {
                history.processes.insert(
                    line.process,
                    Facts {
                        slot: *slot,
                        member: member.clone(),
                        ended: None,
                        asked_to_leave: None,
                        asked_to_join_group: Vec::new(),
                        asked_to_leave_group: Vec::new(),
                        receipts: Vec::new(),
                        tell_receipts: Vec::new(),
                    },
                );
            }
            if !history.processes.contains_key(&line.process) {
                continue;
            }
            if let Seen::Incarnation(incarnation) = &line.what {
                if let Some(life) = current.get(&line.process) {
                    history.lives[*life].end = End::Succeeded(line.at);
                }
                let index = history.lives.len();
                current.insert(line.process, index);
                if history.by_incarnation.insert(*incarnation, index).is_some() {
                    let what = format!("incarnation {} began twice", incarnation.short());
                    history.misplaced.push((line.at, "incarnations", what));
                }
                history.lives.push(Life {
                    process: line.process,
                    incarnation: *incarnation,
                    from: line.at,
                    end: End::Open,
                    views: Vec::new(),
                    stays: Vec::new(),
                    sends: BTreeMap::new(),
                    tells: Vec::new(),
                    payloads: BTreeMap::new(),
                    expelled: None,
                    believed: Vec::new(),
                    lost_belief: None,
                    gave_way: None,
                    recovered: Vec::new(),
                });
                continue;
            }
            history.add(
                line.at,
                line.process,
                &line.what,
                current.get(&line.process).copied(),
            );
        }
        history
    }

    fn add(&mut self, at: Micros, process: ProcessId, what: &Seen, life: Option<usize>) {
        let Some(facts) = self.processes.get_mut(&process) else {
            return;
        };
        match what {
            Seen::Ended(ending) => {
                facts.ended = Some((at, *ending));
                if let Some(life) = life {
                    self.lives[life].end = End::Process(at, *ending);
                }
                return;
            }
            Seen::Inside(Inside::Ballot(note)) => {
                let slot = (note.slot.lineage, note.slot.next);
                self.ballots.entry(slot).or_default().push((at, note.clone()));
                return;
            }
            Seen::AskedToLeave => facts.asked_to_leave = Some(at),
            Seen::AskedToJoin { group, .. } => facts.asked_to_join_group.push((at, *group)),
            Seen::AskedToLeaveGroup(group) => facts.asked_to_leave_group.push((at, *group)),
            Seen::Group(
                group,
                Heard::Receipts {
                    first,
                    count,
                    outcome,
                },
            ) => {
                let tickets = *first..first + count;
                facts
                    .receipts
                    .extend(tickets.map(|ticket| (at, *group, ticket, *outcome)));
            }
            Seen::Group(
                group,
                Heard::TellReceipts {
                    to,
                    first,
                    count,
                    outcome,
                },
            ) => {
                let tickets = *first..first + count;
                let receipts = tickets.map(|ticket| (at, *group, *to, ticket, outcome.clone()));
                facts.tell_receipts.extend(receipts);
            }
            _ => {}
        }
        let Some(life) = life.map(|life| &mut self.lives[life]) else {
            if matches!(what, Seen::NodeView(_) | Seen::Group(..) | Seen::Expelled(_)) {
                self.misplaced.push((
                    at,
                    "incarnations",
                    format!("{what:?} before the first incarnation"),
                ));
            }
            return;
        };
        match what {
            Seen::NodeView(view) => life.views.push((at, view.clone())),
            Seen::Lease(true) => {
                life.believed.push(at);
                life.lost_belief = None;
            }
            Seen::Lease(false) => life.lost_belief = Some(at),
            Seen::Expelled(cause) => {
                life.expelled = Some(at);
                life.gave_way = gave_way_to(cause).map(|into| (at, into));
            }
            Seen::Recovered(lineage, view) => life.recovered.push((at, *lineage, *view)),
            Seen::Sent {
                group,
                ticket,
                payload,
                safe,
                scope,
                object,
            } => match open_stay(life, *group) {
                Some(stay) => {
                    let epoch = life.stays[stay].epochs.len() - 1;
                    let after = life.stays[stay].epochs[epoch].log.len();
                    let send = Send {
                        at,
                        ticket: *ticket,
                        payload: *payload,
                        safe: *safe,
                        scope: *scope,
                        object: *object,
                        stay,
                        epoch,
                        after,
                    };
                    let sends = life.sends.entry(*group).or_default();
                    life.payloads.entry((*group, *payload)).or_insert(sends.len());
                    sends.push(send);
                }
                None => {
                    let what =
                        format!("p{process} was allowed to send to group {group} without a view of it");
                    self.misplaced.push((at, "G3", what));
                }
            },
            Seen::Tells {
                group,
                to,
                ticket,
                payload,
            } => match open_stay(life, *group) {
                Some(stay) => life.tells.push(Tell {
                    at,
                    group: *group,
                    to: *to,
                    ticket: *ticket,
                    payload: *payload,
                    stay,
                    epoch: life.stays[stay].epochs.len() - 1,
                }),
                None => {
                    let what =
                        format!("p{process} was allowed to tell in group {group} without a view of it");
                    self.misplaced.push((at, "G3", what));
                }
            },
            Seen::Group(group, heard) => {
                if let Some(misplaced) = hear(life, &self.parents, at, *group, heard) {
                    self.misplaced.push(misplaced);
                }
            }
            _ => {}
        }
    }

    /// What an incarnation sent to a group with these bytes.
    pub fn sent(&self, life: &Life, group: GroupIndex, payload: u64) -> Option<Send> {
        let index = *life.payloads.get(&(group, payload))?;
        life.sends.get(&group)?.get(index).cloned()
    }

    /// The life of an incarnation.
    pub fn life(&self, incarnation: Incarnation) -> Option<&Life> {
        self.by_incarnation
            .get(&incarnation)
            .map(|index| &self.lives[*index])
    }

    /// How a life is called in messages: the place, the process, the incarnation.
    pub fn name(&self, life: &Life) -> String {
        let slot = self
            .processes
            .get(&life.process)
            .map_or(usize::MAX, |facts| facts.slot);
        format!("n{slot}/p{}/{}", life.process, life.incarnation.short())
    }

    /// Each membership of each group, with the life it belongs to.
    pub fn stays(&self) -> impl Iterator<Item = (&Life, &Stay)> {
        self.lives
            .iter()
            .flat_map(|life| life.stays.iter().map(move |stay| (life, stay)))
    }
}

/// What the first views of lineages say.
fn parents(trace: &Trace) -> BTreeMap<Lineage, Lineage> {
    let views = trace.lines.iter().filter_map(|line| match &line.what {
        Seen::NodeView(view) => Some(view),
        _ => None,
    });
    let left = |view: &NodeView| view.overrides().or(view.separates());
    let following = views.filter_map(|view| Some((view.lineage, left(view)?.0)));
    following.filter(|(new, old)| new != old).collect()
}

/// The lineage that this one goes on from in the end. No more steps than there are lineages: what views say
/// need not make sense.
fn first_of(lineage: Lineage, parents: &BTreeMap<Lineage, Lineage>) -> Lineage {
    let step = |at: Lineage, _: &Lineage| parents.get(&at).copied().unwrap_or(at);
    parents.keys().fold(lineage, step)
}

/// The membership that goes on, of a group that has a view.
fn open_stay(life: &Life, group: GroupIndex) -> Option<usize> {
    life.stays
        .iter()
        .rposition(|stay| stay.group == group)
        .filter(|stay| life.stays[*stay].end == StayEnd::Open)
}

fn hear(
    life: &mut Life,
    parents: &BTreeMap<Lineage, Lineage>,
    at: Micros,
    group: GroupIndex,
    heard: &Heard,
) -> Option<(Micros, &'static str, String)> {
    let who = format!("p{}/{}", life.process, life.incarnation.short());
    let open = open_stay(life, group);
    match heard {
        Heard::View(view) => {
            let Some(lineage) = life.views.last().map(|(_, view)| view.lineage) else {
                return Some((at, "G3", format!("{who} saw a group view before any node view")));
            };
            let key = (first_of(lineage, parents), view.group);
            // Each lineage of one life has an epoch of its own.
            let of_epoch = |node: &&(Micros, Arc<NodeView>)| node.1.primary_id().epoch == view.id.node.epoch;
            let made_in = life
                .views
                .iter()
                .rev()
                .find(of_epoch)
                .map_or(lineage, |(_, node)| node.lineage);
            let stay = match open {
                Some(stay) if life.stays[stay].key == key => stay,
                Some(stay) => {
                    // Another group of the same name without being told that the state is void.
                    life.stays[stay].end = StayEnd::Resync;
                    life.stays[stay].ended = Some(at);
                    life.stays.push(Stay {
                        group,
                        key,
                        epochs: Vec::new(),
                        end: StayEnd::Open,
                        ended: None,
                        held_back: false,
                    });
                    push_epoch(life.stays.last_mut()?, made_in, at, view);
                    return Some((
                        at,
                        "resync",
                        format!("{who} was moved to another group {} unsaid", view.name),
                    ));
                }
                None => {
                    life.stays.push(Stay {
                        group,
                        key,
                        epochs: Vec::new(),
                        end: StayEnd::Open,
                        ended: None,
                        held_back: false,
                    });
                    life.stays.len() - 1
                }
            };
            push_epoch(&mut life.stays[stay], made_in, at, view);
        }
        Heard::Message(message) => {
            let Some(stay) = open else {
                return Some((
                    at,
                    "G3",
                    format!(
                        "{who} got message {}#{} without a view",
                        message.sender.short(),
                        message.seq
                    ),
                ));
            };
            let epoch = life.stays[stay].epochs.last_mut()?;
            epoch.log.push(*message);
            epoch.times.push(at);
        }
        Heard::Told(message) => {
            let Some(stay) = open else {
                let sender = message.sender.short();
                let what = format!("{who} was told #{} by {sender} without a view", message.seq);
                return Some((at, "G3", what));
            };
            life.stays[stay].epochs.last_mut()?.told.push((at, *message));
        }
        Heard::Transitional(members) => {
            let Some(stay) = open else {
                return Some((
                    at,
                    "G17",
                    format!("{who} got a transitional notice without a view"),
                ));
            };
            let epoch = life.stays[stay].epochs.last_mut()?;
            if epoch.transitional.is_some() {
                return Some((
                    at,
                    "G17",
                    format!("{who} got a second transitional notice in {}", epoch.view.id),
                ));
            }
            epoch.transitional = Some((epoch.log.len(), members.clone()));
        }
        Heard::Suspended => {
            if let Some(stay) = open {
                life.stays[stay].epochs.last_mut()?.suspended = Some(at);
            }
        }
        Heard::Resync(_) => {
            if let Some(stay) = open {
                life.stays[stay].end = StayEnd::Resync;
                life.stays[stay].ended = Some(at);
            }
        }
        Heard::Left => {
            if let Some(stay) = open {
                life.stays[stay].end = StayEnd::Left;
                life.stays[stay].ended = Some(at);
                life.stays[stay].held_back = life.lost_belief.is_some();
            }
        }
        Heard::Receipts { .. }
        | Heard::Writable
        | Heard::TellReceipts { .. }
        | Heard::TellWritable(_)
        | Heard::Refused(_) => {}
    }
    None
}

fn push_epoch(stay: &mut Stay, lineage: Lineage, at: Micros, view: &Arc<GroupView>) {
    stay.epochs.push(Epoch {
        lineage,
        view: view.clone(),
        at,
        log: Vec::new(),
        times: Vec::new(),
        transitional: None,
        told: Vec::new(),
        suspended: None,
    });
}

/// A view's members for a message.
pub(super) fn names(view: &NodeView) -> String {
    let names: Vec<String> = view
        .members
        .iter()
        .map(|member| format!("{}/{}", member.name, member.incarnation.short()))
        .collect();
    format!("[{}]", names.join(" "))
}

/// Whether a view says that it begins a lineage of its own with some members of another view, and gives up
/// the others for this cause.
pub(super) fn begins_anew(old: &NodeView, new: &NodeView, cause: &Cause) -> bool {
    let (before, after) = (old.primary_id(), new.primary_id());
    let old_ones = old.members.iter();
    let left = old_ones.filter(|member| !new.contains(member.incarnation));
    new.lineage != old.lineage
        && (after.epoch, after.counter) == (before.epoch + 1, 1)
        && new.number > old.number
        && new.joined.is_empty()
        && new.departed.iter().all(|departure| departure.cause == *cause)
        && left.eq(new.departed.iter().map(|departure| &departure.member))
}

/// Where an application was told that its lineage gave way, to which.
pub(super) fn gave_way_to(cause: &str) -> Option<Lineage> {
    let (_, lineage) = cause.split_once(" gave way to ")?;
    u128::from_str_radix(lineage.trim(), 16).ok().map(Lineage)
}
