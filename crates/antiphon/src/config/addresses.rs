//! Addresses as people write them.

use std::fmt;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs as _};

use antiphon_core::{is_link_local, link_local};

use super::Error;

/// The port where none is given.
pub const DEFAULT_PORT: u16 = 7400;
/// Of a name in DNS, without the dot at its end.
const MAX_NAME_BYTES: usize = 253;
/// Between two dots of such a name.
const MAX_LABEL_BYTES: usize = 63;

/// A seed: its first address, and where else it is reached. Written with slashes in between.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seed(pub Vec<SocketAddr>);

impl fmt::Display for Seed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let addresses: Vec<String> = self.0.iter().map(ToString::to_string).collect();
        f.write_str(&addresses.join("/"))
    }
}

/// What a text stands for, before any name is looked up.
#[doc(hidden)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Written<'a> {
    /// An address.
    Address(SocketAddr),
    /// The name of a host, and a port.
    Name(&'a str, u16),
}

impl<'a> Written<'a> {
    /// `ADDR`, `ADDR:PORT`, `HOST` or `HOST:PORT`; an IPv6 address with a port has brackets, without one it
    /// may have them.
    ///
    /// # Errors
    /// What is wrong with it. Resolvers take `7400` for the address 0.0.0.28.232, and say of a port beyond
    /// the range, or of a text that can be no name, that the name is not known: so none of these is left to
    /// them. A name that is not known may be known later; what is wrong with the text stays wrong.
    pub fn parse(text: &'a str, port: u16) -> Result<Self, String> {
        let bare = text.strip_prefix('[').and_then(|text| text.strip_suffix(']'));
        let ip = bare.unwrap_or(text).parse::<IpAddr>();
        if let Ok(ip) = ip
            && (bare.is_none() || ip.is_ipv6())
        {
            return Ok(Self::Address(SocketAddr::new(ip, port)));
        }
        if let Ok(address) = text.parse::<SocketAddr>() {
            return Ok(Self::Address(address));
        }
        let (host, port) = match text.rsplit_once(':') {
            None => (text, port),
            Some((host, number)) => match number.parse::<u16>() {
                Ok(port) => (host, port),
                Err(_) if !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit()) => {
                    return Err(format!("port {number} is out of range: the largest is 65535"));
                }
                Err(_) => return Err(format!("{number:?} is no port")),
            },
        };
        if host.is_empty() {
            return Err("it names no host".to_owned());
        }
        if host.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.') {
            return Err(format!("{host} is a number and no whole address"));
        }
        if !host.bytes().all(is_of_names) {
            return Err(
                "it is neither an address nor a name, which has letters from a to z, digits, -, _ and dots"
                    .to_owned(),
            );
        }
        let name = host.strip_suffix('.').unwrap_or(host);
        let is_label = |label: &str| (1..=MAX_LABEL_BYTES).contains(&label.len());
        if name.len() > MAX_NAME_BYTES || !name.split('.').all(is_label) {
            return Err(format!(
                "it is no name: one has up to {MAX_NAME_BYTES} bytes, and 1 to {MAX_LABEL_BYTES} between its dots"
            ));
        }
        Ok(Self::Name(host, port))
    }
}

/// The underscore is in no host's name by the rules, and in names of containers.
fn is_of_names(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_')
}

/// One address of this setting, with this port unless the text has one; a host is looked up once, now.
#[doc(hidden)]
pub fn address(field: &'static str, text: &str, port: u16) -> Result<SocketAddr, Error> {
    let text = text.trim();
    let refused = |reason: &str| Err(Error::value(field, format!("{field} {text:?}: {reason}")));
    let expected = "expected such as 10.0.0.1:7400 or [::1]:7400";
    let written = match Written::parse(text, port) {
        Ok(written) => written,
        Err(reason) => return refused(&format!("{reason}; {expected}")),
    };
    let port = match written {
        Written::Address(address) => address.port(),
        Written::Name(_, port) => port,
    };
    // `antiphon bench` calls its seeds `join`.
    if port == 0 && matches!(field, "seeds" | "join") {
        return refused("nobody is reached at port 0: give the port that this seed listens at");
    }
    let address = match written {
        Written::Address(address) => address,
        Written::Name(host, port) => look_up(field, text, (host, port))?,
    };
    if is_link_local(address.ip()) {
        return refused(&link_local(address));
    }
    Ok(address)
}

fn look_up(field: &'static str, text: &str, name: (&str, u16)) -> Result<SocketAddr, Error> {
    let unresolved = |reason: String| Err(Error::Unresolved { key: field, reason });
    // A name may stand for an address of a link beside others.
    let best = name
        .to_socket_addrs()
        .map(|addresses| addresses.min_by_key(|address| is_link_local(address.ip())));
    match best {
        Ok(Some(address)) => Ok(address),
        Ok(None) => unresolved(format!("{field} {text:?}: the name has no address")),
        Err(error) => {
            let later = match field {
                "seeds" => {
                    "; a name that may resolve later is written dns:NAME:PORT, by which nobody founds: see --expect"
                }
                _ => "",
            };
            unresolved(format!(
                "{field} {text:?} is no address and no name that resolves ({error}); expected such as 10.0.0.1:7400 or [::1]:7400{later}"
            ))
        }
    }
}

/// A list without empty entries. An empty entry is mostly a variable that is not set, and the rest of the
/// list would mean something else: without its seeds a node founds a cluster of its own.
#[doc(hidden)]
pub fn list(field: &'static str, given: Option<Vec<String>>) -> Result<Option<Vec<String>>, Error> {
    let Some(texts) = given else { return Ok(None) };
    let texts: Vec<String> = texts.into_iter().map(|text| text.trim().to_owned()).collect();
    match texts.iter().any(String::is_empty) {
        false => Ok(Some(texts)),
        true if texts.len() == 1 => Err(Error::value(
            field,
            format!("{field} is empty: give a value, or leave it out (is a variable not set?)"),
        )),
        true => Err(Error::value(
            field,
            format!(
                "{field} has an empty entry, in {:?}: each entry needs a value (is a variable not set?)",
                texts.join(",")
            ),
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_that_is_left_out_is_the_default_one_with_brackets_or_without() {
        for text in ["::1", "[::1]", "[::1]:7400"] {
            let expected = "[::1]:7400".parse().unwrap();
            assert_eq!(
                Written::parse(text, 7400),
                Ok(Written::Address(expected)),
                "{text}"
            );
        }
        assert_eq!(
            Written::parse("db.example", 7400),
            Ok(Written::Name("db.example", 7400))
        );
        assert_eq!(
            Written::parse("db.example:1", 7400),
            Ok(Written::Name("db.example", 1))
        );
    }

    #[test]
    fn what_is_no_address_says_why_and_no_resolver_is_asked() {
        for (field, text, expected) in [
            ("seeds", "127.0.0.1:99999", "port 99999 is out of range"),
            ("seeds", "db.example:99999", "port 99999 is out of range"),
            ("bind", "7400", "7400 is a number"),
            ("bind", "10.0.1:7400", "no whole address"),
            ("bind", ":7400", "names no host"),
            ("bind", "[127.0.0.1]", "neither an address nor a name"),
            ("seeds", "10.0.0.1;10.0.0.2", "neither an address nor a name"),
            ("seeds", "_bad_name!!", "neither an address nor a name"),
            ("seeds", "tee.küche:7400", "neither an address nor a name"),
            ("seeds", "db..example", "1 to 63 between its dots"),
            ("bind", "db.example:http", "\"http\" is no port"),
            ("seeds", "127.0.0.1:0", "nobody is reached at port 0"),
            ("seeds", "nowhere.invalid:0", "nobody is reached at port 0"),
            ("join", "127.0.0.1:0", "nobody is reached at port 0"),
        ] {
            let error = address(field, text, DEFAULT_PORT).expect_err(text).to_string();
            assert!(
                error.contains(expected) && error.contains(field),
                "{text}: {error}"
            );
        }
        assert_eq!(address("bind", "127.0.0.1:0", 1).unwrap().port(), 0);
    }

    #[test]
    fn a_name_is_as_long_as_names_can_be_and_one_with_more_is_none() {
        let is_name = |text: &str| matches!(Written::parse(text, 7400), Ok(Written::Name(..)));
        let label = "x".repeat(63);
        assert!(is_name(&label) && is_name("node_1.example.") && is_name("0x.example"));
        assert!(!is_name(&format!("{label}x")) && !is_name(&"x".repeat(300)));
        // 253 bytes.
        let longest = format!("{label}.{label}.{label}.{}", "x".repeat(61));
        assert!(is_name(&longest) && is_name(&format!("{longest}.:1")));
        assert!(!is_name(&format!("{longest}x")));
        let error = address("seeds", &"x".repeat(300), DEFAULT_PORT).unwrap_err();
        assert!(matches!(error, Error::Value { .. }), "{error:?}");
    }

    #[test]
    fn a_name_that_does_not_resolve_now_is_told_from_a_value_that_cannot_be_meant() {
        let error = |text| address("seeds", text, DEFAULT_PORT).unwrap_err();
        let later = error("nowhere.invalid:7");
        assert!(
            matches!(later, Error::Unresolved { key: "seeds", .. }),
            "{later:?}"
        );
        assert!(later.to_string().contains("nowhere.invalid:7"), "{later}");
        assert!(matches!(error("nowhere.invalid:x"), Error::Value { .. }));
    }

    #[test]
    fn an_empty_entry_is_no_entry_less() {
        let texts = |texts: &[&str]| Some(texts.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>());
        for (given, expected) in [
            (texts(&[""]), "seeds is empty"),
            (texts(&["a", " "]), "in \"a,\""),
            (texts(&["", ""]), "in \",\""),
        ] {
            let error = list("seeds", given).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
        assert_eq!(list("seeds", texts(&[" a"])).unwrap(), texts(&["a"]));
        assert_eq!(list("seeds", texts(&[])).unwrap(), texts(&[]));
        assert_eq!(list("seeds", None).unwrap(), None);
    }
}
