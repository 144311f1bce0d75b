//! Times: `slow-after`, how long a group waits for a member if its application does not read; and times of
//! the program.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use antiphon_core::GroupOptions;

const EXPECTED: &str = "expected a time with its unit, such as 30s, 1500ms, 5m or 1h (1 s to 1 h), or never";
const MILLISECOND: u64 = 1;
const SECOND: u64 = 1000;
const MINUTE: u64 = 60 * SECOND;
const HOUR: u64 = 60 * MINUTE;
/// Longest first: `5m` is what people write, not `300s`.
const UNITS: [(&str, u64); 4] = [("h", HOUR), ("m", MINUTE), ("s", SECOND), ("ms", MILLISECOND)];

/// A time, written with its unit: `30s`, `5m`; or `never`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Patience(pub Option<Duration>);

antiphon_core::wire::as_text!(Patience);

impl Default for Patience {
    /// That of groups.
    fn default() -> Self {
        Self(GroupOptions::default().slow_after)
    }
}

impl FromStr for Patience {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "never" {
            return Ok(Self(None));
        }
        let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
        let (number, unit) = text.split_at(digits);
        let unit = UNITS.iter().find(|(name, _)| *name == unit);
        let ms = unit.and_then(|(_, ms)| number.parse::<u64>().ok()?.checked_mul(*ms));
        match ms {
            Some(ms) if (SECOND..=HOUR).contains(&ms) => Ok(Self(Some(Duration::from_millis(ms)))),
            _ => Err(EXPECTED.to_owned()),
        }
    }
}

/// Reads a time that comes to an end.
#[doc(hidden)]
pub fn limited(text: &str) -> Result<Duration, String> {
    let parsed = text.parse::<Patience>().ok().and_then(|patience| patience.0);
    parsed.ok_or_else(|| "expected a time with its unit, such as 3s, 1500ms or 5m (1 s to 1 h)".to_owned())
}

impl fmt::Display for Patience {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(time) = self.0 else {
            return f.write_str("never");
        };
        let ms = time.as_millis() as u64;
        let whole = UNITS
            .iter()
            .find(|(_, unit)| ms >= *unit && ms.is_multiple_of(*unit));
        let (name, unit) = whole.unwrap_or(&("ms", MILLISECOND));
        write!(f, "{}{name}", ms / unit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_again() {
        for (text, ms) in [
            ("1s", 1000),
            ("1500ms", 1500),
            ("90s", 90_000),
            ("5m", 300_000),
            ("1h", 3_600_000),
        ] {
            let patience = text.parse::<Patience>().unwrap();
            assert_eq!(patience.0, Some(Duration::from_millis(ms)), "{text}");
            assert_eq!(patience.to_string(), text);
        }
        assert_eq!(limited("1500ms"), Ok(Duration::from_millis(1500)));
        assert!(limited("never").unwrap_err().contains("1 s to 1 h"));
        assert_eq!("60s".parse::<Patience>().unwrap().to_string(), "1m");
        assert_eq!("never".parse::<Patience>().unwrap(), Patience(None));
        assert_eq!(Patience(None).to_string(), "never");
    }

    #[test]
    fn a_time_without_a_unit_or_beyond_the_bounds_says_what_is_expected() {
        for wrong in [
            "",
            "30",
            "s",
            "999ms",
            "61m",
            "2h",
            "-5s",
            "1.5s",
            "30 s",
            "99999999999999999999h",
            "always",
        ] {
            assert_eq!(wrong.parse::<Patience>(), Err(EXPECTED.to_owned()), "{wrong}");
        }
    }
}
