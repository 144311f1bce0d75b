//! Enquiries: connections that ask for a notice of what became of their first frame.
//!
//! ```text
//!   enquirer ── preamble «ATPQ», one control frame ──►  inbound ── frame ──► core: taken, or why not
//!            ◄────────────────── Notice, end ─────────  inbound ◄─┘
//! ```
//! The dialling side is for programs that look for what is wrong. It tells apart what is at an address as far
//! as a stranger can: a port without a listener, packets that vanish, something that is no node, a node that
//! takes the frame or says why it does not.
//!
//! The enquirer gives up after its time at each step; the listener has the same limits as for every
//! connection.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use antiphon_core::Class;
use antiphon_wire::enquiry::{NOTICE_BYTES, Notice, Verdict};
use antiphon_wire::frame::{self, Kind, OpenError, WIRE_VERSION};
use antiphon_wire::membership::WIRE_LEVEL;
use antiphon_wire::stream::length_prefix;
use bytes::Bytes;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout, timeout_at};

use super::inbound::Inbound;
use super::{connect, preamble};
use crate::Input;

/// If something that is no node spoke: the most bytes kept of what it said.
const MAX_STRANGE_BYTES: usize = 64;
/// How long the notice may take to leave.
const NOTICE_WITHIN: Duration = Duration::from_secs(1);

/// What is at an address, as an enquiry found it.
#[derive(Debug)]
#[non_exhaustive]
pub enum Reached {
    /// A node, and what it did with the frame.
    Node {
        /// What it said.
        notice: Notice,
        /// How long the connection took.
        connected: Duration,
    },
    /// No program listens there: the host refuses.
    Refused,
    /// No answer to the attempt to connect: packets are dropped on the way, or the host is gone.
    TimedOut,
    /// The system knows no way there, or forbids it.
    Unreachable(io::Error),
    /// It took the connection and said nothing: no node, a stopped node, or a node that does not know
    /// enquiries.
    Silent,
    /// It took the connection and ended it without a word.
    Closed,
    /// It is no node: it began with these bytes.
    Stranger(Vec<u8>),
}

/// Asks what is at an address: sends this frame, sealed by an enquirer that is reached at `advertised`, on a
/// connection of its own. Each step may take `within`.
///
/// # Cancel safety
/// The connection ends if the future is dropped.
pub async fn enquire(to: SocketAddr, advertised: SocketAddr, frame: &Bytes, within: Duration) -> Reached {
    let begun = Instant::now();
    let stream = match timeout(within, connect(to)).await {
        Err(_) => return Reached::TimedOut,
        Ok(Err(error)) => return not_connected(error),
        Ok(Ok(stream)) => stream,
    };
    let connected = begun.elapsed();
    match timeout(within, converse(stream, advertised, frame)).await {
        Err(_) => Reached::Silent,
        Ok(said) => match Notice::decode(&said) {
            Some(notice) => Reached::Node { notice, connected },
            None if said.is_empty() => Reached::Closed,
            None => Reached::Stranger(said),
        },
    }
}

fn not_connected(error: io::Error) -> Reached {
    match error.kind() {
        io::ErrorKind::ConnectionRefused | io::ErrorKind::ConnectionReset => Reached::Refused,
        io::ErrorKind::TimedOut => Reached::TimedOut,
        _ => Reached::Unreachable(error),
    }
}

/// Says what is to be said, and returns the answer: a notice, or the beginning of something else.
async fn converse(mut stream: TcpStream, advertised: SocketAddr, frame: &Bytes) -> Vec<u8> {
    let mut said = Vec::new();
    let mut question = Vec::with_capacity(preamble::PREAMBLE_BYTES + 4 + frame.len());
    question.extend_from_slice(&preamble::encode_asking(advertised));
    question.extend_from_slice(&length_prefix(frame.len()));
    question.extend_from_slice(frame);
    // Even if the write fails, there may be an answer: a server of another kind often speaks first.
    let _ = stream.write_all(&question).await;
    let mut buffer = [0; MAX_STRANGE_BYTES];
    while said.len() < MAX_STRANGE_BYTES {
        match stream.read(&mut buffer[..MAX_STRANGE_BYTES - said.len()]).await {
            Ok(0) | Err(_) => break,
            Ok(read) => said.extend_from_slice(&buffer[..read]),
        }
        let notice = said.len() <= NOTICE_BYTES && said.starts_with(&b"ATPN"[..said.len().min(4)]);
        if !notice {
            // The other side may hold the connection open for long.
            break;
        }
    }
    said
}

impl Inbound {
    /// Serves an enquiry: hands its frame to the core, and says what the core thinks of it.
    pub(super) async fn answer_enquiry(mut self, first: Bytes) {
        let refused = match frame::peek(&first) {
            Ok((Kind::Control, _)) => None,
            Ok(_) => Some(OpenError::NotAFrame),
            Err(error) => Some(error),
        };
        match refused {
            Some(error) => self.connection.refused(error),
            None => {
                let frames = vec![first];
                self.common.counters.received(&frames);
                let input = Input::Frames {
                    from: self.from,
                    connection: self.connection.clone(),
                    frames,
                };
                if self.common.inputs.of(Class::Control).send(input).await.is_err() {
                    return;
                }
            }
        }
        let deadline = self.deadline();
        while !self.connection.is_authenticated() && !self.connection.is_closed() {
            if timeout_at(deadline, self.connection.changed()).await.is_err() {
                return;
            }
        }
        // This side ended before the core had looked at the frame. What becomes of it is not known, so
        // nothing is said of it.
        if !self.connection.is_authenticated() && self.connection.refusal().is_none() {
            return;
        }
        let notice = Notice {
            version: WIRE_VERSION,
            wire_level: WIRE_LEVEL,
            verdict: match self.connection.is_unused() {
                true => Verdict::Unused,
                false => verdict(self.connection.refusal()),
            },
        };
        // An enquirer that does not read loses the notice.
        let _ = timeout(NOTICE_WITHIN, self.stream.write_all(&notice.encode())).await;
    }
}

fn verdict(refusal: Option<OpenError>) -> Verdict {
    match refusal {
        None => Verdict::Taken,
        Some(OpenError::NotAFrame) => Verdict::NotAFrame,
        Some(OpenError::Version(_)) => Verdict::Version,
        Some(OpenError::OtherCluster) => Verdict::OtherCluster,
        Some(OpenError::Key) => Verdict::Key,
        Some(OpenError::BadTag) => Verdict::BadTag,
        Some(_) => Verdict::Other(u8::MAX),
    }
}
