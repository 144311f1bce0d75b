//! Programs' own types as bytes: [postcard](https://postcard.jamesmunns.com/wire-format).

use std::fmt::Display;

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
