//! Values as the bytes of a message: [postcard](https://postcard.jamesmunns.com/wire-format).

use serde::{Deserialize, Serialize, Serializer};

/// At once: serde would write each byte by itself. The encoding is the same.
pub(crate) fn as_bytes<S: Serializer, B: AsRef<[u8]>>(bytes: &B, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_bytes(bytes.as_ref())
}

/// The bytes of a message.
pub(crate) fn encode<T: Serialize>(value: &T) -> Vec<u8> {
    postcard::to_stdvec(value).expect("our own formats have no unsized sequences, and a Vec has room")
}

/// The same of what has about so many bytes, so that they are not moved as they become more.
pub(crate) fn encode_about<T: Serialize>(bytes: usize, value: &T) -> Vec<u8> {
    encode_after(Vec::with_capacity(bytes + 64), value)
}

/// Reads all of `bytes` as a `T`, with nothing left over.
pub(crate) fn decode<'a, T: Deserialize<'a>>(bytes: &'a [u8]) -> Option<T> {
    match postcard::take_from_bytes(bytes) {
        Ok((value, [])) => Some(value),
        _ => None,
    }
}

/// The same, behind these bytes.
pub(crate) fn encode_after<T: Serialize>(bytes: Vec<u8>, value: &T) -> Vec<u8> {
    postcard::to_extend(value, bytes).expect("our own formats have no unsized sequences, and a Vec has room")
}

/// Reads a `T` from the beginning, and gives what follows.
pub(crate) fn decode_first<'a, T: Deserialize<'a>>(bytes: &'a [u8]) -> Option<(T, &'a [u8])> {
    postcard::take_from_bytes(bytes).ok()
}
