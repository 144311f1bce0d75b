//! Stories about faults, on virtual time, and what holds of all plans. Each story ends with all checkers.
#![expect(clippy::duplicate_mod, reason = "the same stories are told with each engine")]

use crate::campaign::{Campaign, Summary};
use crate::plan::{named, named_on, runs_on};
use crate::run::run;
use crate::world::addr_of;
use antiphon_core::EngineKind;

#[path = "stories.rs"]
mod coordinator;
#[path = "stories.rs"]
mod cut;

#[test]
fn one_seed_gives_one_run_byte_for_byte() {
    for name in ["default", "r6-merge", "late-replay"] {
        let plan = named(name, 5, None).expect("a plan of the library");
        let (once, again) = (run(&plan, 5), run(&plan, 5));
        assert_eq!(once.digest, again.digest, "{name}");
        assert_eq!(once.trace.lines.len(), again.trace.lines.len(), "{name}");
        let show = |lines: &[crate::trace::Line]| format!("{lines:?}");
        assert_eq!(show(&once.trace.lines), show(&again.trace.lines), "{name}");
        assert_ne!(
            once.digest,
            run(&plan, 6).digest,
            "another seed is another run of {name}"
        );
    }
}

#[test]
fn every_plan_of_the_library_can_be_drawn_and_keeps_its_steps_in_its_slots() {
    for name in crate::plan::NAMES {
        for seed in 0..20 {
            let plan = named(name, seed, None).expect("each name is a plan");
            assert!(
                plan.slots >= 2 && plan.seeds >= 1 && plan.seeds <= plan.slots,
                "{name} {seed}"
            );
            assert!(plan.steps.is_sorted_by_key(|step| step.at), "{name} {seed}");
            assert_ne!(addr_of(plan.slots - 1), addr_of(0), "{name} {seed}");
        }
    }
    assert!(named("no such plan", 0, None).is_none());
}

#[test]
fn a_plan_asked_for_on_an_engine_is_the_one_drawn_but_for_the_engine() {
    for name in crate::plan::NAMES {
        for seed in 0..4 {
            let drawn = named(name, seed, None).expect("each name is a plan");
            for engine in EngineKind::ALL {
                let asked = named_on(name, seed, None, Some(engine));
                assert_eq!(asked.is_some(), runs_on(name, engine), "{name} {engine:?}");
                let Some(mut asked) = asked else { continue };
                assert_eq!(asked.membership, engine);
                asked.membership = drawn.membership;
                assert_eq!(format!("{asked:?}"), format!("{drawn:?}"), "{name} {seed}");
            }
        }
    }
}

#[test]
fn an_engine_that_none_of_many_seeds_drew_is_named() {
    let campaign = |plan: &str, membership| Campaign {
        plan: plan.to_owned(),
        from: 0,
        seeds: 100,
        nodes: None,
        membership,
        jobs: 1,
        stop_at_failure: false,
        within: None,
    };
    let only_cut = Summary {
        seeds: 100,
        engines: [("cut", 100)].into(),
        ..Summary::default()
    };
    let never = |plan, membership| campaign(plan, membership).never_drawn(&only_cut);
    assert_eq!(never("default", None), [EngineKind::Coordinator]);
    assert_eq!(never("cut-lossy", None), []);
    assert_eq!(never("default", Some(EngineKind::Cut)), []);
    let few = Summary {
        seeds: 3,
        engines: [("cut", 3)].into(),
        ..Summary::default()
    };
    assert_eq!(campaign("default", None).never_drawn(&few), []);
}
