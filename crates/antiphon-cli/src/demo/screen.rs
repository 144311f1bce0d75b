//! What the audience sees: a readable story, or the same as JSON lines.

use std::io::{IsTerminal as _, Write as _};
use std::time::Instant;

use serde_json::{Value, json};

/// Where the story is told.
#[derive(Debug)]
pub(crate) struct Screen {
    json: bool,
    colour: bool,
    start: Instant,
}

/// How a line is meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tone {
    /// What is about to happen.
    Act,
    /// What came of it, as it should be.
    Good,
    /// What came of it, as it should not be.
    Bad,
    /// More about it.
    Note,
}

impl Screen {
    /// The story begins now.
    pub(crate) fn new(json: bool) -> Self {
        let plain = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty())
            || std::env::var_os("TERM").is_some_and(|term| term == "dumb");
        Self {
            json,
            colour: !plain && std::io::stdout().is_terminal(),
            start: Instant::now(),
        }
    }

    /// Tells one line of the story. The facts are for programs.
    pub(crate) fn tell(&self, tone: Tone, step: &str, text: &str, facts: Value) {
        if !self.json {
            let (colour, sign) = match tone {
                Tone::Act => ("1", "▸"),
                Tone::Good => ("32", "✔"),
                Tone::Bad => ("1;31", "✘"),
                Tone::Note => ("2", " "),
            };
            let time = match tone {
                Tone::Note => "        ".to_owned(),
                _ => format!("{:6.2} s", self.start.elapsed().as_secs_f64()),
            };
            let gap = if tone == Tone::Act { "\n" } else { "" };
            self.line(&format!(
                "{gap}{time}  {}",
                self.paint(colour, &format!("{sign} {text}"))
            ));
            return;
        }
        let mut object = json!({
            "event": "step",
            "step": step,
            "at_ms": u64::try_from(self.start.elapsed().as_millis()).unwrap_or(u64::MAX),
            "ok": tone != Tone::Bad,
            "text": text,
        });
        if let (Some(object), Value::Object(facts)) = (object.as_object_mut(), facts) {
            object.extend(facts);
        }
        self.line(&object.to_string());
    }

    /// Text for people only.
    pub(crate) fn people(&self, text: &str) {
        if !self.json {
            self.line(text);
        }
    }

    /// A line for programs only.
    pub(crate) fn program(&self, object: &Value) {
        if self.json {
            self.line(&object.to_string());
        }
    }

    /// The text in a colour, on a terminal.
    pub(crate) fn paint(&self, code: &str, text: &str) -> String {
        if self.colour {
            format!("\x1b[{code}m{text}\x1b[0m")
        } else {
            text.to_owned()
        }
    }

    fn line(&self, text: &str) {
        let mut stdout = std::io::stdout().lock();
        // The audience has gone: the demo goes on to its verdict, which is its exit code.
        let _ = writeln!(stdout, "{text}").and_then(|()| stdout.flush());
    }
}
