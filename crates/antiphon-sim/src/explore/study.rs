//! Which worlds are explored.

use antiphon_core::{Order, TotalEngine};

use super::flush::FlushModel;
use super::search::{Model, Outcome, hunt, search};
use super::slot::{Free, SlotModel, Sorted, Values};

/// One world and what to expect of it.
pub struct Study {
    /// What it is, for people.
    pub name: String,
    /// How many members it has at the start.
    pub members: u8,
    world: World,
    expected: Expected,
}

enum World {
    Free(SlotModel),
    Sorted(SlotModel),
    Flush(FlushModel),
}

/// What a search must find.
#[derive(Clone, Copy)]
enum Expected {
    /// All states, and no violation.
    Sound,
    /// A violation, because this mistake is armed.
    #[cfg(feature = "planted")]
    Caught(antiphon_core::planted::Bug),
}

/// What a study found.
pub struct Finding {
    /// The search.
    pub outcome: Outcome,
    /// Whether that is what it must be.
    pub as_expected: bool,
    /// The mistake that was armed, by name.
    pub armed: Option<String>,
}

impl Study {
    /// The mistake that is armed in it.
    #[cfg(feature = "planted")]
    pub fn armed(&self) -> Option<antiphon_core::planted::Bug> {
        match self.expected {
            Expected::Sound => None,
            Expected::Caught(bug) => Some(bug),
        }
    }

    /// Searches its world, up to `limit` states.
    pub fn run(&self, limit: u64) -> Finding {
        match self.expected {
            Expected::Sound => {
                let outcome = self.search(limit, false);
                Finding {
                    as_expected: outcome.complete && outcome.violation.is_none(),
                    outcome,
                    armed: None,
                }
            }
            #[cfg(feature = "planted")]
            Expected::Caught(bug) => {
                antiphon_core::planted::arm(Some(bug));
                let outcome = self.search(limit, true);
                antiphon_core::planted::arm(None);
                Finding {
                    as_expected: outcome.violation.is_some(),
                    outcome,
                    armed: Some(format!("{bug:?}")),
                }
            }
        }
    }

    fn search(&self, limit: u64, shortest: bool) -> Outcome {
        fn either<M: Model>(model: &M, limit: u64, shortest: bool) -> Outcome {
            if shortest {
                hunt(model, limit)
            } else {
                search(model, limit)
            }
        }
        match &self.world {
            World::Free(model) => either(&Free(model.clone()), limit, shortest),
            World::Sorted(model) => either(&Sorted::new(model.clone()), limit, shortest),
            World::Flush(model) => either(model, limit, shortest),
        }
    }
}

/// The worlds of the view slot.
pub fn slot(full: bool) -> Vec<Study> {
    let plain = SlotModel::plain;
    let few = |members| SlotModel {
        values: Values::Extremes,
        ..plain(members)
    };
    let mut studies = vec![
        free("two members, every view", plain(2)),
        free(
            "two members and a joiner, every view",
            SlotModel {
                joiner: true,
                ..plain(2)
            },
        ),
        free(
            "three members, every view, one ballot after the elder's",
            SlotModel {
                prepares: 1,
                ..plain(3)
            },
        ),
        sorted("two members, every view, one dies", plain(2)),
        sorted(
            "two members and a joiner, every view, two slots, one dies",
            SlotModel {
                joiner: true,
                slots: 2,
                ..plain(2)
            },
        ),
        sorted(
            "three members, every view, two die",
            SlotModel {
                crashes: 2,
                ..plain(3)
            },
        ),
        sorted("four members, nobody dies", SlotModel { crashes: 0, ..few(4) }),
        sorted("four members, one dies", few(4)),
        sorted(
            "three members of weights 2, 1, 1, every view, two slots, one dies",
            SlotModel {
                slots: 2,
                weights: [2, 1, 1, 1, 1],
                ..plain(3)
            },
        ),
        sorted(
            "three members of weights 0, 1, 1, every view, two slots, one dies",
            SlotModel {
                slots: 2,
                weights: [0, 1, 1, 1, 1],
                ..plain(3)
            },
        ),
    ];
    studies.extend(fast(full));
    if full {
        studies.extend([
            free(
                "three members, every view, two ballots after the elder's",
                plain(3),
            ),
            free(
                "three members, three ballots after the elder's in two rounds",
                SlotModel {
                    prepares: 3,
                    rounds: 2,
                    crashes: 0,
                    ..few(3)
                },
            ),
            sorted(
                "three members of weights 2, 1, 1, every view, two slots, two die",
                SlotModel {
                    slots: 2,
                    crashes: 2,
                    weights: [2, 1, 1, 1, 1],
                    ..plain(3)
                },
            ),
            sorted(
                "three members of weights 0, 1, 1, every view, two slots, two die",
                SlotModel {
                    slots: 2,
                    crashes: 2,
                    weights: [0, 1, 1, 1, 1],
                    ..plain(3)
                },
            ),
            sorted(
                "three members and a joiner, every view, two slots, one dies",
                SlotModel {
                    joiner: true,
                    slots: 2,
                    ..plain(3)
                },
            ),
            sorted(
                "four members, two slots, one dies",
                SlotModel { slots: 2, ..few(4) },
            ),
            sorted(
                "four members of weights 2, 1, 1, 1, two slots, one dies",
                SlotModel {
                    slots: 2,
                    weights: [2, 1, 1, 1, 1],
                    ..few(4)
                },
            ),
            sorted(
                "four members of weights 0, 1, 1, 1, two slots, one dies",
                SlotModel {
                    slots: 2,
                    weights: [0, 1, 1, 1, 1],
                    ..few(4)
                },
            ),
            sorted(
                "four members and a joiner, two slots, one dies",
                SlotModel {
                    joiner: true,
                    slots: 2,
                    ..few(4)
                },
            ),
            sorted("four members, two die", SlotModel { crashes: 2, ..few(4) }),
            sorted(
                "four members, every view, nobody dies",
                SlotModel {
                    crashes: 0,
                    ..plain(4)
                },
            ),
        ]);
    }
    #[cfg(feature = "planted")]
    {
        use antiphon_core::planted::Bug;
        let second = SlotModel {
            second_values: true,
            ..plain(3)
        };
        studies.extend([
            free("three members, bare certificates", plain(3)).caught(Bug::CertificateWithoutLastVote),
            free("three members, two values in a ballot", second).caught(Bug::TwoValuesPerBallot),
            sorted("four members, bare certificates", few(4)).caught(Bug::CertificateWithoutLastVote),
            sorted("four members, values of phase 1 ignored", few(4)).caught(Bug::IgnoreAcceptedValue),
            sorted("four members, no quorum of the new view", few(4)).caught(Bug::SkipJointQuorum),
            sorted(
                "three members, votes before the view is installed",
                SlotModel {
                    slots: 2,
                    crashes: 0,
                    ..plain(3)
                },
            )
            .caught(Bug::VoteBeforeInstalling),
            free("three members, a majority decides fast", fast_once(3)).caught(Bug::FastQuorumIsMajority),
            free("three members, fast votes after a promise", fast_once(3)).caught(Bug::CastAfterPromise),
            sorted("four members, a majority decides fast", fast_two(4)).caught(Bug::FastQuorumIsMajority),
            sorted("four members, two thirds decide fast", fast_two(4)).caught(Bug::FastQuorumIsTwoThirds),
            sorted("four members, any fast vote is proposed again", fast_two(4))
                .caught(Bug::RecoverAnyFastVote),
            sorted(
                "three members and a joiner, the fast ballot, no quorum of the new view",
                SlotModel {
                    joiner: true,
                    values: Values::Extremes,
                    ..fast_two(3)
                },
            )
            .caught(Bug::SkipJointQuorum),
        ]);
    }
    studies
}

/// A view whose slots begin with the fast ballot; members disagree on whether the most junior is to go.
fn fast_two(members: u8) -> SlotModel {
    SlotModel {
        leaderless: true,
        values: Values::Two,
        ..SlotModel::plain(members)
    }
}

/// The same with one ballot after the fast one.
fn fast_once(members: u8) -> SlotModel {
    SlotModel {
        prepares: 1,
        ..fast_two(members)
    }
}

/// The worlds of the fast ballot and the classic ones after it.
fn fast(full: bool) -> Vec<Study> {
    let every_view = |members| SlotModel {
        values: Values::All,
        ..fast_two(members)
    };
    let few = |members| SlotModel {
        values: Values::Extremes,
        ..fast_two(members)
    };
    let mut studies = vec![
        free(
            "two members, the fast ballot, every view",
            SlotModel {
                leaderless: true,
                ..SlotModel::plain(2)
            },
        ),
        free("three members, the fast ballot", fast_once(3)),
        free(
            "three members of weights 2, 1, 1, the fast ballot",
            SlotModel {
                weights: [2, 1, 1, 1, 1],
                ..fast_once(3)
            },
        ),
        free(
            "four members, the fast ballot, nobody dies",
            SlotModel {
                crashes: 0,
                ..fast_once(4)
            },
        ),
        sorted(
            "two members and a joiner, the fast ballot, every view, two slots, one dies",
            SlotModel {
                joiner: true,
                slots: 2,
                ..every_view(2)
            },
        ),
        sorted(
            "three members, the fast ballot, every view, one dies",
            every_view(3),
        ),
        sorted(
            "three members and a joiner, the fast ballot, one dies",
            SlotModel {
                joiner: true,
                ..few(3)
            },
        ),
        sorted("four members, the fast ballot, one dies", fast_two(4)),
        sorted(
            "four members of weights 2, 1, 1, 1, the fast ballot, one dies",
            SlotModel {
                weights: [2, 1, 1, 1, 1],
                ..fast_two(4)
            },
        ),
        sorted(
            "four members of weights 0, 1, 1, 1, the fast ballot, one dies",
            SlotModel {
                weights: [0, 1, 1, 1, 1],
                ..fast_two(4)
            },
        ),
    ];
    if full {
        studies.extend([
            free(
                "three members, the fast ballot, two ballots after it",
                SlotModel {
                    prepares: 2,
                    ..fast_once(3)
                },
            ),
            free(
                "three members, the fast ballot, every view, two die",
                SlotModel {
                    values: Values::All,
                    crashes: 2,
                    ..fast_once(3)
                },
            ),
            free("four members, the fast ballot", fast_once(4)),
            free(
                "four members of weights 0, 1, 1, 1, the fast ballot",
                SlotModel {
                    weights: [0, 1, 1, 1, 1],
                    ..fast_once(4)
                },
            ),
            free(
                "five members, the fast ballot, nobody dies",
                SlotModel {
                    crashes: 0,
                    ..fast_once(5)
                },
            ),
            sorted(
                "three members, the fast ballot, every view, two slots, one dies",
                SlotModel {
                    slots: 2,
                    ..every_view(3)
                },
            ),
            sorted(
                "three members, the fast ballot, every view, two die",
                SlotModel {
                    crashes: 2,
                    ..every_view(3)
                },
            ),
            sorted(
                "four members, the fast ballot, two slots, one dies",
                SlotModel {
                    slots: 2,
                    ..fast_two(4)
                },
            ),
            sorted(
                "four members, the fast ballot, two die",
                SlotModel {
                    crashes: 2,
                    ..fast_two(4)
                },
            ),
            sorted(
                "four members, the fast ballot, each alone or everyone, nobody dies",
                SlotModel { crashes: 0, ..few(4) },
            ),
            sorted(
                "four members, the fast ballot, each alone or everyone, one dies",
                few(4),
            ),
            sorted(
                "four members and a joiner, the fast ballot, one dies",
                SlotModel {
                    joiner: true,
                    ..fast_two(4)
                },
            ),
            sorted(
                "five members, the fast ballot, nobody dies",
                SlotModel {
                    crashes: 0,
                    ..fast_two(5)
                },
            ),
        ]);
    }
    studies
}

/// The worlds of the flush.
pub fn flush(full: bool) -> Vec<Study> {
    let three = || FlushModel {
        members: 3,
        joiner: false,
        crashes: 1,
        leaders_only: true,
        senders: vec![0],
        safe: false,
        order: Order::Total,
        engine: TotalEngine::Sequencer,
    };
    let safe = || FlushModel {
        safe: true,
        senders: vec![1],
        ..three()
    };
    let joiner = || FlushModel {
        joiner: true,
        senders: Vec::new(),
        ..three()
    };
    let mut studies = vec![
        flushing("three members, the leader sends and dies", three()),
        flushing(
            "three members, the leader sends and dies, fifo",
            FlushModel {
                order: Order::Fifo,
                ..three()
            },
        ),
        flushing(
            "three members, the leader sends and dies, unordered",
            FlushModel {
                order: Order::Unordered,
                ..three()
            },
        ),
        flushing(
            "three members, the leader sends and dies, scoped",
            FlushModel {
                order: Order::Scoped,
                ..three()
            },
        ),
        flushing(
            "three members, the leader sends and dies, by rotation",
            FlushModel {
                engine: TotalEngine::Rotation,
                ..three()
            },
        ),
        flushing(
            "three members, anyone dies, the leader sends",
            FlushModel {
                leaders_only: false,
                ..three()
            },
        ),
        flushing(
            "three members, the second sends a safe message, the leader dies",
            safe(),
        ),
        flushing(
            "three members, the leader sends a safe message and dies, fifo",
            FlushModel {
                order: Order::Fifo,
                senders: vec![0],
                ..safe()
            },
        ),
        flushing("three members and a joiner, the leader dies", joiner()),
        flushing(
            "three members and a joiner, two leaders die",
            FlushModel {
                crashes: 2,
                ..joiner()
            },
        ),
    ];
    if full {
        studies.extend([
            flushing(
                "three members, the leader dies, it and the last send",
                FlushModel {
                    senders: vec![0, 2],
                    ..three()
                },
            ),
            flushing(
                "three members, two leaders die, the second sends",
                FlushModel {
                    crashes: 2,
                    senders: vec![1],
                    ..three()
                },
            ),
            flushing(
                "three members, two leaders die, the second sends a safe message",
                FlushModel { crashes: 2, ..safe() },
            ),
            flushing(
                "three members, any two die, the leader sends a safe message, fifo",
                FlushModel {
                    crashes: 2,
                    leaders_only: false,
                    order: Order::Fifo,
                    senders: vec![0],
                    ..safe()
                },
            ),
            flushing(
                "three members and a joiner, any two die",
                FlushModel {
                    crashes: 2,
                    leaders_only: false,
                    ..joiner()
                },
            ),
            flushing(
                "three members and a joiner, the leader sends and dies",
                FlushModel {
                    senders: vec![0],
                    ..joiner()
                },
            ),
            flushing(
                "three members and a joiner, two leaders die, the first sends",
                FlushModel {
                    crashes: 2,
                    senders: vec![0],
                    ..joiner()
                },
            ),
        ]);
    }
    #[cfg(feature = "planted")]
    {
        use antiphon_core::planted::Bug;
        studies.extend([
            flushing("messages after the wedge", three()).caught(Bug::ReceiveAfterWedge),
            flushing("an installed view ignored", joiner()).caught(Bug::SkipInstalledView),
            flushing("a cut from one report alone", three()).caught(Bug::SkipFlush),
        ]);
    }
    studies
}

fn free(name: &str, model: SlotModel) -> Study {
    let (members, name) = (model.members, format!("message by message: {name}"));
    Study {
        name,
        members,
        world: World::Free(model),
        expected: Expected::Sound,
    }
}

fn sorted(name: &str, model: SlotModel) -> Study {
    let (members, name) = (model.members, format!("any number of ballots: {name}"));
    Study {
        name,
        members,
        world: World::Sorted(model),
        expected: Expected::Sound,
    }
}

fn flushing(name: &str, model: FlushModel) -> Study {
    Study {
        name: name.to_owned(),
        members: model.members,
        world: World::Flush(model),
        expected: Expected::Sound,
    }
}

impl Study {
    #[cfg(feature = "planted")]
    fn caught(self, bug: antiphon_core::planted::Bug) -> Self {
        Self {
            expected: Expected::Caught(bug),
            ..self
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Worlds small enough for every test run.
    const LIMIT: u64 = 400_000;

    #[test]
    fn two_members_never_decide_a_slot_twice_in_any_order_of_events() {
        for study in slot(false).iter().filter(|study| study.members == 2) {
            let finding = study.run(LIMIT);
            assert!(finding.as_expected, "{}: {:?}", study.name, finding.outcome);
            assert!(
                finding.outcome.states > 100,
                "{} hardly explores anything",
                study.name
            );
        }
    }

    #[test]
    fn a_flush_whose_leader_dies_at_any_step_leaves_the_living_in_one_view() {
        for study in flush(false) {
            let finding = study.run(LIMIT);
            assert!(finding.as_expected, "{}: {:?}", study.name, finding.outcome);
        }
    }

    #[cfg(feature = "planted")]
    #[test]
    fn four_members_show_what_each_rule_of_the_fast_ballot_is_for() {
        use antiphon_core::planted::Bug;
        for bug in [
            Bug::FastQuorumIsMajority,
            Bug::FastQuorumIsTwoThirds,
            Bug::RecoverAnyFastVote,
        ] {
            let study = sorted("four members, the fast ballot, one dies", fast_two(4)).caught(bug);
            let finding = study.run(2 * LIMIT);
            let violation = finding.outcome.violation;
            let violation = violation.unwrap_or_else(|| panic!("{bug:?} was not found"));
            assert!(violation.what.starts_with("R1"), "{bug:?}: {violation:?}");
        }
    }

    #[cfg(feature = "planted")]
    #[test]
    fn bare_certificates_and_second_values_are_found_with_their_schedule() {
        for study in slot(false)
            .iter()
            .filter(|study| matches!(study.expected, Expected::Caught(_)))
        {
            let finding = study.run(2 * LIMIT);
            assert!(finding.as_expected, "{}: {:?}", study.name, finding.outcome);
            let violation = finding.outcome.violation.expect("as expected");
            assert!(!violation.schedule.is_empty());
        }
    }
}
