//! The text format of Prometheus, version 0.0.4: families, each with its help and type once, and samples.

use std::fmt::Write as _;

/// Of the answer that has a page.
pub(crate) const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// What samples of one name have in common.
#[derive(Debug)]
pub(super) struct Family {
    pub(super) name: &'static str,
    pub(super) kind: Kind,
    /// Its labels, as its samples have them.
    pub(super) labels: &'static [&'static str],
    pub(super) help: &'static str,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// It only grows, until the process ends.
    Counter,
    Gauge,
}

impl Kind {
    pub(super) fn text(self) -> &'static str {
        match self {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
        }
    }
}

/// A page that is being written.
#[derive(Debug, Default)]
pub(super) struct Page(String);

impl Page {
    /// Writes a family with its samples: the values of its labels, and the number.
    pub(super) fn family<'a, const N: usize>(
        &mut self,
        family: &Family,
        samples: impl IntoIterator<Item = ([&'a str; N], f64)>,
    ) {
        let (name, kind) = (family.name, family.kind.text());
        debug_assert_eq!(family.labels.len(), N, "{name}");
        // A text in memory takes everything.
        let _ = writeln!(self.0, "# HELP {name} {}", escaped(family.help, false));
        let _ = writeln!(self.0, "# TYPE {name} {kind}");
        for (values, number) in samples {
            self.0 += name;
            for (at, (label, value)) in family.labels.iter().zip(values).enumerate() {
                let before = if at == 0 { '{' } else { ',' };
                let _ = write!(self.0, "{before}{label}=\"{}\"", escaped(value, true));
            }
            let end = if N > 0 { "}" } else { "" };
            let _ = writeln!(self.0, "{end} {number}");
        }
    }

    pub(super) fn text(self) -> String {
        self.0
    }
}

/// A help, or the value of a label, on one line.
fn escaped(text: &str, is_value: bool) -> String {
    let text = text.replace('\\', "\\\\").replace('\n', "\\n");
    match is_value {
        true => text.replace('"', "\\\""),
        false => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_family_is_written_as_the_format_has_it() {
        let family = Family {
            name: "a_total",
            kind: Kind::Counter,
            labels: &["b", "c"],
            help: "One\\two\nthree \"four\"",
        };
        let mut page = Page::default();
        page.family(
            &family,
            [(["x\"y", "\\\n"], 1.0), (["", "z"], 18_446_744_073_709.5)],
        );
        let plain = Family {
            name: "d",
            kind: Kind::Gauge,
            labels: &[],
            help: "e",
        };
        page.family(&plain, [([], 0.0)]);
        let expected = "# HELP a_total One\\\\two\\nthree \"four\"\n# TYPE a_total counter\n\
                        a_total{b=\"x\\\"y\",c=\"\\\\\\n\"} 1\na_total{b=\"\",c=\"z\"} 18446744073709.5\n\
                        # HELP d e\n# TYPE d gauge\nd 0\n";
        assert_eq!(page.text(), expected);
    }
}
