//! How a connection speaks: its first bytes tell, and the answer does not depend on how they are cut.

use super::http::Beginning;

/// The longest first line of a connection that begins with a word, without its end.
pub(super) const MAX_FIRST_LINE: usize = 8 << 10;
/// The same with its end: no byte behind it is looked at.
const LOOKED_AT: usize = MAX_FIRST_LINE + 2;

/// One of the ways to speak.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    Lines,
    Http(Beginning),
    Resp,
    /// It begins like a RESP command in a line, but is too long for a first line.
    LongCommand,
    /// None of them.
    Unknown,
}

/// How a connection speaks that begins with these bytes; none if more must be read to know it.
///
/// A web page chooses what a browser sends behind the first line of a request. So a first line with `HTTP/…`
/// as its last word is never taken for a command.
pub(super) fn way(first: &[u8]) -> Option<Way> {
    match first.first()? {
        b'{' | b' ' | b'\t' | b'\r' | b'\n' => return Some(Way::Lines),
        b'*' => return Some(Way::Resp),
        byte if !byte.is_ascii_graphic() => return Some(Way::Unknown),
        _ => {}
    }
    let looked_at = &first[..first.len().min(LOOKED_AT)];
    let end = looked_at.iter().position(|byte| *byte == b'\n');
    if end.is_none() && looked_at.len() < LOOKED_AT {
        return None;
    }
    let line = looked_at[..end.unwrap_or(LOOKED_AT)].trim_ascii_end();
    let last = line.rsplit(u8::is_ascii_whitespace).next().unwrap_or_default();
    let is_long = end.is_none() || line.len() > MAX_FIRST_LINE;
    Some(match (is_long, last.strip_prefix(b"HTTP/")) {
        (false, Some(version)) if version.starts_with(b"1.") => Way::Http(Beginning::Request),
        (false, Some(_)) => Way::Http(Beginning::OtherVersion),
        (false, None) => Way::Resp,
        (true, _) if asks_for_a_path(line) => Way::Http(Beginning::TooLong),
        (true, _) => Way::LongCommand,
    })
}

/// Whether a line begins as a request line does: with a method, and a path or an address.
fn asks_for_a_path(line: &[u8]) -> bool {
    let method = line.iter().take_while(|byte| byte.is_ascii_uppercase()).count();
    let target = line[method..].strip_prefix(b" ").unwrap_or_default();
    method > 0 && (target.starts_with(b"/") || target.starts_with(b"http"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn how_a_connection_speaks_is_told_by_its_first_line() {
        let http = Some(Way::Http(Beginning::Request));
        let other = Some(Way::Http(Beginning::OtherVersion));
        for (first, expected) in [
            ("", None),
            ("{", Some(Way::Lines)),
            ("\n", Some(Way::Lines)),
            ("*", Some(Way::Resp)),
            ("PIN", None),
            ("PING\r\n", Some(Way::Resp)),
            ("9 lives\n", Some(Way::Resp)),
            ("SET a HTTP\n", Some(Way::Resp)),
            ("GET / HTTP/1.1", None),
            ("GET / HTTP/1.1\r\n", http),
            ("POST /x HTTP/1.0\nHost", http),
            ("set /x HTTP/1.1 \r\n", http),
            ("GET\t/\tHTTP/1.1\r\n", http),
            ("SET k HTTP/1.1x\r\n", http),
            ("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", other),
            ("GET / HTTP/3\r\n", other),
            ("\u{16}\u{3}\u{1}", Some(Way::Unknown)),
            ("\u{e4}\n", Some(Way::Unknown)),
        ] {
            assert_eq!(way(first.as_bytes()), expected, "{first}");
        }
    }

    #[test]
    fn a_first_line_has_a_bound_whatever_it_begins() {
        let too_long = Some(Way::Http(Beginning::TooLong));
        for (begins, ends, longest, beyond) in [
            (
                "GET /",
                " HTTP/1.1",
                Some(Way::Http(Beginning::Request)),
                too_long,
            ),
            ("SET k ", "", Some(Way::Resp), Some(Way::LongCommand)),
            // A page of a web site can have this sent, so it is no command.
            (
                "set /",
                " HTTP/1.1",
                Some(Way::Http(Beginning::Request)),
                Some(Way::LongCommand),
            ),
        ] {
            let line = |length: usize| {
                let much = "x".repeat(length - begins.len() - ends.len());
                format!("{begins}{much}{ends}\r\n")
            };
            assert_eq!(way(line(MAX_FIRST_LINE).as_bytes()), longest, "{begins}");
            assert_eq!(way(line(MAX_FIRST_LINE + 1).as_bytes()), beyond, "{begins}");
            assert_eq!(way(line(4 * MAX_FIRST_LINE).as_bytes()), beyond, "{begins}");
        }
    }

    #[test]
    fn wherever_it_is_cut_it_speaks_in_one_way() {
        let long = format!("SET k {}\r\n", "x".repeat(2 * MAX_FIRST_LINE));
        for said in [
            "GET /livez HTTP/1.1\r\n\r\n",
            "PING\r\nPING\r\n",
            "9\n",
            long.as_str(),
        ] {
            super::super::fuzzing::first(said.as_bytes());
        }
    }
}
