//! Clients of members, as members: processes that reach a group through another process.
//!
//! ```text
//!  client ── enter ──► member ── Change ──► group ──► each member: the same list of clients ── view ──► its clients
//!         ◄─ Entered ─┘     └──── Said ───► group ──► each member ── message ──► its clients
//! ```
//! The members of the group are nodes; each speaks for its own clients. [`Clients`] is one member's part:
//! a state machine over the group's total order, without I/O and without a clock.
//!
//! # Messages
//! | message | says | when |
//! |---|---|---|
//! | `Said` | what a client says | its client is in |
//! | `Bundle` | several things that a client says at once | its client is in |
//! | `Change` | clients of the sender that enter, and that leave | some wait, and no earlier change of the sender is under way |
//! | `Here` | all clients of the sender | a view has new members; never while a change of the sender is under way |
//!
//! # Who knows what
//! A member's clients are a function of what that member has sent, so each member keeps a list for each
//! other. One that is new in the group has no clients: `joined` of a view says so, and nobody has to tell.
//! What a new member does not know are the clients of those that were there before; each of these says `Here`
//! in that view, and the new member takes it in place of what it had of that sender. Until it has heard all
//! of them it lets no client in, and so tells none a list that is not whole.
//!
//! # What holds
//! - **Views of clients are agreed**: all clients that are in see the same views, and between two of them the
//!   same messages in the same order. For that a change is sent as a safe message: a member that is cut off
//!   delivers none that the others do not. What it delivers of other messages before it knows that it is cut
//!   off, no other may have: they are the last that its clients are told before [`Event::Resync`]. There is
//!   one with each view of the group, and one with each change. Its id is that of the group's view and how
//!   many changes were delivered in it, which every member can count, a new one too.
//! - **A client is in from its own view on**, which is the first that it is told, and until [`Event::Gone`],
//!   which is the last: what it says is delivered in between, and nothing else of it.
//! - **A message is delivered in the view that was told last before it.** Its sender may have had an earlier
//!   one when it spoke; the same holds of all that it had told before.
//! - **With its member a client goes**, at once and in the same view everywhere, with that member's cause.
//! - **A change is sent again** when the group says that it did not deliver it, or cannot say, and its sender
//!   is a member still: to enter or to leave twice changes nothing.
//!
//! # Bounds
//! A member has [`MAX_CLIENTS`] clients in a group; so a list fits one message. It has one change under way:
//! those that come meanwhile wait for the next, and a thousand that come at once make two views. A bundle has
//! up to [`MAX_BUNDLE`] messages.
//!
//! # Who dies when
//! | who | when | then |
//! |---|---|---|
//! | a client | before its change is sent | nobody ever hears of it |
//! | a client | its change is under way | it is in, for the members, until its next change |
//! | a client | later | its member's next change is without it |
//! | a member | before its `Here` | a new member forgets that it lacks it: the view without it took its clients |
//! | a new member | before it has heard all | it had no clients |
//! | a member | a change under way | the change is in the cut and delivered by all that survive, or by nobody |
//! | the primary is lost | any time | clients are told [`Event::Suspended`]; changes wait |
//! | this member is removed, or comes back | any time | its clients are told [`Event::Resync`], and enter again: others saw them go, with its incarnation or for a cause |

/// Whether this mistake was planted here: never, except in the simulator and, those that name the clients, in
/// tests of this crate.
macro_rules! planted {
    ($mistake:ident) => {{
        #[cfg(feature = "planted")]
        let planted = antiphon_core::planted::is(antiphon_core::planted::Bug::$mistake);
        #[cfg(not(feature = "planted"))]
        let planted = false;
        planted
    }};
    ($clients:expr, $mistake:ident) => {{
        #[cfg(test)]
        let planted = $clients.planted == Some(tests::Planted::$mistake);
        #[cfg(all(not(test), feature = "planted"))]
        let planted = antiphon_core::planted::is(antiphon_core::planted::Bug::$mistake);
        #[cfg(not(any(test, feature = "planted")))]
        let planted = false;
        planted
    }};
}

/// The same of mistakes that only the tests of this crate make.
macro_rules! planted_in_tests {
    ($clients:expr, $mistake:ident) => {{
        #[cfg(test)]
        let planted = $clients.planted == Some(tests::Planted::$mistake);
        #[cfg(not(test))]
        let planted = false;
        planted
    }};
}

mod bundle;
mod event;
mod format;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use antiphon_core::wire::{GroupViewId, Incarnation};
use antiphon_core::{GroupView, Outcome};
use bytes::Bytes;

pub use self::bundle::{Bundle, BundleWriter, MAX_BUNDLE};
pub use self::event::{Client, ClientId, ClientView, ClientViewId, Departure, Event, Output, Refusal};
use self::format::{Leaving, Listed, Named, Words};

/// The most clients of one member in one group.
pub const MAX_CLIENTS: usize = 1024;
/// The longest name of a client, in bytes.
pub const MAX_NAME_BYTES: usize = 64;
/// The longest cause of a departure, in bytes.
const MAX_CAUSE_BYTES: usize = 200;
/// What `Said` adds to a payload and `Bundle` to a bundle, at most.
pub const HEADER_BYTES: usize = 6;

/// One member's clients in a group, and what it knows of those of others.
///
/// The owner hands in what the group delivers, in its order. After each batch of inputs it calls
/// [`outputs`](Self::outputs) and takes [`events`](Self::poll_event); the same when the group has room again.
/// The group has to have a total order.
#[derive(Debug)]
pub struct Clients {
    me: Incarnation,
    /// None while this is no member.
    view: Option<GroupViewId>,
    /// Messages of the view that were changes.
    change: u32,
    /// What is known of each member of the view.
    rosters: BTreeMap<Incarnation, Roster>,
    /// Those of this member, by their numbers: in the group, or wanting to be.
    own: BTreeMap<u32, Own>,
    last_number: u32,
    under_way: Option<UnderWay>,
    last_sent: u64,
    /// New members are to be told who is here.
    here: bool,
    events: VecDeque<Event>,
    #[cfg(test)]
    planted: Option<tests::Planted>,
}

/// The clients of one member, as far as they are known.
#[derive(Debug)]
enum Roster {
    /// It has not said yet.
    Unknown,
    /// By their numbers, so by seniority.
    Known(BTreeMap<u32, Arc<Client>>),
}

/// A client of this member.
#[derive(Debug)]
struct Own {
    name: String,
    state: State,
    /// It is to leave.
    leaving: Option<Departure>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// It waits for a change.
    Outside,
    /// A change under way has it enter.
    Entering,
    In,
    /// A change under way has it leave.
    Leaving,
}

/// A message of this member that was sent, and has not been delivered.
#[derive(Debug)]
struct UnderWay {
    number: u64,
    /// Not a change.
    here: bool,
}

impl Clients {
    /// The clients of the member `me`, before its first view: none.
    pub fn new(me: Incarnation) -> Self {
        Self {
            me,
            view: None,
            change: 0,
            rosters: BTreeMap::new(),
            own: BTreeMap::new(),
            last_number: 0,
            under_way: None,
            last_sent: 0,
            here: false,
            events: VecDeque::new(),
            #[cfg(test)]
            planted: None,
        }
    }

    /// A client wants to be in. [`Event::Entered`] says when it is; after [`Event::Resync`] it comes again.
    ///
    /// # Errors
    /// [`Refusal::Name`], [`Refusal::Full`].
    pub fn enter(&mut self, name: &str) -> Result<u32, Refusal> {
        if !is_name(name) {
            return Err(Refusal::Name);
        }
        if self.own.len() >= MAX_CLIENTS {
            return Err(Refusal::Full);
        }
        // 4 billion clients of one process in one group.
        self.last_number = self.last_number.checked_add(1).ok_or(Refusal::Full)?;
        let own = Own {
            name: name.to_owned(),
            state: State::Outside,
            leaving: None,
        };
        self.own.insert(self.last_number, own);
        Ok(self.last_number)
    }

    /// A client is to be in no more. [`Event::Gone`] says when it is so, with the first departure that was
    /// given here; of a client that is out already nothing is said.
    pub fn leave(&mut self, number: u32, departure: Departure) {
        let Some(own) = self.own.get_mut(&number) else {
            return;
        };
        // One that was not made by `lost` may have a cause that no member could read.
        let departure = match departure {
            Departure::Lost { cause } => Departure::lost(cause),
            Departure::Left => Departure::Left,
        };
        let departure = own.leaving.get_or_insert(departure).clone();
        if own.state == State::Outside {
            self.own.remove(&number);
            self.events.push_back(Event::Gone { number, departure });
        }
    }

    /// What to send to the group for a client that says something.
    ///
    /// # Errors
    /// [`Refusal::NotIn`].
    pub fn say(&self, number: u32, payload: &[u8]) -> Result<Vec<u8>, Refusal> {
        self.may_say(number).map(|()| format::said(number, payload))
    }

    /// Whether a client may say something now. What it says at once is made by a [`BundleWriter`].
    ///
    /// # Errors
    /// [`Refusal::NotIn`].
    pub fn may_say(&self, number: u32) -> Result<(), Refusal> {
        match self.own.get(&number) {
            _ if planted!(SilenceAfterChange) && self.change > 0 => Err(Refusal::NotIn),
            Some(own) if own.state == State::In && own.leaving.is_none() => Ok(()),
            _ => Err(Refusal::NotIn),
        }
    }

    /// Whether a client of this member is in.
    pub fn is_in(&self, number: u32) -> bool {
        let own = self.own.get(&number);
        own.is_some_and(|own| matches!(own.state, State::In | State::Leaving))
    }

    /// Whether a client of this member is to come in, and is not in yet.
    pub fn is_entering(&self, number: u32) -> bool {
        let own = self.own.get(&number);
        own.is_some_and(|own| own.leaving.is_none() && matches!(own.state, State::Outside | State::Entering))
    }

    /// The group has a new view.
    pub fn handle_view(&mut self, view: &GroupView) {
        let is_new = |member: &Incarnation| view.joined.contains(member);
        let goes = |member: &Incarnation| !view.members.contains(member) || is_new(member);
        let gone: Vec<Incarnation> = self.rosters.keys().copied().filter(goes).collect();
        assert!(
            !gone.contains(&self.me),
            "who is removed is told so before the next view"
        );
        let mut departed = Vec::new();
        for member in gone {
            if planted!(self, KeepClientsOfDeparted) {
                continue;
            }
            if let Some(Roster::Known(clients)) = self.rosters.remove(&member) {
                let departure = departure(view, member);
                departed.extend(clients.into_values().map(|client| (client, departure.clone())));
            }
        }
        let first = self.view.is_none();
        for member in &view.members {
            // Before its own first view a member knows of those alone that are as new as it is.
            let unknown = first && !is_new(member) && *member != self.me && !planted!(self, KnowAtOnce);
            self.rosters.entry(*member).or_insert_with(|| match unknown {
                true => Roster::Unknown,
                false => Roster::Known(BTreeMap::new()),
            });
        }
        self.here |= !first && !view.joined.is_empty();
        self.view = Some(view.id);
        self.change = 0;
        if planted!(ClientsGoUnsaid) {
            departed.clear();
        }
        self.tell_view(Vec::new(), departed);
    }

    /// The group delivered a message to all. Also those of this member itself.
    pub fn handle_message(&mut self, sender: Incarnation, payload: &Bytes) {
        let Some(id) = self.id() else {
            return self.ignore(sender, "a message in a view");
        };
        match format::read(payload) {
            Some((Words::Said { number }, said)) => {
                let payload = payload.slice_ref(said);
                let message = |from| Event::Message {
                    from,
                    view: id,
                    payload,
                };
                self.take_said(sender, number, message);
            }
            Some((Words::Bundle { number }, said)) => match Bundle::read(payload.slice_ref(said)) {
                Some(mut messages) => {
                    if sender != self.me && messages.len() > 1 && planted!(self, LoseFirstOfBundle) {
                        messages.next();
                    }
                    let bundle = |from| Event::Bundle {
                        from,
                        view: id,
                        messages,
                    };
                    self.take_said(sender, number, bundle);
                }
                None => self.ignore(sender, "a bundle of messages"),
            },
            Some((Words::Change { enter, leave }, _)) => self.take_change(sender, enter, leave),
            Some((Words::Here(all), _)) => self.take_here(sender, all),
            None => self.ignore(sender, "something said, a change, or a list of clients"),
        }
    }

    /// A client said something: those of this member are told.
    fn take_said(&mut self, sender: Incarnation, number: u32, told: impl FnOnce(Arc<Client>) -> Event) {
        let Some(Roster::Known(clients)) = self.rosters.get(&sender) else {
            return;
        };
        match clients.get(&number) {
            Some(from) if self.has_own_in() => self.events.push_back(told(from.clone())),
            Some(_) => {}
            None => self.ignore(sender, "a message of a client that is in"),
        }
    }

    /// What became of a message of this member that the group did not deliver here.
    pub fn handle_receipt(&mut self, number: u64, outcome: Outcome) {
        if outcome == Outcome::Delivered {
            return;
        }
        let Some(lost) = self.under_way.take_if(|under_way| under_way.number == number) else {
            return;
        };
        if planted_in_tests!(self, ForgetTheUndelivered) {
            return;
        }
        self.here |= lost.here;
        self.undo();
    }

    /// What follows until the next view was completed among these members.
    pub fn handle_transitional(&mut self, members: &[Incarnation]) {
        if self.has_own_in()
            && let Some(mut all) = self.members()
        {
            all.retain(|client| members.contains(&client.id.node) || planted!(NoticeNamesAllClients));
            self.events.push_back(Event::Transitional { members: all });
        }
    }

    /// The primary was lost.
    pub fn handle_suspended(&mut self) {
        if self.has_own_in() {
            self.events.push_back(Event::Suspended);
        }
    }

    /// This member was removed, or is back as a fresh incarnation: the next view is its first.
    pub fn handle_resync(&mut self, me: Incarnation, cause: &str) {
        let were_in = self.has_own_in();
        self.me = me;
        self.view = None;
        self.change = 0;
        self.rosters.clear();
        self.under_way = None;
        self.here = false;
        let mut gone = Vec::new();
        self.own.retain(|number, own| {
            own.state = State::Outside;
            match own.leaving.take() {
                Some(departure) => {
                    gone.push((*number, departure));
                    false
                }
                None => true,
            }
        });
        for (number, departure) in gone {
            self.events.push_back(Event::Gone { number, departure });
        }
        if were_in {
            let cause = cause.to_owned();
            self.events.push_back(Event::Resync { cause });
        }
    }

    /// This member has left the group, was refused, or its node has stopped.
    pub fn handle_end(&mut self, cause: &str) {
        self.view = None;
        self.rosters.clear();
        self.under_way = None;
        for (number, own) in std::mem::take(&mut self.own) {
            let departure = own.leaving.unwrap_or_else(|| Departure::lost(cause));
            self.events.push_back(Event::Gone { number, departure });
        }
    }

    /// Hands out what is to be sent, as long as `send` takes it.
    pub fn outputs(&mut self, mut send: impl FnMut(Output) -> bool) {
        let waits = self.under_way.is_some() && !(self.here && planted!(self, ListDuringChange));
        if waits || self.view.is_none() {
            return;
        }
        let here = self.here;
        let Some(words) = (if here { self.list() } else { self.next_change() }) else {
            return;
        };
        let number = self.last_sent + 1;
        let payload = format::words(&words);
        // A list is for new members; nobody is shown it.
        let safe = !here && !planted!(self, ChangeUnsafely);
        if !send(Output {
            number,
            payload,
            safe,
        }) {
            return;
        }
        self.last_sent = number;
        self.under_way = Some(UnderWay { number, here });
        self.here = false;
        let Words::Change { enter, leave } = words else {
            return;
        };
        for (number, state) in (enter.iter().map(|named| (named.number, State::Entering)))
            .chain(leave.iter().map(|leaving| (leaving.number, State::Leaving)))
        {
            if let Some(own) = self.own.get_mut(&number) {
                own.state = state;
            }
        }
    }

    /// The next event, in order.
    pub fn poll_event(&mut self) -> Option<Event> {
        if planted!(KeepTheLastBack)
            && self.events.len() == 1
            && let Some(Event::Message { from, .. }) = self.events.front()
            && from.id.node != self.me
        {
            return None;
        }
        self.events.pop_front()
    }

    /// All clients of this member.
    fn list(&self) -> Option<Words> {
        let Some(Roster::Known(clients)) = self.rosters.get(&self.me) else {
            return None;
        };
        let listed = clients.iter().map(|(number, client)| Listed {
            named: Named {
                number: *number,
                name: client.name.clone(),
            },
            since: client.since.into(),
        });
        Some(Words::Here(listed.collect()))
    }

    /// Those that wait, once this member knows all clients.
    fn next_change(&self) -> Option<Words> {
        let known = |roster: &Roster| matches!(roster, Roster::Known(_));
        if !self.rosters.values().all(known) {
            return None;
        }
        let (mut enter, mut leave) = (Vec::new(), Vec::new());
        for (number, own) in &self.own {
            match (own.state, &own.leaving) {
                (State::Outside, None) => enter.push(Named {
                    number: *number,
                    name: own.name.clone(),
                }),
                (State::In, Some(departure)) => leave.push(Leaving {
                    number: *number,
                    departure: departure.clone(),
                }),
                _ => {}
            }
        }
        (!enter.is_empty() || !leave.is_empty()).then_some(Words::Change { enter, leave })
    }

    /// A change of this member was lost: those that it was about wait again.
    fn undo(&mut self) {
        let mut gone = Vec::new();
        self.own.retain(|number, own| {
            own.state = match own.state {
                State::Entering => State::Outside,
                State::Leaving => State::In,
                other => other,
            };
            match (own.state, &own.leaving) {
                (State::Outside, Some(departure)) => {
                    gone.push((*number, departure.clone()));
                    false
                }
                _ => true,
            }
        });
        for (number, departure) in gone {
            self.events.push_back(Event::Gone { number, departure });
        }
    }

    fn take_change(&mut self, sender: Incarnation, enter: Vec<Named>, leave: Vec<Leaving>) {
        // Also by one that does not know the sender's clients yet.
        if !planted!(self, CountTheKnownAlone) || matches!(self.rosters.get(&sender), Some(Roster::Known(_)))
        {
            self.change += 1;
        }
        let Some(id) = self.id() else { return };
        if sender == self.me {
            self.delivered(false);
        }
        let Some(Roster::Known(clients)) = self.rosters.get_mut(&sender) else {
            return;
        };
        let (mut joined, mut departed) = (Vec::new(), Vec::new());
        for Leaving { number, departure } in leave {
            departed.extend(clients.remove(&number).map(|client| (client, departure)));
        }
        for Named { number, name } in enter {
            // Numbers only grow: so the list of a member is by seniority.
            let last = clients.last_key_value().map_or(0, |(last, _)| *last);
            if clients.len() < MAX_CLIENTS && number > last {
                let client = Arc::new(Client {
                    id: ClientId { node: sender, number },
                    name,
                    since: id,
                });
                clients.insert(number, client.clone());
                joined.push(client);
            }
        }
        if sender == self.me {
            self.note_own(&joined, &departed);
        }
        // A change that was sent twice is counted twice, and seen once.
        if !joined.is_empty() || !departed.is_empty() {
            self.tell_view(joined, departed);
        }
    }

    /// What a change of this member did to its clients.
    fn note_own(&mut self, joined: &[Arc<Client>], departed: &[(Arc<Client>, Departure)]) {
        for (client, departure) in departed {
            let number = client.id.number;
            self.own.remove(&number);
            let departure = departure.clone();
            self.events.push_back(Event::Gone { number, departure });
        }
        for client in joined {
            let number = client.id.number;
            let own = self.own.get_mut(&number);
            own.expect("a client is kept until it is known to be out").state = State::In;
            self.events.push_back(Event::Entered { number });
        }
        let own_in = self.own.values().filter(|own| own.state == State::In).count();
        let listed = match self.rosters.get(&self.me) {
            Some(Roster::Known(clients)) => clients.len(),
            _ => 0,
        };
        assert_eq!(
            own_in, listed,
            "this member lists those of its clients that are in"
        );
    }

    fn take_here(&mut self, sender: Incarnation, all: Vec<Listed>) {
        if sender == self.me {
            return self.delivered(true);
        }
        let clients = all.into_iter().map(|listed| {
            let Named { number, name } = listed.named;
            let client = Client {
                id: ClientId { node: sender, number },
                name,
                since: listed.since.into(),
            };
            (number, Arc::new(client))
        });
        let clients: BTreeMap<u32, Arc<Client>> = clients.collect();
        match self.rosters.get_mut(&sender) {
            Some(roster @ Roster::Unknown) => *roster = Roster::Known(clients),
            Some(Roster::Known(known)) if *known == clients => {}
            _ => self.ignore(sender, "the list of its clients as they were told"),
        }
    }

    /// The message of this member that was under way was delivered.
    fn delivered(&mut self, here: bool) {
        let was = self.under_way.take();
        assert!(
            was.is_some_and(|was| was.here == here),
            "a member has one message of its own under way, and it is delivered as it was sent"
        );
    }

    fn tell_view(&mut self, joined: Vec<Arc<Client>>, departed: Vec<(Arc<Client>, Departure)>) {
        if !self.has_own_in() {
            return;
        }
        let (Some(id), Some(members)) = (self.id(), self.members()) else {
            unreachable!("no client is in before this member knows all of them");
        };
        let view = ClientView {
            id,
            members,
            joined,
            departed,
        };
        self.events.push_back(Event::View(Arc::new(view)));
    }

    fn id(&self) -> Option<ClientViewId> {
        let change = self.change;
        self.view.map(|group| ClientViewId { group, change })
    }

    /// By seniority; none while some are not known.
    fn members(&self) -> Option<Vec<Arc<Client>>> {
        let mut all = Vec::new();
        for roster in self.rosters.values() {
            match roster {
                Roster::Known(clients) => all.extend(clients.values().cloned()),
                Roster::Unknown => return None,
            }
        }
        all.sort_by_key(|client| (client.since, client.id));
        Some(all)
    }

    fn has_own_in(&self) -> bool {
        match self.rosters.get(&self.me) {
            Some(Roster::Known(clients)) => !clients.is_empty(),
            _ => false,
        }
    }

    fn ignore(&mut self, from: Incarnation, what: &'static str) {
        self.events.push_back(Event::Malformed { from, what });
    }
}

/// Why the clients of a member are gone that is gone.
fn departure(view: &GroupView, member: Incarnation) -> Departure {
    if view.left.contains(&member) {
        return Departure::lost("its node left the group");
    }
    let cause = view.causes.iter().find(|(of, _)| *of == member);
    Departure::lost(match cause {
        Some((_, cause)) => format!("its node was removed: {cause}"),
        None => "its node crashed or was cut off".to_owned(),
    })
}

fn is_name(name: &str) -> bool {
    (1..=MAX_NAME_BYTES).contains(&name.len()) && !name.chars().any(char::is_control)
}
