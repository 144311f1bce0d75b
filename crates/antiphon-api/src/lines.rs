//! Lines cut out of what was read.

/// What it keeps for what comes next, when it holds nothing.
const KEPT_BYTES: usize = 64 << 10;

/// Cuts bytes into lines, and holds no more than one line that is not whole, and what was pushed last.
#[derive(Debug)]
pub struct LineBuffer {
    bytes: Vec<u8>,
    /// Bytes at the front that were popped. They go with the next push, and not with each line: what is
    /// behind a line would be moved once for each of many short ones.
    popped: usize,
    /// Up to here no line ends.
    searched: usize,
    longest: usize,
}

/// A line is longer than it may be. Nothing more can be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TooLong;

impl LineBuffer {
    /// For lines of so many bytes without their ends.
    pub fn new(longest: usize) -> Self {
        Self {
            bytes: Vec::new(),
            popped: 0,
            searched: 0,
            longest,
        }
    }

    /// Appends what was read.
    pub fn push(&mut self, bytes: &[u8]) {
        self.bytes.drain(..self.popped);
        self.searched -= self.popped;
        self.popped = 0;
        self.bytes.extend_from_slice(bytes);
    }

    /// How many bytes it holds.
    pub fn len(&self) -> usize {
        self.bytes.len() - self.popped
    }

    /// Whether it holds nothing.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The next whole line without its end; none if more bytes are needed.
    ///
    /// # Errors
    /// [`TooLong`], and from then on at each call.
    pub fn pop(&mut self) -> Result<Option<Vec<u8>>, TooLong> {
        let end = memchr::memchr(b'\n', &self.bytes[self.searched..]);
        match end.map(|end| self.searched + end) {
            Some(end) if end - self.popped > self.longest => Err(TooLong),
            Some(end) => {
                let line = self.bytes[self.popped..end].to_vec();
                self.forget(end + 1);
                Ok(Some(line))
            }
            None if self.len() > self.longest => Err(TooLong),
            None => {
                self.searched = self.bytes.len();
                Ok(None)
            }
        }
    }

    /// So many bytes as they are, from behind the line that was popped last; none if more are needed.
    pub fn take(&mut self, length: usize) -> Option<Vec<u8>> {
        let bytes = self.bytes.get(self.popped..)?.get(..length)?.to_vec();
        self.forget(self.popped + length);
        Some(bytes)
    }

    /// All up to there is given out. Of a program that says nothing more, nothing is kept.
    fn forget(&mut self, end: usize) {
        (self.popped, self.searched) = (end, end);
        if end == self.bytes.len() {
            self.bytes.clear();
            self.bytes.shrink_to(KEPT_BYTES);
            (self.popped, self.searched) = (0, 0);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;

    #[test]
    fn lines_are_the_same_wherever_they_are_cut() {
        let said = b"one\n\ntwo\nthree is not whole";
        for first in 0..=said.len() {
            let mut lines = LineBuffer::new(20);
            let mut whole = Vec::new();
            for piece in [&said[..first], &said[first..]] {
                lines.push(piece);
                while let Some(line) = lines.pop().unwrap() {
                    whole.push(line);
                }
            }
            assert_eq!(whole, [&b"one"[..], b"", b"two"], "{first}");
            assert_eq!(lines.len(), 18);
            lines.push(b"xxx");
            assert_eq!(lines.pop(), Err(TooLong));
        }
    }

    #[test]
    fn bytes_behind_a_line_are_no_lines_wherever_they_are_cut() {
        let said = b"five\na\nb\n\nnext\n";
        for first in 0..=said.len() {
            let mut lines = LineBuffer::new(20);
            let mut pieces = [&said[..first], &said[first..]].into_iter();
            lines.push(pieces.next().unwrap());
            let mut more = |lines: &mut LineBuffer| lines.push(pieces.next().unwrap());
            let line = loop {
                match lines.pop().unwrap() {
                    Some(line) => break line,
                    None => more(&mut lines),
                }
            };
            let bytes = loop {
                match lines.take(5) {
                    Some(bytes) => break bytes,
                    None => more(&mut lines),
                }
            };
            if lines.is_empty() {
                more(&mut lines);
            }
            assert_eq!(
                (&line[..], &bytes[..]),
                (&b"five"[..], &b"a\nb\n\n"[..]),
                "{first}"
            );
            let next = lines.pop().unwrap();
            let next = next.or_else(|| {
                more(&mut lines);
                lines.pop().unwrap()
            });
            assert_eq!(next.as_deref(), Some(&b"next"[..]), "{first}");
        }
    }

    #[test]
    fn many_short_lines_take_no_longer_than_a_few_long_ones() {
        let begun = Instant::now();
        let mut lines = LineBuffer::new(8);
        lines.push(&vec![b'\n'; 4 << 20]);
        for _ in 0..4 << 20 {
            assert_eq!(lines.pop(), Ok(Some(Vec::new())));
        }
        // Minutes, if each of them moved what is behind it.
        assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", begun.elapsed());
    }
}
