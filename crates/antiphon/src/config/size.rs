//! Sizes: bytes, or with a unit.

use std::fmt;
use std::str::FromStr;

const EXPECTED: &str =
    "expected a number of bytes, or one with its unit, such as 64KiB, 256MiB or 1GiB, below 4GiB";
/// Largest first: `256MiB` is what people write.
const UNITS: [(&str, u32); 3] = [("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)];

/// A number of bytes, written as one, or with a unit: `256MiB`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Size(pub u32);

antiphon_core::wire::as_text!(Size);

impl FromStr for Size {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
        let (number, unit) = text.split_at(digits);
        let factor = match unit {
            "" => Some(1),
            unit => UNITS
                .iter()
                .find(|(name, _)| *name == unit)
                .map(|(_, factor)| *factor),
        };
        let bytes = factor.and_then(|factor| number.parse::<u32>().ok()?.checked_mul(factor));
        bytes.map(Self).ok_or_else(|| EXPECTED.to_owned())
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let whole = |(_, unit): &&(&str, u32)| self.0 >= *unit && self.0.is_multiple_of(*unit);
        match UNITS.iter().find(whole) {
            Some((name, unit)) => write!(f, "{}{name}", self.0 / unit),
            None => write!(f, "{}", self.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_again() {
        for (text, bytes) in [
            ("0", 0),
            ("65537", 65_537),
            ("64KiB", 64 << 10),
            ("256MiB", 256 << 20),
            ("1GiB", 1 << 30),
        ] {
            assert_eq!(text.parse::<Size>(), Ok(Size(bytes)), "{text}");
            assert_eq!(Size(bytes).to_string(), text);
        }
        assert_eq!(Size(1536 << 10).to_string(), "1536KiB");
    }

    #[test]
    fn anything_else_is_refused_with_what_was_expected() {
        for text in ["", "MiB", "1.5MiB", "-1", "64kb", "4GiB", "4294967296", "1 MiB"] {
            let error = text.parse::<Size>().expect_err(text);
            assert!(error.contains("256MiB"), "{text}: {error}");
        }
    }
}
