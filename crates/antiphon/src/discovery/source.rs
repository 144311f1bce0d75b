//! The one syntax for where nodes are found.

use std::collections::BTreeSet;
use std::fmt;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::str::FromStr;

use antiphon_core::{is_link_local, link_local};
use tokio::sync::watch;

use super::Said;
use crate::{Interface, Multicast};

/// The port of nodes where none is given.
pub(crate) const NODE_PORT: u16 = 7400;
/// The port of locators where none is given.
pub const LOCATOR_PORT: u16 = 7410;
/// The UDP port of multicast discovery where none is given: not that of multicast for messages.
pub const DISCOVERY_PORT: u16 = 7402;

/// Where nodes may be found at run time. Parsed from, and shown as:
///
/// | text | what |
/// |---|---|
/// | `dns:NAME` or `dns:NAME:PORT` | all IPv4 and IPv6 addresses of a name; port 7400 unless given |
/// | `srv:NAME` | the hosts and ports of an SRV record |
/// | `file:PATH` | a file with an address, or a name, on each line; it may change |
/// | `multicast`, `multicast:GROUP[:PORT]`, each with `@IF` behind it or not | the nodes that announce themselves by UDP multicast |
///
/// With [`channel`](super::channel) an application has a source of its own.
#[derive(Debug, Clone)]
pub struct Source(pub(crate) Kind);

/// What a source is.
#[derive(Debug, Clone)]
pub(crate) enum Kind {
    Fixed(SocketAddr),
    Dns {
        name: String,
        port: u16,
    },
    Srv {
        name: String,
    },
    File {
        path: PathBuf,
        /// Of addresses and names without one.
        port: u16,
    },
    Multicast {
        group: Option<SocketAddr>,
        interface: Option<String>,
    },
    Own {
        name: String,
        said: watch::Receiver<Said>,
    },
}

impl Kind {
    /// The address that needs no looking for.
    pub(crate) fn fixed(&self) -> Option<SocketAddr> {
        match self {
            Kind::Fixed(addr) => Some(*addr),
            _ => None,
        }
    }
}

/// Why a text is no source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourceError {
    given: String,
    reason: String,
}

impl fmt::Display for SourceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {}", self.given, self.reason)
    }
}

impl std::error::Error for SourceError {}

impl Source {
    /// All addresses of a name, each with this port.
    pub fn dns(name: impl Into<String>, port: u16) -> Self {
        Self(Kind::Dns {
            name: name.into(),
            port,
        })
    }

    /// The hosts and ports of an SRV record, such as `_antiphon._tcp.example`.
    pub fn srv(name: impl Into<String>) -> Self {
        Self(Kind::Srv { name: name.into() })
    }

    /// A file with an address on each line, such as `10.0.0.2:7400`, or a name, such as `db2.example:7400`;
    /// what follows a `#` is a comment. At most 64 KiB and 256 lines with an address.
    pub fn file(path: impl Into<PathBuf>) -> Self {
        Self(Kind::File {
            path: path.into(),
            port: NODE_PORT,
        })
    }

    /// Whether a text of a seed list is meant as a source, and not as an address, by what it begins with. A
    /// host may be called `dns`: then a port follows.
    pub fn is_meant_by(text: &str) -> bool {
        let text = text.trim();
        if text == "multicast" || text.starts_with("multicast@") {
            return true;
        }
        let prefixed = ["dns:", "srv:", "file:", "multicast:"]
            .iter()
            .find_map(|prefix| text.strip_prefix(prefix));
        prefixed.is_some_and(|rest| rest.parse::<u16>().is_err())
    }

    /// A locator, by its address or name: `10.0.0.9:7410`, `locator.example`, or any source that is not
    /// `multicast`.
    ///
    /// # Errors
    /// What cannot be meant, and what to write.
    pub fn locator(text: &str) -> Result<Self, SourceError> {
        let text = text.trim();
        if !Self::is_meant_by(text) {
            return target(text, LOCATOR_PORT).map(Self);
        }
        let source: Source = text.parse()?;
        match source.0 {
            Kind::Multicast { .. } => Err(wrong(
                text,
                "locators are not found by multicast: give an address or a name",
            )),
            Kind::Dns { name, .. } if !has_port(text) => Ok(Self::dns(name, LOCATOR_PORT)),
            Kind::File { path, .. } => Ok(Self(Kind::File {
                path,
                port: LOCATOR_PORT,
            })),
            _ => Ok(source),
        }
    }

    /// These locators, each once, however it is written: a locator that is asked at two of its addresses
    /// answers at one, and would count as silent at the other.
    pub(crate) fn locators(given: Vec<String>) -> Result<Vec<(String, Self)>, SourceError> {
        let (mut different, mut known) = (Vec::new(), BTreeSet::new());
        for text in given {
            let source = Self::locator(&text)?;
            if known.insert(source.to_string()) {
                different.push((text, source));
            }
        }
        Ok(different)
    }

    /// The multicast group of this source, for a node of this cluster.
    pub(crate) fn multicast(&self, cluster: &str) -> Option<Result<Multicast, SourceError>> {
        let Kind::Multicast { group, interface } = &self.0 else {
            return None;
        };
        let own = SocketAddr::new(Multicast::of_cluster(cluster).group.ip(), DISCOVERY_PORT);
        let mut multicast = Multicast::at(group.unwrap_or(own));
        if let Some(text) = interface {
            match interface_of(text) {
                Some(interface) => multicast.interface = Some(interface),
                None => {
                    let reason = format!(
                        "{text} is neither an address nor the name or number of a network interface of this host"
                    );
                    return Some(Err(wrong(&self.to_string(), &reason)));
                }
            }
        }
        Some(Ok(multicast))
    }
}

/// An address, or a name and its port.
pub(crate) fn target(text: &str, port: u16) -> Result<Kind, SourceError> {
    let addr = text.parse::<SocketAddr>().ok();
    let bare = text.strip_prefix('[').and_then(|text| text.strip_suffix(']'));
    let without_port = || match bare {
        Some(bare) => bare.parse::<Ipv6Addr>().ok().map(IpAddr::from),
        None => text.parse::<IpAddr>().ok(),
    };
    let addr = addr.or_else(|| without_port().map(|ip| SocketAddr::new(ip, port)));
    match addr {
        Some(addr) if is_link_local(addr.ip()) => Err(wrong(text, &link_local(addr))),
        Some(addr) if addr.port() == 0 => Err(wrong(text, "nobody is reached at port 0: give 1 to 65535")),
        Some(addr) if !is_of_a_host(addr.ip()) => {
            Err(wrong(text, "no host is reached there: give the address of one"))
        }
        Some(addr) => Ok(Kind::Fixed(canonical(addr))),
        // Resolvers take a number for an address: 7410 for 0.0.28.242.
        None if text.bytes().all(|byte| byte.is_ascii_digit()) => {
            Err(wrong(text, "a number alone is no address: give 10.0.0.1:7400"))
        }
        None => named(text, text, port),
    }
}

/// The IPv4 address itself, of one in its IPv6 form: nodes and locators that are asked at `::ffff:10.0.0.9`
/// answer as `10.0.0.9`.
pub(super) fn canonical(addr: SocketAddr) -> SocketAddr {
    match addr.ip().to_canonical() {
        ip @ IpAddr::V4(_) => SocketAddr::new(ip, addr.port()),
        IpAddr::V6(_) => addr,
    }
}

/// Whether one host may be reached at this address.
pub(super) fn is_of_a_host(ip: IpAddr) -> bool {
    let ip = ip.to_canonical();
    !ip.is_unspecified() && !ip.is_multicast()
}

fn named(given: &str, text: &str, port: u16) -> Result<Kind, SourceError> {
    let (name, port) = match text.rsplit_once(':') {
        Some((name, number)) => match number.parse() {
            Ok(0) | Err(_) => return Err(wrong(given, &format!("{number:?} is no port: give 1 to 65535"))),
            Ok(number) => (name, number),
        },
        None => (text, port),
    };
    check_name(given, name)?;
    Ok(Kind::Dns {
        name: name.to_owned(),
        port,
    })
}

fn has_port(text: &str) -> bool {
    text.rsplit_once(':')
        .is_some_and(|(_, port)| port.parse::<u16>().is_ok())
}

/// A name that no resolver could understand need not be asked for.
fn check_name(given: &str, name: &str) -> Result<(), SourceError> {
    let sound = |c: char| c.is_alphanumeric() || matches!(c, '-' | '_' | '.');
    if name.is_empty() || name.len() > 253 || !name.chars().all(sound) || name.starts_with('.') {
        return Err(wrong(
            given,
            &format!(
                "{name:?} is no host name and no address; expected such as 10.0.0.1:7400, [fd00::1]:7400, db.example:7400, or a name that \
                 is resolved again and again, dns:db.example:7400 or srv:_antiphon._tcp.example"
            ),
        ));
    }
    Ok(())
}

fn wrong(given: &str, reason: &str) -> SourceError {
    SourceError {
        given: given.to_owned(),
        reason: reason.to_owned(),
    }
}

impl FromStr for Source {
    type Err = SourceError;

    fn from_str(text: &str) -> Result<Self, SourceError> {
        let text = text.trim();
        let (kind, rest) = text.split_once(':').unwrap_or((text, ""));
        let kind = match (kind, rest) {
            ("dns", rest) => named(text, rest, NODE_PORT)?,
            ("srv", name) => {
                check_name(text, name)?;
                Kind::Srv {
                    name: name.to_owned(),
                }
            }
            ("file", "") => return Err(wrong(text, "a path is missing: file:/etc/antiphon/nodes")),
            ("file", path) => Self::file(path).0,
            _ if kind == "multicast" || kind.starts_with("multicast@") => multicast(text)?,
            _ => {
                return Err(wrong(
                    text,
                    "expected dns:NAME:PORT, srv:NAME, file:PATH or multicast[:GROUP[:PORT]][@INTERFACE]",
                ));
            }
        };
        Ok(Self(kind))
    }
}

fn multicast(text: &str) -> Result<Kind, SourceError> {
    let (where_to, interface) = match text.split_once('@') {
        Some((where_to, "")) => return Err(wrong(where_to, "an interface is missing behind the @")),
        Some((where_to, interface)) => (where_to, Some(interface.to_owned())),
        None => (text, None),
    };
    let group = match where_to.strip_prefix("multicast:") {
        None => None,
        Some(group) => {
            let parsed = group
                .parse::<SocketAddr>()
                .ok()
                .or_else(|| group.parse::<IpAddr>().ok().map(|ip| (ip, DISCOVERY_PORT).into()));
            match parsed {
                Some(group) if group.ip().is_multicast() && group.port() != 0 => Some(group),
                _ => {
                    return Err(wrong(
                        text,
                        "expected a multicast address, such as multicast:239.255.74.1:7402 or multicast:[ff15::7402]:7402@eth0",
                    ));
                }
            }
        }
    };
    if group.is_some_and(|group| group.is_ipv6()) && interface.is_none() {
        return Err(wrong(
            text,
            "an IPv6 group needs the name or number of an interface: multicast:[ff15::7402]:7402@eth0",
        ));
    }
    Ok(Kind::Multicast { group, interface })
}

/// An address, a number, or the name of an interface of this host.
pub(crate) fn interface_of(text: &str) -> Option<Interface> {
    if let Ok(ip) = text.parse::<IpAddr>() {
        return Some(Interface::Address(ip));
    }
    if let Ok(index) = text.parse::<u32>() {
        return Some(Interface::Index(index));
    }
    if text.contains('/') {
        return None;
    }
    let path = Path::new("/sys/class/net").join(text).join("ifindex");
    let index = std::fs::read_to_string(path).ok()?;
    index.trim().parse().ok().map(Interface::Index)
}

antiphon_core::wire::as_text!(Source);
antiphon_core::wire::written_as_text!(SourceError);

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Kind::Fixed(addr) => write!(f, "{addr}"),
            Kind::Dns { name, port } => write!(f, "dns:{name}:{port}"),
            Kind::Srv { name } => write!(f, "srv:{name}"),
            Kind::File { path, .. } => write!(f, "file:{}", path.display()),
            Kind::Multicast { group, interface } => {
                f.write_str("multicast")?;
                if let Some(group) = group {
                    write!(f, ":{group}")?;
                }
                match interface {
                    Some(interface) => write!(f, "@{interface}"),
                    None => Ok(()),
                }
            }
            Kind::Own { name, .. } => f.write_str(name),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_shown_is_what_was_given() {
        for text in [
            "dns:db.example:7400",
            "dns:_x.db:1",
            "srv:_antiphon._tcp.example",
            "file:/etc/nodes",
            "file:relative:with-colon",
            "multicast",
            "multicast@127.0.0.1",
            "multicast:239.255.1.2:7402",
            "multicast:[ff15::7402]:7402@1",
        ] {
            assert!(Source::is_meant_by(text), "{text}");
            let source: Source = text.parse().unwrap();
            assert_eq!(source.to_string(), text);
        }
        assert_eq!("dns:db".parse::<Source>().unwrap().to_string(), "dns:db:7400");
        let group: Source = "multicast:239.1.2.3".parse().unwrap();
        assert_eq!(group.to_string(), "multicast:239.1.2.3:7402");
    }

    #[test]
    fn hosts_may_be_called_like_sources() {
        for text in [
            "dns:7400",
            "file:1",
            "multicast:7402",
            "db.example:7400",
            "127.0.0.1:1",
            "[::1]:1",
        ] {
            assert!(!Source::is_meant_by(text), "{text}");
        }
    }

    #[test]
    fn what_cannot_be_meant_is_refused_with_what_to_write() {
        for (text, expected) in [
            ("dns:", "no host name"),
            ("dns:a b:1", "no host name"),
            ("dns:db:0", "no port"),
            ("dns:db:http", "no port"),
            ("srv:", "no host name"),
            ("file:", "a path is missing"),
            ("multicast:10.0.0.1:1", "239.255"),
            ("multicast:[ff15::1]:1", "needs the name or number"),
            ("multicast@", "interface is missing"),
            ("consul:x", "expected dns:NAME"),
        ] {
            let error = text.parse::<Source>().expect_err(text).to_string();
            assert!(error.contains(expected), "{text}: {error}");
        }
        let nowhere: Source = "multicast@no-such-if".parse().unwrap();
        assert!(nowhere.multicast("c").unwrap().is_err());
    }

    #[test]
    fn a_locator_is_an_address_or_a_name_with_a_port_of_its_own() {
        for (text, shown) in [
            ("10.0.0.9", "10.0.0.9:7410"),
            ("[fd00::9]:1", "[fd00::9]:1"),
            ("loc.example", "dns:loc.example:7410"),
            ("loc.example:9", "dns:loc.example:9"),
            ("dns:loc.example", "dns:loc.example:7410"),
            ("srv:_locator._tcp.example", "srv:_locator._tcp.example"),
        ] {
            assert_eq!(Source::locator(text).unwrap().to_string(), shown);
        }
        let listed = Source::locator("file:/etc/locators").unwrap().0;
        assert!(
            matches!(
                listed,
                Kind::File {
                    port: LOCATOR_PORT,
                    ..
                }
            ),
            "{listed:?}"
        );
        assert!(Source::locator("multicast").is_err());
        let of_a_link = Source::locator("[fe80::1%2]:7410").unwrap_err().to_string();
        assert!(of_a_link.contains("unique local"), "{of_a_link}");
        for of_nobody in ["0.0.0.0:7410", "[::]", "239.255.0.1", "[::ffff:0.0.0.0]:1"] {
            let error = Source::locator(of_nobody).unwrap_err().to_string();
            assert!(error.contains("no host is reached there"), "{error}");
        }
        assert!(Source::locator("a b").is_err());
    }

    #[test]
    fn a_locator_counts_once_however_it_is_written() {
        let given = [
            "10.0.0.9",
            "10.0.0.9:7410",
            "[::ffff:10.0.0.9]:7410",
            "loc.example",
            "dns:loc.example:7410",
            "10.0.0.9:1",
        ];
        let kept = Source::locators(given.map(str::to_owned).to_vec()).unwrap();
        let kept: Vec<(&str, String)> = kept
            .iter()
            .map(|(text, source)| (text.as_str(), source.to_string()))
            .collect();
        assert_eq!(
            kept,
            [
                ("10.0.0.9", "10.0.0.9:7410".to_owned()),
                ("loc.example", "dns:loc.example:7410".to_owned()),
                ("10.0.0.9:1", "10.0.0.9:1".to_owned()),
            ]
        );
        assert!(Source::locators(vec!["10.0.0.9".to_owned(), "a b".to_owned()]).is_err());
    }

    #[test]
    fn multicast_has_a_group_of_the_cluster_apart_from_that_for_messages() {
        let source: Source = "multicast@127.0.0.1".parse().unwrap();
        let multicast = source.multicast("shop").unwrap().unwrap();
        assert_eq!(multicast.group.ip(), Multicast::of_cluster("shop").group.ip());
        assert_eq!(multicast.group.port(), DISCOVERY_PORT);
        assert_eq!(
            multicast.interface,
            Some(Interface::Address([127, 0, 0, 1].into()))
        );
    }
}
