//! Redis' protocol: `AP.PEER envelope`, answered by a bulk string.

use futures_util::FutureExt as _;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _};

use bytes::Bytes;

use super::{Boxed, Lost, Stream, sent};
use crate::envelope::{MAX_COMMAND_BYTES, MAX_SIGNED_REPLY_BYTES};

/// The command.
const WORD: &str = "AP.PEER";
/// The longest line of the protocol here.
const MAX_LINE: usize = 128;

/// Whether a connection can be used again: the other end has not closed it, and has not said anything.
pub(crate) fn is_open(stream: &mut Boxed) -> bool {
    let mut byte = [0];
    stream.read(&mut byte).now_or_never().is_none()
}

pub(crate) async fn ask(stream: &mut Boxed, envelope: &[u8]) -> Result<Bytes, Lost> {
    let mut request = format!("*2\r\n${}\r\n{WORD}\r\n${}\r\n", WORD.len(), envelope.len()).into_bytes();
    request.extend_from_slice(envelope);
    request.extend_from_slice(b"\r\n");
    stream.write_all(&request).await.map_err(sent)?;
    let head = line(stream).await.map_err(sent)?;
    match bulk(&head, MAX_SIGNED_REPLY_BYTES) {
        Some(length) => body(stream, length).await.map_err(sent),
        None => Err(sent(format_args!("the peer's gate answered {head}"))),
    }
}

/// Reads one command of a gate's client. None: the connection is over; an error: it is no such command.
pub(crate) async fn take(stream: &mut impl Stream) -> Result<Option<Bytes>, &'static str> {
    const WRONG: &str = "expected AP.PEER with one envelope";
    let head = match line(stream).await {
        Ok(head) => head,
        Err(_) => return Ok(None),
    };
    let word = line(stream).await.map_err(|_| WRONG)?;
    if head != "*2" || bulk(&word, MAX_LINE) != Some(WORD.len()) {
        return Err(WRONG);
    }
    if !line(stream).await.map_err(|_| WRONG)?.eq_ignore_ascii_case(WORD) {
        return Err(WRONG);
    }
    let length = bulk(&line(stream).await.map_err(|_| WRONG)?, MAX_COMMAND_BYTES).ok_or(WRONG)?;
    body(stream, length).await.map(Some).map_err(|_| WRONG)
}

/// A reply as it is written.
pub(crate) fn reply(envelope: &[u8]) -> Vec<u8> {
    let mut reply = format!("${}\r\n", envelope.len()).into_bytes();
    reply.extend_from_slice(envelope);
    reply.extend_from_slice(b"\r\n");
    reply
}

fn bulk(head: &str, most: usize) -> Option<usize> {
    let digits = head
        .strip_prefix('$')
        .filter(|digits| digits.bytes().all(|byte| byte.is_ascii_digit()))?;
    digits.parse().ok().filter(|length| *length <= most)
}

/// Reads a line without its end. One byte at a time: lines are short, and behind the last is a body of known
/// length.
async fn line(stream: &mut (impl AsyncRead + Unpin)) -> std::io::Result<String> {
    let mut line = Vec::new();
    loop {
        let byte = stream.read_u8().await?;
        if byte == b'\n' && line.last() == Some(&b'\r') {
            line.pop();
            return Ok(String::from_utf8_lossy(&line).into_owned());
        }
        line.push(byte);
        if line.len() > MAX_LINE {
            return Err(std::io::Error::other("a line is too long"));
        }
    }
}

async fn body(stream: &mut (impl AsyncRead + Unpin), length: usize) -> std::io::Result<Bytes> {
    let mut body = vec![0; length + 2];
    stream.read_exact(&mut body).await?;
    match body.ends_with(b"\r\n") {
        true => {
            body.truncate(length);
            Ok(Bytes::from(body))
        }
        false => Err(std::io::Error::other("a string does not end where it says")),
    }
}
