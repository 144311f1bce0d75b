//! The rows of `benchmarks.md`: written, kept, and read again, since the plots are drawn from them.
//!
//! ```text
//!  ## formation
//!  Until each …, in ms.                      title and unit
//!  ![formation](benchmarks/formation.svg)    drawn from the rows that are shown
//!  | date | case | figures … |               the newest row of each case
//!  <details> … </details>                    the rows that these replaced, oldest first
//! ```
//! A figure is `series: median (least to most)`, with its unit behind it if that is not the section's: then it is in no plot.
//! What else stands in a section stays there, before the rows.

use crate::Failure;
use crate::plot::{Bar, Chart};

const HEADER: &str =
    "| date | case | figures: median (least to most) | ratio | limit ratio | versions | machine | command |";
const RULE: &str = "|---|---|---|---|---|---|---|---|";
const OLDER: &str = "<details><summary>Older rows</summary>";
const OLDER_END: &str = "</details>";
/// Between the figures of a cell.
const BREAK: &str = "<br>";
const CELLS: usize = 8;

/// One case, measured once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Row {
    cells: [String; CELLS],
}

/// One series in a row.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Figure {
    pub(crate) series: String,
    /// Median, least, most.
    pub(crate) bar: Bar,
    /// If other than the section's.
    pub(crate) unit: Option<String>,
}

/// A benchmark's part of the document.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Section {
    pub(crate) title: String,
    pub(crate) unit: String,
    notes: Vec<String>,
    shown: Vec<Row>,
    older: Vec<Row>,
}

/// The document.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Table {
    preface: String,
    sections: Vec<(String, Section)>,
}

impl Row {
    /// From what its cells say: date, case, figures, ratio, limit ratio, versions, machine, command.
    pub(crate) fn new(cells: [String; CELLS]) -> Self {
        // A bar would end the cell, and a new line the row.
        let cells = cells.map(|cell| cell.replace(['|', '\n'], " ").trim().to_owned());
        Self { cells }
    }

    fn read(line: &str) -> Option<Self> {
        let inner = line.trim().strip_prefix('|')?.strip_suffix('|')?;
        let cells: Vec<String> = inner.split('|').map(|cell| cell.trim().to_owned()).collect();
        Some(Self {
            cells: cells.try_into().ok()?,
        })
    }

    fn line(&self) -> String {
        format!("| {} |\n", self.cells.join(" | "))
    }

    fn case(&self) -> &str {
        &self.cells[1]
    }

    /// What was measured; what failed has no figure.
    fn figures(&self) -> impl Iterator<Item = Figure> {
        self.cells[2].split(BREAK).filter_map(Figure::read)
    }
}

/// The cell of these figures, and of what is said beside them.
pub(crate) fn cell(figures: &[Figure], failures: &[String]) -> String {
    let told = figures.iter().map(Figure::text).chain(failures.iter().cloned());
    told.collect::<Vec<_>>().join(BREAK)
}

impl Figure {
    fn text(&self) -> String {
        let (median, least, most) = self.bar;
        let unit = self
            .unit
            .as_ref()
            .map(|unit| format!(" {unit}"))
            .unwrap_or_default();
        format!(
            "{}: {} ({} to {}){unit}",
            self.series,
            short(median),
            short(least),
            short(most)
        )
    }

    fn read(text: &str) -> Option<Self> {
        let (series, rest) = text.split_once(": ")?;
        let (median, rest) = rest.split_once(" (")?;
        let (range, unit) = rest.split_once(')')?;
        let (least, most) = range.split_once(" to ")?;
        let number = |text: &str| text.replace(' ', "").parse::<f64>().ok();
        Some(Self {
            series: series.to_owned(),
            bar: (number(median)?, number(least)?, number(most)?),
            unit: Some(unit.trim().to_owned()).filter(|unit| !unit.is_empty()),
        })
    }
}

impl Section {
    fn read(bench: &str, text: &str) -> Self {
        let mut section = Self::default();
        let mut folded = false;
        for line in text.lines().map(str::trim).filter(|line| !line.is_empty()) {
            let intro = line.strip_suffix('.').and_then(|line| line.rsplit_once(", in "));
            match line {
                HEADER | RULE => {}
                OLDER => folded = true,
                OLDER_END => folded = false,
                image if image == image_of(bench) => {}
                line => match (Row::read(line), intro) {
                    (Some(row), _) if folded => section.older.push(row),
                    (Some(row), _) => section.put(row),
                    (None, Some((title, unit))) if section.title.is_empty() => {
                        (section.title, section.unit) = (title.to_owned(), unit.to_owned());
                    }
                    (None, _) => section.notes.push(line.to_owned()),
                },
            }
        }
        section
    }

    fn write(&self, bench: &str) -> String {
        let mut out = format!(
            "## {bench}\n\n{}, in {}.\n\n{}\n",
            self.title,
            self.unit,
            image_of(bench)
        );
        if !self.notes.is_empty() {
            out.push_str(&format!("\n{}\n", self.notes.join("\n")));
        }
        let rows = |rows: &[Row]| {
            let lines: String = rows.iter().map(Row::line).collect();
            format!("\n{HEADER}\n{RULE}\n{lines}")
        };
        out.push_str(&rows(&self.shown));
        if !self.older.is_empty() {
            out.push_str(&format!("\n{OLDER}\n{}\n{OLDER_END}\n", rows(&self.older)));
        }
        out
    }

    /// Shows this row in the place of the one that its case had before.
    fn put(&mut self, row: Row) {
        match self.shown.iter_mut().find(|shown| shown.case() == row.case()) {
            Some(shown) => self.older.push(std::mem::replace(shown, row)),
            None => self.shown.push(row),
        }
    }

    /// The newest figures of each case that are in the section's unit.
    fn chart(&self, bench: &str) -> Chart {
        let plain =
            |row: &Row| -> Vec<Figure> { row.figures().filter(|figure| figure.unit.is_none()).collect() };
        let cases = self.shown.iter().map(|row| (row.case(), plain(row)));
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
        Chart {
            title: format!("{bench}: {}", lower(&self.title)),
            unit: self.unit.clone(),
            groups: cases.iter().map(|(case, _)| (*case).to_owned()).collect(),
            bars: names
                .iter()
                .map(|name| ((*name).to_owned(), bars_of(name)))
                .collect(),
        }
    }
}

impl Table {
    /// With a preface and no section yet.
    pub(crate) fn new(preface: &str) -> Self {
        Self {
            preface: preface.trim().to_owned(),
            sections: Vec::new(),
        }
    }

    /// Of the document's text. Several rows of one case that are not folded yet are put in order.
    pub(crate) fn read(text: &str) -> Self {
        let mut parts = text.split("\n## ");
        let mut table = Self::new(parts.next().unwrap_or_default());
        for part in parts {
            let (bench, rest) = part.split_once('\n').unwrap_or((part, ""));
            let bench = bench.trim();
            table
                .sections
                .push((bench.to_owned(), Section::read(bench, rest)));
        }
        table
    }

    /// The document's text.
    pub(crate) fn write(&self) -> String {
        let sections = self.sections.iter().map(|(bench, section)| section.write(bench));
        let parts: Vec<String> = std::iter::once(format!("{}\n", self.preface))
            .chain(sections)
            .collect();
        parts.join("\n")
    }

    /// Adds rows to a benchmark's section.
    pub(crate) fn add(&mut self, bench: &str, title: &str, unit: &str, rows: Vec<Row>) {
        let at = self.sections.iter().position(|(name, _)| name == bench);
        let at = at.unwrap_or_else(|| {
            self.sections.push((bench.to_owned(), Section::default()));
            self.sections.len() - 1
        });
        let section = &mut self.sections[at].1;
        (section.title, section.unit) = (title.to_owned(), unit.to_owned());
        rows.into_iter().for_each(|row| section.put(row));
    }

    /// What there is to draw, by benchmark.
    pub(crate) fn charts(&self) -> impl Iterator<Item = (&str, Chart)> {
        let charts = self
            .sections
            .iter()
            .map(|(bench, section)| (bench.as_str(), section.chart(bench)));
        charts.filter(|(_, chart)| !chart.groups.is_empty())
    }
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
    // No figure, whatever it says.
    let reason = reason.replace('(', "[").replace(')', "]");
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
            unit: unit.map(str::to_owned),
        }
    }

    fn row(date: &str, case: &str, cell: String) -> Row {
        let rest = ["1.00", "-", "v1", "a | machine", "`command`"].map(str::to_owned);
        let [ratio, limit, versions, machine, command] = rest;
        Row::new([
            date.to_owned(),
            case.to_owned(),
            cell,
            ratio,
            limit,
            versions,
            machine,
            command,
        ])
    }

    #[test]
    fn a_figure_is_read_as_it_was_written() {
        for value in [0.0, 0.0072, 1.5, 333.1, 2079.0, 1_128_359.0] {
            for unit in [None, Some("files")] {
                let figure = figure("TCP 16 KiB", value, unit);
                let text = figure.text();
                let read = Figure::read(&text).unwrap_or_else(|| panic!("{text}"));
                assert_eq!(
                    (read.text(), &read.series, &read.unit),
                    (text, &figure.series, &figure.unit)
                );
                assert!((read.bar.0 - value).abs() <= value * 0.001);
            }
        }
    }

    #[test]
    fn what_failed_is_told_in_a_few_words_and_is_no_figure() {
        let why = format!("did not form within 180 s (of 9)\n{}", "[4, 4, 48]".repeat(100));
        let told = in_a_cell("JGroups tcp.xml", 1, 3, &why);
        assert_eq!(
            told,
            "JGroups tcp.xml: 1 of 3 runs did not form within 180 s [of 9]"
        );
        assert_eq!(Figure::read(&told), None);
        let told = in_a_cell("peer", 2, 2, &format!("{:-<500}", "1 (2 to 3) "));
        assert!(
            told.starts_with("peer: 2 of 2 runs failed: 1 [2 to 3] --") && told.len() < 150,
            "{told}"
        );
        assert_eq!(Figure::read(&told), None);
    }

    #[test]
    fn the_newest_row_of_a_case_is_shown_and_the_others_are_folded_below() {
        let mut table = Table::new("# Benchmarks\n\nWords.\n");
        let of = |value| cell(&[figure("ours", value, None)], &[]);
        table.add(
            "mperf",
            "Messages, all of them",
            "msg/s",
            vec![row("1", "4", of(1.0)), row("1", "6", of(2.0))],
        );
        table.add("cpg", "Order", "ms", vec![row("1", "4", of(3.0))]);
        let mut table = Table::read(&table.write());
        table.add(
            "mperf",
            "Messages, all of them",
            "msg/s",
            vec![row("2", "4", of(4.0))],
        );
        let mut table = Table::read(&table.write());
        table.add(
            "mperf",
            "Messages, all of them",
            "msg/s",
            vec![row("3", "4", of(5.0)), row("3", "8", of(6.0))],
        );

        let text = table.write();
        assert_eq!(Table::read(&text), table, "{text}");
        let (mperf, _) = text.split_once("## cpg").unwrap();
        let (shown, older) = mperf.split_once(OLDER).unwrap();
        let at = |text: &str, what: &str| text.find(what).unwrap_or_else(|| panic!("{what}: {text}"));
        assert!(
            at(shown, "| 3 | 4 |") < at(shown, "| 1 | 6 |")
                && at(shown, "| 1 | 6 |") < at(shown, "| 3 | 8 |")
        );
        assert!(at(older, "| 1 | 4 |") < at(older, "| 2 | 4 |"));
        assert_eq!(text.matches("| `command` |").count(), 6, "{text}");
        assert!(text.starts_with(
            "# Benchmarks\n\nWords.\n\n## mperf\n\nMessages, all of them, in msg/s.\n\n![mperf]"
        ));
    }

    #[test]
    fn the_plot_is_of_all_rows_that_are_shown_without_what_has_another_unit_or_failed() {
        let mut table = Table::new("");
        let both = cell(&[figure("ours", 1.0, None), figure("peer", 2.0, None)], &[]);
        table.add(
            "join",
            "One more",
            "ms",
            vec![row("1", "10", both), row("1", "50", "".to_owned())],
        );
        let files = cell(&[figure("ours", 41.0, Some("files"))], &[]);
        let failed = cell(
            &[figure("ours", 3.0, None)],
            &[in_a_cell("peer", 1, 1, &"did not form".to_owned())],
        );
        table.add(
            "join",
            "One more",
            "ms",
            vec![row("2", "10: files", files), row("2", "100", failed)],
        );
        let table = Table::read(&table.write());
        let charts: Vec<(&str, Chart)> = table.charts().collect();
        let [(bench, chart)] = charts.as_slice() else {
            panic!("one chart")
        };
        assert_eq!(
            (*bench, chart.title.as_str(), chart.unit.as_str()),
            ("join", "join: one more", "ms")
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
        let written = Table::read(text).write();
        assert!(
            written.contains("Run at night.") && written.contains("| a | row | of | four |"),
            "{written}"
        );
        assert_eq!(Table::read(&written).write(), written);
    }
}
