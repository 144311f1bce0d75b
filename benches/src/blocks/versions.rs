//! `versions`: six ways to get a version stamped on a message at three servers, and what the map does.

use clap::Args;

use super::crew::Crew;
use super::sum;
use super::worker::words::{Ask, Open, Pattern, Put};
use crate::lab::Lab;
use crate::ours::version;
use crate::report::{Case, Headline, Report};
use crate::{Common, Failure};

const SERVERS: usize = 3;
const PATTERNS: [&str; 6] = [
    "0 no version",
    "1 ask for a version, then send to all",
    "2 send to one, then to the others",
    "3 one relays and collects",
    "4 one relays, all answer",
    "5 send to all, one stamps",
];
/// What the map's writes are made of: a write goes to all, and the member that orders tells its place.
const STAMPED: &str = PATTERNS[5];
const MAP: &str = "map: put";
const MILLION: f64 = 1e6;

#[derive(Debug, Args)]
pub(crate) struct VersionsArgs {
    #[command(flatten)]
    common: Common,
    /// Bytes of a payload, measured one after the other
    #[arg(long, value_name = "BYTES,…", value_delimiter = ',', default_values_t = [0, 100, 1000, 3000, 10_000])]
    sizes: Vec<usize>,
    /// Messages of a client under way at once, measured one after the other
    #[arg(long, value_name = "N,…", value_delimiter = ',', default_values_t = [1, 16])]
    in_flight: Vec<usize>,
    /// Clients, measured one after the other, 8 at most
    #[arg(long, value_name = "N,…", value_delimiter = ',', default_values_t = [1, 3], value_parser = clients)]
    clients: Vec<usize>,
    /// Rate of every link in Mbit/s, each way; 0: as fast as the processors copy
    #[arg(long, value_name = "MBIT", default_value_t = 0, value_parser = clap::value_parser!(u32).range(0..=10_000))]
    mbit: u32,
}

fn clients(given: &str) -> Result<usize, String> {
    match given.parse() {
        Ok(clients @ 1..=8) => Ok(clients),
        _ => Err("1 to 8 clients".to_owned()),
    }
}

/// What is under way at once.
struct Load {
    clients: usize,
    in_flight: usize,
    bytes: usize,
}

impl Load {
    fn name(&self, mbit: u32) -> String {
        let clients = match self.clients {
            1 => String::new(),
            clients => format!(", {clients} clients"),
        };
        let rate = match mbit {
            0 => String::new(),
            mbit => format!(" over {mbit} Mbit/s"),
        };
        format!("{} B, {} at a time{clients}{rate}", self.bytes, self.in_flight)
    }
}

/// Measures and reports.
pub(crate) fn run(args: &VersionsArgs) -> Result<(), Failure> {
    let common = &args.common;
    let few = |all: &[usize]| all[..if common.smoke { 1 } else { all.len() }].to_vec();
    let mut loads = Vec::new();
    for clients in few(&args.clients) {
        for in_flight in few(&args.in_flight) {
            loads.extend(few(&args.sizes).into_iter().map(|bytes| Load {
                clients,
                in_flight,
                bytes,
            }));
        }
    }
    let most = loads.iter().map(|load| load.clients).max().unwrap_or(1);
    let lab = Lab::new(SERVERS + most, !common.no_offload)?;
    if args.mbit > 0 {
        lab.shape(args.mbit)?;
    }
    let mut cases: Vec<Case> = loads.iter().map(|load| Case::new(load.name(args.mbit))).collect();
    for run in 1..=common.runs() {
        eprintln!("run {run}");
        // Each client is a member, and more members than send would take part in all views.
        for count in few(&args.clients) {
            let of_count = cases
                .iter_mut()
                .zip(&loads)
                .filter(|(_, load)| load.clients == count);
            measure(&lab, common, usize::from(run), count, of_count)?;
        }
    }
    let mut report = Report::new(
        "versions",
        "seconds for a million messages that have a version at three servers",
        "s per million",
    );
    report.cases = cases;
    report.lower_is_better = true;
    report.headline = Headline {
        ours: STAMPED.to_owned(),
        peers: PATTERNS[1..5].iter().map(|series| (*series).to_owned()).collect(),
        limit: Some(PATTERNS[0].to_owned()),
    };
    report.peer_version = Some("the ways over direct messages of a group, and our map".to_owned());
    report.tell(&version(), common)
}

/// So many clients send in each way, and then write to a map.
fn measure<'a>(
    lab: &Lab,
    common: &Common,
    run: usize,
    clients: usize,
    cases: impl Iterator<Item = (&'a mut Case, &'a Load)>,
) -> Result<(), Failure> {
    let members: Vec<usize> = (1..=SERVERS + clients).collect();
    let mut crew = Crew::muster(lab, members.len())?;
    crew.open(Open::Versions)?;
    let time = common.time();
    let mut measured = Vec::new();
    for (case, load) in cases {
        // Another way is the first one in each run.
        for turn in 0..PATTERNS.len() {
            let number = (turn + run - 1) % PATTERNS.len();
            let pattern = Pattern {
                clients,
                number: number as u8,
                bytes: load.bytes,
                in_flight: load.in_flight,
            };
            let mut told = crew.done(&members, &Ask::Versions { pattern, time }, common.patience())?;
            // Servers tell nothing.
            told.retain(|figures| !figures.is_empty());
            case.add(PATTERNS[number], MILLION / sum(&told, "rate"));
        }
        measured.push((case, load));
    }
    drop(crew);
    // A member writes: it is client and server, and as many others as there are servers hold the write. With
    // more clients there would be more members that hold it.
    if clients > 1 {
        return Ok(());
    }
    let mut crew = Crew::muster(lab, members.len())?;
    crew.open(Open::Map { agreed: false })?;
    for (case, load) in measured {
        let put = Put {
            writers: load.in_flight,
            bytes: load.bytes,
            keys: 1000,
        };
        let told = crew.done(&members[SERVERS..], &Ask::Put { put, time }, common.patience())?;
        case.add(MAP, MILLION / sum(&told, "rate"));
    }
    Ok(())
}
