//! What was measured: every row in `benchmarks/rows.jsonl`, and the newest row of each case in
//! `benchmarks.md`.
//!
//! ```text
//!  rows.jsonl   one row a line, oldest first; a run appends its own ──┐
//!                                                                    ▼ the newest row of each case
//!  benchmarks.md   ## formation
//!                  Until each …, in ms.                      title and unit
//!                  ![formation](benchmarks/formation.svg)    drawn from the same rows
//!                  | date | case | figures … |
//! ```
//! The tables and plots are made from the data file each time. What else stands in a section stays there,
//! before its table. A figure in another unit than its section's is told with that unit, and is in no plot.

use serde_json::{Value, json};

use crate::Failure;
use crate::plot::{Bar, Chart};

const HEADER: &str = "| date | case | figures: median (least to most, runs) | ratio | limit ratio | versions | machine | command |";
const RULE: &str = "|---|---|---|---|---|---|---|---|";
/// Between the figures of a cell.
const BREAK: &str = "<br>";

/// One case, measured once.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Row {
    pub(crate) bench: String,
    pub(crate) date: String,
    pub(crate) case: String,
    /// What was measured; what failed has no figure.
    pub(crate) figures: Vec<Figure>,
    /// What could not be measured, as [`in_a_cell`] says it.
    pub(crate) failures: Vec<String>,
    pub(crate) ratio: Option<f64>,
    pub(crate) limit_ratio: Option<f64>,
    pub(crate) versions: String,
    pub(crate) machine: String,
    pub(crate) command: String,
}

/// One series in a row.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Figure {
    pub(crate) series: String,
    /// Median, least, most.
    pub(crate) bar: Bar,
    /// In how many runs it was measured, if that is known.
    pub(crate) runs: Option<usize>,
    /// If other than the section's.
    pub(crate) unit: Option<String>,
}

/// A benchmark's part of the document, but for its rows.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Section {
    bench: String,
    title: String,
    unit: String,
    notes: Vec<String>,
}

/// The document and the rows.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Table {
    preface: String,
    sections: Vec<Section>,
    /// Oldest first.
    rows: Vec<Row>,
}

impl Row {
    fn to_json(&self) -> Value {
        let figures: Vec<Value> = self.figures.iter().map(Figure::to_json).collect();
        json!({
            "bench": self.bench, "date": self.date, "case": self.case, "figures": figures, "failures": self.failures,
            "ratio": self.ratio, "limit_ratio": self.limit_ratio, "versions": self.versions, "machine": self.machine,
            "command": self.command,
        })
    }

    fn of_json(value: &Value) -> Option<Self> {
        let text = |key: &str| value[key].as_str().map(str::to_owned);
        let list = |key: &str| value[key].as_array().map(Vec::as_slice).unwrap_or_default();
        Some(Self {
            bench: text("bench")?,
            date: text("date")?,
            case: text("case")?,
            figures: list("figures")
                .iter()
                .map(Figure::of_json)
                .collect::<Option<_>>()?,
            failures: list("failures")
                .iter()
                .map(|told| told.as_str().map(str::to_owned))
                .collect::<Option<_>>()?,
            ratio: value["ratio"].as_f64(),
            limit_ratio: value["limit_ratio"].as_f64(),
            versions: text("versions")?,
            machine: text("machine")?,
            command: text("command")?,
        })
    }

    /// The row as it is shown.
    fn line(&self) -> String {
        let number = |ratio: Option<f64>| ratio.map_or_else(|| "-".to_owned(), |ratio| format!("{ratio:.2}"));
        let told = self
            .figures
            .iter()
            .map(Figure::text)
            .chain(self.failures.iter().cloned());
        let cells = [
            self.date.clone(),
            self.case.clone(),
            told.collect::<Vec<_>>().join(BREAK),
            number(self.ratio),
            number(self.limit_ratio),
            self.versions.clone(),
            self.machine.clone(),
            format!("`{}`", self.command),
        ];
        // A bar would end the cell, and a new line the row.
        let cells = cells.map(|cell| cell.replace(['|', '\n'], " ").trim().to_owned());
        format!("| {} |\n", cells.join(" | "))
    }
}

impl Figure {
    fn to_json(&self) -> Value {
        let (median, least, most) = self.bar;
        json!({
            "series": self.series, "median": median, "least": least, "most": most, "runs": self.runs, "unit": self.unit,
        })
    }

    fn of_json(value: &Value) -> Option<Self> {
        let number = |key: &str| value[key].as_f64();
        Some(Self {
            series: value["series"].as_str()?.to_owned(),
            bar: (number("median")?, number("least")?, number("most")?),
            runs: value["runs"].as_u64().and_then(|runs| usize::try_from(runs).ok()),
            unit: value["unit"].as_str().map(str::to_owned),
        })
    }

    fn text(&self) -> String {
        let (median, least, most) = self.bar;
        let unit = self
            .unit
            .as_ref()
            .map(|unit| format!(" {unit}"))
            .unwrap_or_default();
        let spread = format!("{} to {}", short(least), short(most));
        let besides = match self.runs {
            Some(1) if least == most => runs_of(1),
            Some(runs) => format!("{spread}, {}", runs_of(runs)),
            None => spread,
        };
        format!("{}: {} ({besides}){unit}", self.series, short(median))
    }
}

/// `1 run`, `3 runs`.
pub(crate) fn runs_of(runs: usize) -> String {
    format!("{runs} run{}", if runs == 1 { "" } else { "s" })
}

/// In how many runs these figures were measured, in a few words.
fn runs_of_all<'a>(figures: impl Iterator<Item = &'a Figure> + Clone) -> Option<String> {
    let runs = figures.map(|figure| figure.runs);
    let (least, most) = (runs.clone().min()??, runs.max()??);
    match least == most {
        true => Some(runs_of(most)),
        false => Some(format!("{least} to {}", runs_of(most))),
    }
}

impl Section {
    /// Its title, unit and notes: image and rows are made anew.
    fn read(bench: &str, text: &str) -> Self {
        let mut section = Self {
            bench: bench.to_owned(),
            ..Self::default()
        };
        for line in text.lines().map(str::trim).filter(|line| !line.is_empty()) {
            let intro = line.strip_suffix('.').and_then(|line| line.rsplit_once(", in "));
            match (line, intro) {
                (HEADER | RULE, _) => {}
                (image, _) if image == image_of(bench) => {}
                (row, _) if is_row(row) => {}
                (_, Some((title, unit))) if section.title.is_empty() => {
                    (section.title, section.unit) = (title.to_owned(), unit.to_owned());
                }
                (note, _) => section.notes.push(note.to_owned()),
            }
        }
        section
    }

    fn write(&self, rows: &[&Row]) -> String {
        let image = image_of(&self.bench);
        let mut out = format!(
            "## {}\n\n{}, in {}.\n\n{image}\n",
            self.bench, self.title, self.unit
        );
        if !self.notes.is_empty() {
            out.push_str(&format!("\n{}\n", self.notes.join("\n")));
        }
        let lines: String = rows.iter().map(|row| row.line()).collect();
        out.push_str(&format!("\n{HEADER}\n{RULE}\n{lines}"));
        out
    }

    /// The figures of these rows that are in the section's unit. The title says in how many runs they were
    /// measured, or each case does if that differs.
    fn chart(&self, rows: &[&Row]) -> Chart {
        let plain = |row: &Row| -> Vec<Figure> {
            let plain = row.figures.iter().filter(|figure| figure.unit.is_none());
            plain.cloned().collect()
        };
        let cases = rows.iter().map(|row| (row.case.as_str(), plain(row)));
        let cases: Vec<(&str, Vec<Figure>)> = cases.filter(|(_, figures)| !figures.is_empty()).collect();
        let mut names: Vec<&str> = Vec::new();
        for figure in cases.iter().flat_map(|(_, figures)| figures) {
            if !names.contains(&figure.series.as_str()) {
                names.push(&figure.series);
            }
        }
        let bars_of = |name: &str| {
            let bar = |figures: &[Figure]| {
                figures
                    .iter()
                    .find(|figure| figure.series == name)
                    .map(|figure| figure.bar)
            };
            cases.iter().map(|(_, figures)| bar(figures)).collect()
        };
        let runs = |figures: &[Figure]| runs_of_all(figures.iter()).map(|runs| format!(", {runs}"));
        let in_all = cases.first().and_then(|(_, figures)| runs(figures));
        let is_same = cases.iter().all(|(_, figures)| runs(figures) == in_all);
        let of_title = in_all.filter(|_| is_same).unwrap_or_default();
        let group = |(case, figures): &(&str, Vec<Figure>)| match is_same {
            true => (*case).to_owned(),
            false => format!("{case}{}", runs(figures).unwrap_or_default()),
        };
        Chart {
            title: format!("{}: {}{of_title}", self.bench, lower(&self.title)),
            unit: self.unit.clone(),
            groups: cases.iter().map(group).collect(),
            bars: names
                .iter()
                .map(|name| ((*name).to_owned(), bars_of(name)))
                .collect(),
        }
    }
}

impl Table {
    /// Of the document's text and the lines of the data file.
    pub(crate) fn read(document: &str, data: &str) -> Result<Self, Failure> {
        let mut parts = document.split("\n## ");
        let preface = parts.next().unwrap_or_default().trim().to_owned();
        let section = |part: &str| {
            let (bench, rest) = part.split_once('\n').unwrap_or((part, ""));
            Section::read(bench.trim(), rest)
        };
        let read = |(at, line): (usize, &str)| {
            let value: Value =
                serde_json::from_str(line).map_err(|error| format!("line {}: {error}", at + 1))?;
            Row::of_json(&value).ok_or_else(|| format!("line {}: no row of a benchmark", at + 1))
        };
        let rows: Vec<Row> = data
            .lines()
            .enumerate()
            .map(read)
            .collect::<Result<_, Failure>>()?;
        if rows.is_empty() && document.lines().any(is_row) {
            return Err("the document has rows and the data file has none: they would be lost".to_owned());
        }
        Ok(Self {
            preface,
            sections: parts.map(section).collect(),
            rows,
        })
    }

    /// The document's text.
    pub(crate) fn document(&self) -> String {
        let sections = self
            .sections
            .iter()
            .map(|section| section.write(&self.shown(&section.bench)));
        let parts: Vec<String> = std::iter::once(format!("{}\n", self.preface))
            .chain(sections)
            .collect();
        parts.join("\n")
    }

    /// The lines of the data file.
    pub(crate) fn data(&self) -> String {
        self.rows
            .iter()
            .map(|row| format!("{}\n", row.to_json()))
            .collect()
    }

    /// Adds rows of a benchmark.
    pub(crate) fn add(&mut self, bench: &str, title: &str, unit: &str, rows: Vec<Row>) {
        let known = self.sections.iter().position(|section| section.bench == bench);
        let at = known.unwrap_or(self.sections.len());
        if known.is_none() {
            self.sections.push(Section {
                bench: bench.to_owned(),
                ..Section::default()
            });
        }
        let section = &mut self.sections[at];
        (section.title, section.unit) = (title.to_owned(), unit.to_owned());
        self.rows.extend(rows);
    }

    /// What there is to draw, by benchmark.
    pub(crate) fn charts(&self) -> impl Iterator<Item = (&str, Chart)> {
        let charts = self
            .sections
            .iter()
            .map(|section| (section.bench.as_str(), section.chart(&self.shown(&section.bench))));
        charts.filter(|(_, chart)| !chart.groups.is_empty())
    }

    /// The newest row of each case, cases in the order in which they were first measured.
    fn shown(&self, bench: &str) -> Vec<&Row> {
        let mut shown: Vec<&Row> = Vec::new();
        for row in self.rows.iter().filter(|row| row.bench == bench) {
            match shown.iter_mut().find(|shown| shown.case == row.case) {
                Some(older) => *older = row,
                None => shown.push(row),
            }
        }
        shown
    }
}

/// Whether a line of the document is one that this module has made of a row.
fn is_row(line: &str) -> bool {
    let is_known = matches!(line, HEADER | RULE);
    line.starts_with('|') && line.matches('|').count() == HEADER.matches('|').count() && !is_known
}

fn image_of(bench: &str) -> String {
    format!("![{bench}](benchmarks/{bench}.svg)")
}

/// As in the middle of a sentence.
fn lower(text: &str) -> String {
    let mut letters = text.chars();
    let first = letters.next().map(char::to_lowercase);
    first.into_iter().flatten().chain(letters).collect()
}

/// How a run failed, for a cell: the first line of the reason.
pub(crate) fn in_a_cell(series: &str, failed: usize, runs: usize, why: &Failure) -> String {
    /// What is longer makes the whole table wide.
    const MAX_CHARS: usize = 100;
    let first = why
        .lines()
        .find(|line| !line.trim().is_empty())
        .unwrap_or_default()
        .trim();
    let reason = match first.char_indices().nth(MAX_CHARS) {
        Some((at, _)) => format!("{}…", &first[..at]),
        None => first.to_owned(),
    };
    let verb = if reason.starts_with("did not ") {
        ""
    } else {
        "failed: "
    };
    format!("{series}: {failed} of {runs} runs {verb}{reason}")
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

    fn figure(series: &str, value: f64, unit: Option<&str>) -> Figure {
        Figure {
            series: series.to_owned(),
            bar: (value, value / 2.0, value * 2.0),
            runs: Some(3),
            unit: unit.map(str::to_owned),
        }
    }

    fn row(bench: &str, date: &str, case: &str, figures: Vec<Figure>) -> Row {
        Row {
            bench: bench.to_owned(),
            date: date.to_owned(),
            case: case.to_owned(),
            figures,
            failures: Vec::new(),
            ratio: Some(1.0),
            limit_ratio: None,
            versions: "v1".to_owned(),
            machine: "a | machine".to_owned(),
            command: "command".to_owned(),
        }
    }

    fn read_again(table: &Table) -> Table {
        Table::read(&table.document(), &table.data()).unwrap()
    }

    #[test]
    fn a_row_is_read_as_it_was_written() {
        for value in [0.0, 0.0072, 1.5, 333.1, 2079.0, 1_128_359.0] {
            for unit in [None, Some("files")] {
                let mut row = row("mperf", "1", "4", vec![figure("TCP 16 KiB", value, unit)]);
                row.failures = vec!["peer: 1 of 3 runs did not form".to_owned()];
                let line = row.to_json().to_string();
                let read = Row::of_json(&serde_json::from_str(&line).unwrap());
                assert_eq!(read.as_ref(), Some(&row), "{line}");
            }
        }
        let damaged = Table::read("", "{}\n");
        assert!(damaged.is_err_and(|why| why.starts_with("line 1: ")));
    }

    #[test]
    fn a_figure_and_a_plot_say_of_how_many_runs_they_are() {
        let of = |runs| Figure {
            runs,
            ..figure("ours", 2.0, None)
        };
        assert_eq!(of(Some(3)).text(), "ours: 2.0 (1.0 to 4.0, 3 runs)");
        assert_eq!(of(Some(1)).text(), "ours: 2.0 (1.0 to 4.0, 1 run)");
        let once = Figure {
            bar: (2.0, 2.0, 2.0),
            ..of(Some(1))
        };
        assert_eq!(once.text(), "ours: 2.0 (1 run)");
        assert_eq!(of(None).text(), "ours: 2.0 (1.0 to 4.0)");

        let section = Section::default();
        let mixed = row("join", "1", "10", vec![of(Some(1)), of(Some(3))]);
        let other = row("join", "1", "50", vec![of(Some(3))]);
        let old = row("join", "1", "100", vec![of(None)]);
        let chart = section.chart(&[&mixed, &other, &old]);
        assert_eq!(chart.groups, ["10, 1 to 3 runs", "50, 3 runs", "100"]);
    }

    #[test]
    fn what_failed_is_told_in_a_few_words() {
        let why = format!("did not form within 180 s (of 9)\n{}", "[4, 4, 48]".repeat(100));
        let told = in_a_cell("JGroups tcp.xml", 1, 3, &why);
        assert_eq!(
            told,
            "JGroups tcp.xml: 1 of 3 runs did not form within 180 s (of 9)"
        );
        let told = in_a_cell("peer", 2, 2, &format!("{:-<500}", "1 (2 to 3) "));
        assert!(
            told.starts_with("peer: 2 of 2 runs failed: 1 (2 to 3) --") && told.len() < 150,
            "{told}"
        );
    }

    #[test]
    fn the_newest_row_of_a_case_is_shown_and_all_are_in_the_data_file() {
        let of = |date: &str, case: &str| row("mperf", date, case, vec![figure("ours", 1.0, None)]);
        let title = "Messages, all of them";
        let mut table = Table::read("# Benchmarks\n\nWords.\n", "").unwrap();
        table.add("mperf", title, "msg/s", vec![of("1", "4"), of("1", "6")]);
        let order = row("cpg", "1", "4", vec![figure("ours", 3.0, None)]);
        table.add("cpg", "Order", "ms", vec![order]);
        let mut table = read_again(&table);
        table.add("mperf", title, "msg/s", vec![of("2", "4")]);
        let mut table = read_again(&table);
        table.add("mperf", title, "msg/s", vec![of("3", "4"), of("3", "8")]);

        let text = table.document();
        assert_eq!(read_again(&table), table, "{text}");
        let (shown, _) = text.split_once("## cpg").unwrap();
        let at = |what: &str| shown.find(what).unwrap_or_else(|| panic!("{what}: {shown}"));
        assert!(at("| 3 | 4 |") < at("| 1 | 6 |") && at("| 1 | 6 |") < at("| 3 | 8 |"));
        assert_eq!(text.matches("| `command` |").count(), 4, "{text}");
        assert_eq!(table.data().lines().count(), 6, "{}", table.data());
        assert!(text.starts_with(
            "# Benchmarks\n\nWords.\n\n## mperf\n\nMessages, all of them, in msg/s.\n\n![mperf]"
        ));
    }

    #[test]
    fn rows_of_a_document_without_its_data_file_are_not_thrown_away() {
        let mut table = Table::read("# Benchmarks\n", "").unwrap();
        let measured = row("cpg", "1", "4", vec![figure("ours", 3.0, None)]);
        table.add("cpg", "Order", "ms", vec![measured]);
        assert!(Table::read(&table.document(), "").is_err());
    }

    #[test]
    fn the_plot_is_of_all_rows_that_are_shown_without_what_has_another_unit_or_failed() {
        let mut table = Table::read("", "").unwrap();
        let both = vec![figure("ours", 1.0, None), figure("peer", 2.0, None)];
        let rows = vec![row("join", "1", "10", both), row("join", "1", "50", Vec::new())];
        table.add("join", "One more", "ms", rows);
        let files = vec![figure("ours", 41.0, Some("files"))];
        let mut failed = row("join", "2", "100", vec![figure("ours", 3.0, None)]);
        failed.failures = vec![in_a_cell("peer", 1, 1, &"did not form".to_owned())];
        table.add(
            "join",
            "One more",
            "ms",
            vec![row("join", "2", "10: files", files), failed],
        );
        let table = read_again(&table);
        let charts: Vec<(&str, Chart)> = table.charts().collect();
        let [(bench, chart)] = charts.as_slice() else {
            panic!("one chart")
        };
        assert_eq!(
            (*bench, chart.title.as_str(), chart.unit.as_str()),
            ("join", "join: one more, 3 runs", "ms")
        );
        assert_eq!(chart.groups, ["10", "100"]);
        let ours = (
            "ours".to_owned(),
            vec![Some((1.0, 0.5, 2.0)), Some((3.0, 1.5, 6.0))],
        );
        assert_eq!(
            chart.bars,
            [ours, ("peer".to_owned(), vec![Some((2.0, 1.0, 4.0)), None])]
        );
    }

    #[test]
    fn what_somebody_wrote_into_a_section_stays() {
        let text = "# B\n\n## cpg\n\nOrder, in ms.\n\n![cpg](benchmarks/cpg.svg)\n\nRun at night.\n\n| a | row | of | four |\n";
        let written = Table::read(text, "").unwrap().document();
        assert!(
            written.contains("Run at night.") && written.contains("| a | row | of | four |"),
            "{written}"
        );
        assert_eq!(Table::read(&written, "").unwrap().document(), written);
    }
}
