//! The reader of stdin: a thread of its own, since reading a terminal cannot be interrupted.
//!
//! Stdin may be non-blocking: that is a mode of the pipe or the terminal, which other processes have open,
//! too. Then the thread waits for more.

use std::io::{self, BufRead, Read, Write as _};
use std::os::fd::AsFd;

use rustix::event::{PollFd, PollFlags, poll};
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
        let mut source = Waiting {
            source,
            wait: || until_readable(io::stdin()),
        };
        if let Err(error) = read(&mut source, &inputs) {
            // Nothing more comes from it, as at its end. Somebody may wait for what those lines were to do.
            let _ = writeln!(
                io::stderr(),
                "antiphon: standard input: {error}; it is read no further"
            );
        }
    });
    waiting
}

/// Reads to the end, or until nobody takes what was read.
fn read(source: &mut impl BufRead, inputs: &mpsc::Sender<Input>) -> io::Result<()> {
    skip_mark(source)?;
    while let Some(input) = next(source)? {
        if inputs.blocking_send(input).is_err() {
            break;
        }
    }
    Ok(())
}

/// A source that waits where there is nothing to read yet. It does so below whatever gathers a line, so that
/// the part of a line that is there is not lost.
struct Waiting<R, W> {
    source: R,
    wait: W,
}

impl<R: BufRead, W: FnMut() -> io::Result<()>> BufRead for Waiting<R, W> {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        loop {
            match self.source.fill_buf() {
                // A terminal has no end that lasts: asking again would wait for a second one.
                Ok([]) => return Ok(&[]),
                Ok(_) => break,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => (self.wait)()?,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        self.source.fill_buf()
    }

    fn consume(&mut self, bytes: usize) {
        self.source.consume(bytes);
    }
}

impl<R: BufRead, W: FnMut() -> io::Result<()>> Read for Waiting<R, W> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let mut there = self.fill_buf()?;
        let read = there.read(into)?;
        self.consume(read);
        Ok(read)
    }
}

/// Returns when there is something to read, or the end.
fn until_readable(end: impl AsFd) -> io::Result<()> {
    match poll(&mut [PollFd::new(&end, PollFlags::IN)], None) {
        // The next attempt to read tells what it is.
        Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
        Err(error) => Err(error.into()),
    }
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
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[test]
    fn a_pipe_that_does_not_block_is_waited_for_and_no_part_of_a_line_is_lost() {
        let (reader, mut writer) = io::pipe().unwrap();
        rustix::fs::fcntl_setfl(&reader, rustix::fs::OFlags::NONBLOCK).unwrap();
        let waits = AtomicUsize::new(0);
        let mut source = Waiting {
            source: io::BufReader::new(reader.try_clone().unwrap()),
            wait: || {
                // Nothing is there: the next piece comes, or the end.
                let pieces = [&b"on"[..], b"e\ntw", b"o\n"];
                match pieces.get(waits.fetch_add(1, Ordering::Relaxed)) {
                    Some(piece) => writer.write_all(piece)?,
                    None => writer = io::pipe()?.1,
                }
                until_readable(&reader)
            },
        };
        skip_mark(&mut source).unwrap();
        let line = |text: &str| Some(Input::Line(text.into()));
        assert_eq!(next(&mut source).unwrap(), line("one"));
        assert_eq!(next(&mut source).unwrap(), line("two"));
        assert_eq!(next(&mut source).unwrap(), None);
        drop(source);
        assert_eq!(waits.into_inner(), 4);
    }

    fn all_of(bytes: Vec<u8>) -> Vec<Input> {
        let mut source = io::BufReader::with_capacity(1000, io::Cursor::new(bytes));
        skip_mark(&mut source).unwrap();
        std::iter::from_fn(|| next(&mut source).unwrap()).collect()
    }

    #[test]
    fn lines_come_without_their_ends_and_the_last_needs_none() {
        let line = |text: &str| Input::Line(text.into());
        assert_eq!(
            all_of(b"a\r\n\nb\xff\nc".to_vec()),
            [line("a"), line(""), Input::Line(b"b\xff".to_vec()), line("c")]
        );
        assert_eq!(all_of(vec![]), []);
        let marked = "\u{feff}{\"leave\":{}}\n\u{feff}b";
        assert_eq!(
            all_of(marked.into()),
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
                all_of(bytes),
                [Input::TooLong, Input::Line(b"next".to_vec())],
                "{too_long}"
            );
            assert_eq!(
                all_of(vec![b'x'; too_long]),
                [Input::TooLong],
                "{too_long} at the end"
            );
        }
        let longest = vec![b'x'; MAX_LINE_BYTES];
        assert_eq!(all_of([&longest[..], b"\r\n"].concat()), [Input::Line(longest)]);
    }
}
