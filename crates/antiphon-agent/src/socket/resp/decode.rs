//! What a program says, cut into commands: arrays of bulk strings, or lines.
//!
//! Written here and not taken from a crate: `redis-protocol` reads a frame from its beginning each time that
//! more of it has come, knows no bounds, and knows no lines.

use bytes::{Bytes, BytesMut};

/// The longest argument.
pub(in crate::socket) const MAX_ARGUMENT_BYTES: usize = 1 << 20;
/// The most arguments of a command, its word included.
pub(in crate::socket) const MAX_ARGUMENTS: usize = 1024;
/// The longest command: all its arguments together.
pub(in crate::socket) const MAX_COMMAND_BYTES: usize = 4 << 20;
/// The longest line of a command that is no array, and of a length.
pub(in crate::socket) const MAX_INLINE_BYTES: usize = 64 << 10;

/// Bytes read at once, and read ahead of a command that waits.
pub(in crate::socket) const READ_BYTES: usize = 64 << 10;
/// Memory of a program that has said little. What one that says more fills is followed by four times as much,
/// up to [`READ_BYTES`].
const FIRST_BYTES: usize = 4 << 10;
/// When only this part of the memory is left, more is allocated.
const LEFT: usize = 8;

/// Cuts bytes into commands. It holds one that is not whole, and what was read behind it.
#[derive(Debug, Default)]
pub(in crate::socket) struct Decoder {
    bytes: BytesMut,
    /// The memory that was allocated last.
    allocated: usize,
    /// Bytes at the front in which no line ends.
    searched: usize,
    state: State,
    arguments: Vec<Bytes>,
    /// Of the arguments together.
    length: usize,
}

/// What the next bytes are.
#[derive(Debug, Default, Clone, Copy)]
enum State {
    #[default]
    Command,
    /// The length of an argument; so many arguments are not here yet.
    Length { left: usize },
    /// An argument of this length.
    Argument { left: usize, length: usize },
}

/// Redis' text for the error, behind `Protocol error: `. Nothing more can be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::socket) struct Broken(pub(in crate::socket) String);

fn broken<T>(what: impl Into<String>) -> Result<T, Broken> {
    Err(Broken(what.into()))
}

impl Decoder {
    /// Where to read into. There is room in it.
    pub(in crate::socket) fn buffer(&mut self) -> &mut BytesMut {
        // An argument keeps the memory that it was read into alive. So this memory is used up before more is
        // allocated.
        if self.bytes.capacity() - self.bytes.len() < (self.allocated / LEFT).max(1) {
            self.allocated = (self.allocated * 4).clamp(FIRST_BYTES, READ_BYTES);
            self.bytes.reserve(self.allocated);
        }
        &mut self.bytes
    }

    /// How many bytes wait, those of arguments that were cut off already not counted.
    pub(super) fn waiting(&self) -> usize {
        self.bytes.len()
    }

    /// How many bytes it holds in all.
    pub(super) fn held(&self) -> usize {
        let cut_off: usize = self.arguments.iter().map(Bytes::len).sum();
        self.bytes.len() + cut_off
    }

    /// The next whole command, never empty; none if more bytes are needed.
    ///
    /// # Errors
    /// This is not RESP, or beyond a bound.
    pub(in crate::socket) fn next(&mut self) -> Result<Option<Vec<Bytes>>, Broken> {
        loop {
            match self.state {
                State::Command => {
                    let Some(first) = self.bytes.first() else {
                        return Ok(None);
                    };
                    if *first != b'*' {
                        let Some(line) = self.line("too big inline request")? else {
                            return Ok(None);
                        };
                        let arguments = split(&line)?;
                        if !arguments.is_empty() {
                            return Ok(Some(arguments));
                        }
                        continue;
                    }
                    let Some(line) = self.line("too big mbulk count string")? else {
                        return Ok(None);
                    };
                    match number(&line[1..]) {
                        // As Redis has it: nothing at all.
                        Some(..=0) => {}
                        Some(count) if count <= MAX_ARGUMENTS as i64 => {
                            self.length = 0;
                            self.state = State::Length { left: count as usize };
                        }
                        _ => return broken("invalid multibulk length"),
                    }
                }
                State::Length { left } => {
                    let Some(line) = self.line("too big bulk count string")? else {
                        return Ok(None);
                    };
                    if line.first() != Some(&b'$') {
                        let got = line.first().map_or('\r', |byte| char::from(*byte));
                        return broken(format!("expected '$', got '{}'", got.escape_default()));
                    }
                    let length = match number(&line[1..]) {
                        Some(length) if (0..=MAX_ARGUMENT_BYTES as i64).contains(&length) => length as usize,
                        _ => return broken("invalid bulk length"),
                    };
                    self.length += length;
                    if self.length > MAX_COMMAND_BYTES {
                        return broken(format!("a command has at most {MAX_COMMAND_BYTES} bytes"));
                    }
                    self.state = State::Argument { left, length };
                }
                State::Argument { left, length } => {
                    if self.bytes.len() < length + 2 {
                        return Ok(None);
                    }
                    let argument = self.bytes.split_to(length).freeze();
                    if &self.bytes.split_to(2)[..] != b"\r\n" {
                        return broken("expected CRLF behind an argument");
                    }
                    self.arguments.push(argument);
                    if left == 1 {
                        self.state = State::Command;
                        return Ok(Some(std::mem::take(&mut self.arguments)));
                    }
                    self.state = State::Length { left: left - 1 };
                }
            }
        }
    }

    /// A whole line without its end.
    fn line(&mut self, too_long: &str) -> Result<Option<BytesMut>, Broken> {
        let end = self.bytes[self.searched..].iter().position(|byte| *byte == b'\n');
        let Some(end) = end.map(|end| self.searched + end) else {
            self.searched = self.bytes.len();
            if self.bytes.len() > MAX_INLINE_BYTES {
                return broken(too_long);
            }
            return Ok(None);
        };
        if end > MAX_INLINE_BYTES {
            return broken(too_long);
        }
        self.searched = 0;
        let mut line = self.bytes.split_to(end + 1);
        line.truncate(end);
        if line.last() == Some(&b'\r') {
            line.truncate(end - 1);
        }
        Ok(Some(line))
    }
}

/// A number as Redis reads it: without `+`, and without zeros in front.
pub(super) fn number(digits: &[u8]) -> Option<i64> {
    let first = digits.strip_prefix(b"-").unwrap_or(digits).first()?;
    let is_plain = digits == b"0" || (b'1'..=b'9').contains(first);
    let text = std::str::from_utf8(digits).ok().filter(|_| is_plain);
    text?.parse().ok()
}

/// The arguments of a line, as a shell would read it.
fn split(line: &[u8]) -> Result<Vec<Bytes>, Broken> {
    let unbalanced = "unbalanced quotes in request";
    let mut arguments = Vec::new();
    let mut rest = line;
    loop {
        let spaces = rest.iter().take_while(|byte| byte.is_ascii_whitespace()).count();
        rest = &rest[spaces..];
        if rest.is_empty() {
            return Ok(arguments);
        }
        if arguments.len() == MAX_ARGUMENTS {
            return broken(format!("a command has at most {MAX_ARGUMENTS} arguments"));
        }
        let mut argument = Vec::new();
        let mut quote = None;
        loop {
            let Some((&byte, behind)) = rest.split_first() else {
                match quote {
                    None => break,
                    Some(_) => return broken(unbalanced),
                }
            };
            match (quote, byte) {
                (None, byte) if byte.is_ascii_whitespace() => break,
                (None, b'"' | b'\'') => quote = Some(byte),
                (Some(b'"'), b'\\') if !behind.is_empty() => {
                    let (byte, length) = escaped(behind);
                    argument.push(byte);
                    rest = &behind[length..];
                    continue;
                }
                (Some(b'\''), b'\\') if behind.first() == Some(&b'\'') => {
                    argument.push(b'\'');
                    rest = &behind[1..];
                    continue;
                }
                (Some(open), close) if open == close => {
                    // Something stands right behind the quotes.
                    if behind.first().is_some_and(|byte| !byte.is_ascii_whitespace()) {
                        return broken(unbalanced);
                    }
                    quote = None;
                }
                (_, byte) => argument.push(byte),
            }
            rest = behind;
        }
        arguments.push(argument.into());
    }
}

/// What stands for what follows a backslash, and how much it takes.
fn escaped(behind: &[u8]) -> (u8, usize) {
    let hex = |at: usize| {
        let digit = behind.get(at).map(|byte| char::from(*byte));
        digit.and_then(|digit| digit.to_digit(16))
    };
    match (behind[0], hex(1), hex(2)) {
        (b'x', Some(high), Some(low)) => ((high * 16 + low) as u8, 3),
        (b'n', ..) => (b'\n', 1),
        (b'r', ..) => (b'\r', 1),
        (b't', ..) => (b'\t', 1),
        (b'b', ..) => (8, 1),
        (b'a', ..) => (7, 1),
        (byte, ..) => (byte, 1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All commands in what comes in these pieces, and what broke them off.
    fn decoded(pieces: &[&[u8]]) -> (Vec<Vec<Bytes>>, Option<Broken>) {
        let mut decoder = Decoder::default();
        let mut commands = Vec::new();
        for piece in pieces {
            decoder.buffer().extend_from_slice(piece);
            loop {
                match decoder.next() {
                    Ok(Some(command)) => commands.push(command),
                    Ok(None) => break,
                    Err(broken) => return (commands, Some(broken)),
                }
            }
        }
        (commands, None)
    }

    fn words(command: &[Bytes]) -> Vec<&[u8]> {
        command.iter().map(|word| &word[..]).collect()
    }

    #[test]
    fn what_is_said_is_the_same_wherever_it_is_cut() {
        let said = b"*2\r\n$4\r\nECHO\r\n$5\r\na\r\nb\0\r\nPING\r\n\r\n*0\r\n*-1\r\n SET k \"a b\\x41\\n\" 'c\\'d' \"\"\n*1\r\n$0\r\n\r\n";
        let (whole, broken) = decoded(&[said]);
        assert_eq!(broken, None);
        let expected: [&[&[u8]]; 4] = [
            &[b"ECHO", b"a\r\nb\0"],
            &[b"PING"],
            &[b"SET", b"k", b"a bA\n", b"c'd", b""],
            &[b""],
        ];
        assert_eq!(
            whole.iter().map(|command| words(command)).collect::<Vec<_>>(),
            expected
        );
        for first in 0..=said.len() {
            for second in first..=said.len() {
                let pieces = [&said[..first], &said[first..second], &said[second..]];
                assert_eq!(decoded(&pieces), (whole.clone(), None), "{first}, {second}");
            }
        }
        let each: Vec<&[u8]> = said.chunks(1).collect();
        assert_eq!(decoded(&each), (whole, None));
    }

    #[test]
    fn what_is_no_resp_ends_it_with_the_words_of_redis() {
        for (said, expected) in [
            (&b"*x\r\n"[..], "invalid multibulk length"),
            (b"*1025\r\n", "invalid multibulk length"),
            (b"*99999999999999999999\r\n", "invalid multibulk length"),
            (b"*+1\r\n", "invalid multibulk length"),
            (b"*01\r\n", "invalid multibulk length"),
            (b"*-0\r\n", "invalid multibulk length"),
            (b"*\r\n", "invalid multibulk length"),
            (b"*1\r\nPING\r\n", "expected '$', got 'P'"),
            (b"*1\r\n\r\n", "expected '$', got '\\r'"),
            (b"*1\r\n$-1\r\n", "invalid bulk length"),
            (b"*1\r\n$1048577\r\n", "invalid bulk length"),
            (b"*1\r\n$1\r\nabc\r\n", "expected CRLF behind an argument"),
            (b"SET \"a\r\n", "unbalanced quotes in request"),
            (b"SET \"a\"b\r\n", "unbalanced quotes in request"),
            (b"SET 'a\r\n", "unbalanced quotes in request"),
        ] {
            for cut in 0..=said.len() {
                let (commands, broken) = decoded(&[&said[..cut], &said[cut..]]);
                assert_eq!((commands.len(), broken), (0, Some(Broken(expected.to_owned()))));
            }
        }
    }

    #[test]
    fn what_has_no_end_is_not_waited_for() {
        let long = vec![b'x'; MAX_INLINE_BYTES + 1];
        let (_, broken) = decoded(&[&long]);
        assert_eq!(broken.unwrap().0, "too big inline request");
        let mut count = b"*".to_vec();
        count.resize(MAX_INLINE_BYTES + 2, b'1');
        assert_eq!(decoded(&[&count]).1.unwrap().0, "too big mbulk count string");
        let mut length = b"*1\r\n$".to_vec();
        length.resize(MAX_INLINE_BYTES + 6, b'1');
        assert_eq!(decoded(&[&length]).1.unwrap().0, "too big bulk count string");
        let many = b"x ".repeat(MAX_ARGUMENTS + 1);
        assert!(
            decoded(&[&many, b"\n"])
                .1
                .unwrap()
                .0
                .contains("at most 1024 arguments")
        );
    }

    #[test]
    fn many_arguments_that_each_come_alone_take_no_more_memory_than_others() {
        let mut decoder = Decoder::default();
        decoder.buffer().extend_from_slice(b"*1001\r\n$1\r\nx\r\n");
        let (mut places, mut held) = (std::collections::BTreeSet::new(), 0);
        for _ in 0..1000 {
            assert!(decoder.next().unwrap().is_none());
            let room = decoder.buffer();
            places.insert(room.as_ptr() as usize / READ_BYTES);
            held = held.max(room.capacity());
            room.extend_from_slice(b"$1\r\nx\r\n");
        }
        assert!(places.len() <= 4 && held <= READ_BYTES, "{places:?}, {held}");
    }

    #[test]
    fn a_command_has_a_bound_over_all_its_arguments() {
        let mut said = b"*5\r\n".to_vec();
        for _ in 0..4 {
            said.extend_from_slice(format!("${MAX_ARGUMENT_BYTES}\r\n").as_bytes());
            said.extend_from_slice(&vec![b'v'; MAX_ARGUMENT_BYTES]);
            said.extend_from_slice(b"\r\n");
        }
        let mut longest = said.clone();
        longest.extend_from_slice(b"$0\r\n\r\n");
        assert_eq!(decoded(&[&longest]).0.len(), 1);
        said.extend_from_slice(b"$1\r\n");
        assert!(decoded(&[&said]).1.unwrap().0.contains("at most 4194304 bytes"));
    }

    #[test]
    fn no_bytes_make_it_panic() {
        // A small generator, so that each run says the same.
        let mut state = 7u64;
        let alphabet = b"*$0123456789-\r\n\"'\\x aP\xff\0:+";
        for _ in 0..20_000 {
            let mut said = Vec::new();
            for _ in 0..24 {
                state = state
                    .wrapping_mul(6364136223846793005)
                    .wrapping_add(1442695040888963407);
                said.push(alphabet[(state >> 33) as usize % alphabet.len()]);
            }
            let (whole, broken) = decoded(&[&said]);
            let each: Vec<&[u8]> = said.chunks(1).collect();
            assert_eq!(decoded(&each), (whole, broken), "{said:?}");
        }
    }
}
