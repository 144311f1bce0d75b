//! The bytes of a client's WebSocket, with its Close held back.
//!
//! ```text
//!   frame frame … Close │ ─► what came before it ─► the WebSocket ─► commands
//!                       └ held, until all that is ready was written
//! ```
//! After tungstenite has read a Close it writes no message any more, only the answer. But a client that says
//! what it wants and closes, in one piece, is owed replies; RFC 6455 (5.5.1) lets the other end finish before
//! it answers. So this layer follows the heads of the frames, no more than it takes to find where a Close
//! begins, and reads nothing behind that until the Close is let through.
//!
//! By the same heads it knows how many bytes came of a message that is not whole: tungstenite does not say
//! what it has read behind the message that it gives.
//!
//! A Close that is none by the standard, without a mask or too long, is passed on: tungstenite says what is
//! wrong with it.

use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// The first byte of a Close.
const CLOSE: u8 = 0x88;
/// The most bytes of a Close's payload.
const MAX_CLOSE_BYTES: u8 = 125;
/// In the first byte of a frame: it is the last one of its message.
const FINAL: u8 = 0x80;
/// There, too: it is a Close, a Ping or a Pong.
const CONTROL: u8 = 0x08;
/// In the second byte.
const MASKED: u8 = 0x80;
const MASK_BYTES: u64 = 4;

/// A connection below a WebSocket, whose Close is held back.
pub(super) struct Held<S> {
    stream: S,
    close: Close,
}

/// The Close of a connection, and what comes before it. A cheap handle.
#[derive(Clone, Default)]
pub(super) struct Close(Arc<Mutex<Inside>>);

#[derive(Default)]
struct Inside {
    frames: Frames,
    phase: Phase,
}

#[derive(Default)]
enum Phase {
    /// None has come.
    #[default]
    Open,
    /// One has come, and these bytes of it are held back.
    Held(Vec<u8>),
    /// It is read, or will be, like anything else.
    LetThrough(Vec<u8>),
}

/// The frames of a client, as far as they have come.
#[derive(Debug, Default)]
struct Frames {
    at: At,
    /// The first byte of the present frame.
    first: u8,
    /// How many bytes of the present frame have come.
    frame_bytes: usize,
    /// Those of the whole frames of a message that is not whole.
    message_bytes: usize,
}

/// Where the last byte of a client stood.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum At {
    /// At the end of a frame.
    #[default]
    End,
    /// It was the first one of a frame.
    First,
    /// In the length; so many bytes of it are to come.
    Length { left: u8, so_far: u64, mask: u64 },
    /// In the mask or the payload; so many bytes of them are to come.
    Inside(u64),
}

impl At {
    fn inside(left: u64) -> Self {
        if left == 0 { At::End } else { At::Inside(left) }
    }
}

impl Frames {
    /// Follows the frames through these bytes. Gives where the second byte of a Close stands, if one begins
    /// here: its first byte tells too little, and can be passed on.
    fn follow(&mut self, bytes: &[u8]) -> Option<usize> {
        let mut position = 0;
        while let Some(byte) = bytes.get(position).copied() {
            let begin = position;
            self.at = match self.at {
                At::End => {
                    self.first = byte;
                    At::First
                }
                At::First => {
                    let length = byte & !MASKED;
                    let mask = if byte & MASKED == 0 { 0 } else { MASK_BYTES };
                    if self.first == CLOSE && mask > 0 && length <= MAX_CLOSE_BYTES {
                        return Some(position);
                    }
                    let so_far = 0;
                    match length {
                        126 => At::Length {
                            left: 2,
                            so_far,
                            mask,
                        },
                        127 => At::Length {
                            left: 8,
                            so_far,
                            mask,
                        },
                        length => At::inside(mask + u64::from(length)),
                    }
                }
                At::Length { left, so_far, mask } => {
                    let so_far = (so_far << 8) | u64::from(byte);
                    match left {
                        1 => At::inside(so_far.saturating_add(mask)),
                        _ => At::Length {
                            left: left - 1,
                            so_far,
                            mask,
                        },
                    }
                }
                At::Inside(left) => {
                    let here = left.min((bytes.len() - position) as u64);
                    // Of the last of them.
                    position += here as usize - 1;
                    At::inside(left - here)
                }
            };
            position += 1;
            self.came(position - begin);
        }
        None
    }

    /// So many bytes of the present frame came.
    fn came(&mut self, bytes: usize) {
        self.frame_bytes += bytes;
        if self.at != At::End {
            return;
        }
        let frame = std::mem::take(&mut self.frame_bytes);
        // A control frame may stand between the frames of a message.
        if self.first & CONTROL == 0 {
            self.message_bytes = match self.first & FINAL {
                0 => self.message_bytes + frame,
                _ => 0,
            };
        }
    }

    /// How many bytes have come of what is not whole.
    fn half_bytes(&self) -> usize {
        self.message_bytes + self.frame_bytes
    }
}

impl Close {
    /// Returns when one is held back. Only a read notices it: this is polled behind the read, by its task.
    pub(super) async fn comes(&self) {
        poll_fn(|_| match self.is_held() {
            true => Poll::Ready(()),
            false => Poll::Pending,
        })
        .await;
    }

    pub(super) fn is_held(&self) -> bool {
        matches!(self.inside().phase, Phase::Held(_))
    }

    /// How many bytes were read of a message, or a frame, that is not whole.
    pub(super) fn half_bytes(&self) -> usize {
        self.inside().frames.half_bytes()
    }

    /// From here on it is read like anything else.
    pub(super) fn let_through(&self) {
        let mut inside = self.inside();
        let held = match &mut inside.phase {
            Phase::Open => Vec::new(),
            Phase::Held(held) | Phase::LetThrough(held) => std::mem::take(held),
        };
        inside.phase = Phase::LetThrough(held);
    }

    fn inside(&self) -> MutexGuard<'_, Inside> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<S> Held<S> {
    pub(super) fn new(stream: S) -> (Self, Close) {
        let close = Close::default();
        let held = Self {
            stream,
            close: close.clone(),
        };
        (held, close)
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Held<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        match &mut this.close.inside().phase {
            Phase::Open => {}
            // Nobody is woken: when it is let through, it is read anew.
            Phase::Held(_) => return Poll::Pending,
            Phase::LetThrough(held) => {
                if held.is_empty() {
                    return Pin::new(&mut this.stream).poll_read(context, into);
                }
                let length = held.len().min(into.remaining());
                into.put_slice(&held[..length]);
                held.drain(..length);
                return Poll::Ready(Ok(()));
            }
        }
        let before = into.filled().len();
        ready!(Pin::new(&mut this.stream).poll_read(context, into))?;
        let mut inside = this.close.inside();
        if let Some(begin) = inside.frames.follow(&into.filled()[before..]) {
            let held = into.filled()[before + begin..].to_vec();
            into.set_filled(before + begin);
            inside.phase = Phase::Held(held);
            if begin == 0 {
                return Poll::Pending;
            }
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Held<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(context, parts)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;

    /// A frame with a mask of zeros.
    fn frame(first: u8, payload: &[u8]) -> Vec<u8> {
        let mut frame = vec![first];
        match payload.len() {
            length @ 0..=125 => frame.push(MASKED | length as u8),
            length @ 126..=0xffff => {
                frame.push(MASKED | 126);
                frame.extend_from_slice(&(length as u16).to_be_bytes());
            }
            length => {
                frame.push(MASKED | 127);
                frame.extend_from_slice(&(length as u64).to_be_bytes());
            }
        }
        frame.extend_from_slice(&[0; 4]);
        frame.extend_from_slice(payload);
        frame
    }

    #[test]
    fn a_close_is_found_however_the_bytes_are_cut_and_nothing_else_is_taken_for_one() {
        // Payloads are full of what would be a Close elsewhere.
        let like_one = vec![CLOSE; 70_000];
        let before = [
            frame(0x81, b""),
            frame(0x81, &like_one[..7]),
            frame(0x01, &like_one[..300]),
            frame(0x89, &like_one[..125]),
            frame(0x80, &like_one),
            vec![0x81, 3, CLOSE, CLOSE, CLOSE],
            vec![0x81, 0],
        ]
        .concat();
        let all = [&before[..], &frame(CLOSE, &[3, 232])].concat();
        for cut in [1, 2, 3, 5, 64, 4096, all.len()] {
            let (mut frames, mut found) = (Frames::default(), None);
            for (number, piece) in all.chunks(cut).enumerate() {
                found = frames.follow(piece).map(|position| number * cut + position);
                if found.is_some() {
                    break;
                }
            }
            assert_eq!(found, Some(before.len() + 1), "{cut}");
        }
        for wrong in [&[CLOSE, 2, 3, 232][..], &[CLOSE, MASKED | 126, 0, 126]] {
            assert_eq!(Frames::default().follow(wrong), None);
        }
    }

    #[test]
    fn what_is_not_whole_is_counted_however_the_bytes_are_cut() {
        let (text, ping) = (frame(0x81, b"whole"), frame(0x89, b"ping"));
        let (begin, middle) = (frame(0x01, &[b'x'; 300]), frame(0x00, b"y"));
        for (said, half) in [
            ([&text[..], &text, &ping].concat(), 0),
            ([&text[..], &begin[..1]].concat(), 1),
            ([&text[..], &ping, &text[..7]].concat(), 7),
            ([&text[..], &ping[..6]].concat(), 6),
            ([&text[..], &begin].concat(), begin.len()),
            ([&begin[..], &ping, &middle].concat(), begin.len() + middle.len()),
            ([&begin[..], &ping[..3]].concat(), begin.len() + 3),
            ([&begin[..], &middle, &frame(0x80, b""), &text[..2]].concat(), 2),
        ] {
            for cut in [1, 2, 3, 5, 64, said.len()] {
                let mut frames = Frames::default();
                for piece in said.chunks(cut) {
                    assert_eq!(frames.follow(piece), None);
                }
                assert_eq!(frames.half_bytes(), half, "{cut}: {}", said.escape_ascii());
            }
        }
    }

    #[tokio::test]
    async fn what_comes_before_a_close_is_read_and_the_close_when_it_is_let_through() {
        let (mut client, stream) = tokio::io::duplex(4096);
        let (mut held, close) = Held::new(stream);
        let (said, ends) = (frame(0x81, b"last words"), frame(CLOSE, &[3, 232]));
        client.write_all(&[&said[..], &ends].concat()).await.unwrap();
        let mut read = vec![0; said.len() + 1];
        held.read_exact(&mut read).await.unwrap();
        assert!(read.starts_with(&said));
        let mut rest = vec![0; ends.len() - 1];
        assert!(held.read_exact(&mut rest).now_or_never().is_none());
        close.comes().await;
        close.let_through();
        held.read_exact(&mut rest).await.unwrap();
        assert_eq!(rest, ends[1..]);
        // And what comes behind it, too.
        client.write_all(b"x").await.unwrap();
        assert_eq!(held.read_u8().await.unwrap(), b'x');
    }
}
