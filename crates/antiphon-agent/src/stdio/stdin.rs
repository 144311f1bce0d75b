//! The reader of stdin: a thread of its own, since reading a terminal cannot be interrupted.

use std::io::{self, BufRead, Read as _};

use tokio::sync::mpsc;

use antiphon_api::MAX_LINE_BYTES;

/// Lines that wait to be carried out; beyond that the thread stops reading and the writer of the pipe waits.
const MAX_WAITING: usize = 64;

/// A line of stdin, without its end.
#[derive(Debug, PartialEq, Eq)]
pub enum Input {
    /// As it came.
    Line(Vec<u8>),
    /// Longer than [`MAX_LINE_BYTES`]; skipped.
    TooLong,
}

/// Starts the reading thread. The queue ends with stdin.
pub fn start(source: impl BufRead + Send + 'static) -> mpsc::Receiver<Input> {
    let (inputs, waiting) = mpsc::channel(MAX_WAITING);
    std::thread::spawn(move || {
        let mut source = source;
        if skip_mark(&mut source).is_err() {
            return;
        }
        // An unreadable stdin is like one at its end: nothing more comes from it.
        while let Ok(Some(input)) = next(&mut source) {
            if inputs.blocking_send(input).is_err() {
                return;
            }
        }
    });
    waiting
}

/// Some editors begin each text with a byte order mark, and such a text may be sent here.
fn skip_mark(source: &mut impl BufRead) -> io::Result<()> {
    const MARK: &[u8] = "\u{feff}".as_bytes();
    // A pipe gives what was written at once; a mark that comes in pieces is none that an editor wrote.
    if source.fill_buf()?.starts_with(MARK) {
        source.consume(MARK.len());
    }
    Ok(())
}

fn next(source: &mut impl BufRead) -> io::Result<Option<Input>> {
    let mut line = Vec::new();
    let limit = MAX_LINE_BYTES as u64 + 2;
    if source.by_ref().take(limit).read_until(b'\n', &mut line)? == 0 {
        return Ok(None);
    }
    let ended = line.last() == Some(&b'\n');
    if ended {
        line.pop();
        if line.last() == Some(&b'\r') {
            line.pop();
        }
    } else if line.len() as u64 == limit {
        skip_line(source)?;
        return Ok(Some(Input::TooLong));
    }
    if line.len() > MAX_LINE_BYTES {
        return Ok(Some(Input::TooLong));
    }
    Ok(Some(Input::Line(line)))
}

/// Reads on to the line's end, keeping nothing.
fn skip_line(source: &mut impl BufRead) -> io::Result<()> {
    loop {
        let buffer = source.fill_buf()?;
        let (used, ended) = match buffer.iter().position(|byte| *byte == b'\n') {
            Some(end) => (end + 1, true),
            None => (buffer.len(), buffer.is_empty()),
        };
        source.consume(used);
        if ended {
            return Ok(());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(bytes: Vec<u8>) -> Vec<Input> {
        let mut source = io::BufReader::with_capacity(1000, io::Cursor::new(bytes));
        skip_mark(&mut source).unwrap();
        std::iter::from_fn(|| next(&mut source).unwrap()).collect()
    }

    #[test]
    fn lines_come_without_their_ends_and_the_last_needs_none() {
        let line = |text: &str| Input::Line(text.into());
        assert_eq!(
            read(b"a\r\n\nb\xff\nc".to_vec()),
            [line("a"), line(""), Input::Line(b"b\xff".to_vec()), line("c")]
        );
        assert_eq!(read(vec![]), []);
        let marked = "\u{feff}{\"leave\":{}}\n\u{feff}b";
        assert_eq!(
            read(marked.into()),
            [line("{\"leave\":{}}"), line("\u{feff}b")],
            "a mark is one at the beginning alone"
        );
    }

    #[test]
    fn a_line_beyond_the_bound_is_skipped_and_the_next_one_is_read() {
        for too_long in [
            MAX_LINE_BYTES + 1,
            MAX_LINE_BYTES + 2,
            MAX_LINE_BYTES + 3,
            5 * MAX_LINE_BYTES,
        ] {
            let mut bytes = vec![b'x'; too_long];
            bytes.extend_from_slice(b"\nnext\n");
            assert_eq!(
                read(bytes),
                [Input::TooLong, Input::Line(b"next".to_vec())],
                "{too_long}"
            );
            assert_eq!(
                read(vec![b'x'; too_long]),
                [Input::TooLong],
                "{too_long} at the end"
            );
        }
        let longest = vec![b'x'; MAX_LINE_BYTES];
        assert_eq!(read([&longest[..], b"\r\n"].concat()), [Input::Line(longest)]);
    }
}
