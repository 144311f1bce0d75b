//! An application with clients: the shipping `Clients` between the node and programs that come, say something
//! and go.
//!
//! ```text
//!  node ── events of the group, receipts ──► unread ──► Clients ──► what each client is told
//!   ▲                                                    │ ▲
//!   └── outbox ◄── changes, lists ───────────────────────┘ └─────── programs: enter, leave
//!   └── outbox ◄── what clients say, behind the number of the client ◄── programs
//! ```
//! As in the library, programs do not wait for the task that reads the group: what they say is sent at once,
//! also while views are unread. After the application has left, nothing is read any more; all ends when the
//! group is left.

use std::ops::Range;

use antiphon_core::Outcome;
use antiphon_core::wire::Level;
use antiphon_replica::clients::{BundleWriter, ClientId, ClientViewId, Clients, Departure, Event as Told};

use super::driven::{BETWEEN_WAKES, Unread, bare};
use super::*;
use crate::plan::Hosting as HostingPlan;
use crate::trace::ClientDeed;

/// The clients of a member, and what is around them.
pub(in crate::world) struct Hosting {
    clients: Clients,
    unread: Unread,
    receipts: VecDeque<(Sent, Outcome)>,
    /// What was sent and has no fate, by ticket.
    sent: BTreeMap<u64, Sent>,
    /// Clients that want to be in, or are.
    wanted: BTreeSet<u32>,
    /// Clients that are in.
    inside: BTreeSet<u32>,
    acts_at: Micros,
    pub(super) wakes_at: Micros,
}

#[derive(Debug, Clone, Copy)]
enum Sent {
    /// By the machine.
    Machine(u64),
    /// By a client: these numbers, one or a bundle.
    Said { first: u64, count: u64 },
}

impl World {
    /// Whether the members of this group have clients.
    pub(crate) fn hosts_clients(&self, group: GroupIndex) -> bool {
        self.plan.hosting.as_ref().is_some_and(|it| it.group == group)
    }

    /// The application joins the group.
    pub(super) fn begin_hosting(&mut self, id: ProcessId, group: GroupIndex) {
        if !self.hosts_clients(group) {
            return;
        }
        let me = self.processes[id].node.incarnation();
        self.note(id, Seen::Client(group, ClientDeed::Is(me)));
        self.processes[id].hosting = Some(Hosting {
            clients: Clients::new(me),
            unread: Unread::default(),
            receipts: VecDeque::new(),
            sent: BTreeMap::new(),
            wanted: BTreeSet::new(),
            inside: BTreeSet::new(),
            acts_at: self.now,
            wakes_at: Micros::MAX,
        });
    }

    pub(super) fn give_clients(&mut self, id: ProcessId, given: Given) {
        if let Some(it) = &mut self.processes[id].hosting {
            it.unread.add(given);
        }
    }

    /// What became of messages to all.
    pub(super) fn give_receipts_of_clients(
        &mut self,
        id: ProcessId,
        group: GroupIndex,
        first: u64,
        count: u64,
        outcome: Outcome,
    ) {
        if !self.hosts_clients(group) {
            return;
        }
        if let Some(it) = &mut self.processes[id].hosting {
            for ticket in first..first + count {
                let sent = it.sent.remove(&ticket);
                it.receipts.extend(sent.map(|sent| (sent, outcome)));
            }
        }
    }

    /// The task and the programs do what is due. Whether there was anything.
    pub(super) fn host(&mut self, id: ProcessId) -> bool {
        let Some(plan) = self.plan.hosting.clone() else {
            return false;
        };
        let process = &mut self.processes[id];
        let left = process.uses.get(&plan.group).is_none_or(|usage| usage.left);
        let Some(mut it) = process
            .hosting
            .take_if(|_| process.ended.is_none() && !process.stalled)
        else {
            return false;
        };
        let mut any = false;
        if !left {
            any |= self.read_for_clients(id, &plan, &mut it);
            any |= self.let_programs_act(id, &plan, &mut it);
            any |= self.send_for_clients(id, &plan, &mut it);
            any |= self.tell_clients(id, plan.group, &mut it);
        }
        if it.acts_at != Micros::MAX && !left {
            let at = it.acts_at.max(self.now + BETWEEN_WAKES);
            if at < it.wakes_at {
                it.wakes_at = at;
                self.agenda.add(at, Happening::Wake(id));
            }
        }
        self.processes[id].hosting = Some(it);
        any
    }

    fn read_for_clients(&mut self, id: ProcessId, plan: &HostingPlan, it: &mut Hosting) -> bool {
        let leased = self.processes[id].leased;
        let mut any = false;
        loop {
            // As in the library, either may come first.
            if (it.receipts.is_empty() || self.random.percent(50))
                && let Some(given) = it.unread.next(leased)
            {
                self.read_given_for_clients(id, plan.group, it, given);
            } else if let Some((sent, outcome)) = it.receipts.pop_front() {
                match sent {
                    Sent::Machine(number) => {
                        if outcome != Outcome::Delivered {
                            self.count("change_not_delivered");
                        }
                        it.clients.handle_receipt(number, outcome);
                    }
                    Sent::Said { first, count } if outcome != Outcome::Delivered => {
                        self.count("said_not_delivered");
                        for op in first..first + count {
                            self.note(id, Seen::Client(plan.group, ClientDeed::NotDelivered(op)));
                        }
                    }
                    Sent::Said { .. } => {}
                }
            } else if it.receipts.is_empty() {
                return any;
            } else {
                continue;
            }
            any = true;
            self.tell_clients(id, plan.group, it);
        }
    }

    fn read_given_for_clients(&mut self, id: ProcessId, group: GroupIndex, it: &mut Hosting, given: Given) {
        match given {
            Given::View(view) => it.clients.handle_view(&view),
            Given::Message(sender, bytes) => it.clients.handle_message(sender, &bare(&bytes)),
            Given::Transitional(members) => it.clients.handle_transitional(&members),
            Given::Suspended => it.clients.handle_suspended(),
            Given::Void(me, cause) => {
                it.sent.retain(|_, sent| matches!(sent, Sent::Said { .. }));
                it.clients.handle_resync(me, &cause);
                self.tell_clients(id, group, it);
                self.note(id, Seen::Client(group, ClientDeed::Is(me)));
                it.inside.clear();
            }
            Given::Told(..) | Given::Resumed | Given::Lease(_) => {}
        }
    }

    /// Programs come, go and say something.
    fn let_programs_act(&mut self, id: ProcessId, plan: &HostingPlan, it: &mut Hosting) -> bool {
        if it.acts_at > self.now {
            return false;
        }
        it.acts_at = self.now + self.random.range(plan.every / 2, 2 * plan.every);
        if !self.loaded {
            it.acts_at = Micros::MAX;
            return false;
        }
        match self.random.below(10) {
            0..3 if it.wanted.len() < plan.most => match it.clients.enter("program") {
                Ok(number) => {
                    it.wanted.insert(number);
                    self.note(id, Seen::Client(plan.group, ClientDeed::Enters(number)));
                }
                Err(refusal) => {
                    let what = format!("a client is refused: {refusal}");
                    self.note(id, Seen::Client(plan.group, ClientDeed::Wrong(what)));
                }
            },
            3 | 4 if !it.wanted.is_empty() => {
                let index = self.random.index(it.wanted.len());
                let number = it.wanted.iter().nth(index).copied();
                if let Some(number) = number {
                    it.wanted.remove(&number);
                    self.note(id, Seen::Client(plan.group, ClientDeed::Leaves(number)));
                    it.clients.leave(number, Departure::Left);
                }
            }
            _ => self.say_for_client(id, it),
        }
        true
    }

    fn say_for_client(&mut self, id: ProcessId, it: &mut Hosting) {
        // As the library's handles: what the member sends is for a membership that it knows of.
        if it.inside.is_empty() || it.unread.has_void() {
            return;
        }
        let index = self.random.index(it.inside.len());
        let Some(number) = it.inside.iter().nth(index).copied() else {
            return;
        };
        let count = if self.random.percent(25) {
            self.random.range(1, 4)
        } else {
            0
        };
        let first = self.numbers + 1;
        let ops = first..first + count.max(1);
        self.numbers = ops.end - 1;
        let payload = match count {
            0 => it.clients.say(number, &first.to_le_bytes()),
            _ => {
                let mut bundle = BundleWriter::new(number);
                ops.clone().for_each(|op| bundle.push(&op.to_le_bytes()));
                it.clients.may_say(number).map(|()| bundle.said().to_vec())
            }
        };
        let Ok(payload) = payload else {
            return;
        };
        let level = if self.random.percent(20) {
            Level::Safe
        } else {
            Level::Agreed
        };
        self.say(id, it, number, ops, (level, &payload));
    }

    /// A client says something, if the group takes it. Whether it does.
    fn say(
        &mut self,
        id: ProcessId,
        it: &mut Hosting,
        number: u32,
        ops: Range<u64>,
        (level, payload): (Level, &[u8]),
    ) -> bool {
        let Some(group) = self.plan.hosting.as_ref().map(|plan| plan.group) else {
            return false;
        };
        let Some((_, ticket)) = self.send_driven(id, group, level, payload) else {
            return false;
        };
        let (first, count) = (ops.start, ops.end - ops.start);
        it.sent.insert(ticket, Sent::Said { first, count });
        for op in ops {
            self.note(id, Seen::Client(group, ClientDeed::Says { number, op }));
        }
        self.hand_over_driven(id, group);
        true
    }

    /// All clients that are in, with their members.
    pub(crate) fn clients_inside(&self) -> Vec<(Slot, u32)> {
        let hosts = self.live_slots().into_iter().filter_map(|slot| {
            let it = self.processes[self.process_at(slot)?].hosting.as_ref()?;
            Some(it.inside.iter().map(move |number| (slot, *number)))
        });
        hosts.flatten().collect()
    }

    /// At rest: a client says one thing.
    ///
    /// # Errors
    /// Why it may not.
    pub(crate) fn say_at_rest(&mut self, slot: Slot, number: u32) -> Result<(), String> {
        let id = self.process_at(slot).ok_or("its process has ended")?;
        let mut it = self.processes[id]
            .hosting
            .take()
            .ok_or("its member has no clients")?;
        let op = self.numbers + 1;
        self.numbers = op;
        let said = match it.clients.say(number, &op.to_le_bytes()) {
            Ok(payload) => match self.say(id, &mut it, number, op..op + 1, (Level::Agreed, &payload)) {
                true => Ok(()),
                false => Err("the group takes nothing".to_owned()),
            },
            Err(refusal) => Err(refusal.to_string()),
        };
        self.processes[id].hosting = Some(it);
        self.drive(id);
        said
    }

    /// Sends what there is room for.
    fn send_for_clients(&mut self, id: ProcessId, plan: &HostingPlan, it: &mut Hosting) -> bool {
        if it.unread.has_void() {
            return false;
        }
        let mut taken = None;
        it.clients.outputs(|wanted| {
            let level = if wanted.safe { Level::Safe } else { Level::Agreed };
            taken = self
                .send_driven(id, plan.group, level, &wanted.payload)
                .map(|(_, ticket)| (ticket, wanted.number));
            taken.is_some()
        });
        let Some((ticket, number)) = taken else {
            return false;
        };
        it.sent.insert(ticket, Sent::Machine(number));
        self.hand_over_driven(id, plan.group);
        true
    }

    fn tell_clients(&mut self, id: ProcessId, group: GroupIndex, it: &mut Hosting) -> bool {
        let mut any = false;
        while let Some(told) = it.clients.poll_event() {
            any = true;
            let deed = match told {
                Told::Entered { number } => {
                    it.inside.insert(number);
                    ClientDeed::Entered(number)
                }
                Told::Gone { number, departure } => {
                    it.inside.remove(&number);
                    it.wanted.remove(&number);
                    ClientDeed::Gone(number, departure)
                }
                Told::View(view) => {
                    self.count("client_views");
                    ClientDeed::View(view)
                }
                Told::Message { from, view, payload } => self.heard_by_clients(from.id, view, &payload),
                Told::Resync { .. } => {
                    self.count("clients_over");
                    continue;
                }
                Told::Bundle { from, view, messages } => {
                    self.count("client_bundles");
                    for payload in messages {
                        let deed = self.heard_by_clients(from.id, view, &payload);
                        self.note(id, Seen::Client(group, deed));
                    }
                    continue;
                }
                Told::Transitional { members } => {
                    ClientDeed::Transitional(members.iter().map(|client| client.id).collect())
                }
                Told::Suspended => ClientDeed::Suspended,
                Told::Malformed { from, what } => {
                    ClientDeed::Wrong(format!("{from:?} sent something else than {what}"))
                }
            };
            self.note(id, Seen::Client(group, deed));
        }
        any
    }

    fn heard_by_clients(&mut self, from: ClientId, view: ClientViewId, payload: &[u8]) -> ClientDeed {
        let Ok(op) = payload.try_into() else {
            return ClientDeed::Wrong(format!("{from:?} said something else"));
        };
        self.count("client_messages");
        let op = u64::from_le_bytes(op);
        ClientDeed::Hears { from, view, op }
    }

    /// The group was left: all ends.
    pub(super) fn finish_hosting(&mut self, id: ProcessId, group: GroupIndex) {
        if !self.hosts_clients(group) {
            return;
        }
        if let Some(mut it) = self.processes[id].hosting.take() {
            it.clients.handle_end("left");
            self.tell_clients(id, group, &mut it);
        }
    }

    /// At rest: what is not as it should be, if anything is. All that want to be in are in.
    pub(crate) fn unsettled_clients(&self) -> Option<String> {
        let group = self.plan.hosting.as_ref()?.group;
        let slots = self.live_slots().into_iter();
        let mut wanting = slots.filter(|slot| self.wants_group(*slot, group));
        wanting.find_map(|slot| {
            let it = self.processes[self.process_at(slot)?].hosting.as_ref()?;
            (it.wanted != it.inside || !it.unread.is_empty() || !it.receipts.is_empty()).then(|| {
                format!(
                    "n{slot} at rest: the clients {:?} are in, and {:?} want to be",
                    it.inside, it.wanted
                )
            })
        })
    }
}
