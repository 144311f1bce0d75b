//! Refuses the requests of a web site's page in a browser on the host of an agent.
//!
//! A browser lets any page send requests to this host. If a site's name resolves to 127.0.0.1, the browser
//! even lets the site's page read the answers (DNS rebinding). So a request's `Host` must name this host by
//! its own names, or with TLS by a name of the agent's certificate; and a page that asks (`Origin`) must be a
//! page of this host.

use hyper::header::{HOST, HeaderName, ORIGIN};
use hyper::http::request::Parts;
use hyper::{StatusCode, Uri, Version};

use super::problem::Problem;

const FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// Whether this request may be answered. `is_called` tells whether the agent's certificate is for a name.
pub(super) fn admit(head: &Parts, is_called: impl Fn(&str) -> bool) -> Result<(), Problem> {
    let is_this = |authority: &str| {
        let host = host_of(authority);
        host.is_some_and(|host| is_local(host) || is_called(host))
    };
    let mut hosts = head.headers.get_all(HOST).iter();
    match (hosts.next(), hosts.next()) {
        (Some(host), None) => {
            let local = host.to_str().is_ok_and(|host| is_this(host.trim()));
            if !local || head.uri.authority().is_some_and(|of| !is_this(of.as_str())) {
                return Err(forbidden(
                    "Host names another host: ask localhost, 127.0.0.1 or [::1], or with TLS a name of the agent's certificate; a page of a web site may not",
                ));
            }
        }
        (None, _) if head.version == Version::HTTP_10 => {}
        _ => {
            return Err(Problem::refused(
                "a request has one Host header: localhost will do",
            ));
        }
    }
    let mut origins = head.headers.get_all(ORIGIN).iter().peekable();
    if origins.peek().is_none() {
        // A page that loads this as a picture or a link names no origin, but says that it is of another site.
        let site = head.headers.get(FETCH_SITE);
        if site.is_some_and(|site| site.as_bytes() == b"cross-site") {
            return Err(forbidden("a page of a web site may not ask an agent"));
        }
    }
    match origins.all(|origin| origin.to_str().is_ok_and(is_local_origin)) {
        true => Ok(()),
        false => Err(forbidden(
            "Origin is not of this host: only pages from localhost, 127.0.0.1 or [::1] may ask an agent",
        )),
    }
}

fn forbidden(reason: &str) -> Problem {
    Problem::new(StatusCode::FORBIDDEN, "forbidden", reason)
}

fn is_local_origin(origin: &str) -> bool {
    let parsed = origin.parse::<Uri>();
    parsed.is_ok_and(|uri| {
        matches!(uri.scheme_str(), Some("http" | "https"))
            && uri
                .authority()
                .is_some_and(|of| host_of(of.as_str()).is_some_and(is_local))
    })
}

/// The host of `host[:port]`, of an IPv6 address without its brackets.
fn host_of(authority: &str) -> Option<&str> {
    let (host, port) = match authority.strip_prefix('[') {
        Some(rest) => {
            let (host, port) = rest.split_once(']')?;
            host.parse::<std::net::Ipv6Addr>().ok()?;
            match port.strip_prefix(':') {
                None if !port.is_empty() => return None,
                digits => (host, digits.unwrap_or_default()),
            }
        }
        None => authority.split_once(':').unwrap_or((authority, "")),
    };
    port.bytes().all(|byte| byte.is_ascii_digit()).then_some(host)
}

/// Whether this is this host.
fn is_local(host: &str) -> bool {
    let ip = host.parse::<std::net::IpAddr>();
    host.eq_ignore_ascii_case("localhost") || ip.is_ok_and(|ip| ip.is_loopback())
}

#[cfg(test)]
mod tests {
    use hyper::Request;

    use super::*;

    fn admitted(headers: &[(&str, &str)]) -> bool {
        let mut request = Request::get("/livez");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let called = |host: &str| host == "agent.example" || host == "fd00::7";
        admit(&request.body(()).unwrap().into_parts().0, called).is_ok()
    }

    #[test]
    fn only_this_host_by_its_own_names_is_asked() {
        for host in [
            "localhost",
            "LOCALHOST:7480",
            "127.0.0.1:7480",
            "127.9.9.9",
            "[::1]:7480",
            "[::1]",
            "agent.example:7480",
            "[fd00::7]",
        ] {
            assert!(admitted(&[("host", host)]), "{host}");
        }
        for host in [
            "evil.example",
            "evil.example:7480",
            "localhost.evil.example",
            "127.0.0.1.evil.example",
            "10.0.0.1",
            "[::2]:7480",
            "[::1",
            "[::1]x",
            "localhost:x",
            "agent.example.evil",
            "agent.example:7480:1",
            "[agent.example]",
            "[fd00::7]7",
            "a@localhost",
            "localhost@evil.example",
            "",
        ] {
            assert!(!admitted(&[("host", host)]), "{host}");
        }
        assert!(!admitted(&[]) && !admitted(&[("host", "localhost"), ("host", "localhost")]));
    }

    #[test]
    fn a_page_of_another_site_may_not_ask() {
        for origin in ["http://localhost:3000", "http://127.0.0.1", "https://[::1]:8443"] {
            assert!(admitted(&[("host", "localhost"), ("origin", origin)]), "{origin}");
        }
        for origin in [
            "null",
            "https://evil.example",
            "http://localhost.evil.example",
            "file://",
            "chrome-extension://x",
            "",
        ] {
            assert!(
                !admitted(&[("host", "localhost"), ("origin", origin)]),
                "{origin}"
            );
        }
        let both = [
            ("host", "localhost"),
            ("origin", "http://localhost"),
            ("origin", "http://evil.example"),
        ];
        assert!(!admitted(&both));
        assert!(!admitted(&[
            ("host", "localhost"),
            ("sec-fetch-site", "cross-site")
        ]));
        assert!(admitted(&[
            ("host", "localhost"),
            ("sec-fetch-site", "same-origin")
        ]));
    }
}
