//! Programs' own types as bytes: [postcard](https://postcard.jamesmunns.com/wire-format).

use std::any::Any;
use std::fmt::Display;
use std::panic::{AssertUnwindSafe, catch_unwind};

use bytes::Bytes;
use serde::Serialize;
use serde::de::DeserializeOwned;

pub(crate) fn encode(value: &impl Serialize) -> Result<Bytes, String> {
    postcard::to_stdvec(value).map(Bytes::from).map_err(text)
}

/// Reads all of the bytes as a value. What has bytes left over is of another type, or of another version.
pub(crate) fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, String> {
    match postcard::take_from_bytes(bytes).map_err(text)? {
        (value, []) => Ok(value),
        (_, rest) => Err(format!("{} of {} bytes are left over", rest.len(), bytes.len())),
    }
}

/// What a function of the program's returns; a panic is an error with its text.
pub(crate) fn unpanicked<T>(run: impl FnOnce() -> Result<T, String>) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|panic: Box<dyn Any + Send>| {
        let text = panic.downcast_ref::<&str>().copied();
        let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
        Err(format!("it panicked: {}", text.unwrap_or("without a text")))
    })
}

fn text(error: impl Display) -> String {
    error.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_bytes_left_over_is_of_another_type() {
        assert_eq!(decode(&encode(&7_u32).unwrap()), Ok(7_u32));
        let text = encode(&"abc").unwrap();
        assert_eq!(decode::<u32>(&text), Err("3 of 4 bytes are left over".to_owned()));
        assert!(decode::<u64>(b"").is_err());
    }
}
