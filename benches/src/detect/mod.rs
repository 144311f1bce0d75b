//! `detect`: how soon a member that is gone is known to be gone, and whether members are taken for gone that
//! are not.
//!
//! ```text
//!  faults ──► a member of a fleet in the lab's namespaces       killed, its cable cut, stopped
//!                    └── the others tell their views ──► until the last of them is without it
//!             all members with little CPU, or one with a bad link: who is removed though alive?
//! ```
//! - [`fleet`]: members of ours or a peer as processes, and what each of them reports; [`starve`]: little
//!   CPU.
//!
//! Times are taken where the lines of the members arrive here.

mod fleet;
mod starve;

use std::time::{Duration, Instant};

use clap::Args;
use rustix::process::Signal;

use crate::jgroups::{self, JGroups};
use crate::lab::Lab;
use crate::memberlist::{self, Memberlist};
use crate::ours::Ours;
use crate::report::{Case, Headline, Report};
use crate::{Common, Failure};
use fleet::{Fleet, Kind};
use starve::Starved;

/// Until a member that is gone is known to be by all: the slowest of the peers takes most of a minute by
/// default.
const GONE_WITHIN: Duration = Duration::from_secs(150);
/// Between the moment at which all are there and the fault.
const REST: Duration = Duration::from_secs(2);
/// Sizes of fleets whose members get little CPU, and of those with one bad link.
const STARVED: [usize; 2] = [3, 10];
const LOSSY: usize = 10;
/// A member's share of a core, in percent.
const SHARE: u8 = 10;
/// Packets lost on the bad link, each way, in percent.
const LOSS: u8 = 30;

#[derive(Debug, Args)]
pub(crate) struct DetectArgs {
    #[command(flatten)]
    common: Common,
    /// How many members
    #[arg(long, value_name = "N,…", value_delimiter = ',', default_value = "3,10,50", value_parser = clap::value_parser!(u8).range(2..=50))]
    nodes: Vec<u8>,
    /// What goes wrong
    #[arg(
        long,
        value_enum,
        value_name = "WHAT,…",
        value_delimiter = ',',
        default_value = "kill,cut,stop,starve,lose"
    )]
    faults: Vec<Fault>,
    /// How long members live with little CPU or a bad link
    #[arg(long, value_name = "S", default_value_t = 60)]
    bad_seconds: u64,
    /// Ours alone
    #[arg(long)]
    no_peers: bool,
}

/// What goes wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Fault {
    /// kill -9: the kernel closes its connections.
    Kill,
    /// Its cable is cut.
    Cut,
    /// SIGSTOP: its kernel answers, it does not.
    Stop,
    /// All members get a tenth of a core each.
    Starve,
    /// One loses 30 % of its packets, each way.
    Lose,
}

/// Measures and reports.
pub(crate) fn run(args: &DetectArgs) -> Result<(), Failure> {
    let common = &args.common;
    let ours = Ours::build()?;
    let peers = !args.no_peers;
    let jgroups = peers.then(|| common.peer(JGroups::get())).transpose()?.flatten();
    let memberlist = peers
        .then(|| common.peer(Memberlist::get()))
        .transpose()?
        .flatten();
    let nodes: Vec<usize> = match common.smoke {
        true => vec![3],
        false => args.nodes.iter().copied().map(usize::from).collect(),
    };
    let most = nodes.iter().copied().chain([LOSSY]).max().unwrap_or(LOSSY);
    let lab = Lab::new(most, !common.no_offload)?;
    let kinds = |udp: bool| {
        let ours = [Kind::Ours(&ours, "tcp"), Kind::Ours(&ours, "udp")];
        let stacks = ["tcp.xml", "udp.xml"].into_iter();
        let jgroups = stacks.filter_map(|stack| Some(Kind::JGroups(jgroups.as_ref()?, stack)));
        let memberlist = memberlist.iter().map(Kind::Memberlist);
        let of_both = ours.into_iter().chain(jgroups);
        let wanted = move |kind: &Kind<'_>| udp || !kind.is_udp();
        of_both.filter(wanted).chain(memberlist).collect::<Vec<_>>()
    };
    let engines = || {
        let both = ["coordinator", "cut"].into_iter();
        let both = both.map(|engine| Kind::Engine(&ours, engine));
        both.chain(kinds(false).into_iter().filter(|kind| !kind.is_ours()))
            .collect::<Vec<_>>()
    };
    let mut report = Report::new(
        "detect",
        "until all others know that a member is gone, and members removed though alive",
        "s",
    );
    let gone = [Fault::Kill, Fault::Cut, Fault::Stop];
    // Peers take most of a minute to notice what is merely silent.
    let gone = &gone[..if common.smoke { 1 } else { gone.len() }];
    for nodes in &nodes {
        for fault in gone.iter().copied().filter(|fault| args.faults.contains(fault)) {
            let mut case = Case::new(format!("{nodes} members, {}", fault.name()));
            for kind in engines() {
                if let Err(why) = measure(&lab, &kind, *nodes, fault, common, &mut case) {
                    case.fail(kind.series(), kind.is_ours(), &why);
                }
            }
            report.cases.push(case);
        }
    }
    let time = Duration::from_secs(if common.smoke { 2 } else { args.bad_seconds });
    if args.faults.contains(&Fault::Starve) {
        for nodes in STARVED
            .into_iter()
            .take(if common.smoke { 1 } else { STARVED.len() })
        {
            let name = format!("{nodes} members, each with {SHARE} % of a core: removed though alive");
            let mut case = Case::of(name, "members");
            for kind in engines() {
                match starved(&lab, &kind, nodes, time) {
                    Ok(removed) => case.add(kind.series(), removed),
                    Err(why) => case.fail(kind.series(), kind.is_ours(), &why),
                }
            }
            report.cases.push(case);
        }
    }
    if args.faults.contains(&Fault::Lose) {
        let nodes = if common.smoke { 3 } else { LOSSY };
        let name = |who: &str| format!("{nodes} members, one loses {LOSS} % of its packets: {who}");
        let mut healthy = Case::of(name("others removed"), "members");
        let mut lossy = Case::of(name("it was removed"), "times");
        let mut kinds = kinds(true);
        kinds.insert(1, Kind::OursByTcpAlone(&ours));
        for kind in kinds {
            match lossy_link(&lab, &kind, nodes, time) {
                Ok((others, itself)) => {
                    healthy.add(kind.series(), others);
                    lossy.add(kind.series(), itself);
                }
                Err(why) => healthy.fail(kind.series(), kind.is_ours(), &why),
            }
        }
        report.cases.extend([healthy, lossy]);
    }
    report.lower_is_better = true;
    report.headline = Headline {
        ours: Kind::Engine(&ours, "coordinator").series().to_owned(),
        peers: vec!["memberlist".to_owned(), "JGroups tcp.xml".to_owned()],
        limit: None,
    };
    let versions = [
        jgroups.as_ref().map(|_| format!("JGroups {}", jgroups::VERSION)),
        memberlist
            .as_ref()
            .map(|_| format!("memberlist {}", memberlist::VERSION)),
    ];
    report.peer_version =
        Some(versions.into_iter().flatten().collect::<Vec<_>>().join(", ")).filter(|text| !text.is_empty());
    report.tell(&ours.version(), common)
}

impl Fault {
    fn name(self) -> &'static str {
        match self {
            Fault::Kill => "one killed",
            Fault::Cut => "one cable cut",
            Fault::Stop => "one stopped",
            Fault::Starve => "little CPU",
            Fault::Lose => "a bad link",
        }
    }
}

/// Seconds until all others are without a member, each run another one; it comes back in between.
fn measure(
    lab: &Lab,
    kind: &Kind<'_>,
    nodes: usize,
    fault: Fault,
    common: &Common,
    case: &mut Case,
) -> Result<(), Failure> {
    eprintln!("{}: {nodes} members, {}", kind.series(), fault.name());
    let mut fleet = Fleet::start(lab, kind, nodes)?;
    for run in 0..usize::from(common.runs()) {
        std::thread::sleep(REST);
        // The most senior, then the least, then others.
        let victim = match run {
            0 => 1,
            1 => nodes,
            run => 1 + run % nodes,
        };
        let begun = Instant::now();
        match fault {
            Fault::Kill => fleet.kill(victim),
            Fault::Cut => lab.cut(victim),
            Fault::Stop => fleet.signal(victim, Signal::STOP),
            Fault::Starve | Fault::Lose => {}
        }
        let known = fleet.wait_without(victim, GONE_WITHIN)?;
        case.add(
            kind.series(),
            known.saturating_duration_since(begun).as_secs_f64(),
        );
        fleet.kill(victim);
        if fault == Fault::Cut {
            lab.mend();
        }
        if run + 1 < usize::from(common.runs()) {
            fleet.restart(victim)?;
        }
    }
    Ok(())
}

/// How many members were removed while each had a tenth of a core.
fn starved(lab: &Lab, kind: &Kind<'_>, nodes: usize, time: Duration) -> Result<f64, Failure> {
    eprintln!("{}: {nodes} members with little CPU", kind.series());
    let mut fleet = Fleet::start(lab, kind, nodes)?;
    std::thread::sleep(REST);
    fleet.forget_removals();
    let starved = Starved::new(&fleet.processes(), SHARE)?;
    fleet.listen(time)?;
    drop(starved);
    Ok(fleet.removed().len() as f64)
}

/// How many others were removed while one member had a bad link, and how often that one was.
fn lossy_link(lab: &Lab, kind: &Kind<'_>, nodes: usize, time: Duration) -> Result<(f64, f64), Failure> {
    eprintln!("{}: {nodes} members, one with a bad link", kind.series());
    let mut fleet = Fleet::start(lab, kind, nodes)?;
    std::thread::sleep(REST);
    fleet.forget_removals();
    lab.lose(nodes, LOSS);
    let listened = fleet.listen(time);
    lab.lose(nodes, 0);
    listened?;
    let lossy = fleet::name(nodes);
    let removed = fleet.removed();
    // What the one behind the link thinks of the others counts as much as what they think of each other.
    let others = removed.keys().filter(|name| **name != lossy).count();
    Ok((others as f64, removed.get(&lossy).copied().unwrap_or(0) as f64))
}
