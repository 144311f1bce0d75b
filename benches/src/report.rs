//! What a benchmark tells: figures for the person who waits, one JSON object, rows ([`table`]), and the plot
//! of these.

use std::path::{Path, PathBuf};

use serde_json::{Map, Value, json};

use crate::lab;
use crate::plot;
use crate::table::{self, Figure, Row, Table, short};
use crate::tools;
use crate::{Common, Failure};

/// One situation: the samples of each series, a series being ours or a peer in one configuration.
#[derive(Debug, Clone)]
pub(crate) struct Case {
    name: String,
    /// If other than the report's; then it is in no plot.
    unit: Option<String>,
    /// What is compared here, if other than the report's.
    ours: Option<String>,
    /// In the order in which they were first added.
    series: Vec<Series>,
    /// What could not be measured.
    failures: Vec<Failed>,
}

/// What was measured of ours, or of a peer in one configuration.
#[derive(Debug, Clone)]
struct Series {
    name: String,
    /// In how many runs.
    runs: usize,
    samples: Vec<f64>,
}

/// A series that could not be measured, once or more often.
#[derive(Debug, Clone)]
struct Failed {
    series: String,
    is_ours: bool,
    times: usize,
    /// The first time.
    why: Failure,
}

impl Case {
    /// Without samples.
    pub(crate) fn new(name: String) -> Self {
        Self {
            name,
            unit: None,
            ours: None,
            series: Vec::new(),
            failures: Vec::new(),
        }
    }

    /// The same, in a unit of its own: told beside the others, which are what is compared.
    pub(crate) fn of(name: String, unit: &str) -> Self {
        let unit = Some(unit.to_owned());
        Self {
            unit,
            ..Self::new(name)
        }
    }

    /// The same, with another series of ours that is compared.
    pub(crate) fn comparing(self, ours: &str) -> Self {
        let ours = Some(ours.to_owned());
        Self { ours, ..self }
    }

    /// What one run measured of a series.
    pub(crate) fn add(&mut self, series: &str, sample: f64) {
        self.add_all(series, &[sample]);
    }

    /// The same of a run that measured it several times. What is no number fails the series: rows could not
    /// keep it.
    pub(crate) fn add_all(&mut self, series: &str, samples: &[f64]) {
        if let Some(sample) = samples.iter().find(|sample| !sample.is_finite()) {
            return self.fail(series, true, &format!("it was measured as {sample}"));
        }
        for sample in samples {
            eprintln!("  {}: {series}: {}", self.name, short(*sample));
        }
        match self.series.iter_mut().find(|known| known.name == series) {
            _ if samples.is_empty() => {}
            Some(known) => {
                known.runs += 1;
                known.samples.extend(samples);
            }
            None => self.series.push(Series {
                name: series.to_owned(),
                runs: 1,
                samples: samples.to_vec(),
            }),
        }
    }

    /// It could not be measured; what else there is goes on. The first line of the reason is all that the
    /// table says of it.
    pub(crate) fn fail(&mut self, series: &str, is_ours: bool, why: &Failure) {
        eprintln!("  {}: {series}: FAILED: {why}", self.name);
        match self.failures.iter_mut().find(|failed| failed.series == series) {
            Some(failed) => failed.times += 1,
            None => self.failures.push(Failed {
                series: series.to_owned(),
                is_ours,
                times: 1,
                why: why.clone(),
            }),
        }
    }

    /// Whether that series could not be measured before.
    pub(crate) fn has_failed(&self, series: &str) -> bool {
        self.failures.iter().any(|failed| failed.series == series)
    }

    fn measured(&self, series: &str) -> Option<&Series> {
        self.series.iter().find(|known| known.name == series)
    }

    fn samples(&self, series: &str) -> Option<&[f64]> {
        self.measured(series).map(|known| known.samples.as_slice())
    }

    fn median(&self, series: &str) -> Option<f64> {
        self.samples(series).map(median)
    }
}

/// Which series are compared.
#[derive(Debug, Clone, Default)]
pub(crate) struct Headline {
    pub(crate) ours: String,
    /// Ours is compared with the best of them in each case.
    pub(crate) peers: Vec<String>,
    pub(crate) limit: Option<String>,
}

/// A benchmark's outcome.
#[derive(Debug)]
pub(crate) struct Report {
    bench: String,
    title: String,
    unit: String,
    pub(crate) cases: Vec<Case>,
    pub(crate) headline: Headline,
    pub(crate) peer_version: Option<String>,
    pub(crate) lower_is_better: bool,
}

impl Report {
    /// Without cases.
    pub(crate) fn new(bench: &str, title: &str, unit: &str) -> Self {
        Self {
            bench: bench.to_owned(),
            title: title.to_owned(),
            unit: unit.to_owned(),
            cases: Vec::new(),
            headline: Headline::default(),
            peer_version: None,
            lower_is_better: false,
        }
    }

    /// Prints and writes everything; the JSON object is the last line of stdout.
    ///
    /// # Errors
    /// It cannot be written, or ours could not be measured: then everything is told all the same.
    pub(crate) fn tell(&self, version: &str, common: &Common) -> Result<(), Failure> {
        let folder = match (&common.out, common.smoke) {
            (Some(folder), _) => folder.clone(),
            (None, true) => tools::cache()?.join("smoke"),
            (None, false) => tools::root().join("docs"),
        };
        self.print();
        self.record(&folder, version)?;
        draw(&folder, Some(&self.bench))?;
        if common.json {
            println!("{}", self.json(version, common));
        }
        let failures = self.cases.iter().flat_map(|case| &case.failures);
        match failures.filter(|failed| failed.is_ours).count() {
            0 => Ok(()),
            1 => Err("one measurement of ours failed, see above".to_owned()),
            failed => Err(format!("{failed} measurements of ours failed, see above")),
        }
    }

    /// The peer that did best in a case.
    fn rival(&self, case: &Case) -> Option<&str> {
        let medians = self
            .headline
            .peers
            .iter()
            .filter_map(|peer| Some((peer.as_str(), case.median(peer)?)));
        let best = medians.max_by(|(_, one), (_, other)| match self.lower_is_better {
            true => other.total_cmp(one),
            false => one.total_cmp(other),
        });
        best.map(|(peer, _)| peer)
    }

    /// The series that is compared.
    fn ours<'a>(&'a self, case: &'a Case) -> &'a str {
        case.ours.as_ref().unwrap_or(&self.headline.ours)
    }

    /// How many times better than the best peer ours is.
    fn peer_ratio(&self, case: &Case) -> Option<f64> {
        self.ratio(case, self.rival(case))
    }

    /// How many times better than the other series ours is.
    fn ratio(&self, case: &Case, other: Option<&str>) -> Option<f64> {
        let (ours, other) = (case.median(self.ours(case))?, case.median(other?)?);
        let ratio = if self.lower_is_better {
            other / ours
        } else {
            ours / other
        };
        ratio.is_finite().then_some(ratio)
    }

    fn print(&self) {
        println!("{}: {}", self.bench, self.title);
        for case in &self.cases {
            println!("{}", case.name);
            for Series { name, runs, samples } in &case.series {
                println!(
                    "  {name:<24} {:>12} {}   min {:>12}   max {:>12}   {}",
                    short(median(samples)),
                    case.unit.as_ref().unwrap_or(&self.unit),
                    short(least(samples)),
                    short(most(samples)),
                    table::runs_of(*runs)
                );
            }
            for failed in &case.failures {
                println!(
                    "  {:<24} failed {}: {}",
                    failed.series,
                    times(failed.times),
                    failed.why.lines().next().unwrap_or_default()
                );
            }
            if let Some(ratio) = self.peer_ratio(case) {
                println!(
                    "  {} is {ratio:.2} times as good as {}",
                    self.ours(case),
                    self.rival(case).unwrap_or_default()
                );
            }
        }
    }

    fn json(&self, version: &str, common: &Common) -> Value {
        let spread = |Series { runs, samples, .. }: &Series| {
            let (median, least, most) = (median(samples), least(samples), most(samples));
            json!({"median": median, "min": least, "max": most, "samples": samples, "runs": runs})
        };
        let failures = |case: &Case| {
            let told = case.failures.iter().map(|failed| {
                (
                    failed.series.clone(),
                    json!({"times": failed.times, "why": failed.why}),
                )
            });
            told.collect::<Map<String, Value>>()
        };
        let cases: Vec<Value> = self
            .cases
            .iter()
            .map(|case| {
                let series: Map<String, Value> = case
                    .series
                    .iter()
                    .map(|series| (series.name.clone(), spread(series)))
                    .collect();
                json!({
                    "case": case.name, "unit": case.unit.as_ref().unwrap_or(&self.unit), "series": series, "ratio": self.peer_ratio(case),
                    "limit_ratio": case_limit(self, case), "failures": failures(case),
                })
            })
            .collect();
        let mut object = json!({
            "bench": self.bench, "version": version, "peer_version": self.peer_version, "unit": self.unit,
            "runs": common.runs(), "seconds": common.seconds(), "smoke": common.smoke, "lower_is_better": self.lower_is_better,
            "machine": machine(), "cases": cases,
        });
        let Some(first) = self.cases.first() else {
            return object;
        };
        object["case"] = json!(first.name);
        let headline = [
            ("ours", Some(self.ours(first))),
            ("peer", self.rival(first)),
            ("limit", self.headline.limit.as_deref()),
        ];
        for (key, series) in headline {
            let samples = series.and_then(|series| first.samples(series));
            object[key] = json!(samples.map(median));
            object[format!("{key}_min")] = json!(samples.map(least));
            object[format!("{key}_max")] = json!(samples.map(most));
            object[format!("{key}_series")] = json!(series);
        }
        object["ratio"] = json!(self.peer_ratio(first));
        object["limit_ratio"] = json!(case_limit(self, first));
        object
    }

    /// One row per case, shown in the place of those of former days.
    fn record(&self, folder: &Path, version: &str) -> Result<(), Failure> {
        if lab::is_interrupted() {
            return Err("interrupted: nothing was written".to_owned());
        }
        let mut table = read(folder)?;
        let rows = self.cases.iter().map(|case| self.row(case, version)).collect();
        table.add(&self.bench, &capital(&self.title), &self.unit, rows);
        save(folder, &table)
    }

    fn row(&self, case: &Case, version: &str) -> Row {
        let figures: Vec<Figure> = case
            .series
            .iter()
            .map(|Series { name, runs, samples }| Figure {
                series: name.clone(),
                bar: (median(samples), least(samples), most(samples)),
                runs: Some(*runs),
                unit: case.unit.clone(),
            })
            .collect();
        let failures: Vec<String> = case
            .failures
            .iter()
            .map(|failed| {
                let runs = failed.times + case.measured(&failed.series).map_or(0, |known| known.runs);
                table::in_a_cell(&failed.series, failed.times, runs, &failed.why)
            })
            .collect();
        let peer = self.peer_version.as_deref().unwrap_or("no peer");
        Row {
            bench: self.bench.clone(),
            date: today(),
            case: case.name.clone(),
            figures,
            failures,
            ratio: self.peer_ratio(case),
            limit_ratio: case_limit(self, case),
            versions: format!("{version}; {peer}"),
            machine: machine(),
            command: command(),
        }
    }
}

/// Makes the tables of `benchmarks.md` in this folder from the data file anew, and the plots of all
/// benchmarks, or of one.
pub(crate) fn draw(folder: &Path, only: Option<&str>) -> Result<(), Failure> {
    let table = read(folder)?;
    save(folder, &table)?;
    let folder = folder.join("benchmarks");
    for (bench, chart) in table
        .charts()
        .filter(|(bench, _)| only.is_none_or(|only| only == *bench))
    {
        let path = |ending: &str| folder.join(format!("{bench}.{ending}"));
        write(&path("svg"), plot::svg(&chart).as_bytes())?;
        write(&path("png"), &plot::png(&chart)?)?;
    }
    Ok(())
}

/// What is in this folder; what is not there yet is begun.
fn read(folder: &Path) -> Result<Table, Failure> {
    let text = |path: &Path, otherwise: &str| match std::fs::read_to_string(path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(otherwise.to_owned()),
        read => read.map_err(|error| format!("{}: {error}", path.display())),
    };
    let data = data(folder);
    let rows = text(&data, "")?;
    Table::read(&text(&document(folder), PREFACE)?, &rows).map_err(|why| format!("{}: {why}", data.display()))
}

fn save(folder: &Path, table: &Table) -> Result<(), Failure> {
    let plots = folder.join("benchmarks");
    std::fs::create_dir_all(&plots).map_err(|error| format!("{}: {error}", plots.display()))?;
    write(&data(folder), table.data().as_bytes())?;
    write(&document(folder), table.document().as_bytes())
}

fn document(folder: &Path) -> PathBuf {
    folder.join("benchmarks.md")
}

fn data(folder: &Path) -> PathBuf {
    folder.join("benchmarks/rows.jsonl")
}

const PREFACE: &str = "\
# Benchmarks

Written by `cargo run --profile dist -p antiphon-bench`: Antiphon and its peers by turns in network namespaces of one
machine. `ratio` says how many times better Antiphon's median is than that of the best peer it is compared with,
`limit ratio` how much of the raw limit it reaches. Each figure says in how many runs it was measured: what one run
measured may be half or twice as much in the next hour. The newest row of each case is shown, and plotted. All rows,
also those that it replaced, are in [benchmarks/rows.jsonl](benchmarks/rows.jsonl), one JSON object a line.
";

/// How much of the limit ours reaches.
fn case_limit(report: &Report, case: &Case) -> Option<f64> {
    report.ratio(case, report.headline.limit.as_deref())
}

fn write(path: &Path, bytes: &[u8]) -> Result<(), Failure> {
    std::fs::write(path, bytes).map_err(|error| format!("{}: {error}", path.display()))
}

/// Model name, cores, memory, kernel.
fn machine() -> String {
    let cpuinfo = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = cpuinfo
        .lines()
        .find_map(|line| line.strip_prefix("model name")?.split_once(": "))
        .map_or("", |(_, model)| model);
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    format!("{}, {cores} cores, Linux {}", model.trim(), kernel.trim())
}

fn today() -> String {
    tools::run("date", &["-u", "+%Y-%m-%d"])
        .unwrap_or_default()
        .trim()
        .to_owned()
}

/// As a person would type it again.
fn command() -> String {
    let args: Vec<String> = std::env::args().skip(1).collect();
    format!("cargo run --profile dist -p antiphon-bench -- {}", args.join(" "))
}

fn capital(text: &str) -> String {
    let mut letters = text.chars();
    letters
        .next()
        .map(|first| first.to_uppercase().chain(letters).collect())
        .unwrap_or_default()
}

fn times(count: usize) -> String {
    if count == 1 {
        "once".to_owned()
    } else {
        format!("{count} times")
    }
}

fn median(samples: &[f64]) -> f64 {
    let mut sorted = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    match sorted.len() {
        0 => f64::NAN,
        count if count.is_multiple_of(2) => (sorted[count / 2 - 1] + sorted[count / 2]) / 2.0,
        count => sorted[count / 2],
    }
}

fn least(samples: &[f64]) -> f64 {
    samples.iter().copied().fold(f64::INFINITY, f64::min)
}

fn most(samples: &[f64]) -> f64 {
    samples.iter().copied().fold(f64::NEG_INFINITY, f64::max)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report() -> Report {
        let mut case = Case::new("4 members".to_owned());
        [3.0, 1.0, 2.0]
            .into_iter()
            .for_each(|sample| case.add("fifo", sample * 1000.0));
        case.add("slow peer", 100.0);
        case.add("peer", 500.0);
        case.add("raw", 4000.0);
        let mut report = Report::new("mperf", "messages", "msg/s");
        report.cases.push(case);
        report.headline = Headline {
            ours: "fifo".into(),
            peers: vec!["slow peer".into(), "peer".into()],
            limit: Some("raw".into()),
        };
        report
    }

    #[test]
    fn ratios_are_of_medians_and_turn_where_less_is_better() {
        let mut report = report();
        let case = report.cases[0].clone();
        assert_eq!(report.peer_ratio(&case), Some(4.0));
        assert_eq!(case_limit(&report, &case), Some(0.5));
        report.lower_is_better = true;
        assert_eq!(
            report.peer_ratio(&case),
            Some(0.05),
            "the one that took least is the best"
        );
    }

    #[test]
    fn a_run_that_measures_often_is_one_run() {
        let mut case = Case::new("10 members".to_owned());
        case.add_all("cut", &[1.0, 2.0, 9.0]);
        case.add_all("cut", &[]);
        case.add_all("cut", &[f64::NAN, 1.0]);
        let known = case.measured("cut").unwrap();
        assert_eq!((known.runs, known.samples.len()), (1, 3));
        assert!(case.has_failed("cut"));
    }

    #[test]
    fn what_could_not_be_measured_is_told_and_only_of_ours_it_is_an_error() {
        let folder = std::env::temp_dir().join(format!("antiphon-bench-failed-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let common = Common {
            seconds: 1,
            runs: 1,
            no_offload: false,
            smoke: true,
            out: Some(folder.clone()),
            json: false,
        };
        let mut report = report();
        report.cases[0].fail("peer", false, &"did not | form\nmuch\nin the end".to_owned());
        report.cases[0].fail("peer", false, &"again".to_owned());
        assert_eq!(report.tell("v1", &common), Ok(()));
        let text = std::fs::read_to_string(folder.join("benchmarks.md")).unwrap();
        assert!(text.contains("<br>peer: 2 of 3 runs did not   form |"), "{text}");
        assert_eq!(
            report.json("v1", &common)["cases"][0]["failures"]["peer"]["times"],
            2
        );
        report.cases[0].fail("fifo", true, &"no port".to_owned());
        let told = report.tell("v1", &common);
        std::fs::remove_dir_all(&folder).unwrap();
        assert!(told.is_err_and(|why| why.contains("of ours failed")));
    }

    #[test]
    fn a_second_report_is_shown_in_the_place_of_the_first_and_is_in_the_plot_with_other_cases() {
        let folder = std::env::temp_dir().join(format!("antiphon-bench-report-{}", std::process::id()));
        let mut other = report();
        other.cases[0].name = "6 members".to_owned();
        for report in [&report(), &other, &report()] {
            report.record(&folder, "v1").unwrap();
            draw(&folder, Some("mperf")).unwrap();
        }
        let text = std::fs::read_to_string(folder.join("benchmarks.md")).unwrap();
        let data = std::fs::read_to_string(folder.join("benchmarks/rows.jsonl")).unwrap();
        let plot = std::fs::read_to_string(folder.join("benchmarks/mperf.svg")).unwrap();
        std::fs::remove_dir_all(&folder).unwrap();
        assert!(text.contains("fifo: 2 000 (1 000 to 3 000, 3 runs)"), "{text}");
        assert!(text.contains("raw: 4 000 (1 run)"), "{text}");
        for case in ["| 4 members |", "| 6 members |"] {
            assert_eq!(text.matches(case).count(), 1, "{text}");
        }
        assert_eq!(data.matches("\"case\":\"4 members\"").count(), 2, "{data}");
        assert!(
            plot.contains(">4 members<") && plot.contains(">6 members<"),
            "{plot}"
        );
    }
}
