//! Where a node sends and listens by IP multicast.

use std::net::{IpAddr, SocketAddr};
use std::path::Path;

use antiphon::{Interface, MULTICAST_PORT, Multicast};

use super::address_with;
use crate::args::DisseminationName;
use crate::exit::Failed;

/// Where and how far multicast goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct MulticastSettings {
    pub(super) group: SocketAddr,
    /// As it was given.
    pub(super) interface: Option<String>,
    pub(super) hops: u8,
}

impl MulticastSettings {
    pub(super) fn merge(
        dissemination: DisseminationName,
        cluster: &str,
        group: Option<String>,
        interface: Option<String>,
        hops: Option<u8>,
    ) -> Result<Option<Self>, Failed> {
        if dissemination != DisseminationName::Multicast {
            let given = [
                (group.is_some(), "multicast-group"),
                (interface.is_some(), "multicast-interface"),
                (hops.is_some(), "multicast-hops"),
            ];
            return match given.into_iter().find(|(given, _)| *given) {
                Some((_, name)) => Err(Failed::usage(format!(
                    "{name} is given, but dissemination is {}: add --dissemination multicast",
                    dissemination.as_str()
                ))),
                None => Ok(None),
            };
        }
        let own = Multicast::of_cluster(cluster);
        let settings = Self {
            group: match group {
                Some(group) => address_with("multicast-group", &group, MULTICAST_PORT)?,
                None => own.group,
            },
            interface,
            hops: hops.unwrap_or(own.hops),
        };
        if settings.hops == 0 {
            return Err(Failed::usage(
                "multicast-hops is 0, so nothing would leave this host: give 1 to 255",
            ));
        }
        settings.to_library()?;
        Ok(Some(settings))
    }

    /// Where it goes beyond this host, if it does: what a node bound to these addresses needs a key for.
    pub(super) fn exposure(&self, bind: &[SocketAddr]) -> Option<String> {
        let own = bind.iter().map(SocketAddr::ip).find(IpAddr::is_ipv4);
        let given = self.interface.as_deref().map(str::parse::<IpAddr>);
        let interface = given.map_or(own, Result::ok);
        let stays = self.group.is_ipv4() && interface.is_some_and(|ip| ip.is_loopback());
        (!stays).then(|| match &self.interface {
            Some(interface) => format!("multicast group {} on interface {interface}", self.group),
            None => format!("multicast group {}", self.group),
        })
    }

    /// As the library wants it.
    pub(crate) fn to_library(&self) -> Result<Multicast, Failed> {
        let mut multicast = Multicast::at(self.group);
        multicast.hops = self.hops;
        multicast.interface = self.interface.as_deref().map(interface).transpose()?;
        let (group, given) = (self.group, self.interface.as_deref());
        match (&multicast.interface, group.is_ipv4()) {
            (Some(Interface::Address(ip)), true) if ip.is_ipv4() => Ok(multicast),
            (None, true) | (Some(Interface::Index(1..)), false) => Ok(multicast),
            (_, true) => Err(Failed::usage(format!(
                "multicast-interface is {:?}, but for the IPv4 group {group} it must be one of the interface's IPv4 addresses",
                given.unwrap_or_default()
            ))),
            (None, false) => Err(Failed::usage(format!(
                "multicast-group is {group}: with an IPv6 group give --multicast-interface, the interface's name or number"
            ))),
            (Some(_), false) => Err(Failed::usage(format!(
                "multicast-interface is {:?}, but for the IPv6 group {group} it must be the interface's name or number",
                given.unwrap_or_default()
            ))),
        }
    }
}

/// An address, a number, or the name of an interface of this host.
fn interface(text: &str) -> Result<Interface, Failed> {
    if let Ok(ip) = text.parse::<IpAddr>() {
        return Ok(Interface::Address(ip));
    }
    if let Ok(index) = text.parse::<u32>() {
        return Ok(Interface::Index(index));
    }
    let path = Path::new("/sys/class/net").join(text).join("ifindex");
    let index = std::fs::read_to_string(path).ok();
    let index = index.and_then(|index| index.trim().parse().ok());
    index.map(Interface::Index).ok_or_else(|| {
        Failed::usage(format!(
            "multicast-interface {text:?} is neither an address nor the number or name of a network interface of this host"
        ))
    })
}
