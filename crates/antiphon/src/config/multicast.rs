//! Where a node sends and listens by IP multicast.

use std::net::{IpAddr, SocketAddr};

use super::{Error, Given, address};
use crate::discovery::interface_of;
use crate::{Dissemination, Interface, MULTICAST_PORT, Multicast};

/// Where and how far multicast goes, if it is used.
pub(super) fn of(
    given: &Given,
    dissemination: Dissemination,
    cluster: &str,
) -> Result<Option<Multicast>, Error> {
    let (group, interface) = (
        given.multicast_group.as_deref(),
        given.multicast_interface.as_deref(),
    );
    let hops = given.multicast_hops;
    if dissemination != Dissemination::Multicast {
        let given = [
            (group.is_some(), "multicast-group"),
            (interface.is_some(), "multicast-interface"),
            (hops.is_some(), "multicast-hops"),
        ];
        return match given.into_iter().find(|(given, _)| *given) {
            Some((_, key)) => Err(Error::value(
                key,
                format!(
                    "{key} is given, but dissemination is {dissemination}: add --dissemination multicast"
                ),
            )),
            None => Ok(None),
        };
    }
    let mut multicast = Multicast::of_cluster(cluster);
    if let Some(group) = group {
        multicast.group = address("multicast-group", group, MULTICAST_PORT)?;
    }
    multicast.hops = hops.unwrap_or(multicast.hops);
    if multicast.hops == 0 {
        return Err(Error::value(
            "multicast-hops",
            "multicast-hops is 0, so nothing would leave this host: give 1 to 255",
        ));
    }
    multicast.interface = interface.map(read).transpose()?;
    let (group, given) = (multicast.group, interface.unwrap_or_default());
    let wrong = |key, reason| Err(Error::value(key, reason));
    match (&multicast.interface, group.is_ipv4()) {
        (Some(Interface::Address(ip)), true) if ip.is_ipv4() => Ok(Some(multicast)),
        (None, true) | (Some(Interface::Index(1..)), false) => Ok(Some(multicast)),
        (_, true) => wrong(
            "multicast-interface",
            format!(
                "multicast-interface is {given:?}, but for the IPv4 group {group} it must be one of the interface's IPv4 addresses"
            ),
        ),
        (None, false) => wrong(
            "multicast-group",
            format!(
                "multicast-group is {group}: with an IPv6 group give --multicast-interface, the interface's name or number"
            ),
        ),
        (Some(_), false) => wrong(
            "multicast-interface",
            format!(
                "multicast-interface is {given:?}, but for the IPv6 group {group} it must be the interface's name or number"
            ),
        ),
    }
}

/// Where it goes beyond this host, if it does: what a node bound to these addresses needs a key for.
pub(super) fn exposure(
    multicast: &Multicast,
    interface: Option<&str>,
    bind: &[SocketAddr],
) -> Option<String> {
    let own = bind.iter().map(SocketAddr::ip).find(IpAddr::is_ipv4);
    let sends_at = match multicast.interface {
        None => own,
        Some(Interface::Address(ip)) => Some(ip),
        Some(Interface::Index(_)) => None,
    };
    let group = multicast.group;
    let stays = group.is_ipv4() && sends_at.is_some_and(|ip| ip.is_loopback());
    (!stays).then(|| match interface {
        Some(interface) => format!("multicast group {group} on interface {interface}"),
        None => format!("multicast group {group}"),
    })
}

fn read(text: &str) -> Result<Interface, Error> {
    interface_of(text).ok_or_else(|| {
        let reason = format!(
            "multicast-interface {text:?} is neither an address nor the number or name of a network interface of this host"
        );
        Error::value("multicast-interface", reason)
    })
}
