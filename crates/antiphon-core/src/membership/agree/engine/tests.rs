//! The engine alone: what it casts, for what, and when not.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::time::Duration;

use antiphon_wire::membership::{VoteState, VotedIn};
use antiphon_wire::{Cause, Departure};

use super::*;
use crate::membership::agree::compose::compose;
use crate::membership::agree::slot::FAST;
use crate::membership::monitor::rings::RINGS;
use crate::membership::testing::{member, view_of};
use crate::membership::view::check;
use crate::random::Random;

/// One member's engine and what it knows of the world.
struct Bench {
    engine: Engine,
    me: Incarnation,
    view: Arc<NodeView>,
    rings: Arc<Rings>,
    now: Time,
    /// Which edges are down, and since when.
    down: BTreeMap<(Incarnation, Incarnation), Time>,
    /// Until when no member may be voted out, because it may believe in its view.
    held: Option<Time>,
    random: RefCell<Random>,
}

impl Bench {
    fn new(view: &Arc<NodeView>, rank: usize) -> Self {
        Self::with_votes(view, rank, Votes::Whole)
    }

    fn with_votes(view: &Arc<NodeView>, rank: usize, votes: Votes) -> Self {
        let me = view.members[rank].incarnation;
        let rings = Arc::new(Rings::new(view, RINGS));
        let (profile, now) = (Profile::lan(), Time::from_micros(1));
        Self {
            engine: Engine::new(
                EngineKind::Cut,
                me,
                view.clone(),
                (
                    rings.clone(),
                    &Topology::of(me, now, view, &rings, profile.batch, Duration::ZERO),
                ),
                votes,
                &profile,
            ),
            me,
            view: view.clone(),
            rings,
            now,
            down: BTreeMap::new(),
            held: None,
            random: RefCell::new(Random::new([1, 2, 3, 4])),
        }
    }

    /// The view without the members of the cut.
    fn composed(&mut self) -> Arc<NodeView> {
        let fast = self.engine.fast.as_mut().expect("the cut engine");
        fast.cut.without_the_lost().expect("it may follow this view")
    }

    /// All observers lose the member of this rank.
    fn lose(&mut self, rank: usize) {
        let at = |rank: usize| self.view.members[rank].incarnation;
        let observers = self.rings.observers(rank).iter();
        let edges: Vec<_> = observers.map(|by| (at(usize::from(*by)), at(rank))).collect();
        self.report(edges);
    }

    /// These edges are down now.
    fn report(&mut self, edges: impl IntoIterator<Item = (Incarnation, Incarnation)>) {
        let now = self.now;
        self.down.extend(edges.into_iter().map(|edge| (edge, now)));
    }

    fn with(&mut self, action: impl FnOnce(&mut Engine, &mut Surroundings<'_>)) -> Vec<EngineEffect> {
        let suspects = self.down.keys().map(|(_, subject)| *subject).collect();
        let members = self.view.members.iter().map(|member| member.incarnation);
        let reachable = members
            .filter(|member| !self.down.contains_key(&(self.me, *member)))
            .collect();
        let down = &self.down;
        let (rings, view) = (&self.rings, &self.view);
        let wide = rings.are_wide(view.members.len());
        let mut random = self.random.borrow_mut();
        let mut around = Surroundings {
            now: self.now,
            random: &mut random,
            objects: &|_| false,
            reachable: &reachable,
            suspects: &suspects,
            observers: &|member| rings.observers_in(view, member).filter(|_| wide).collect(),
            edge_down_since: &|observer, subject| down.get(&(observer, subject)).copied(),
            held: &|_| self.held,
            counts_dead_from: None,
            primary: true,
        };
        action(&mut self.engine, &mut around);
        std::iter::from_fn(|| self.engine.poll_effect()).collect()
    }

    fn pursue_after(&mut self, pause: Duration) -> Vec<EngineEffect> {
        self.now = self.now + pause;
        self.pursue(None)
    }

    /// Does what a member does with each input.
    fn pursue(&mut self, wanted: Option<ProposedChange>) -> Vec<EngineEffect> {
        self.with(|engine, around| {
            engine.look(around);
            engine.pursue(around, wanted);
        })
    }
}

fn casts(effects: &[EngineEffect]) -> usize {
    let is_cast = |effect: &&EngineEffect| {
        let message = match effect {
            EngineEffect::Send { message, .. } | EngineEffect::Broadcast { message, .. } => message,
            _ => return false,
        };
        matches!(message, SlotMessage::Cast { .. })
    };
    effects.iter().filter(is_cast).count()
}

/// A leader that wants to remove a member that it does not hear, against possible objections.
fn removal(view: &NodeView, rank: usize) -> ProposedChange {
    let member = view.members[rank].clone();
    ProposedChange {
        asked_first: BTreeSet::from([member.incarnation]),
        remove: vec![Departure {
            member,
            cause: Cause::Crashed,
            accusers: Vec::new(),
        }],
        join: Vec::new(),
        renew: false,
        unfinished: false,
        wire_level: view.wire_level,
        number: 0,
        origins: BTreeMap::new(),
    }
}

const LONG: Duration = Duration::from_secs(2);

#[test]
fn a_vote_is_shown_before_it_is_told() {
    let view = Arc::new(view_of(6));
    let mut bench = Bench::new(&view, 0);
    bench.lose(4);
    assert_eq!(bench.pursue_after(Duration::ZERO), [], "not quiet yet");
    let effects = bench.pursue_after(Duration::from_millis(300));
    let shown = effects.iter().position(|effect| *effect == EngineEffect::Voted);
    let told = effects
        .iter()
        .position(|effect| matches!(effect, EngineEffect::Broadcast { .. }));
    assert!(shown.expect("shown") < told.expect("told"));
    assert_eq!(
        casts(&effects),
        1,
        "to all at once, also to whom was lost: {effects:?}"
    );
}

#[test]
fn fault_1_no_vote_is_told_after_a_promise_to_a_leader() {
    let view = Arc::new(view_of(6));
    let mut bench = Bench::new(&view, 1);
    let leader = view.members[0].incarnation;
    let ballot = Ballot {
        round: 1,
        proposer: leader,
    };
    let prepare = SlotMessage::Prepare {
        ballot,
        proofs: Vec::new(),
        removing: Vec::new(),
    };
    bench.with(|engine, around| engine.handle(around, leader, prepare));
    bench.lose(4);
    bench.pursue_after(Duration::ZERO);
    assert_eq!(casts(&bench.pursue_after(LONG)), 0);
    let mut asked = view_of(6);
    asked.members = view.members.clone();
    asked.id = antiphon_wire::NodeViewId::Primary {
        id: check::next_id(view.primary_id()),
    };
    asked.number += 1;
    let fast = SlotMessage::Fast {
        value: Box::new(asked),
    };
    let effects = bench.with(|engine, around| engine.handle(around, leader, fast));
    assert_eq!(casts(&effects), 0, "nor if someone asks for it: {effects:?}");
}

#[test]
fn fault_2_a_vote_that_arrives_five_times_is_one() {
    let view = Arc::new(view_of(8));
    let mut bench = Bench::new(&view, 0);
    bench.lose(7);
    bench.pursue_after(Duration::ZERO);
    bench.pursue_after(LONG);
    let digest = bench.composed().digest();
    let from = |rank: usize| view.members[rank].incarnation;
    let mut decided = 0;
    for rank in [1, 1, 1, 1, 1, 2, 3, 4] {
        let cast = SlotMessage::Cast { value: digest };
        let effects = bench.with(|engine, around| engine.handle(around, from(rank), cast));
        let is_decided = |effect: &EngineEffect| matches!(effect, EngineEffect::Decided { .. });
        decided += effects.iter().filter(|effect| is_decided(effect)).count();
    }
    assert_eq!(decided, 0, "five of eight are not three quarters");
    let cast = SlotMessage::Cast { value: digest };
    let effects = bench.with(|engine, around| engine.handle(around, from(5), cast));
    assert!(
        matches!(effects.last(), Some(EngineEffect::Decided { .. })),
        "six with the senior are"
    );
}

#[test]
fn votes_that_come_before_the_cut_is_seen_here_count_afterwards() {
    let view = Arc::new(view_of(8));
    let mut others = Bench::new(&view, 1);
    others.lose(7);
    others.pursue_after(Duration::ZERO);
    let digest = others.composed().digest();
    let mut bench = Bench::new(&view, 0);
    for rank in 1..7 {
        let cast = SlotMessage::Cast { value: digest };
        let effects =
            bench.with(|engine, around| engine.handle(around, view.members[rank].incarnation, cast));
        assert_eq!(effects, []);
    }
    bench.lose(7);
    bench.pursue_after(Duration::ZERO);
    let effects = bench.pursue_after(LONG);
    assert!(
        effects
            .iter()
            .any(|effect| matches!(effect, EngineEffect::Decided { .. }))
    );
}

#[test]
fn all_who_see_the_same_cut_compose_the_same_bytes() {
    let view = Arc::new(view_of(30));
    let composed: BTreeSet<ViewDigest> = (0..20)
        .map(|rank| {
            let mut bench = Bench::new(&view, rank);
            [28, 22, 25].into_iter().for_each(|lost| bench.lose(lost));
            bench.pursue_after(Duration::ZERO);
            bench.composed().digest()
        })
        .collect();
    assert_eq!(composed.len(), 1);
}

#[test]
fn who_is_in_the_cut_no_more_is_answered_again_and_who_wavers_is_not() {
    let view = Arc::new(view_of(5));
    let member = view.members[3].incarnation;
    let mut bench = Bench::new(&view, 0);
    bench.held = Some(bench.now + LONG * 10);
    let beat = Profile::lan().heartbeat;
    let withheld = |effects: &[EngineEffect]| {
        let said = effects.iter().find_map(|effect| match effect {
            EngineEffect::Withhold { from } => Some((from.clone(), true)),
            EngineEffect::Release { members } => Some((members.clone(), false)),
            _ => None,
        });
        said.map(|(members, withheld)| {
            assert_eq!(members, [member]);
            withheld
        })
    };
    bench.lose(3);
    assert_eq!(withheld(&bench.pursue_after(beat)), Some(true));
    bench.down.clear();
    assert_eq!(withheld(&bench.pursue_after(beat)), None, "it may waver");
    bench.lose(3);
    assert_eq!(withheld(&bench.pursue_after(beat)), Some(true));
    bench.down.clear();
    let said: Vec<_> = (0..10).map(|_| withheld(&bench.pursue_after(beat))).collect();
    assert_eq!(said.iter().flatten().collect::<Vec<_>>(), [&false]);
}

#[test]
fn nothing_is_cast_while_a_member_is_between_the_thresholds() {
    let view = Arc::new(view_of(40));
    let mut bench = Bench::new(&view, 0);
    bench.lose(20);
    let at = |rank: usize| view.members[rank].incarnation;
    let some: Vec<usize> = bench.rings.observers(30)[..5]
        .iter()
        .map(|by| usize::from(*by))
        .collect();
    bench.report(some.iter().map(|by| (at(*by), at(30))));
    bench.pursue_after(Duration::ZERO);
    assert_eq!(casts(&bench.pursue_after(Duration::from_millis(400))), 0);
    // It turns out that the path of those five was bad.
    bench.down.retain(|(_, subject), _| *subject != at(30));
    bench.pursue_after(Duration::ZERO);
    assert!(casts(&bench.pursue_after(Duration::from_millis(300))) > 0);
}

/// The view without the members of these ranks, as a leader would propose it.
fn without(view: &Arc<NodeView>, gone: &[usize]) -> NodeView {
    let mut leader = Bench::new(view, 0);
    gone.iter().for_each(|rank| leader.lose(*rank));
    leader.pursue_after(Duration::ZERO);
    (*leader.composed()).clone()
}

#[test]
fn nobody_casts_for_its_own_removal() {
    let view = Arc::new(view_of(6));
    let mut bench = Bench::new(&view, 3);
    bench.lose(3);
    bench.pursue_after(Duration::ZERO);
    assert_eq!(bench.pursue_after(LONG), []);
    let fast = SlotMessage::Fast {
        value: Box::new(without(&view, &[3])),
    };
    let leader = view.members[0].incarnation;
    let effects = bench.with(|engine, around| engine.handle(around, leader, fast.clone()));
    assert_eq!(casts(&effects), 0, "nor if someone asks for it: {effects:?}");
    let mut another = Bench::new(&view, 2);
    another.lose(3);
    let effects = another.with(|engine, around| engine.handle(around, leader, fast));
    assert_eq!(
        casts(&effects),
        1,
        "as those do who are not in the cut: {effects:?}"
    );
}

#[test]
fn a_burst_is_waited_for_from_its_first_loss_however_long_somebody_else_has_wavered() {
    let view = Arc::new(view_of(40));
    let mut bench = Bench::new(&view, 0);
    let at = |rank: usize| view.members[rank].incarnation;
    let some = bench.rings.observers(30)[..5].to_vec();
    bench.report(some.iter().map(|by| (at(usize::from(*by)), at(30))));
    bench.pursue_after(Duration::ZERO);
    bench.pursue_after(Duration::from_secs(10));
    // The unstable member is well again at the moment in which the first of two is lost.
    bench.down.clear();
    bench.lose(20);
    assert_eq!(bench.pursue_after(Duration::ZERO), []);
    bench.pursue_after(Duration::from_millis(200));
    bench.lose(21);
    assert_eq!(bench.pursue_after(Duration::ZERO), []);
    assert!(casts(&bench.pursue_after(Duration::from_millis(300))) > 0);
    assert_eq!(bench.composed().departed.len(), 2, "both in one view");
}

#[test]
fn who_wavers_between_the_thresholds_holds_up_nobody_for_more_than_three_quiets() {
    let view = Arc::new(view_of(40));
    let mut bench = Bench::new(&view, 0);
    let at = |rank: usize| view.members[rank].incarnation;
    bench.lose(20);
    bench.pursue_after(Duration::ZERO);
    let some = bench.rings.observers(20)[..5].to_vec();
    let some: Vec<_> = some.iter().map(|by| (at(usize::from(*by)), at(20))).collect();
    for _ in 0..7 {
        some.iter().for_each(|edge| {
            bench.down.remove(edge);
        });
        bench.pursue_after(Duration::from_millis(50));
        bench.lose(20);
        assert_eq!(casts(&bench.pursue_after(Duration::from_millis(50))), 0);
    }
    assert!(
        casts(&bench.pursue_after(Duration::from_millis(60))) > 0,
        "after 750 ms"
    );
}

#[test]
fn what_changes_with_a_request_starts_the_quiet_anew() {
    let view = Arc::new(view_of(40));
    let mut bench = Bench::new(&view, 1);
    let at = |rank: usize| view.members[rank].incarnation;
    bench.lose(20);
    let some = bench.rings.observers(30)[..5].to_vec();
    bench.report(some.iter().map(|by| (at(usize::from(*by)), at(30))));
    bench.pursue_after(Duration::ZERO);
    bench.now = bench.now + Duration::from_millis(300);
    // The member that wavered is heard again, by a request to which this member does not agree.
    bench.down.retain(|(_, subject), _| *subject != at(30));
    let fast = SlotMessage::Fast {
        value: Box::new(without(&view, &[5])),
    };
    let effects = bench.with(|engine, around| engine.handle(around, at(30), fast));
    assert_eq!(casts(&effects), 0);
    assert_eq!(
        casts(&bench.pursue_after(Duration::ZERO)),
        0,
        "it is not quiet yet"
    );
    assert!(casts(&bench.pursue_after(Duration::from_millis(260))) > 0);
}

#[test]
fn who_alone_has_lost_most_of_its_subjects_is_lost_when_the_most_patient_would_say_the_same() {
    let view = Arc::new(view_of(24));
    let at = |rank: usize| view.members[rank].incarnation;
    for rank in [3, 11, 17] {
        let reporting = |few: bool| {
            let mut bench = Bench::new(&view, 0);
            let mut lost: Vec<Incarnation> = bench.rings.subjects(rank).map(at).collect();
            if few {
                lost.truncate(lost.len() / 2 + 1);
            }
            bench.report(lost.iter().map(|subject| (at(rank), *subject)));
            bench.pursue_after(Duration::from_millis(100));
            bench
        };
        let mut bench = reporting(true);
        for _ in 0..43 {
            bench.pursue_after(Duration::from_millis(100));
            assert_eq!(bench.engine.in_cut(), [], "others may be more patient");
        }
        bench.pursue_after(Duration::from_millis(100));
        assert_eq!(bench.engine.in_cut(), [at(rank)]);
        // If a member hears nothing at all, nobody else's patience is the reason.
        assert_eq!(reporting(false).engine.in_cut(), [at(rank)]);
    }
}

#[test]
fn a_leader_of_a_wide_view_waits_for_no_votes_of_joiners_that_nobody_asks() {
    let view = Arc::new(view_of(24));
    let at = |rank: usize| view.members[rank].incarnation;
    let join: Vec<_> = (0..18)
        .map(|joiner| member(Incarnation(1000 + joiner), 100 + joiner as u16))
        .collect();
    let asks = |silent: usize| {
        let mut bench = Bench::new(&view, 0);
        bench.report((1..=silent).map(|rank| (at(0), at(rank))));
        let wanted = ProposedChange {
            remove: Vec::new(),
            asked_first: BTreeSet::new(),
            join: join.clone(),
            renew: false,
            unfinished: false,
            wire_level: view.wire_level,
            number: 0,
            origins: BTreeMap::new(),
        };
        let mut effects = Vec::new();
        for _ in 0..2 {
            bench.now = bench.now + Duration::from_millis(500);
            let wanted = Some(wanted.clone());
            effects.extend(bench.pursue(wanted));
        }
        let asked = |effect: &EngineEffect| {
            let EngineEffect::Broadcast { message, .. } = effect else {
                return false;
            };
            matches!(message, SlotMessage::Fast { .. })
        };
        assert!(!effects.is_empty());
        effects.iter().any(asked)
    };
    assert!(
        asks(3),
        "twenty-one are half of the next view, with its most senior member"
    );
    assert!(!asks(4), "twenty cannot decide it, whatever joiners would say");
}

#[test]
fn a_tally_of_two_thousand_promises_costs_the_leader_no_look_at_any_view() {
    let view = Arc::new(view_of(2000));
    let mut bench = Bench::new(&view, 0);
    let at = |rank: usize| view.members[rank].incarnation;
    let me = at(0);
    // So many members are silent that the fast ballot cannot decide.
    bench.report((1200..2000).map(|rank| (me, at(rank))));
    let departure = |rank: usize| Departure {
        member: view.members[rank].clone(),
        cause: Cause::Crashed,
        accusers: Vec::new(),
    };
    let wanted = ProposedChange {
        remove: vec![departure(5)],
        asked_first: BTreeSet::new(),
        join: Vec::new(),
        renew: false,
        unfinished: false,
        wire_level: 1,
        number: 0,
        origins: BTreeMap::new(),
    };
    let pursue = |engine: &mut Engine, around: &mut Surroundings<'_>| {
        engine.proposer.pursue(around, Some(wanted.clone()), |_| false);
    };
    bench.with(pursue);
    bench.now = bench.now + LONG;
    let effects = bench.with(pursue);
    let ballot = effects.iter().find_map(|effect| match effect {
        EngineEffect::Broadcast {
            message: SlotMessage::Prepare { ballot, .. },
            ..
        } => Some(*ballot),
        _ => None,
    });
    let ballot = ballot.unwrap_or_else(|| panic!("no ballot: {effects:?}"));
    // What most of them have cast, as another member's rumour showed it.
    let cast = Arc::new(compose(&view, vec![departure(5), departure(6)], &wanted, true));
    let others: Vec<Incarnation> = view.members[1..]
        .iter()
        .map(|member| member.incarnation)
        .collect();
    let before = check::LOOKED_THROUGH.get();
    let promise = Ayes::Promise {
        ballot,
        accepted_in: Some(FAST),
        accepted: Some(cast.digest()),
    };
    bench.with(|engine, around| engine.count(around, promise, &others, Some(&cast)));
    let effects = bench.with(|engine, around| engine.count(around, Ayes::Accepted { ballot }, &others, None));
    let decided = effects.iter().find_map(|effect| match effect {
        EngineEffect::Decided { view, .. } => Some(view),
        _ => None,
    });
    let decided = decided.unwrap_or_else(|| panic!("not decided: {effects:?}"));
    assert!(Arc::ptr_eq(decided, &cast), "it was copied");
    assert_eq!(check::LOOKED_THROUGH.get(), before);
}

/// In a wide view no quorum needs to have an observer of a member in it, and its promises may be there before
/// their objections.
#[test]
fn nobody_is_removed_before_its_observers_had_their_say() {
    let view = Arc::new(view_of(30));
    let at = |rank: usize| view.members[rank].incarnation;
    let who = at(20);
    for objects in [true, false] {
        let mut bench = Bench::new(&view, 0);
        let observers: Vec<Incarnation> = bench.rings.observers_in(&view, who).collect();
        let wanted = || removal(&view, 20);
        bench.pursue(Some(wanted()));
        bench.now = bench.now + Duration::from_millis(300);
        let effects = bench.pursue(Some(wanted()));
        let asked = effects.iter().find_map(|effect| match effect {
            EngineEffect::Broadcast {
                message: SlotMessage::Prepare { ballot, removing, .. },
                ..
            } if *removing == [who] => Some(*ballot),
            _ => None,
        });
        let ballot = asked.expect("it asks about it");
        let proposes = |effects: &[EngineEffect]| {
            let is_accept = |effect: &EngineEffect| {
                matches!(
                    effect,
                    EngineEffect::Broadcast {
                        message: SlotMessage::Accept { .. },
                        ..
                    }
                )
            };
            effects.iter().any(is_accept)
        };
        let promise = || SlotMessage::Promise {
            ballot,
            accepted: None,
        };
        let others = (1..30)
            .map(at)
            .filter(|other| *other != who && !observers.contains(other));
        let others: Vec<Incarnation> = others.collect();
        assert!(others.len() > 15, "a quorum without any of them");
        for other in others {
            let effects = bench.with(|engine, around| engine.handle(around, other, promise()));
            assert!(!proposes(&effects));
        }
        for (heard, by) in observers.iter().filter(|by| **by != at(0)).enumerate() {
            let answer = if objects {
                SlotMessage::Nack {
                    ballot,
                    promised: None,
                    hears: vec![who],
                }
            } else {
                promise()
            };
            let mut effects = bench.with(|engine, around| engine.handle(around, *by, answer));
            effects.extend(bench.pursue(Some(wanted())));
            let voices = 1 + heard + usize::from(observers.contains(&at(0)));
            if proposes(&effects) {
                assert!(!objects && voices * 2 > observers.len(), "after {voices}");
                break;
            }
            assert!(objects || voices * 2 <= observers.len(), "after {voices}");
        }
    }
}

#[test]
fn a_member_whose_observers_do_not_answer_is_asked_about_again_and_stays() {
    let view = Arc::new(view_of(30));
    let at = |rank: usize| view.members[rank].incarnation;
    let mut bench = Bench::new(&view, 0);
    let observers: Vec<Incarnation> = bench.rings.observers_in(&view, at(20)).collect();
    let wanted = || removal(&view, 20);
    let mut ballots = BTreeSet::new();
    for _ in 0..400 {
        bench.now = bench.now + Duration::from_millis(10);
        for effect in bench.pursue(Some(wanted())) {
            let EngineEffect::Broadcast { message, .. } = effect else {
                continue;
            };
            let SlotMessage::Prepare { ballot, .. } = message else {
                panic!("{message:?}");
            };
            ballots.insert(ballot);
            for other in (1..30).map(at).filter(|other| !observers.contains(other)) {
                let promise = SlotMessage::Promise {
                    ballot,
                    accepted: None,
                };
                let effects = bench.with(|engine, around| engine.handle(around, other, promise));
                assert_eq!(effects, []);
            }
        }
    }
    assert!(
        (5..40).contains(&ballots.len()),
        "{} ballots in four seconds",
        ballots.len()
    );
}

#[test]
fn more_lost_members_than_one_change_can_name_are_removed_by_turns() {
    let view = Arc::new(view_of(2000));
    let mut bench = Bench::with_votes(&view, 1999, Votes::Named(None));
    let vote = VoteState {
        view: VotedIn::Named {
            lineage: view.lineage,
            id: view.primary_id(),
            change: None,
        },
        promised: None,
        accepted: None,
    };
    bench.with(|engine, around| {
        let dead = view.members.iter().take(1600);
        dead.for_each(|member| engine.certify(around, member.incarnation, &vote));
    });
    bench.pursue_after(Duration::ZERO);
    bench.pursue_after(LONG);
    let without = bench.composed().departed.len();
    assert!((700..1600).contains(&without), "{without}");
}
