//! Lines cut out of what was read.

/// Cuts bytes into lines, and holds no more than one line that is not whole.
#[derive(Debug)]
pub struct LineBuffer {
    bytes: Vec<u8>,
    /// Bytes at the front in which no line ends.
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
            searched: 0,
            longest,
        }
    }

    /// Appends what was read.
    pub fn push(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// How many bytes it holds.
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Whether it holds nothing.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// The next whole line without its end; none if more bytes are needed.
    ///
    /// # Errors
    /// [`TooLong`], and from then on at each call.
    pub fn pop(&mut self) -> Result<Option<Vec<u8>>, TooLong> {
        let end = self.bytes[self.searched..].iter().position(|byte| *byte == b'\n');
        match end.map(|end| self.searched + end) {
            Some(end) if end > self.longest => Err(TooLong),
            Some(end) => {
                let mut line: Vec<u8> = self.bytes.drain(..=end).collect();
                line.pop();
                self.searched = 0;
                Ok(Some(line))
            }
            None if self.bytes.len() > self.longest => Err(TooLong),
            None => {
                self.searched = self.bytes.len();
                Ok(None)
            }
        }
    }
}
