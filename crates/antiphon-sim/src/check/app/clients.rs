//! Clients of members: G51.
//!
//! ```text
//!  programs:  Enters ─► Entered ─► View (joined) ─► Hears, View … ─► Gone
//!                                    │ the same views, and the same between two of them, at every member
//! ```
//! The checker knows what each client was told and what programs did, and nothing of changes and lists.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use antiphon_core::wire::{GroupViewId, Incarnation};
use antiphon_replica::clients::{ClientId, ClientView, ClientViewId, Departure};

use crate::agenda::Micros;
use crate::check::{History, Report};
use crate::trace::{ClientDeed, GroupIndex, Heard, ProcessId, Seen};

/// What a client was told in a view, and the view that followed.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Told {
    Said(ClientId, u64),
    Next(ClientViewId),
}

/// What a member's clients are to be told when the member is told it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Word {
    Transitional,
    Suspended,
}

/// A client that is in: its last view, and what it was told in that view. A member that is cut off may tell
/// its clients what no other member tells, before it knows. Only clients that go on to the next view have
/// been told the same.
#[derive(Debug, Default)]
struct Stream {
    view: Option<ClientViewId>,
    within: Vec<Told>,
    heard: BTreeSet<u64>,
    /// What its member was told in that view of the group, and this client not yet.
    owed: BTreeSet<Word>,
}

/// A process while the trace is read.
#[derive(Debug, Default)]
struct Host {
    me: Option<Incarnation>,
    streams: BTreeMap<u32, Stream>,
    /// The group's own last view, and the transitional notice that it was told in each.
    group: Option<GroupViewId>,
    notices: BTreeMap<GroupViewId, Vec<Incarnation>>,
    asked_to_leave: BTreeSet<u32>,
    /// What its clients said that are in, by client.
    open: BTreeMap<u32, BTreeSet<u64>>,
}

#[derive(Debug, Default)]
struct Reading {
    hosts: BTreeMap<ProcessId, Host>,
    /// The members of each view of the group.
    members: BTreeMap<GroupViewId, Vec<Incarnation>>,
    /// Each view, as it was told first.
    views: BTreeMap<ClientViewId, Arc<ClientView>>,
    within: BTreeMap<ClientViewId, Vec<Told>>,
    said: BTreeMap<u64, ClientId>,
}

pub(super) fn check(history: &History<'_>, report: &mut Report) {
    let lines = &history.trace.lines;
    let groups: BTreeSet<GroupIndex> = lines
        .iter()
        .filter_map(|line| match &line.what {
            Seen::Client(group, _) => Some(*group),
            _ => None,
        })
        .collect();
    for group in groups {
        let mut reading = Reading::default();
        for line in lines {
            let found = match &line.what {
                Seen::Client(of, deed) if *of == group => reading.read(line.process, deed),
                Seen::Group(of, heard) if *of == group => {
                    reading.learn(line.process, heard);
                    Ok(())
                }
                Seen::Ended(_) => {
                    reading.hosts.remove(&line.process);
                    Ok(())
                }
                _ => Ok(()),
            };
            let process = line.process;
            report.check("G51", line.at, found.is_ok(), || {
                format!("p{process}: {}", found.unwrap_err())
            });
        }
        let end = lines.last().map_or(0, |line| line.at);
        if !history.at_rest {
            continue;
        }
        reading.compare_at_rest(end, report);
        for (process, host) in &reading.hosts {
            for (number, open) in &host.open {
                report.check("G51", end, open.is_empty(), || {
                    format!("p{process}: client {number} said {open:?}, and was never told it")
                });
            }
        }
    }
}

type Checked = Result<(), String>;

fn ensure(holds: bool, otherwise: impl FnOnce() -> String) -> Checked {
    if holds { Ok(()) } else { Err(otherwise()) }
}

impl Reading {
    fn host(&mut self, process: ProcessId) -> &mut Host {
        self.hosts.entry(process).or_default()
    }

    /// What the member itself is told: its clients follow.
    fn learn(&mut self, process: ProcessId, heard: &Heard) {
        let host = self.hosts.entry(process).or_default();
        let word = match heard {
            Heard::View(view) => {
                host.group = Some(view.id);
                self.members.insert(view.id, view.members.clone());
                return;
            }
            Heard::Transitional(members) => {
                host.notices
                    .extend(host.group.map(|view| (view, members.clone())));
                Word::Transitional
            }
            Heard::Suspended => Word::Suspended,
            _ => return,
        };
        for stream in host.streams.values_mut() {
            // A client that has not come so far yet is told when its member reads so far.
            if stream.view.is_some() && stream.view.map(|view| view.group) == host.group {
                stream.owed.insert(word);
            }
        }
    }

    /// At rest nothing more comes in the last view: all its clients have been told the same.
    fn compare_at_rest(&self, end: Micros, report: &mut Report) {
        let mut within: BTreeMap<ClientViewId, &Vec<Told>> = BTreeMap::new();
        for (process, host) in &self.hosts {
            for (number, stream) in &host.streams {
                let Some(view) = stream.view else { continue };
                let first = *within.entry(view).or_insert(&stream.within);
                report.check("G51", end, *first == stream.within, || {
                    let differs = differs(first, &stream.within);
                    format!("p{process}: at rest in view {view} client {number} was told {differs}")
                });
            }
        }
    }

    fn read(&mut self, process: ProcessId, deed: &ClientDeed) -> Checked {
        let host = self.host(process);
        match deed {
            ClientDeed::Is(me) => {
                host.me = Some(*me);
                host.streams.clear();
                host.open.clear();
                Ok(())
            }
            ClientDeed::Enters(number) => {
                host.asked_to_leave.remove(number);
                Ok(())
            }
            ClientDeed::Leaves(number) => {
                host.asked_to_leave.insert(*number);
                Ok(())
            }
            ClientDeed::Entered(number) => {
                let before = host.streams.insert(*number, Stream::default());
                ensure(before.is_none(), || format!("client {number} comes in twice"))
            }
            ClientDeed::Gone(number, departure) => {
                host.streams.remove(number);
                host.open.remove(number);
                let asked = host.asked_to_leave.contains(number);
                ensure(asked || *departure != Departure::Left, || {
                    format!("client {number} has left, and did not want to")
                })
            }
            ClientDeed::Says { number, op } => {
                let node = host.me.ok_or("a client of nobody speaks")?;
                host.open.entry(*number).or_default().insert(*op);
                self.said.insert(
                    *op,
                    ClientId {
                        node,
                        number: *number,
                    },
                );
                Ok(())
            }
            ClientDeed::NotDelivered(op) => {
                for open in host.open.values_mut() {
                    open.remove(op);
                }
                Ok(())
            }
            ClientDeed::View(view) => self.view(process, view),
            ClientDeed::Transitional(members) => self.transitional(process, members),
            ClientDeed::Suspended => {
                for stream in host.streams.values_mut() {
                    stream.owed.remove(&Word::Suspended);
                }
                Ok(())
            }
            ClientDeed::Hears { from, view, op } => self.hears(process, *from, *view, *op),
            ClientDeed::Wrong(wrong) => Err(wrong.clone()),
        }
    }

    fn view(&mut self, process: ProcessId, view: &Arc<ClientView>) -> Checked {
        let first = self.views.entry(view.id).or_insert_with(|| view.clone());
        ensure(first == view, || {
            format!("view {} is told as {view:?}, and as {first:?}", view.id)
        })?;
        let host = self.hosts.entry(process).or_default();
        let me = host.me.ok_or("a view is told to nobody")?;
        let own = view.members.iter().filter(|client| client.id.node == me);
        let own: BTreeSet<u32> = own.map(|client| client.id.number).collect();
        ensure(own.iter().eq(host.streams.keys()), || {
            format!(
                "view {} has the clients {own:?} of {me:?}, and {:?} are in",
                view.id,
                host.streams.keys()
            )
        })?;
        let members = self.members.get(&view.id.group).map_or(&[][..], Vec::as_slice);
        let stranger = view
            .members
            .iter()
            .find(|client| !members.contains(&client.id.node));
        ensure(stranger.is_none(), || {
            format!(
                "view {} has a client of a node that is not in the group: {stranger:?}",
                view.id
            )
        })?;
        for (client, departure) in &view.departed {
            let back = view.members.iter().any(|other| other.id == client.id);
            ensure(!back, || {
                format!("view {} has {client:?}, which is gone", view.id)
            })?;
            if *departure == Departure::Left {
                let asked = self.hosts.values().any(|host| {
                    host.me == Some(client.id.node) && host.asked_to_leave.contains(&client.id.number)
                });
                let lives = self.hosts.values().any(|host| host.me == Some(client.id.node));
                ensure(asked || !lives, || {
                    format!("{client:?} has left, and did not want to")
                })?;
            }
        }
        let host = self.hosts.entry(process).or_default();
        for (number, stream) in &mut host.streams {
            let id = ClientId {
                node: me,
                number: *number,
            };
            let is_new = view.joined.iter().any(|client| client.id == id);
            ensure(is_new == stream.view.is_none(), || {
                format!(
                    "view {} is the first of {id:?}: {}, which it says to be new: {is_new}",
                    view.id,
                    stream.view.is_none()
                )
            })?;
            if let Some(before) = stream.view {
                ensure(before < view.id, || format!("view {} follows {before}", view.id))?;
                ensure(before.group == view.id.group || stream.owed.is_empty(), || {
                    format!("in view {before} client {number} is not told {:?}", stream.owed)
                })?;
                if let Some(before) = self.views.get(&before) {
                    changes(before, view)?;
                }
                stream.within.push(Told::Next(view.id));
                let first = self.within.entry(before).or_insert_with(|| stream.within.clone());
                ensure(*first == stream.within, || {
                    let differs = differs(first, &stream.within);
                    format!("in view {before} client {number} is told {differs}")
                })?;
            }
            stream.view = Some(view.id);
            stream.within.clear();
        }
        Ok(())
    }

    /// The notice names the clients of the view whose nodes the group's own notice names.
    fn transitional(&mut self, process: ProcessId, members: &[ClientId]) -> Checked {
        let host = self.hosts.entry(process).or_default();
        let (views, notices) = (&self.views, &host.notices);
        for (number, stream) in &mut host.streams {
            stream.owed.remove(&Word::Transitional);
            let Some(view) = stream.view.and_then(|view| views.get(&view)) else {
                continue;
            };
            let nodes = notices.get(&view.id.group).ok_or_else(|| {
                format!(
                    "client {number} is told that view {} ends, its member is not",
                    view.id
                )
            })?;
            let clients = view.members.iter().map(|client| client.id);
            let due: BTreeSet<_> = clients.filter(|client| nodes.contains(&client.node)).collect();
            ensure(due == members.iter().copied().collect(), || {
                format!(
                    "the notice in view {} names {members:?}, and {due:?} go on together",
                    view.id
                )
            })?;
        }
        Ok(())
    }

    fn hears(&mut self, process: ProcessId, from: ClientId, view: ClientViewId, op: u64) -> Checked {
        let told = self
            .views
            .get(&view)
            .ok_or_else(|| format!("view {view} was never told"))?;
        let is_in = told.members.iter().any(|client| client.id == from);
        ensure(is_in, || {
            format!("{from:?} speaks in view {view}, and is not in it")
        })?;
        ensure(self.said.get(&op) == Some(&from), || {
            format!("{from:?} never said {op}")
        })?;
        let host = self.hosts.entry(process).or_default();
        if host.me == Some(from.node)
            && let Some(open) = host.open.get_mut(&from.number)
        {
            open.remove(&op);
        }
        for (number, stream) in &mut host.streams {
            ensure(stream.view == Some(view), || {
                format!(
                    "client {number} is told {op} in view {view}, and its view is {:?}",
                    stream.view
                )
            })?;
            ensure(stream.heard.insert(op), || {
                format!("client {number} is told {op} twice")
            })?;
            stream.within.push(Told::Said(from, op));
        }
        Ok(())
    }
}

/// What the other was told first that one was not told.
fn differs(one: &[Told], other: &[Told]) -> String {
    let same = one.iter().zip(other).take_while(|(one, other)| one == other);
    let place = same.count();
    format!("{:?}, and another {:?}", other.get(place), one.get(place))
}

/// A view names all clients that came and went since the view before, and no others.
fn changes(before: &ClientView, view: &ClientView) -> Checked {
    let ids = |view: &ClientView| -> BTreeSet<ClientId> {
        let members = view.members.iter();
        members.map(|client| client.id).collect()
    };
    let (old, new) = (ids(before), ids(view));
    let gone: BTreeSet<_> = view.departed.iter().map(|(client, _)| client.id).collect();
    let came: BTreeSet<_> = view.joined.iter().map(|client| client.id).collect();
    ensure(gone == &old - &new && came == &new - &old, || {
        format!(
            "view {} says that {gone:?} are gone and {came:?} joined: {old:?} became {new:?}",
            view.id
        )
    })
}
