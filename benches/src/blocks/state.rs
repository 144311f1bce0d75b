//! `state`: a fourth member takes a large state while three write.

use std::time::Duration;

use clap::Args;

use super::crew::Crew;
use super::java::Java;
use super::worker::words::{Ask, Open, Pace, Time};
use super::{Figures, mean, most, sum};
use crate::jgroups::{self, JGroups};
use crate::lab::Lab;
use crate::ours::version;
use crate::raw::{self, Raw, RawWay};
use crate::report::{Case, Headline, Report};
use crate::{Common, Failure};

/// Three that write, and the joiner.
const NODES: usize = 4;
const WRITERS: [usize; 3] = [1, 2, 3];
const JOINER: usize = 4;
/// For the state to be there.
const STATE_WITHIN: Duration = Duration::from_secs(180);
/// Writers run so long before the joiner starts.
const LEAD_MS: u64 = 500;
const OURS: &str = "antiphon";
const PEER: &str = "JGroups STATE";
const RAW: &str = "raw TCP";
const QUIET: &str = "without a joiner";
const BESIDE: &str = "while it joins";
const MEGABYTE: f64 = 1e6;

#[derive(Debug, Args)]
pub(crate) struct StateArgs {
    #[command(flatten)]
    common: Common,
    /// Of the state, in MiB [default: 1024; with --smoke 32]
    #[arg(long, value_name = "MIB", value_parser = clap::value_parser!(u64).range(1..=1024))]
    size: Option<u64>,
    /// Writes per second at each of three members
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    rate: u32,
    /// Of a write
    #[arg(long, value_name = "BYTES", default_value_t = 100)]
    bytes: usize,
    /// Rate of every link in Mbit/s, each way; 0: as fast as the processors copy
    #[arg(long, value_name = "MBIT", default_value_t = 1000, value_parser = clap::value_parser!(u32).range(0..=10_000))]
    mbit: u32,
}

/// Measures and reports.
pub(crate) fn run(args: &StateArgs) -> Result<(), Failure> {
    let common = &args.common;
    let peer = JGroups::get().and_then(|jgroups| {
        let java = Java::get("States.java")?;
        let stack = jgroups.stack("state-tcp.xml", "<pbcast.STATE_TRANSFER/>", "<pbcast.STATE/>")?;
        Ok((java, stack))
    });
    let lab = Lab::new(NODES, !common.no_offload)?;
    if args.mbit > 0 {
        lab.shape(args.mbit)?;
    }
    let bytes = args.size.unwrap_or(if common.smoke { 32 } else { 1024 }) << 20;
    let mut state = Case::new(match args.mbit {
        0 => format!("{} MiB", bytes >> 20),
        mbit => format!("{} MiB over {mbit} Mbit/s", bytes >> 20),
    });
    let paced = format!("of {} writes/s at each of three", args.rate);
    let mut rate = Case::of("all the writes that are answered".to_owned(), "writes/s");
    let mut p99 = Case::of(format!("p99 at the slowest member, {paced}"), "us");
    for run in 1..=common.runs() {
        eprintln!("run {run}");
        let raw = Raw {
            way: RawWay::Tcp,
            senders: 1,
            slice: 64 << 10,
            ring: 1 << 20,
        };
        state.add(RAW, raw::measure(&lab, 2, raw, common)?[1] / MEGABYTE);
        let told = ours(&lab, bytes, args)?;
        state.add(
            OURS,
            mean(&told.joined, "bytes") / mean(&told.joined, "seconds") / MEGABYTE,
        );
        for (at, series) in [QUIET, BESIDE].into_iter().enumerate() {
            p99.add(series, most(&told.paced[at], "p99_us"));
            rate.add(series, sum(&told.unpaced[at], "rate"));
        }
        let sample = peer.as_ref().map_err(Clone::clone);
        let sample = sample.and_then(|(java, stack)| jgroups_state(&lab, java, stack, bytes));
        common.add_peer(&mut state, PEER, sample.map(|rate| rate / MEGABYTE));
    }
    let mut report = Report::new(
        "state",
        "bytes per second of the state that a joiner takes while three members write",
        "MB/s",
    );
    report.cases = vec![state, rate, p99];
    report.headline = Headline {
        ours: OURS.to_owned(),
        peers: vec![PEER.to_owned()],
        limit: Some(RAW.to_owned()),
    };
    report.peer_version = Some(format!("JGroups {}", jgroups::VERSION));
    report.tell(&version(), common)
}

/// What writers tell without a joiner and beside it, and what the joiner beside paced writers tells.
struct Told {
    paced: [Vec<Figures>; 2],
    unpaced: [Vec<Figures>; 2],
    joined: Vec<Figures>,
}

fn ours(lab: &Lab, bytes: u64, args: &StateArgs) -> Result<Told, Failure> {
    let common = &args.common;
    let mut crew = Crew::muster(lab, NODES)?;
    let open = Ask::Open {
        open: Open::Blob { bytes },
    };
    crew.done(&WRITERS, &open, common.patience())?;
    let members = WRITERS.len();
    crew.done(&WRITERS[..1], &Ask::Fill { bytes, members }, STATE_WITHIN)?;
    // How long it takes is known from a first joiner: only what is written in that time counts then.
    let first = crew.done(&[JOINER], &open, STATE_WITHIN)?;
    let mut measure = |per_second| -> Result<_, Failure> {
        crew.kill(JOINER);
        crew.start_again(JOINER)?;
        let pace = Pace {
            bytes: args.bytes,
            per_second,
        };
        let time = common.time();
        let quiet = crew.done(&WRITERS, &Ask::Write { pace, time }, common.patience())?;
        let time = Time {
            warmup_ms: LEAD_MS,
            measured_ms: (mean(&first, "seconds") * 1000.0) as u64,
        };
        crew.ask(&WRITERS, &Ask::Write { pace, time })?;
        std::thread::sleep(time.warmup());
        crew.ask(&[JOINER], &open)?;
        let mut beside = crew.figures(&[1, 2, 3, JOINER], STATE_WITHIN)?;
        let joined = beside.split_off(WRITERS.len());
        let came = mean(&joined, "bytes");
        if came != bytes as f64 {
            return Err(format!("the joiner has {came} of {bytes} bytes"));
        }
        Ok(([quiet, beside], joined))
    };
    let (paced, joined) = measure(Some(args.rate))?;
    let (unpaced, _) = measure(None)?;
    Ok(Told {
        paced,
        unpaced,
        joined,
    })
}

fn jgroups_state(lab: &Lab, java: &Java, stack: &str, bytes: u64) -> Result<f64, Failure> {
    let result = (|| {
        let size = bytes.to_string();
        let first = java.start_with(lab, 2, 1, "4g", &["States", stack, "m1", &size])?;
        first.expect("members 1", STATE_WITHIN)?;
        let joiner = java.start_with(lab, 2, 2, "4g", &["States", stack, "m2", "0"])?;
        let told = [joiner.done(STATE_WITHIN)?];
        let came = mean(&told, "bytes");
        if came != bytes as f64 {
            return Err(format!("the joiner has {came} of {bytes} bytes"));
        }
        Ok(came / mean(&told, "seconds"))
    })();
    lab.kill_all();
    result
}
