//! A message's bytes in JSON.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use bytes::Bytes;
use serde::{Deserialize, Serialize};

/// A message's bytes: a JSON string if they are UTF-8, `{"base64":"…"}` if not, `{"file":"…","bytes":n}`
/// above 1 MiB. Each form is taken on stdin, the last without `bytes` too.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
#[serde(expecting = "payload must be a string, {\"base64\": \"…\"} or {\"file\": \"…\"}")]
pub enum Payload {
    /// UTF-8.
    Text(String),
    /// Anything else.
    Binary {
        /// Standard alphabet, padded.
        base64: String,
    },
    /// What is in a file.
    File {
        /// Its path.
        file: String,
        /// Its length; of no meaning on stdin.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        bytes: Option<u64>,
    },
}

impl Payload {
    /// The bytes as a payload.
    pub fn from_bytes(bytes: &[u8]) -> Self {
        match std::str::from_utf8(bytes) {
            Ok(text) => Payload::Text(text.to_owned()),
            Err(_) => Payload::Binary {
                base64: BASE64.encode(bytes),
            },
        }
    }

    /// The payload as bytes. It reads a payload that is in a file: call it only where waiting for a disk is
    /// allowed.
    pub fn into_bytes(self) -> Result<Bytes, String> {
        match self {
            Payload::Text(text) => Ok(Bytes::from(text)),
            Payload::Binary { base64 } => BASE64
                .decode(base64.as_bytes())
                .map(Bytes::from)
                .map_err(|error| format!("the payload is no base64 (standard alphabet, padded): {error}")),
            Payload::File { file, .. } => std::fs::read(&file)
                .map(Bytes::from)
                .map_err(|error| format!("cannot read the file {file}: {error}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn payloads_that_are_not_utf8_survive_both_ways() {
        let bytes = [0xff, 0x00, 0xfe];
        let payload = Payload::from_bytes(&bytes);
        assert_eq!(serde_json::to_string(&payload).unwrap(), r#"{"base64":"/wD+"}"#);
        assert_eq!(&payload.into_bytes().unwrap()[..], &bytes);
        assert_eq!(
            Payload::from_bytes("grüße".as_bytes()),
            Payload::Text("grüße".into())
        );
    }
}
