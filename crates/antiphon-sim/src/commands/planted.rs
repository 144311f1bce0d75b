//! `planted`: each mistake of the core is caught, on each membership engine that can make it if there is time
//! to find out where.

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use antiphon_core::EngineKind;
use antiphon_core::planted::Bug;
use antiphon_sim::planted::{Bounds, Catch, Table, catch};
use clap::Args;
use serde_json::json;

#[derive(Args)]
pub(crate) struct Arguments {
    /// Threads; all cores if not given.
    #[arg(long)]
    jobs: Option<usize>,
    /// Seconds of search for each mistake on each engine, where the table of catches does not help.
    #[arg(long, default_value_t = 60)]
    each: u64,
    /// Seconds for all of them, after which no search begins.
    #[arg(long, default_value_t = 540)]
    within: u64,
    /// Only this mistake.
    #[arg(long)]
    bug: Option<String>,
    /// Only every third mistake, from the first, second or third on (1 to 3).
    #[arg(long, value_parser = clap::value_parser!(u8).range(1..=3), conflicts_with = "bug")]
    third: Option<u8>,
    /// Only this membership engine, `coordinator` or `cut`.
    #[arg(long, value_parser = crate::membership)]
    membership: Option<EngineKind>,
    /// A catch on one engine is enough: each mistake is run on one of them, by turns, and on the other
    /// one only if it is not caught.
    #[arg(long)]
    once: bool,
    /// Search as if nothing were known.
    #[arg(long)]
    anew: bool,
    /// Note in the table of catches where each was caught.
    #[arg(long)]
    write: bool,
    /// Only the JSON object on stdout.
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(arguments: &Arguments) -> ExitCode {
    let started = Instant::now();
    let bugs = match &arguments.bug {
        Some(name) => match crate::bug_named(name) {
            Some(bug) => vec![bug],
            None => return ExitCode::from(2),
        },
        None => {
            let from = arguments.third.map_or(0, |third| usize::from(third) - 1);
            let every = arguments.third.map_or(1, |_| 3);
            Bug::ALL.iter().copied().skip(from).step_by(every).collect()
        }
    };
    let engines = arguments
        .membership
        .map_or(EngineKind::ALL.to_vec(), |only| vec![only]);
    let known = match arguments.write {
        true => Table::in_checkout(),
        false => Table::built_in(),
    };
    let known = match known {
        Ok(table) => table,
        Err(error) => {
            eprintln!("{error}");
            return ExitCode::from(2);
        }
    };
    let table = match arguments.anew {
        true => known.clone().forgotten(),
        false => known.clone(),
    };
    let bounds = Bounds {
        jobs: crate::cores(arguments.jobs),
        each: Duration::from_secs(arguments.each),
        all: Duration::from_secs(arguments.within),
        once: arguments.once,
    };
    let written = Mutex::new(known);
    let catches = catch(&bugs, &engines, &table, bounds, |catch| {
        tell(catch);
        if arguments.write && !catch.known {
            // At once: what a search took long for is kept if it is stopped.
            note(&written, catch);
        }
    });
    let count = |engine: EngineKind, of: &dyn Fn(&Catch) -> bool| {
        let on_it = catches.iter().filter(|catch| catch.engine == engine && of(catch));
        on_it.count()
    };
    let named = |of: &dyn Fn(&Catch) -> bool| -> Vec<String> {
        let some = catches.iter().filter(|catch| of(catch));
        some.map(|catch| format!("{:?} on {}", catch.bug, catch.engine.name()))
            .collect()
    };
    let missed = named(&|catch| catch.by.is_none());
    let nowhere: Vec<String> = bugs
        .iter()
        .filter(|bug| {
            let mut all = catches.iter().filter(|catch| catch.bug == **bug);
            all.all(|catch| catch.by.is_none())
        })
        .map(|bug| format!("{bug:?}"))
        .collect();
    let stale = named(&|catch| !catch.known && table.caught(catch.bug, catch.engine).is_some());
    let unknown = named(&|catch| !catch.known && table.caught(catch.bug, catch.engine).is_none());
    let mut by: BTreeMap<String, BTreeMap<&str, String>> = BTreeMap::new();
    for catch in &catches {
        if let Some(found) = &catch.by {
            let what = format!(
                "{} seed {}: {}",
                found.plan, found.seed, found.violation.guarantee
            );
            let of_bug = by.entry(format!("{:?}", catch.bug)).or_default();
            of_bug.insert(catch.engine.name(), what);
        }
    }
    let caught = |bug: &&Bug| {
        let mut all = catches.iter().filter(|catch| catch.bug == **bug);
        all.all(|catch| catch.by.is_some())
    };
    let caught = bugs.iter().filter(caught).count();
    let per_engine: BTreeMap<&str, serde_json::Value> = engines
        .iter()
        .map(|engine| {
            let (due, caught) = (
                count(*engine, &|_| true),
                count(*engine, &|catch| catch.by.is_some()),
            );
            (engine.name(), json!({ "due": due, "caught": caught }))
        })
        .collect();
    if !arguments.json {
        for (engine, counts) in &per_engine {
            println!(
                "{engine}: {} of {} planted mistakes caught",
                counts["caught"], counts["due"]
            );
        }
    }
    if !stale.is_empty() || !unknown.is_empty() {
        eprintln!(
            "{}: {} entries are stale and {} are missing, which costs a search each time; refresh it: {}",
            Table::FILE,
            stale.len(),
            unknown.len(),
            Table::REFRESH
        );
    }
    println!(
        "{}",
        json!({
            "planted": bugs.len(),
            "caught": caught,
            "engines": per_engine,
            "missed": missed,
            "nowhere": nowhere,
            "stale": stale,
            "unknown": unknown,
            "by": by,
            "wall_s": (started.elapsed().as_secs_f64() * 1000.0).round() / 1000.0,
        })
    );
    match nowhere.is_empty() && !catches.is_empty() {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    }
}

/// Notes a catch in the table of the checkout that this was built in.
fn note(table: &Mutex<Table>, catch: &Catch) {
    // A poisoned lock only says that another thread panicked; the table is whole.
    let mut table = table.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    table.note(catch);
    let path = Table::path();
    if let Err(error) = std::fs::write(&path, table.show()) {
        eprintln!("{}: {error}", path.display());
    }
}

fn tell(catch: &Catch) {
    let (bug, engine) = (catch.bug, catch.engine.name());
    match &catch.by {
        Some(found) => eprintln!(
            "{bug:?} on {engine}: caught by {} seed {}{}: {}",
            found.plan,
            found.seed,
            match catch.known {
                true => String::new(),
                false => format!(" after {} runs", catch.runs),
            },
            found.violation
        ),
        None => eprintln!(
            "{bug:?} on {engine}: MISSED in {} runs ({})",
            catch.runs,
            bug.description()
        ),
    }
}
