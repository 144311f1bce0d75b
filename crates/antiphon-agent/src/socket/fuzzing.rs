//! What fuzz targets run: each takes arbitrary bytes, and panics if what is promised of them does not hold.
//! Nothing else calls it.

use bytes::Bytes;
use hyper::Request;

use super::first::{MAX_FIRST_LINE, way};
use super::http;
use super::resp::decode::{Decoder, MAX_ARGUMENT_BYTES, MAX_ARGUMENTS, MAX_COMMAND_BYTES, READ_BYTES};

/// Wherever the first bytes of a connection are cut, it speaks in one way, or more is to be read.
pub fn first(data: &[u8]) {
    let whole = way(data);
    // Whatever depends on a place does on one of these.
    let ends = (0..data.len().min(256)).chain((MAX_FIRST_LINE - 4..data.len()).take(12));
    for end in ends {
        let begun = way(&data[..end]);
        assert!(
            begun.is_none() || begun == whole,
            "{begun:?} after {end} bytes, then {whole:?}"
        );
    }
}

/// Wherever what a program of RESP says is cut, the same commands come out, within their bounds. The first
/// byte says in pieces of what size it comes.
pub fn resp(data: &[u8]) {
    let Some((piece, said)) = data.split_first() else {
        return;
    };
    let whole = commands(said, said.len().max(1));
    assert_eq!(commands(said, usize::from(*piece) + 1), whole);
    let (commands, broken) = whole;
    assert!(broken.is_none_or(|why| !why.is_empty()));
    for command in &commands {
        assert!((1..=MAX_ARGUMENTS).contains(&command.len()));
        assert!(
            command
                .iter()
                .all(|argument| argument.len() <= MAX_ARGUMENT_BYTES)
        );
        assert!(command.iter().map(Bytes::len).sum::<usize>() <= MAX_COMMAND_BYTES);
    }
    // As an array each of them is itself.
    let mut arrays = Vec::new();
    for command in &commands {
        arrays.extend(format!("*{}\r\n", command.len()).bytes());
        for argument in command {
            arrays.extend(format!("${}\r\n", argument.len()).bytes());
            arrays.extend_from_slice(argument);
            arrays.extend_from_slice(b"\r\n");
        }
    }
    assert_eq!(self::commands(&arrays, READ_BYTES), (commands, None));
}

fn commands(said: &[u8], piece: usize) -> (Vec<Vec<Bytes>>, Option<String>) {
    let mut decoder = Decoder::default();
    let mut commands = Vec::new();
    for bytes in said.chunks(piece) {
        decoder.buffer().extend_from_slice(bytes);
        loop {
            match decoder.next() {
                Ok(Some(command)) => commands.push(command),
                Ok(None) => break,
                Err(broken) => return (commands, Some(broken.0)),
            }
        }
    }
    (commands, None)
}

/// A request is refused with a reason, or its path, its query and its conditions are read. Its lines are the
/// method, the target, headers as `name: value`, an empty line, and behind that the body.
pub fn http(data: &[u8]) {
    let (head, body) = match data.windows(2).position(|two| two == b"\n\n") {
        Some(end) => (&data[..end], &data[end + 2..]),
        None => (data, &b""[..]),
    };
    let mut lines = head.split(|byte| *byte == b'\n');
    let mut request = Request::builder()
        .method(lines.next().unwrap_or_default())
        .uri(lines.next().unwrap_or_default());
    for line in lines {
        let mut parts = line.splitn(2, |byte| *byte == b':');
        request = request.header(parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
    }
    // Otherwise hyper does not hand it over.
    if let Ok(request) = request.body(()) {
        http::translate(request.into_parts().0, body);
    }
}

#[cfg(test)]
mod tests {
    /// Bytes that are drawn from pieces of what programs say: the same at each run.
    fn drawn(pieces: &[&[u8]], run: u64) -> Vec<u8> {
        let mut state = run.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        let mut next = |below: usize| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state as usize % below
        };
        let mut bytes = Vec::new();
        for _ in 0..next(24) {
            match next(6) {
                0 => bytes.push(next(256) as u8),
                _ => bytes.extend_from_slice(pieces[next(pieces.len())]),
            }
        }
        bytes
    }

    #[test]
    fn what_is_drawn_from_pieces_keeps_what_is_promised() {
        let first: [&[u8]; 10] = [
            b"GET",
            b" ",
            b"/",
            b"HTTP/1.1",
            b"HTTP/2",
            b"\r\n",
            b"\n",
            b"{",
            b"*1",
            &[b'x'; 5000],
        ];
        let resp: [&[u8]; 14] = [
            b"*", b"$", b"1", b"2", b"-1", b"03", b"\r\n", b"\n", b"PING", b" ", b"\"", b"'", b"\\x4", b"\\",
        ];
        let http: [&[u8]; 22] = [
            b"GET\n",
            b"PUT\n",
            b"HEAD\n",
            b"/v1/maps/",
            b"m/",
            b"/v1/locks/x?token=",
            b"ttl=5s",
            b"&",
            b"?",
            b"%2F",
            b"%",
            b"=",
            b"\nHost: localhost",
            b"\nHost: [::1]:1",
            b"\nOrigin: http://localhost",
            b"\nIf-Match: ",
            b"W/",
            b"\"7\"",
            b",",
            b"\n\n",
            b"{\"value\":",
            b"\"v\"}",
        ];
        for run in 1..2000 {
            super::first(&drawn(&first, run));
            super::resp(&drawn(&resp, run));
            super::http(&drawn(&http, run));
        }
    }
}
