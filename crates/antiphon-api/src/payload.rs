//! A message's bytes in JSON.

use std::borrow::Cow;
use std::fmt;

use base64_simd::STANDARD as BASE64;
use bytes::Bytes;
use serde::de::{DeserializeSeed, Error as _, MapAccess, SeqAccess, Visitor, value::MapAccessDeserializer};
use serde::ser::{SerializeMap as _, SerializeSeq as _};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A message's bytes: a JSON string if they are UTF-8, `{"base64":"…"}` if not, `{"file":"…","bytes":n}`
/// above 1 MiB. Each form is taken on stdin, the last without `bytes` too. An agent's connection of JSON
/// lines has one form more, `{"bytes":n}`.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(untagged)]
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
    /// So many bytes, as they are, behind the line. Once they are read, they are told in the line.
    #[serde(serialize_with = "write_behind")]
    Behind {
        /// How many.
        bytes: u64,
        /// The bytes, once they are read.
        read: Option<Bytes>,
    },
}

impl Payload {
    /// The bytes as a payload.
    pub fn from_bytes(bytes: &[u8]) -> Self {
        match std::str::from_utf8(bytes) {
            Ok(text) => Payload::Text(text.to_owned()),
            Err(_) => Payload::Binary {
                base64: BASE64.encode_to_string(bytes),
            },
        }
    }

    /// Appends the JSON of a payload of these bytes to a text, without a copy of them in between.
    pub fn write_json(bytes: &[u8], text: &mut Vec<u8>) {
        if is_plain(bytes) {
            text.push(b'"');
            text.extend_from_slice(bytes);
            text.push(b'"');
        } else if let Ok(string) = std::str::from_utf8(bytes) {
            serde_json::to_writer(text, string).expect("a string is written to memory");
        } else {
            text.extend_from_slice(br#"{"base64":""#);
            BASE64.encode_append(bytes, text);
            text.extend_from_slice(br#""}"#);
        }
    }

    /// How many bytes it has as it is written; a payload in a file has those of its name.
    pub fn len(&self) -> usize {
        match self {
            Payload::Text(text) | Payload::Binary { base64: text } | Payload::File { file: text, .. } => {
                text.len()
            }
            Payload::Behind { read, .. } => read.as_ref().map_or(0, Bytes::len),
        }
    }

    /// Whether nothing is written of it.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The payload as bytes. It reads a payload that is in a file: call it only where waiting for a disk is
    /// allowed.
    pub fn into_bytes(self) -> Result<Bytes, String> {
        match self {
            Payload::Text(text) => Ok(Bytes::from(text)),
            Payload::Binary { base64 } => BASE64
                .decode_to_vec(base64.as_bytes())
                .map(Bytes::from)
                .map_err(|_| NO_BASE64.to_owned()),
            Payload::File { file, .. } => std::fs::read(&file)
                .map(Bytes::from)
                .map_err(|error| format!("cannot read the file {file}: {error}")),
            Payload::Behind { read, .. } => read.ok_or_else(|| NOTHING_BEHIND.to_owned()),
        }
    }
}

/// Why a payload that should stand behind a line is not taken.
pub const NOTHING_BEHIND: &str = "bytes behind a line are taken by an agent, on a connection of JSON lines without `grace`: give them as a text or base64";

const NO_BASE64: &str = "the payload is no base64 (standard alphabet, padded)";

fn write_behind<S: Serializer>(bytes: &u64, read: &Option<Bytes>, serializer: S) -> Result<S::Ok, S::Error> {
    if let Some(read) = read {
        return Payload::from_bytes(read).serialize(serializer);
    }
    let mut map = serializer.serialize_map(Some(1))?;
    map.serialize_entry("bytes", bytes)?;
    map.end()
}

/// Whether a payload is a JSON string as it stands. There is no branch for each byte, so the processor looks
/// at many bytes at once.
fn is_plain(payload: &[u8]) -> bool {
    let special = |byte: u8| (byte < b' ') | (byte == b'"') | (byte == b'\\') | (byte >= 0x7f);
    !payload.iter().fold(false, |any, byte| any | special(*byte))
}

/// By hand, as it is read for each message: an untagged enum would be read into a tree first.
impl<'de> Deserialize<'de> for Payload {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Form)
    }
}

struct Form;

impl<'de> Visitor<'de> for Form {
    type Value = Payload;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a payload, which is a string, {\"base64\": \"…\"}, {\"file\": \"…\"} or {\"bytes\": n}")
    }

    fn visit_str<E>(self, text: &str) -> Result<Payload, E> {
        Ok(Payload::Text(text.to_owned()))
    }

    fn visit_string<E>(self, text: String) -> Result<Payload, E> {
        Ok(Payload::Text(text))
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Payload, A::Error> {
        Ok(match Object::of(map)? {
            Object::Base64(base64) => Payload::Binary {
                base64: base64.into_owned(),
            },
            Object::File { file, bytes } => Payload::File { file, bytes },
            Object::Behind(bytes) => Payload::Behind { bytes, read: None },
        })
    }
}

/// A payload that is an object.
enum Object<'a> {
    Base64(Cow<'a, str>),
    File { file: String, bytes: Option<u64> },
    Behind(u64),
}

impl<'de> Object<'de> {
    fn of<A: MapAccess<'de>>(map: A) -> Result<Self, A::Error> {
        // Of its own: the field of an option is not borrowed.
        #[derive(Deserialize)]
        struct Text<'a>(#[serde(borrow)] Cow<'a, str>);
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Fields<'a> {
            #[serde(borrow)]
            base64: Option<Text<'a>>,
            file: Option<String>,
            bytes: Option<u64>,
        }
        match Fields::deserialize(MapAccessDeserializer::new(map))? {
            Fields {
                base64: Some(Text(base64)),
                file: None,
                bytes: None,
            } => Ok(Object::Base64(base64)),
            Fields {
                base64: None,
                file: Some(file),
                bytes,
            } => Ok(Object::File { file, bytes }),
            Fields {
                base64: None,
                file: None,
                bytes: Some(bytes),
            } => Ok(Object::Behind(bytes)),
            _ => Err(A::Error::custom(
                "a payload that is an object has one of \"base64\", \"file\" and \"bytes\"",
            )),
        }
    }
}

/// The bytes of several messages: in JSON an array of [`Payload`]s, none of them in a file; or
/// `{"bytes":[3,5]}`, where they stand behind the line, one after the other, and have these lengths. They are
/// kept in one piece of memory.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Payloads {
    bytes: Vec<u8>,
    /// Where each one ends.
    ends: Vec<usize>,
    /// They stand behind the line, and `bytes` is still empty.
    unread: bool,
}

impl Payloads {
    /// Appends one.
    pub fn push(&mut self, payload: &[u8]) {
        self.bytes.extend_from_slice(payload);
        self.ends.push(self.bytes.len());
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// The bytes that they have together.
    pub fn bytes(&self) -> usize {
        self.bytes.len()
    }

    /// Each of them, in order. As long as they stand behind the line and are not read, they are empty.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &[u8]> {
        let mut begin = 0;
        self.ends.iter().map(move |end| {
            let payload = self.bytes.get(begin..*end).unwrap_or_default();
            begin = *end;
            payload
        })
    }

    /// How many bytes stand behind the line, if they do.
    pub(crate) fn bytes_behind(&self) -> Option<u64> {
        let all = self.ends.last().copied().unwrap_or(0);
        self.unread.then_some(all as u64)
    }

    /// Takes the bytes that stood behind the line.
    pub(crate) fn fill(&mut self, bytes: Vec<u8>) {
        (self.bytes, self.unread) = (bytes, false);
    }

    /// The length of each of them.
    fn lengths(&self) -> Vec<usize> {
        let begins = std::iter::once(0).chain(self.ends.iter().copied());
        self.ends
            .iter()
            .zip(begins)
            .map(|(end, begin)| end - begin)
            .collect()
    }
}

impl<B: AsRef<[u8]>> FromIterator<B> for Payloads {
    fn from_iter<I: IntoIterator<Item = B>>(payloads: I) -> Self {
        let mut all = Self::default();
        payloads
            .into_iter()
            .for_each(|payload| all.push(payload.as_ref()));
        all
    }
}

impl Serialize for Payloads {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if self.unread {
            let mut map = serializer.serialize_map(Some(1))?;
            map.serialize_entry("bytes", &self.lengths())?;
            return map.end();
        }
        let mut array = serializer.serialize_seq(Some(self.len()))?;
        for payload in self.iter() {
            match std::str::from_utf8(payload) {
                Ok(text) => array.serialize_element(text)?,
                Err(_) => array.serialize_element(&Payload::from_bytes(payload))?,
            }
        }
        array.end()
    }
}

impl<'de> Deserialize<'de> for Payloads {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Forms)
    }
}

/// The most lengths of payloads behind a line: many more than a bundle may have, and few enough to keep while
/// the payloads come.
const MAX_LENGTHS: usize = 1 << 13;

struct Forms;

impl<'de> Visitor<'de> for Forms {
    type Value = Payloads;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an array of payloads, each a string or {\"base64\": \"…\"}; or {\"bytes\": [lengths]}")
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Payloads, A::Error> {
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Fields {
            bytes: Vec<u32>,
        }
        let lengths = Fields::deserialize(MapAccessDeserializer::new(map))?.bytes;
        if lengths.len() > MAX_LENGTHS {
            let lengths = lengths.len();
            return Err(A::Error::custom(format!(
                "{lengths} payloads are too many: say fewer together"
            )));
        }
        let mut end = 0_usize;
        let ends = lengths.into_iter().map(|length| {
            end = end.checked_add(length as usize)?;
            Some(end)
        });
        let ends: Option<Vec<usize>> = ends.collect();
        Ok(Payloads {
            bytes: Vec::new(),
            ends: ends.ok_or_else(|| A::Error::custom("the payloads are too long"))?,
            unread: true,
        })
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut array: A) -> Result<Payloads, A::Error> {
        let mut all = Payloads::default();
        while array.next_element_seed(Next(&mut all))?.is_some() {}
        Ok(all)
    }
}

/// Appends a payload as it is read.
struct Next<'a>(&'a mut Payloads);

impl<'de> DeserializeSeed<'de> for Next<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Next<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a payload of a bundle, which is a string or {\"base64\": \"…\"}")
    }

    fn visit_str<E>(self, text: &str) -> Result<(), E> {
        self.0.push(text.as_bytes());
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<(), A::Error> {
        match Object::of(map)? {
            Object::File { .. } | Object::Behind(_) => Err(A::Error::custom(
                "a payload of a bundle is a text or base64: neither in a file nor alone behind the line",
            )),
            Object::Base64(base64) => {
                let decoded = BASE64.decode_append(base64.as_bytes(), &mut self.0.bytes);
                decoded.map_err(|_| A::Error::custom(NO_BASE64))?;
                self.0.ends.push(self.0.bytes.len());
                Ok(())
            }
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

    #[test]
    fn each_form_of_a_payload_is_read_and_nothing_else() {
        let read = |text: &str| serde_json::from_str::<Payload>(text).map_err(|error| error.to_string());
        let file = |bytes| Payload::File {
            file: "f".to_owned(),
            bytes,
        };
        assert_eq!(read(r#""a\nb""#), Ok(Payload::Text("a\nb".to_owned())));
        assert_eq!(read(r#"{"file":"f"}"#), Ok(file(None)));
        assert_eq!(read(r#"{"bytes":7,"file":"f"}"#), Ok(file(Some(7))));
        assert_eq!(
            read(r#"{"bytes":7}"#),
            Ok(Payload::Behind { bytes: 7, read: None })
        );
        for wrong in [
            "5",
            "null",
            "[]",
            "{}",
            r#"{"bytes":-7}"#,
            r#"{"base64":5}"#,
            r#"{"base64":"AA==","bytes":1}"#,
            r#"{"base64":"AA==","file":"f"}"#,
            r#"{"bytes":1,"text":"x"}"#,
        ] {
            let error = read(wrong).unwrap_err();
            assert!(
                ["string", "base64", "u64", "one of"]
                    .iter()
                    .any(|word| error.contains(word)),
                "{wrong}: {error}"
            );
        }
        // Also by way of a tree, as a refused command is read again.
        let value = serde_json::json!({"base64": "AA=="});
        assert!(matches!(
            serde_json::from_value(value).unwrap(),
            Payload::Binary { .. }
        ));
    }

    #[test]
    fn the_payloads_of_a_bundle_survive_both_ways_whatever_bytes_they_have() {
        let all: [&[u8]; 5] = [b"plain", b"", b"a \"quote\"\n", "grüße".as_bytes(), &[0xff, 0]];
        let payloads: Payloads = all.into_iter().collect();
        assert_eq!((payloads.len(), payloads.iter().len()), (5, 5));
        let text = serde_json::to_string(&payloads).unwrap();
        assert_eq!(text, r#"["plain","","a \"quote\"\n","grüße",{"base64":"/wA="}]"#);
        let read: Payloads = serde_json::from_str(&text).unwrap();
        assert!(read.iter().eq(all) && read == payloads);
        for wrong in [
            r#"["a",{"file":"f"}]"#,
            r#"[{"base64":"!"}]"#,
            "[7]",
            r#""a""#,
            r#"[{"bytes":1}]"#,
            r#"{"bytes":1}"#,
            r#"{"bytes":[-1]}"#,
            r#"{"bytes":[1],"file":"f"}"#,
        ] {
            assert!(serde_json::from_str::<Payloads>(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn payloads_behind_a_line_have_the_lengths_that_it_says_and_are_empty_until_they_are_read() {
        let mut payloads: Payloads = serde_json::from_str(r#"{"bytes":[2,0,3]}"#).unwrap();
        assert_eq!(payloads.bytes_behind(), Some(5));
        assert_eq!(serde_json::to_string(&payloads).unwrap(), r#"{"bytes":[2,0,3]}"#);
        assert!(payloads.iter().eq([&b""[..]; 3]));
        payloads.fill(b"abcde".to_vec());
        assert_eq!(payloads.bytes_behind(), None);
        assert!(payloads.iter().eq([&b"ab"[..], b"", b"cde"]));
        // Another program is told them in the line.
        assert_eq!(serde_json::to_string(&payloads).unwrap(), r#"["ab","","cde"]"#);
    }
}
