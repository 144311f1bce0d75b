//! `scale`: what large clusters do, over one seed or many.

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use antiphon_core::EngineKind;
use antiphon_sim::scale::{Fault, Figures, Scale, measure};
use clap::Args;
use serde_json::{Value, json};

#[derive(Args)]
pub(crate) struct Arguments {
    /// How many nodes.
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u16).range(1..=4096))]
    nodes: u16,
    /// How many of them are seeds.
    #[arg(long, default_value_t = 40, value_parser = clap::value_parser!(u8).range(1..=64))]
    seeds: u8,
    /// How many more join once the cluster has formed and rested, a second after each other.
    #[arg(long, default_value_t = 0, value_parser = clap::value_parser!(u16).range(..=1000))]
    joins: u16,
    /// How many leave in order, all at one instant, before some fail.
    #[arg(long, default_value_t = 0)]
    leave: u16,
    /// How many fail, all at one instant.
    #[arg(long, default_value_t = 10)]
    faulty: u16,
    /// How: `killed`, `power-lost`, `flip-flop` (they get nothing for 20 s, and everything for 20 s, twice),
    /// `lossy-out` or `lossy-in` (four fifths of what they send, or of what is sent to them, is lost).
    #[arg(long, default_value = "killed")]
    fault: String,
    /// How long a silent member is waited for, in milliseconds.
    #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u64).range(100..=60_000))]
    detect_ms: u64,
    /// How long traffic at rest is measured, in virtual seconds.
    #[arg(long, default_value_t = 30, value_parser = clap::value_parser!(u64).range(1..=3600))]
    rest_s: u64,
    /// The membership engine: `cut` or `coordinator`.
    #[arg(long, default_value = "cut", value_parser = crate::membership)]
    membership: EngineKind,
    /// How many different sizes of views may be seen until all have formed; 8 if not given, and any number on
    /// `coordinator`.
    #[arg(long)]
    sizes: Option<u16>,
    /// What chance decides; of several runs, the first one's.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// How many runs, each with the seed after the one before.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..))]
    runs: u64,
    /// Runs at a time; as many as there are cores if not given. One of 1000 nodes takes a gigabyte of memory.
    #[arg(long)]
    jobs: Option<usize>,
    /// Only the JSON object on stdout.
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(arguments: &Arguments) -> ExitCode {
    let engine = arguments.membership;
    let fault = Fault::ALL
        .into_iter()
        .find(|fault| fault.name() == arguments.fault);
    let Some(fault) = fault else {
        let names = Fault::ALL.map(Fault::name).join(", ");
        eprintln!("there is no fault {:?}, but {names}", arguments.fault);
        return ExitCode::from(2);
    };
    let first = Scale {
        nodes: usize::from(arguments.nodes),
        seeds: usize::from(arguments.seeds),
        joins: usize::from(arguments.joins),
        leave: usize::from(arguments.leave),
        faulty: usize::from(arguments.faulty),
        fault,
        detect: Duration::from_millis(arguments.detect_ms),
        rest: Duration::from_secs(arguments.rest_s),
        engine,
        most_sizes: arguments
            .sizes
            .map(usize::from)
            .or((engine == EngineKind::Cut).then_some(8)),
        seed: arguments.seed,
    };
    let jobs = arguments.jobs.unwrap_or_else(|| crate::cores(None)).max(1);
    let (next, done) = (AtomicU64::new(0), Mutex::new(BTreeMap::new()));
    std::thread::scope(|scope| {
        for _ in 0..jobs {
            scope.spawn(|| {
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number >= arguments.runs {
                        break;
                    }
                    let scale = Scale {
                        seed: first.seed.wrapping_add(number),
                        ..first.clone()
                    };
                    let figures = one(arguments, &scale);
                    // A poisoned lock only says that another thread panicked; what is in it is whole.
                    let mut done = done.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
                    done.insert(number, figures);
                }
            });
        }
    });
    let done = done.into_inner().unwrap_or_else(|poisoned| poisoned.into_inner());
    let runs: Vec<Figures> = done.into_values().collect();
    println!("{}", summary(&first, &runs));
    match runs.iter().all(|figures| figures.are_sound(&first)) {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    }
}

/// One run. It says how it goes, and what came of it.
fn one(arguments: &Arguments, scale: &Scale) -> Figures {
    let figures = measure(scale, |at_s, largest, agreed| {
        if arguments.runs == 1 {
            eprintln!("{at_s:.1} s: the largest view has {largest}, {agreed} nodes have all");
        }
    });
    if !arguments.json || !figures.are_sound(scale) {
        let said = |at: Option<f64>| at.map_or("never".to_owned(), |at| format!("after {} s", rounded(at)));
        let joined: Vec<f64> = figures.joined_s.iter().flatten().map(|(_, all)| *all).collect();
        let joins = match spread(&joined) {
            Some([median, least, most]) => format!(
                "; {} of {} joined, each after {median} s ({least} to {most})",
                joined.len(),
                scale.joins
            ),
            None if scale.joins == 0 => String::new(),
            None => format!("; none of {} joined", scale.joins),
        };
        let left = match scale.leave {
            0 => String::new(),
            leave => format!(
                "; {leave} left at once, gone {} in {} views",
                said(figures.left_s),
                figures.leave_views
            ),
        };
        let faulty = match scale.faulty {
            0 => String::new(),
            faulty => format!(
                "; {faulty} failed ({}), gone {} in {} views, {} others lost",
                scale.fault.name(),
                said(figures.removed_s),
                figures.removal_views,
                figures.healthy_lost
            ),
        };
        let line = format!(
            "seed {}: {} nodes formed {} of virtual time, sizes {:?}; at rest each sent {:.0} B/s to {:.1} others{joins}{left}{faulty}",
            scale.seed,
            scale.nodes,
            said(figures.formed_s),
            figures.sizes,
            figures.sent.0,
            figures.peers.0
        );
        if arguments.json {
            eprintln!("{line}")
        } else {
            println!("{line}")
        }
    }
    if !figures.are_sound(scale) {
        eprintln!("seed {}: {}", scale.seed, figures.complaints(scale).join("; "));
        let sizes = scale
            .most_sizes
            .map_or(String::new(), |sizes| format!(" --sizes {sizes}"));
        eprintln!(
            "reproduce: antiphon-sim scale --nodes {} --seeds {} --joins {} --leave {} --faulty {} --fault {} --detect-ms {} --rest-s {} --membership {}{sizes} --seed {}",
            scale.nodes,
            scale.seeds,
            scale.joins,
            scale.leave,
            scale.faulty,
            scale.fault.name(),
            scale.detect.as_millis(),
            scale.rest.as_secs(),
            scale.engine.name(),
            scale.seed
        );
    }
    figures
}

fn rounded(value: f64) -> f64 {
    (value * 1000.0).round() / 1000.0
}

/// The median, the least and the most.
fn spread(values: &[f64]) -> Option<[f64; 3]> {
    let mut values = values.to_vec();
    values.sort_by(f64::total_cmp);
    let (least, most) = (*values.first()?, *values.last()?);
    Some([values[values.len() / 2], least, most].map(rounded))
}

fn summary(scale: &Scale, runs: &[Figures]) -> Value {
    let over = |value: &dyn Fn(&Figures) -> Option<f64>| {
        let values: Vec<f64> = runs.iter().filter_map(value).collect();
        spread(&values).map(|[median, least, most]| json!({ "median": median, "least": least, "most": most }))
    };
    let joins = |of: &dyn Fn(&(f64, f64)) -> f64| {
        let joins = runs.iter().flat_map(|figures| figures.joined_s.iter().flatten());
        let values: Vec<f64> = joins.map(of).collect();
        spread(&values).map(|[median, least, most]| json!({ "median": median, "least": least, "most": most }))
    };
    let unsound = runs
        .iter()
        .zip(scale.seed..)
        .filter(|(figures, _)| !figures.are_sound(scale));
    json!({
        "nodes": scale.nodes,
        "seeds": scale.seeds,
        "membership": scale.engine.name(),
        "detect_s": rounded(scale.detect.as_secs_f64()),
        "runs": runs.len(),
        "first_seed": scale.seed,
        "unsound_seeds": unsound.map(|(_, seed)| seed).collect::<Vec<_>>(),
        "formed_s": over(&|figures| figures.formed_s),
        "distinct_sizes": over(&|figures| Some(figures.sizes.len() as f64)),
        "views": over(&|figures| Some(figures.views as f64)),
        "rest_sent_bytes_per_s": over(&|figures| Some(figures.sent.0)),
        "rest_sent_bytes_per_s_of_the_busiest": over(&|figures| Some(figures.sent.1)),
        "rest_received_bytes_per_s": over(&|figures| Some(figures.received.0)),
        "rest_peers": over(&|figures| Some(figures.peers.0)),
        "rest_peers_of_the_busiest": over(&|figures| Some(figures.peers.1 as f64)),
        "joins": scale.joins,
        "joiner_sees_all_s": joins(&|(itself, _)| *itself),
        "all_see_the_joiner_s": joins(&|(_, all)| *all),
        "leave": scale.leave,
        "left_s": over(&|figures| figures.left_s),
        "leave_views": over(&|figures| Some(figures.leave_views as f64)),
        "faulty": scale.faulty,
        "fault": scale.fault.name(),
        "removed_s": over(&|figures| figures.removed_s),
        "removal_views": over(&|figures| Some(figures.removal_views as f64)),
        "healthy_lost": runs.iter().map(|figures| figures.healthy_lost).sum::<usize>(),
        "lost_again": runs.iter().map(|figures| figures.lost_again).sum::<usize>(),
        "forming_frames": over(&|figures| Some(figures.forming[0] as f64)),
        "forming_bytes": over(&|figures| Some(figures.forming[1] as f64)),
        "forming_records": over(&|figures| Some(figures.forming[2] as f64)),
        "forming_record_bytes": over(&|figures| Some(figures.forming[3] as f64)),
        "removing_frames": over(&|figures| Some(figures.removing[0] as f64)),
        "removing_bytes": over(&|figures| Some(figures.removing[1] as f64)),
        "removing_records": over(&|figures| Some(figures.removing[2] as f64)),
        "removing_record_bytes": over(&|figures| Some(figures.removing[3] as f64)),
        "wall_s": over(&|figures| Some(figures.wall.as_secs_f64())),
    })
}
