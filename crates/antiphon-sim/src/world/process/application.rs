//! What the application on top of a process does: joins groups, sends at times, and takes messages.

use antiphon_core::outbox::Outbox;
use antiphon_core::wire::Level;
use antiphon_core::{GroupOptions, MAX_PAYLOAD_BYTES, Order, Outcome};

use super::*;
use crate::agenda::MILLIS;

/// For how long a driver may be busy with other things before it asks an application's outbox.
const MOST_BUSY: Micros = 2 * MILLIS;

/// An application's use of a group.
#[derive(Debug)]
pub(in crate::world) struct Usage {
    pub(in crate::world) handle: GroupHandle,
    /// What it has sent.
    pub(super) outbox: Outbox,
    pub(in crate::world) view: Option<Arc<GroupView>>,
    /// The application asked to leave; it may join again once it was told that it left.
    pub(in crate::world) left: bool,
    /// The node was told so, since it has all that was sent.
    pub(super) core_left: bool,
    pub(super) gone: bool,
    pub(super) rejoin: bool,
    pub(super) full: bool,
    /// Since a transitional notice, until the next view.
    pub(super) in_flush: bool,
    /// What the application was given and has not taken, in order.
    pub(super) given: VecDeque<Run>,
    /// Direct messages that the application was told and has not taken, by sender: how many, of how many
    /// bytes.
    pub(super) untaken: BTreeMap<Incarnation, (u64, usize)>,
    /// Members of the view that may be told no more before it is told that they may.
    pub(in crate::world) untellable: BTreeSet<Incarnation>,
    /// Per sender, the bytes of that.
    pub(super) unread: BTreeMap<Incarnation, usize>,
    /// The same of objects, which no window counts.
    pub(super) unread_objects: BTreeMap<Incarnation, usize>,
    /// The most that was noted of the core's memory, and of the untaken messages of one sender.
    pub(super) noted: (usize, usize),
    /// The view that was noted last, and the members that it lost meanwhile.
    pub(super) roll: Option<(GroupViewId, Vec<Incarnation>)>,
}

/// Messages of one sender that were delivered together.
#[derive(Debug)]
pub(super) struct Run {
    sender: Incarnation,
    messages: u64,
    bytes: usize,
    is_object: bool,
}

impl Usage {
    /// The application takes so many of the runs that it was given; how many messages that is.
    fn take(&mut self, runs: usize) -> u64 {
        let mut messages = 0;
        for run in self.given.drain(..runs) {
            let unread = if run.is_object {
                &mut self.unread_objects
            } else {
                &mut self.unread
            };
            if let Some(bytes) = unread.get_mut(&run.sender) {
                *bytes -= run.bytes;
                if *bytes == 0 {
                    unread.remove(&run.sender);
                }
            }
            messages += run.messages;
        }
        messages
    }

    fn new(handle: GroupHandle, options: &GroupOptions) -> Self {
        Self {
            handle,
            outbox: Outbox::new(options),
            view: None,
            left: false,
            core_left: false,
            gone: false,
            rejoin: false,
            full: false,
            in_flush: false,
            given: VecDeque::new(),
            untaken: BTreeMap::new(),
            untellable: BTreeSet::new(),
            unread: BTreeMap::new(),
            unread_objects: BTreeMap::new(),
            noted: (0, 0),
            roll: None,
        }
    }
}

impl World {
    pub(in crate::world) fn join_group(&mut self, id: ProcessId, group: GroupIndex) {
        let plan = &self.plan.groups[group];
        let (name, options) = (plan.name.clone(), plan.options);
        self.join_named(id, group, &name, options);
    }

    pub(super) fn join_named(&mut self, id: ProcessId, group: GroupIndex, name: &str, options: GroupOptions) {
        let replicates = self.replicates(group);
        let process = &mut self.processes[id];
        if process.ended.is_some() || process.leaving {
            return;
        }
        if let Some(usage) = process.uses.get_mut(&group).filter(|usage| !usage.gone) {
            let leaves = process.replica.as_ref().is_some_and(|it| it.leaves);
            usage.rejoin = usage.left || leaves && replicates;
            return;
        }
        let now = process.clock.local(self.now);
        match process.node.join_group(now, name, options) {
            Ok(handle) => {
                process.handles.insert(handle, group);
                process.uses.insert(group, Usage::new(handle, &options));
                self.note(
                    id,
                    Seen::AskedToJoin {
                        group,
                        name: name.to_owned(),
                        options,
                    },
                );
                self.begin_replica(id, group);
                self.begin_calls(id, group);
                self.begin_hosting(id, group);
            }
            // It still serves others from its last membership: join later.
            Err(_) if process.uses.contains_key(&group) => {
                self.count("join_refused");
                self.agenda.add(self.now + 100_000, Happening::Rejoin(id, group));
            }
            Err(error) => self.note(id, Seen::Contract(format!("joining {name} was refused: {error}"))),
        }
        self.drive(id);
    }

    /// The application's next message, if it can send one.
    pub(in crate::world) fn tick(&mut self, id: ProcessId) {
        let every = self.plan.load.every;
        if self.processes[id].ended.is_some() || every == 0 {
            return;
        }
        let again = self.now + every / 2 + self.random.below(every) + 1;
        self.agenda.add(again, Happening::Tick(id));
        let process = &self.processes[id];
        if process.gate == Gate::Paused || process.leaving || !self.loaded {
            return;
        }
        // A tenth of the tries go to groups that should refuse: that they do is a guarantee too.
        let eager = self.random.percent(10);
        let able = |usage: &&Usage| !usage.left && (eager || (usage.view.is_some() && !usage.full));
        let groups: Vec<GroupIndex> = process
            .uses
            .iter()
            .filter(|(group, usage)| able(usage) && !self.is_driven(**group))
            .map(|(group, _)| *group)
            .collect();
        if groups.is_empty() {
            return;
        }
        let group = *self.random.pick(&groups);
        // Some at a time: they share a block, and what is lost or repaired is part of one. Now and then many:
        // windows fill.
        let burst = match self.random.below(100) {
            0..3 => 16 + self.random.below(32),
            3..20 => 2 + self.random.below(7),
            _ => 1,
        };
        for _ in 0..burst {
            let scope = self.a_scope(group);
            let load = &self.plan.load;
            let objects = load.object_percent > 0 && scope.is_none();
            let bytes = if objects && self.random.percent(load.object_percent) {
                load.object_bytes
            } else if self.random.percent(load.large_percent) {
                load.large_bytes
            } else {
                load.bytes
            };
            let safe = load.safe_percent;
            let payload = self.payload(bytes);
            let level = if safe > 0 && self.random.percent(safe) {
                Level::Safe
            } else {
                Level::Agreed
            };
            // A refusal is on the record; the application gives this message up, and those after it.
            if self.offer(id, group, level, scope, payload).is_err() {
                break;
            }
        }
        let tells = self.plan.load.tell_percent;
        if tells > 0 && self.random.percent(tells) {
            self.tell_somebody(id, group);
        }
        // The driver comes round at once, or has other things to do: what is sent meanwhile goes with this.
        if self.random.percent(30) {
            let later = self.now + 1 + self.random.below(MOST_BUSY);
            self.agenda.add(later, Happening::Input(id, Input::Sends(group)));
            return;
        }
        self.hand_over(id, group);
        self.drive(id);
    }

    /// The scope of the next message: one of a few, so that each has some messages on their way.
    pub(super) fn a_scope(&mut self, group: GroupIndex) -> Option<u32> {
        let scoped = self.plan.groups[group].options.order == Order::Scoped;
        scoped.then(|| self.random.below(5) as u32)
    }

    /// Random bytes: no two messages are alike.
    pub(crate) fn payload(&mut self, bytes: usize) -> Bytes {
        let mut payload = Vec::with_capacity(bytes + 8);
        while payload.len() < bytes {
            payload.extend_from_slice(&self.random.next_u64().to_le_bytes());
        }
        payload.truncate(bytes.max(8));
        payload.into()
    }

    /// Whether it is how far an object is, as it must be: not beyond its end.
    pub(super) fn hear_progress(&mut self, event: &GroupEvent) -> bool {
        let GroupEvent::Progress { bytes, length, .. } = event else {
            return false;
        };
        self.count("object_progress");
        bytes <= length
    }

    pub(super) fn hear_messages(&mut self, id: ProcessId, group: GroupIndex, messages: Messages) {
        let last = messages.first + messages.len().saturating_sub(1);
        let mut in_flush = false;
        let largest = MAX_PAYLOAD_BYTES.min(self.plan.groups[group].options.window_bytes as usize);
        if let Some(usage) = self.processes[id].uses.get_mut(&group) {
            if let Some(first) = messages.ticket {
                usage.outbox.settle(first, messages.len(), Outcome::Delivered);
            }
            in_flush = usage.in_flush;
            let bytes: usize = messages.block.iter().map(<[u8]>::len).sum();
            let is_object = messages.len() == 1 && bytes > largest;
            let unread = if is_object {
                &mut usage.unread_objects
            } else {
                &mut usage.unread
            };
            *unread.entry(messages.sender).or_default() += bytes;
            usage.given.push_back(Run {
                sender: messages.sender,
                messages: messages.len(),
                bytes,
                is_object,
            });
        }
        let level = messages.block.level();
        let (view, sender) = (messages.view, messages.sender);
        for message in messages {
            self.note(
                id,
                Seen::Group(group, Heard::Message(delivery(&message, largest))),
            );
            self.give(id, group, Given::Message(sender, message.payload));
        }
        if level == Level::Safe && !in_flush {
            self.look_who_holds(id, group, view, sender, last);
        }
    }

    pub(super) fn hear_group(&mut self, id: ProcessId, group: GroupIndex, event: GroupEvent) -> Seen {
        if matches!(event, GroupEvent::View(_)) {
            self.view_dooms(id);
        }
        let me = self.processes[id].node.incarnation();
        match &event {
            GroupEvent::View(view) => self.give(id, group, Given::View(view.clone())),
            GroupEvent::Suspended => self.give(id, group, Given::Suspended),
            GroupEvent::Writable => self.give(id, group, Given::Resumed),
            GroupEvent::Resync { cause } => self.give(id, group, Given::Void(me, cause.clone())),
            GroupEvent::Left if self.replicates(group) => self.processes[id].replica = None,
            GroupEvent::Left if self.has_calls(group) => self.finish_calls(id, group),
            GroupEvent::Left if self.hosts_clients(group) => self.finish_hosting(id, group),
            GroupEvent::Transitional { members } if self.hosts_clients(group) => {
                self.give(id, group, Given::Transitional(members.clone()));
            }
            GroupEvent::TellReceipts {
                to,
                first,
                count,
                outcome,
            } if self.has_calls(group) => self.give_receipts(id, *to, *first, *count, outcome),
            GroupEvent::Receipts {
                first,
                count,
                outcome,
            } => {
                self.give_receipts_of_all(id, group, first.0, *count, *outcome);
                self.give_receipts_of_clients(id, group, first.0, *count, *outcome);
            }
            _ => {}
        }
        let Some(usage) = self.processes[id].uses.get_mut(&group) else {
            return Seen::Contract(format!("an event of a group that was never used: {event:?}"));
        };
        let heard = match event {
            GroupEvent::View(view) => {
                usage.view = Some(view.clone());
                usage.in_flush = false;
                let stays = |to: &Incarnation| view.members.contains(to) && !view.joined.contains(to);
                usage.untellable.retain(stays);
                Heard::View(view)
            }
            GroupEvent::Transitional { members } => {
                usage.in_flush = true;
                Heard::Transitional(members)
            }
            GroupEvent::Suspended => {
                usage.view = None;
                Heard::Suspended
            }
            GroupEvent::Resync { cause } => {
                usage.view = None;
                usage.untellable.clear();
                Heard::Resync(cause)
            }
            GroupEvent::Receipts {
                first,
                count,
                outcome,
            } => {
                usage.outbox.settle(first, count, outcome);
                Heard::Receipts {
                    first: first.0,
                    count,
                    outcome,
                }
            }
            GroupEvent::TellReceipts {
                to,
                first,
                count,
                outcome,
            } => Heard::TellReceipts {
                to,
                first: first.0,
                count,
                outcome,
            },
            GroupEvent::TellWritable { to } => {
                usage.untellable.remove(&to);
                Heard::TellWritable(to)
            }
            GroupEvent::Writable => Heard::Writable,
            GroupEvent::Refused { reason } => Heard::Refused(reason),
            GroupEvent::Left => {
                usage.left = true;
                usage.gone = true;
                usage.view = None;
                Heard::Left
            }
            other => return Seen::Contract(format!("an event the simulator does not know: {other:?}")),
        };
        Seen::Group(group, heard)
    }

    /// The application takes what it was given, unless it is stalled; where it reads in parts, some of it, or
    /// nothing until something else happens.
    pub(super) fn consume(&mut self, id: ProcessId) -> bool {
        let process = &mut self.processes[id];
        if process.stalled {
            return false;
        }
        let now = process.clock.local(self.now);
        let mut any = false;
        for usage in process.uses.values_mut().filter(|usage| !usage.given.is_empty()) {
            let mut runs = usage.given.len();
            if self.plan.load.in_parts {
                runs = match self.random.percent(40) {
                    true => continue,
                    false => 1 + self.random.index(runs),
                };
            }
            any = true;
            let messages = usage.take(runs);
            process.node.consumed(now, usage.handle, messages);
        }
        any | self.take_told(id)
    }

    /// The application joins again what it has left, if it was told to meanwhile.
    pub(super) fn rejoin_groups(&mut self, id: ProcessId) {
        let ready = self.processes[id]
            .uses
            .iter_mut()
            .find(|(_, usage)| usage.gone && usage.rejoin);
        if let Some((group, usage)) = ready {
            usage.rejoin = false;
            let group = *group;
            self.join_group(id, group);
        }
    }
}

/// `largest` is what goes through a sender's log: of anything larger, that has only a record.
pub(super) fn delivery(message: &Message, largest: usize) -> Delivery {
    let numbers = if message.payload.len() > largest {
        1
    } else {
        Block::large(message.payload.clone()).places()
    };
    Delivery {
        view: message.view,
        sender: message.sender,
        seq: message.seq,
        numbers,
        payload: hash(&message.payload, 0),
        safe: message.level == Level::Safe,
        scope: message.scope,
        ticket: message.ticket.map(|ticket| ticket.0),
    }
}
