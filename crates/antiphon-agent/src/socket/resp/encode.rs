//! Values as RESP2 or RESP3 has them.

use std::io::Write as _;

/// The longest text of an error.
const MAX_ERROR_BYTES: usize = 4096;

/// Which of both a connection speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Version {
    /// What a connection speaks that says nothing.
    #[default]
    Two,
    /// After `HELLO 3`.
    Three,
}

/// Appends values to bytes. What RESP3 adds is written in RESP2 as Redis does it: nil as a bulk string
/// without length, a map as the array of its keys and values, a push as an array.
pub(super) struct Encoder<'a> {
    pub(super) bytes: &'a mut Vec<u8>,
    pub(super) version: Version,
}

impl Encoder<'_> {
    fn head(&mut self, sign: u8, number: i64) {
        self.bytes.push(sign);
        // Writing into memory does not fail.
        let _ = write!(self.bytes, "{number}\r\n");
    }

    pub(super) fn simple(&mut self, text: &str) {
        self.bytes.push(b'+');
        self.bytes.extend_from_slice(text.as_bytes());
        self.bytes.extend_from_slice(b"\r\n");
    }

    /// The text begins with its code. It stays in one line.
    pub(super) fn error(&mut self, text: &str) {
        let mut end = text.len().min(MAX_ERROR_BYTES);
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        self.bytes.push(b'-');
        let bytes = text[..end].bytes();
        self.bytes.extend(bytes.map(|byte| match byte {
            b'\r' | b'\n' => b' ',
            byte => byte,
        }));
        self.bytes.extend_from_slice(b"\r\n");
    }

    pub(super) fn number(&mut self, number: i64) {
        self.head(b':', number);
    }

    pub(super) fn bulk(&mut self, bytes: &[u8]) {
        self.head(b'$', bytes.len() as i64);
        self.bytes.extend_from_slice(bytes);
        self.bytes.extend_from_slice(b"\r\n");
    }

    /// A text for people.
    pub(super) fn verbatim(&mut self, text: &str) {
        match self.version {
            Version::Two => self.bulk(text.as_bytes()),
            Version::Three => {
                self.head(b'=', text.len() as i64 + 4);
                self.bytes.extend_from_slice(b"txt:");
                self.bytes.extend_from_slice(text.as_bytes());
                self.bytes.extend_from_slice(b"\r\n");
            }
        }
    }

    pub(super) fn nil(&mut self) {
        self.bytes.extend_from_slice(match self.version {
            Version::Two => b"$-1\r\n",
            Version::Three => b"_\r\n",
        });
    }

    /// The array of no length that stands for no array.
    pub(super) fn nil_array(&mut self) {
        self.bytes.extend_from_slice(match self.version {
            Version::Two => b"*-1\r\n",
            Version::Three => b"_\r\n",
        });
    }

    /// So many values follow.
    pub(super) fn array(&mut self, length: usize) {
        self.head(b'*', length as i64);
    }

    /// So many keys follow, each with its value.
    pub(super) fn map(&mut self, length: usize) {
        match self.version {
            Version::Two => self.head(b'*', 2 * length as i64),
            Version::Three => self.head(b'%', length as i64),
        }
    }

    /// So many values follow, which are no reply.
    pub(super) fn push(&mut self, length: usize) {
        match self.version {
            Version::Two => self.array(length),
            Version::Three => self.head(b'>', length as i64),
        }
    }

    pub(super) fn bulks<T: AsRef<[u8]>>(&mut self, texts: &[T]) {
        self.array(texts.len());
        for text in texts {
            self.bulk(text.as_ref());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn encoded(version: Version, write: impl FnOnce(&mut Encoder<'_>)) -> String {
        let mut bytes = Vec::new();
        write(&mut Encoder {
            bytes: &mut bytes,
            version,
        });
        String::from_utf8(bytes).unwrap()
    }

    #[test]
    fn each_value_is_written_as_its_version_has_it() {
        let all = |e: &mut Encoder<'_>| {
            e.map(1);
            e.bulk(b"k");
            e.nil();
            e.push(1);
            e.verbatim("ab");
            e.number(-7);
            e.nil_array();
        };
        assert_eq!(
            encoded(Version::Two, all),
            "*2\r\n$1\r\nk\r\n$-1\r\n*1\r\n$2\r\nab\r\n:-7\r\n*-1\r\n"
        );
        assert_eq!(
            encoded(Version::Three, all),
            "%1\r\n$1\r\nk\r\n_\r\n>1\r\n=6\r\ntxt:ab\r\n:-7\r\n_\r\n"
        );
    }

    #[test]
    fn an_error_stays_in_one_line_and_is_bounded() {
        let long = format!("ERR a\r\nb{}", "ä".repeat(MAX_ERROR_BYTES));
        let text = encoded(Version::Two, |e| e.error(&long));
        assert!(text.starts_with("-ERR a  bä") && text.ends_with("ä\r\n"));
        assert!(text.len() <= MAX_ERROR_BYTES + 3 && text.matches('\n').count() == 1);
    }
}
