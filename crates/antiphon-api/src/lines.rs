//! Lines cut out of what was read.

use std::io::BufRead as _;

/// Cuts bytes into lines, and holds no more than one line that is not whole.
#[derive(Debug)]
pub struct LineBuffer {
    bytes: Vec<u8>,
    /// Bytes at the front that were given out. They go when there are as many as others, so each byte is moved
    /// once, and not once for each line before it.
    given: usize,
    /// Bytes behind these in which no line ends.
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
            given: 0,
            searched: 0,
            longest,
        }
    }

    /// Appends what was read.
    pub fn push(&mut self, bytes: &[u8]) {
        if self.given >= self.len() {
            self.bytes.drain(..self.given);
            self.given = 0;
        }
        self.bytes.extend_from_slice(bytes);
    }

    /// How many bytes it holds.
    pub fn len(&self) -> usize {
        self.bytes.len() - self.given
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
        let bytes = &self.bytes[self.given..];
        // The standard library's quick search; reading from memory does not fail.
        let skipped = (&bytes[self.searched..]).skip_until(b'\n').unwrap_or_default();
        let length = self.searched + skipped;
        match bytes[..length].strip_suffix(b"\n") {
            Some(line) if line.len() > self.longest => Err(TooLong),
            Some(line) => {
                let line = line.to_vec();
                self.given += length;
                self.searched = 0;
                Ok(Some(line))
            }
            None if length > self.longest => Err(TooLong),
            None => {
                self.searched = length;
                Ok(None)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_come_whole_however_their_bytes_come() {
        let text: Vec<u8> = (0..500)
            .flat_map(|line| format!("{}\n", "x".repeat(line % 37)).into_bytes())
            .collect();
        for step in [1, 2, 7, 100, 4096, text.len()] {
            let mut lines = LineBuffer::new(40);
            let mut whole = Vec::new();
            for part in text.chunks(step) {
                lines.push(part);
                // Not all of them before more comes.
                if whole.len() % 3 == 0 {
                    whole.extend(lines.pop().unwrap());
                    continue;
                }
                while let Some(line) = lines.pop().unwrap() {
                    whole.push(line);
                }
            }
            while let Some(line) = lines.pop().unwrap() {
                whole.push(line);
            }
            let expected: Vec<Vec<u8>> = (0..500).map(|line| vec![b'x'; line % 37]).collect();
            assert_eq!(whole, expected, "{step} bytes at a time");
            assert!(lines.is_empty());
        }
    }

    #[test]
    fn what_was_given_out_is_not_kept() {
        let mut lines = LineBuffer::new(100);
        for _ in 0..10_000 {
            lines.push(b"0123456789\n0123");
            while lines.pop().unwrap().is_some() {}
            lines.push(b"456789\n");
            while lines.pop().unwrap().is_some() {}
        }
        assert!(lines.bytes.capacity() < 1000, "{}", lines.bytes.capacity());
    }

    #[test]
    fn a_line_that_is_too_long_is_an_error_from_then_on() {
        let mut lines = LineBuffer::new(4);
        lines.push(b"1234\n12345");
        assert_eq!(lines.pop(), Ok(Some(b"1234".to_vec())));
        for _ in 0..2 {
            assert_eq!(lines.pop(), Err(TooLong));
        }
        lines.push(b"\n");
        assert_eq!(lines.pop(), Err(TooLong));
        assert_eq!(lines.len(), 6);
    }
}
