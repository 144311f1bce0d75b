//! Lifelines: a proof of death that carries the last vote (R2, R9).
//!
//! ```text
//!   watched process                                   watching member
//!   Open ──► Opened ──► Hello(4-tuple, votes) ───────► agrees with what the socket shows?
//!   promise or acceptance ──► Vote(votes) ───────────► remembered
//!     … and only then does the vote travel in a frame
//!   leave decided ──► Goodbye ───────────────────────► from here on a FIN proves nothing
//!   process exit ──► the kernel sends FIN ───────────► certificate: dead, and this was its last vote
//!   anything else ──► reset ─────────────────────────► a suspicion
//! ```
//!
//! Only the exit of a process gives a FIN: every close by code is a reset. TCP delivers the records before
//! the FIN, so the watching member knows every vote that can have gone anywhere. A lifeline that cannot take
//! a record is reset before the vote travels.
//!
//! Each dial has a number of its own, and the driver names that number in its answers. A lifeline may fail
//! while the news of its success is still on the way to the core, or the other way round. So news of an
//! earlier dial is ignored.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::SocketAddr;
use std::time::Duration;

use antiphon_wire::codec::{decode_all, encode_to_vec};
use antiphon_wire::membership::{Ballot, LifelineRecord, SlotMessage, VoteState};
use antiphon_wire::{Incarnation, NodeView};
use bytes::Bytes;

use crate::membership::monitor::rings::Rings;
use crate::membership::view::check;
use crate::{DialId, LifelineCommand, LifelineEnd, Time};

/// Up to this many members, everyone watches everyone.
const FULL_MESH: usize = 16;
/// In larger views without rings, this many successors by rank watch a member, and so does the elder.
const WATCHERS: usize = 8;
/// The pause between two dials grows to this many times the first pause, and no further: while a lifeline is
/// missing, a death is not proven.
const MOST_PATIENCE: u32 = 8;
/// At most this many inbound lifelines are looked at. The others prove nothing.
const MAX_INBOUND: usize = 1024;
/// At most this many deaths are kept until this node is a member.
const MAX_EARLY: usize = 16;

/// What this node knows of one member that watches it.
#[derive(Debug)]
struct Outbound {
    addr: SocketAddr,
    /// The latest attempt.
    dial: DialId,
    state: State,
    /// Failures in a row.
    failures: u32,
}

#[derive(Debug)]
enum State {
    Opening,
    Open,
    /// It failed; this node dials again then.
    Closed {
        retry: Time,
    },
}

#[derive(Debug)]
struct Inbound {
    writer: Incarnation,
    /// The writer's end.
    remote: SocketAddr,
    /// Whether both ends see the same connection. If not, something in between could have ended it.
    agrees: bool,
    goodbye: bool,
    vote: Option<VoteState>,
}

/// What a record on an inbound lifeline says.
#[derive(Debug)]
pub(crate) enum Said<'a> {
    /// All that its writer has voted.
    Voted(&'a VoteState),
    /// Its writer knows that it has left.
    Goodbye,
    /// Nothing that can be believed.
    Nothing,
}

impl<'a> Said<'a> {
    fn of(vote: &'a Option<VoteState>) -> Self {
        vote.as_ref().map_or(Said::Nothing, Said::Voted)
    }
}

/// What the end of an inbound lifeline means.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Ended {
    /// The process is gone, and this was its last vote.
    Dead { writer: Incarnation, vote: VoteState },
    /// Something broke.
    Broken { writer: Incarnation },
    /// Nothing follows from it.
    Nothing,
}

/// Both sides of this node's lifelines.
#[derive(Debug, Default)]
pub(crate) struct Lifelines {
    outbound: BTreeMap<Incarnation, Outbound>,
    dials: u64,
    inbound: BTreeMap<u64, Inbound>,
    /// Processes that ended while this node was no member, and the last vote of each.
    early: VecDeque<(Incarnation, VoteState)>,
    /// What the outbound lifelines show of this node's vote in the slot: the ballots promised and accepted
    /// last.
    shown: Ballots,
}

/// The ballots that a voter promised and accepted last.
type Ballots = (Option<Ballot>, Option<Ballot>);

/// The members that watch `me` in this view.
pub(crate) fn watchers(view: &NodeView, me: Incarnation, rings: &Rings) -> BTreeMap<Incarnation, SocketAddr> {
    let count = view.members.len();
    let rank = view.rank(me).unwrap_or(0);
    let observers = rings.observers(rank);
    view.members
        .iter()
        .enumerate()
        .filter(|(position, member)| member.incarnation != me && watches(count, rank, observers, *position))
        .map(|(_, member)| (member.incarnation, member.addr))
        .collect()
}

/// Whether the member at this position watches the member of this rank, in a view of `count` members.
pub(crate) fn watches(count: usize, rank: usize, observers: &[u16], position: usize) -> bool {
    match (count <= FULL_MESH, observers.is_empty()) {
        (true, _) => true,
        // An observer on the rings must be able to prove what it reports.
        (false, false) => observers.iter().any(|by| usize::from(*by) == position),
        (false, true) => position == 0 || (1..=WATCHERS).contains(&((position + count - rank) % count)),
    }
}

impl Lifelines {
    /// A primary view was installed: these shall watch me now. There is no vote in its slot yet.
    pub(crate) fn follow(
        &mut self,
        wanted: BTreeMap<Incarnation, SocketAddr>,
        commands: &mut Vec<LifelineCommand>,
    ) {
        self.shown = (None, None);
        let superfluous: BTreeSet<Incarnation> = self
            .outbound
            .keys()
            .filter(|to| !wanted.contains_key(to))
            .copied()
            .collect();
        for to in superfluous {
            if let Some(Outbound { dial, .. }) = self.outbound.remove(&to) {
                commands.push(LifelineCommand::Reset { dial });
            }
        }
        for (to, addr) in wanted {
            self.outbound.entry(to).or_insert_with(|| {
                let dial = next_dial(&mut self.dials);
                commands.push(LifelineCommand::Open { dial, to, addr });
                Outbound {
                    addr,
                    dial,
                    state: State::Opening,
                    failures: 0,
                }
            });
        }
    }

    /// The member that a dial was meant for, if this is the latest dial to it.
    fn present(&mut self, dial: DialId) -> Option<(Incarnation, &mut Outbound)> {
        self.outbound
            .iter_mut()
            .find(|(_, outbound)| outbound.dial == dial)
            .map(|(to, outbound)| (*to, outbound))
    }

    /// An outbound lifeline is connected: its first record tells all votes so far.
    pub(crate) fn opened(
        &mut self,
        dial: DialId,
        local: SocketAddr,
        remote: SocketAddr,
        vote: VoteState,
    ) -> Option<LifelineCommand> {
        let (_, outbound) = self.present(dial)?;
        // The dial has failed since. The driver may tell of both in either order.
        if !matches!(outbound.state, State::Opening) {
            return None;
        }
        outbound.state = State::Open;
        outbound.failures = 0;
        Some(write(dial, &LifelineRecord::Hello { local, remote, vote }))
    }

    /// An outbound lifeline is gone: it is dialled again with back-off. Returns the member that watched by
    /// it.
    pub(crate) fn failed(&mut self, now: Time, dial: DialId, retry: Duration) -> Option<Incarnation> {
        let (to, outbound) = self.present(dial)?;
        outbound.state = State::Closed {
            retry: now + retry * (1 << outbound.failures.min(MOST_PATIENCE.ilog2())),
        };
        outbound.failures += 1;
        Some(to)
    }

    /// The link of an outbound lifeline has failed, and another link works: the lifeline is dialled there at
    /// once. Until then a death is not proven.
    pub(crate) fn moved(&mut self, now: Time, dial: DialId) {
        if let Some((_, outbound)) = self.present(dial) {
            outbound.state = State::Closed { retry: now };
            outbound.failures = 0;
        }
    }

    /// Whether the end of this writer's process would be proven here: by a lifeline whose way `works`, as far
    /// as is known. A lifeline over a cut cable ends unnoticed.
    pub(crate) fn holds(&self, writer: Incarnation, works: impl Fn(SocketAddr) -> bool) -> bool {
        self.inbound.values().any(|inbound| {
            inbound.writer == writer
                && inbound.agrees
                && !inbound.goodbye
                && inbound.vote.is_some()
                && works(inbound.remote)
        })
    }

    /// Writes a record to every open lifeline.
    pub(crate) fn write_all(&self, record: &LifelineRecord) -> Vec<LifelineCommand> {
        self.outbound
            .values()
            .filter(|outbound| matches!(outbound.state, State::Open))
            .map(|outbound| write(outbound.dial, record))
            .collect()
    }

    /// R2: this node has voted, and its lifelines show that before any message does.
    pub(crate) fn vote(&mut self, vote: VoteState) -> Vec<LifelineCommand> {
        let accepted = vote.accepted.as_ref();
        self.shown = (vote.promised, accepted.map(|accepted| accepted.ballot));
        self.write_all(&LifelineRecord::Vote(vote))
    }

    /// R2: no message tells of a vote that the lifelines do not show.
    pub(crate) fn assert_show(&self, voted: Ballots, message: &SlotMessage) {
        let tells = matches!(
            message,
            SlotMessage::Promise { .. } | SlotMessage::Accepted { .. } | SlotMessage::Cast { .. }
        );
        assert!(
            !tells || self.shown == voted || planted!(),
            "R2: {message:?} tells of a vote in {voted:?}, and the lifelines show {:?}",
            self.shown
        );
    }

    /// Resets every lifeline that watches this incarnation: the incarnation ends, but its process does not.
    pub(crate) fn reset_all(&mut self) -> Vec<LifelineCommand> {
        std::mem::take(&mut self.outbound)
            .into_values()
            .map(|Outbound { dial, .. }| LifelineCommand::Reset { dial })
            .collect()
    }

    /// Dials again what is due.
    pub(crate) fn tick(&mut self, now: Time, commands: &mut Vec<LifelineCommand>) {
        for (to, outbound) in &mut self.outbound {
            if matches!(outbound.state, State::Closed { retry } if retry <= now) {
                outbound.state = State::Opening;
                // A late report of the last dial's end must not leave two lifelines side by side: only one
                // shows all votes.
                commands.push(LifelineCommand::Reset { dial: outbound.dial });
                outbound.dial = next_dial(&mut self.dials);
                commands.push(LifelineCommand::Open {
                    dial: outbound.dial,
                    to: *to,
                    addr: outbound.addr,
                });
            }
        }
    }

    pub(crate) fn next_deadline(&self) -> Option<Time> {
        self.outbound
            .values()
            .filter_map(|outbound| match outbound.state {
                State::Closed { retry } => Some(retry),
                State::Opening | State::Open => None,
            })
            .min()
    }

    /// A record arrived.
    pub(crate) fn record(
        &mut self,
        connection: u64,
        local: SocketAddr,
        remote: SocketAddr,
        sender: Incarnation,
        record: Bytes,
    ) -> Said<'_> {
        let Ok(record) = decode_all(record) else {
            return Said::Nothing;
        };
        match record {
            LifelineRecord::Hello {
                local: theirs,
                remote: mine,
                vote,
            } => {
                if self.inbound.contains_key(&connection)
                    || self.inbound.len() >= MAX_INBOUND
                    || !check::vote_is_sound(&vote)
                {
                    return Said::Nothing;
                }
                // R9: a proxy or address translation in between could end the connection by itself.
                let agrees = theirs == remote && mine == local;
                let inbound = Inbound {
                    writer: sender,
                    remote,
                    agrees,
                    goodbye: false,
                    vote: Some(vote),
                };
                assert!(
                    self.inbound.len() < MAX_INBOUND,
                    "R9: {} lifelines are watched",
                    self.inbound.len()
                );
                Said::of(&self.inbound.entry(connection).or_insert(inbound).vote)
            }
            LifelineRecord::Vote(vote) => {
                let Some(inbound) = self.known(connection, sender) else {
                    return Said::Nothing;
                };
                // A last vote that cannot be believed is none.
                inbound.vote = check::vote_is_sound(&vote).then_some(vote);
                Said::of(&inbound.vote)
            }
            LifelineRecord::Goodbye => {
                let Some(inbound) = self.known(connection, sender) else {
                    return Said::Nothing;
                };
                inbound.goodbye = true;
                Said::Goodbye
            }
            // Nobody has a witness by TCP.
            LifelineRecord::LastVoteRecord { .. } => Said::Nothing,
        }
    }

    /// An inbound lifeline, if this is its writer.
    fn known(&mut self, connection: u64, sender: Incarnation) -> Option<&mut Inbound> {
        let inbound = self.inbound.get_mut(&connection);
        inbound.filter(|inbound| inbound.writer == sender)
    }

    /// An inbound lifeline ended.
    pub(crate) fn ended(&mut self, connection: u64, end: LifelineEnd) -> Ended {
        let Some(Inbound {
            writer,
            agrees,
            goodbye,
            vote,
            ..
        }) = self.inbound.remove(&connection)
        else {
            return Ended::Nothing;
        };
        // R9: a reset may come from a firewall, and a reset socket reads as ended, too.
        let gone = end == LifelineEnd::Fin || planted!(FinAfterResetIsProof);
        match vote {
            _ if goodbye => Ended::Nothing,
            Some(vote) if gone && agrees => Ended::Dead { writer, vote },
            _ => Ended::Broken { writer },
        }
    }

    /// An inbound lifeline ended before this node became a member. Its writer may be a member of the view
    /// that admits this node: then no other end will prove its death here.
    pub(crate) fn ended_early(&mut self, connection: u64, end: LifelineEnd) {
        if let Ended::Dead { writer, vote } = self.ended(connection, end) {
            if self.early.len() >= MAX_EARLY {
                self.early.pop_front();
            }
            self.early.push_back((writer, vote));
        }
    }

    /// The deaths that were proven before this node became a member.
    pub(crate) fn take_early(&mut self) -> impl Iterator<Item = (Incarnation, VoteState)> + use<> {
        std::mem::take(&mut self.early).into_iter()
    }
}

fn next_dial(dials: &mut u64) -> DialId {
    *dials += 1;
    DialId(*dials)
}

fn write(dial: DialId, record: &LifelineRecord) -> LifelineCommand {
    LifelineCommand::Write {
        dial,
        record: Bytes::from(encode_to_vec(record)),
    }
}

#[cfg(test)]
mod tests {
    use antiphon_wire::membership::VotedIn;

    use super::*;
    use crate::membership::testing;

    const ME: Incarnation = Incarnation(1);
    const PEER: Incarnation = Incarnation(2);
    const RETRY: Duration = Duration::from_millis(100);

    fn at(ms: u64) -> Time {
        Time::from_micros(ms * 1000)
    }

    fn addr(port: u16) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], port))
    }

    fn view() -> NodeView {
        testing::view(vec![testing::member(ME, 1), testing::member(PEER, 2)])
    }

    fn vote() -> VoteState {
        VoteState {
            view: VotedIn::Whole(Box::new(view())),
            promised: None,
            accepted: None,
        }
    }

    /// The only dial among these commands.
    fn dialled(commands: &[LifelineCommand]) -> DialId {
        let mut dials = commands.iter().filter_map(|command| match command {
            LifelineCommand::Open { dial, .. } => Some(*dial),
            LifelineCommand::Write { .. } | LifelineCommand::Reset { .. } => None,
        });
        let dial = dials.next().expect("a dial");
        assert_eq!(dials.next(), None);
        dial
    }

    /// Lifelines whose first dial failed and was repeated: the earlier and the present one.
    fn dialled_again() -> (Lifelines, DialId, DialId) {
        let (mut lifelines, mut commands) = (Lifelines::default(), Vec::new());
        lifelines.follow(watchers(&view(), ME, &Rings::default()), &mut commands);
        let earlier = dialled(&commands);
        assert_eq!(lifelines.failed(at(0), earlier, RETRY), Some(PEER));
        commands.clear();
        lifelines.tick(at(100), &mut commands);
        (lifelines, earlier, dialled(&commands))
    }

    #[test]
    fn the_late_success_of_an_earlier_dial_opens_nothing() {
        let (mut lifelines, earlier, present) = dialled_again();
        assert_eq!(lifelines.opened(earlier, addr(9), addr(2), vote()), None);
        assert_eq!(lifelines.write_all(&LifelineRecord::Goodbye), []);
        let hello = lifelines.opened(present, addr(9), addr(2), vote());
        assert!(matches!(hello, Some(LifelineCommand::Write { dial, .. }) if dial == present));
    }

    #[test]
    fn the_late_failure_of_an_earlier_dial_ends_nothing() {
        let (mut lifelines, earlier, present) = dialled_again();
        assert!(lifelines.opened(present, addr(9), addr(2), vote()).is_some());
        assert_eq!(lifelines.failed(at(200), earlier, RETRY), None);
        assert_eq!(lifelines.write_all(&LifelineRecord::Goodbye).len(), 1);
        assert_eq!(lifelines.next_deadline(), None);
    }

    #[test]
    fn a_lifeline_whose_link_has_failed_is_dialled_over_another_one_at_once() {
        let (mut lifelines, _, present) = dialled_again();
        lifelines.moved(at(150), present);
        let mut commands = Vec::new();
        lifelines.tick(at(150), &mut commands);
        let next = dialled(&commands);
        // What failed on the link before is no reason to wait on the next one.
        assert_eq!(lifelines.failed(at(150), next, RETRY), Some(PEER));
        assert_eq!(lifelines.next_deadline(), Some(at(250)));
    }

    #[test]
    fn a_lifeline_that_fails_for_long_is_dialled_again_within_a_bounded_time() {
        let (mut lifelines, _, mut present) = dialled_again();
        for round in 1..100 {
            assert_eq!(lifelines.failed(at(round * 1000), present, RETRY), Some(PEER));
            let retry = lifelines.next_deadline().unwrap();
            assert!(
                retry <= at(round * 1000) + RETRY * MOST_PATIENCE,
                "{round}: {retry:?}"
            );
            let mut commands = Vec::new();
            lifelines.tick(retry, &mut commands);
            present = dialled(&commands);
        }
    }

    #[test]
    fn a_lifeline_is_held_from_its_hello_to_its_goodbye_while_its_way_works() {
        let mut lifelines = Lifelines::default();
        let held = |lifelines: &Lifelines| lifelines.holds(PEER, |remote| remote == addr(9));
        assert!(!held(&lifelines));
        for (connection, theirs, end) in [
            (1, addr(8), addr(8)),
            (2, addr(7), addr(9)),
            (3, addr(9), addr(9)),
        ] {
            assert!(
                !held(&lifelines),
                "over a way that does not work, or through a proxy"
            );
            let hello = LifelineRecord::Hello {
                local: theirs,
                remote: addr(1),
                vote: vote(),
            };
            let record = Bytes::from(encode_to_vec(&hello));
            let said = lifelines.record(connection, addr(1), end, PEER, record);
            assert!(matches!(said, Said::Voted(_)));
        }
        assert!(held(&lifelines));
        let goodbye = Bytes::from(encode_to_vec(&LifelineRecord::Goodbye));
        let said = lifelines.record(3, addr(1), addr(9), PEER, goodbye);
        assert!(matches!(said, Said::Goodbye));
        assert!(!held(&lifelines));
    }

    #[test]
    fn a_goodbye_counts_if_it_is_that_of_the_writer() {
        let mut lifelines = Lifelines::default();
        let mut record = |sender, record: LifelineRecord| {
            let record = Bytes::from(encode_to_vec(&record));
            match lifelines.record(7, addr(1), addr(9), sender, record) {
                Said::Voted(_) => "voted",
                Said::Goodbye => "goodbye",
                Said::Nothing => "nothing",
            }
        };
        assert_eq!(
            record(PEER, LifelineRecord::Goodbye),
            "nothing",
            "before its hello"
        );
        let hello = LifelineRecord::Hello {
            local: addr(9),
            remote: addr(1),
            vote: vote(),
        };
        assert_eq!(record(PEER, hello), "voted");
        assert_eq!(record(Incarnation(3), LifelineRecord::Goodbye), "nothing");
        assert_eq!(record(PEER, LifelineRecord::Goodbye), "goodbye");
    }

    #[test]
    fn an_answer_to_a_dial_of_the_incarnation_before_concerns_nobody() {
        let (mut lifelines, _, before) = dialled_again();
        assert_eq!(lifelines.reset_all(), [LifelineCommand::Reset { dial: before }]);
        let mut commands = Vec::new();
        lifelines.follow(watchers(&view(), ME, &Rings::default()), &mut commands);
        assert_ne!(dialled(&commands), before);
        assert_eq!(lifelines.opened(before, addr(9), addr(2), vote()), None);
        assert_eq!(lifelines.failed(at(200), before, RETRY), None);
    }
}
