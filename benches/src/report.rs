//! What a benchmark tells: a table, one JSON object, a plot, and rows in `benchmarks.md`.

use std::path::{Path, PathBuf};

use serde_json::{Map, Value, json};

use crate::plot::{self, Chart};
use crate::tools;
use crate::{Common, Failure};

/// One situation: the samples of each series, a series being ours or a peer in one configuration.
#[derive(Debug, Clone)]
pub(crate) struct Case {
    name: String,
    /// If other than the report's; then it is in no plot.
    unit: Option<String>,
    /// In the order in which they were first added.
    series: Vec<(String, Vec<f64>)>,
    /// What could not be measured.
    failures: Vec<Failed>,
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

    /// A sample of a series.
    pub(crate) fn add(&mut self, series: &str, sample: f64) {
        eprintln!("  {}: {series}: {}", self.name, short(sample));
        match self.series.iter_mut().find(|(name, _)| name == series) {
            Some((_, samples)) => samples.push(sample),
            None => self.series.push((series.to_owned(), vec![sample])),
        }
    }

    /// It could not be measured; what else there is goes on.
    pub(crate) fn fail(&mut self, series: &str, is_ours: bool, why: &Failure) {
        eprintln!("  {}: {series}: FAILED: {why}", self.name);
        match self.failures.iter_mut().find(|failed| failed.series == series) {
            Some(failed) => failed.times += 1,
            None => self.failures.push(Failed {
                series: series.to_owned(),
                is_ours,
                times: 1,
                why: brief(why),
            }),
        }
    }

    /// Whether that series could not be measured before.
    pub(crate) fn has_failed(&self, series: &str) -> bool {
        self.failures.iter().any(|failed| failed.series == series)
    }

    fn samples(&self, series: &str) -> Option<&[f64]> {
        self.series
            .iter()
            .find(|(name, _)| name == series)
            .map(|(_, samples)| samples.as_slice())
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
        self.plot(&folder)?;
        self.record(&folder, version)?;
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

    /// How many times better than the best peer ours is.
    fn peer_ratio(&self, case: &Case) -> Option<f64> {
        self.ratio(case, self.rival(case))
    }

    /// How many times better than the other series ours is.
    fn ratio(&self, case: &Case, other: Option<&str>) -> Option<f64> {
        let (ours, other) = (case.median(&self.headline.ours)?, case.median(other?)?);
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
            for (name, samples) in &case.series {
                println!(
                    "  {name:<24} {:>12} {}   min {:>12}   max {:>12}   {} runs",
                    short(median(samples)),
                    case.unit.as_ref().unwrap_or(&self.unit),
                    short(least(samples)),
                    short(most(samples)),
                    samples.len()
                );
            }
            for failed in &case.failures {
                println!(
                    "  {:<24} failed {}: {}",
                    failed.series,
                    times(failed.times),
                    failed.why
                );
            }
            if let Some(ratio) = self.peer_ratio(case) {
                println!(
                    "  {} is {ratio:.2} times as good as {}",
                    self.headline.ours,
                    self.rival(case).unwrap_or_default()
                );
            }
        }
    }

    fn json(&self, version: &str, common: &Common) -> Value {
        let spread = |samples: &[f64]| json!({"median": median(samples), "min": least(samples), "max": most(samples), "samples": samples});
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
                    .map(|(name, samples)| (name.clone(), spread(samples)))
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
            ("ours", Some(self.headline.ours.as_str())),
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

    fn plot(&self, folder: &Path) -> Result<(), Failure> {
        let cases: Vec<&Case> = self.cases.iter().filter(|case| case.unit.is_none()).collect();
        let mut names: Vec<String> = Vec::new();
        for (name, _) in cases.iter().flat_map(|case| &case.series) {
            if !names.contains(name) {
                names.push(name.clone());
            }
        }
        let chart = Chart {
            title: format!("{}: {}", self.bench, self.title),
            unit: self.unit.clone(),
            groups: cases.iter().map(|case| case.name.clone()).collect(),
            bars: names
                .iter()
                .map(|name| {
                    let bars = cases.iter().map(|case| {
                        case.samples(name)
                            .map(|samples| (median(samples), least(samples), most(samples)))
                    });
                    (name.clone(), bars.collect())
                })
                .collect(),
        };
        let folder = folder.join("benchmarks");
        std::fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
        let path = |ending: &str| folder.join(format!("{}.{ending}", self.bench));
        write(&path("svg"), plot::svg(&chart).as_bytes())?;
        write(&path("png"), &plot::png(&chart)?)
    }

    /// One row per case, below those of former days.
    fn record(&self, folder: &Path, version: &str) -> Result<(), Failure> {
        let path: PathBuf = folder.join("benchmarks.md");
        let mut text = std::fs::read_to_string(&path).unwrap_or_else(|_| PREFACE.to_owned());
        let heading = format!("## {}\n", self.bench);
        if !text.contains(&heading) {
            text.push_str(&format!(
                "\n{heading}\n{}, in {}.\n\n![{}](benchmarks/{}.svg)\n\n\
                 | date | case | figures: median (least to most) | ratio | limit ratio | versions | machine | command |\n\
                 |---|---|---|---|---|---|---|---|\n",
                capital(&self.title), self.unit, self.bench, self.bench
            ));
        }
        let (date, command) = (today(), command());
        let number = |ratio: Option<f64>| ratio.map_or_else(|| "-".to_owned(), |ratio| format!("{ratio:.2}"));
        let rows: String = self
            .cases
            .iter()
            .map(|case| {
                let mut figures: Vec<String> = case
                    .series
                    .iter()
                    .map(|(name, samples)| {
                        format!(
                            "{name} {} ({} to {})",
                            short(median(samples)),
                            short(least(samples)),
                            short(most(samples))
                        )
                    })
                    .collect();
                figures.extend(case.failures.iter().map(|failed| {
                    // A bar would end the cell.
                    let why = failed.why.replace('|', " ");
                    format!("{} FAILED {}: {why}", failed.series, times(failed.times))
                }));
                format!(
                    "| {date} | {} | {} | {} | {} | {version}; {} | {} | `{command}` |\n",
                    case.name,
                    figures.join("<br>"),
                    number(self.peer_ratio(case)),
                    number(case_limit(self, case)),
                    self.peer_version.as_deref().unwrap_or("no peer"),
                    machine(),
                )
            })
            .collect();
        let section = text.find(&heading).unwrap_or(0) + heading.len();
        let end = text[section..]
            .find("\n## ")
            .map_or(text.len(), |at| section + at);
        text.insert_str(end, &rows);
        write(&path, text.as_bytes())
    }
}

/// Of each end of a failure's reason.
const MAX_WHY_CHARS: usize = 300;

const PREFACE: &str = "\
# Benchmarks

Written by `cargo run --release -p antiphon-bench`: Antiphon and its peers by turns in network namespaces of one machine. `ratio` says how many
times better Antiphon's median is than the best peer's that it is compared with, `limit ratio` how much of the raw limit it reaches.
";

/// What fits into a table: of a whole log how it begins and its last line.
fn brief(why: &str) -> String {
    let cut = |line: &str| match line.char_indices().nth(MAX_WHY_CHARS) {
        Some((at, _)) => format!("{}…", &line[..at]),
        None => line.to_owned(),
    };
    let mut lines = why.lines().filter(|line| !line.trim().is_empty());
    match (lines.next(), lines.next_back()) {
        (Some(first), Some(last)) => format!("{} … {}", cut(first), cut(last)),
        (first, _) => cut(first.unwrap_or_default()),
    }
}

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
    format!("cargo run --release -p antiphon-bench -- {}", args.join(" "))
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

/// Three or four digits that matter, with spaces between thousands.
pub(crate) fn short(value: f64) -> String {
    if value == 0.0 {
        return "0".to_owned();
    }
    if value.abs() < 1.0 {
        return format!("{value:.4}");
    }
    if value.abs() < 1000.0 {
        return format!("{value:.1}");
    }
    let digits = format!("{value:.0}");
    let mut grouped = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            grouped.push(' ');
        }
        grouped.push(digit);
    }
    grouped
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
        report.cases[0].fail("peer", false, &"waited | in vain\nmuch\nin the end".to_owned());
        report.cases[0].fail("peer", false, &"again".to_owned());
        assert_eq!(report.tell("v1", &common), Ok(()));
        let text = std::fs::read_to_string(folder.join("benchmarks.md")).unwrap();
        assert!(
            text.contains("<br>peer FAILED 2 times: waited   in vain … in the end |"),
            "{text}"
        );
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
    fn a_row_goes_below_the_former_rows_of_its_own_benchmark() {
        let folder = std::env::temp_dir().join(format!("antiphon-bench-report-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let mut other = report();
        other.bench = "cpg".to_owned();
        for report in [&report(), &other, &report()] {
            report.record(&folder, "v1").unwrap();
        }
        let text = std::fs::read_to_string(folder.join("benchmarks.md")).unwrap();
        std::fs::remove_dir_all(&folder).unwrap();
        let (mperf, cpg) = text.split_once("## cpg").unwrap();
        assert_eq!(mperf.matches("4 members").count(), 2);
        assert_eq!(cpg.matches("4 members").count(), 1);
        assert!(mperf.contains("fifo 2 000 (1 000 to 3 000)"), "{mperf}");
    }
}
