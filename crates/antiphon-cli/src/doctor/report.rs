//! What was found, told as it is found.

use std::io::{self, Write as _};

use antiphon_core::text::{in_json, in_lines, shortened};
use serde_json::json;

use crate::exit::{Exit, Failed};

/// Characters of what is said of a step. Settings and other nodes may give more.
const MOST: usize = 2000;
const MOST_OF_A_SUBJECT: usize = 300;

/// How a step went.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Outcome {
    Ok,
    Warning,
    Failed,
    Skipped,
}

impl Outcome {
    fn as_str(self) -> &'static str {
        match self {
            Outcome::Ok => "ok",
            Outcome::Warning => "warning",
            Outcome::Failed => "failed",
            Outcome::Skipped => "skipped",
        }
    }
}

/// One step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Step {
    name: &'static str,
    /// What was looked at: an address, a name.
    subject: String,
    outcome: Outcome,
    /// A word for programs, if it failed.
    code: Option<&'static str>,
    text: String,
    remedy: String,
}

impl Step {
    pub(super) fn ok(name: &'static str, subject: impl ToString, text: impl Into<String>) -> Self {
        Self::new(name, subject, Outcome::Ok, text)
    }

    pub(super) fn warning(name: &'static str, subject: impl ToString, text: impl Into<String>) -> Self {
        Self::new(name, subject, Outcome::Warning, text)
    }

    pub(super) fn skipped(name: &'static str, subject: impl ToString, why: impl Into<String>) -> Self {
        Self::new(name, subject, Outcome::Skipped, why)
    }

    /// With a word for programs, the cause and the remedy.
    pub(super) fn failed(
        name: &'static str,
        code: &'static str,
        subject: impl ToString,
        cause: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Self {
        Self {
            code: Some(code),
            remedy: remedy.into(),
            ..Self::new(name, subject, Outcome::Failed, cause)
        }
    }

    /// The same as no more than a warning.
    pub(super) fn but_harmless(mut self) -> Self {
        self.outcome = Outcome::Warning;
        self
    }

    pub(super) fn is_failed(&self) -> bool {
        self.outcome == Outcome::Failed
    }

    #[cfg(test)]
    pub(super) fn code(&self) -> Option<&'static str> {
        self.code
    }

    #[cfg(test)]
    pub(super) fn text(&self) -> &str {
        &self.text
    }

    fn new(name: &'static str, subject: impl ToString, outcome: Outcome, text: impl Into<String>) -> Self {
        Self {
            name,
            subject: shortened(&subject.to_string(), MOST_OF_A_SUBJECT).into_owned(),
            outcome,
            code: None,
            text: shortened(&text.into(), MOST).into_owned(),
            remedy: String::new(),
        }
    }

    /// What others wrote is on one line by then; lines of one's own stay.
    fn human(&self) -> String {
        let subject = match self.subject.as_str() {
            "" => String::new(),
            subject => format!(" {subject}"),
        };
        let mut text = format!(
            "{:<8}{}{subject}: {}",
            self.outcome.as_str(),
            self.name,
            self.text
        );
        if !self.remedy.is_empty() {
            text.push_str("\n        -> ");
            text.push_str(&self.remedy);
        }
        in_lines(&text)
    }

    fn json(&self) -> String {
        let mut value = json!({
            "event": "step", "step": self.name, "outcome": self.outcome.as_str(), "text": self.text,
        });
        let optional = [
            ("subject", self.subject.as_str()),
            ("code", self.code.unwrap_or_default()),
            ("remedy", self.remedy.as_str()),
        ];
        for (key, text) in optional.into_iter().filter(|(_, text)| !text.is_empty()) {
            value[key] = text.into();
        }
        in_json(&value.to_string())
    }
}

/// Tells steps and counts them.
#[derive(Debug)]
pub(super) struct Report {
    json: bool,
    failed: Vec<Step>,
    warnings: usize,
    /// Nobody reads any more.
    closed: bool,
    verdict: Option<(Option<bool>, String)>,
}

impl Report {
    pub(super) fn new(json: bool) -> Self {
        Self {
            json,
            failed: Vec::new(),
            warnings: 0,
            closed: false,
            verdict: None,
        }
    }

    /// The configuration file may ask for JSON, too.
    pub(super) fn speak_json(&mut self, json: bool) {
        self.json |= json;
    }

    pub(super) fn add(&mut self, step: Step) {
        let line = if self.json { step.json() } else { step.human() };
        self.print(&line);
        match step.outcome {
            Outcome::Failed => self.failed.push(step),
            Outcome::Warning => self.warnings += 1,
            Outcome::Ok | Outcome::Skipped => {}
        }
    }

    /// What it comes to: whether a node with these settings gets into a cluster, as far as can be seen.
    pub(super) fn verdict(&mut self, gets_in: bool, text: String) {
        self.verdict = Some((Some(gets_in), text));
    }

    /// The same where that cannot be seen.
    pub(super) fn unknown(&mut self, text: String) {
        self.verdict = Some((None, text));
    }

    /// Tells the verdict; `failure` is how the program ends if a step failed.
    pub(super) fn finish(mut self, failure: Exit) -> Result<Exit, Failed> {
        let nothing = || (None, "no more could be found out".to_owned());
        let (gets_in, text) = self.verdict.take().unwrap_or_else(nothing);
        let ok = self.failed.is_empty() && gets_in != Some(false);
        let line = if self.json {
            let codes: Vec<_> = self.failed.iter().map(|step| step.code).collect();
            let verdict = json!({
                "event": "verdict", "ok": ok, "gets_in": gets_in, "failed": codes, "warnings": self.warnings,
                "text": text,
            });
            in_json(&verdict.to_string())
        } else {
            let failed = match self.failed.len() {
                0 => "nothing failed".to_owned(),
                1 => "1 step failed".to_owned(),
                several => format!("{several} steps failed"),
            };
            in_lines(&format!(
                "\nverdict: {text} ({failed}, {} warnings)",
                self.warnings
            ))
        };
        self.print(&line);
        Ok(match (self.closed, ok) {
            (true, _) => Exit::StdoutClosed,
            (false, true) => Exit::Success,
            (false, false) => failure,
        })
    }

    fn print(&mut self, line: &str) {
        let mut stdout = io::stdout().lock();
        self.closed |= writeln!(stdout, "{line}").and_then(|()| stdout.flush()).is_err();
    }
}
