//! The addresses of a node and of its seeds: checked, and resolved where they are names.

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::time::Duration;

use antiphon_core::wire::MAX_ADDRESSES;
use antiphon_core::{ConfigError, is_link_local, link_local};
use tokio::time::Instant;

use crate::Error;

/// How long host names among the seeds are tried.
const RESOLVE_WITHIN: Duration = Duration::from_secs(30);
/// Between two tries of a host name.
const RESOLVE_EVERY: Duration = Duration::from_millis(500);
/// Of a seed with port 0.
const NO_PORT: &str = "nobody is reached at port 0: give the port that this seed listens at";

pub(super) fn conflict(reason: String) -> Error {
    Error::Config(ConfigError::Conflict { reason })
}

fn parse(given: &str) -> Result<SocketAddr, Error> {
    given.parse().map_err(|_| Error::Address {
        given: given.to_owned(),
        source: io::Error::new(
            io::ErrorKind::InvalidInput,
            "an IP address and a port, like 10.0.0.2:7400 or [fd00::2]:7400, is needed",
        ),
    })
}

/// Addresses as they were given.
pub(crate) fn parse_all(given: &[String]) -> Result<Vec<SocketAddr>, Error> {
    given.iter().map(|addr| parse(addr)).collect()
}

/// Refuses addresses that cannot work together.
pub(crate) fn check_addresses_of(bind: &[SocketAddr], advertise: &[SocketAddr]) -> Result<(), Error> {
    check_addresses(bind, advertise).map_err(conflict)
}

/// Whether a node may listen at and be reached at these addresses; the text says what is wrong and what to
/// do.
fn check_addresses(bind: &[SocketAddr], advertise: &[SocketAddr]) -> Result<(), String> {
    let most = MAX_ADDRESSES;
    for (field, addrs) in [("bind", bind), ("advertise", advertise)] {
        if addrs.len() > most {
            return Err(format!(
                "`{field}` has {} addresses; a node has at most {most}",
                addrs.len()
            ));
        }
        for (index, addr) in addrs.iter().enumerate() {
            if is_link_local(addr.ip()) {
                return Err(format!("`{field}`: {}", link_local(*addr)));
            }
            let again = field == "advertise" || addr.port() != 0;
            if again && addrs[..index].contains(addr) {
                return Err(format!("`{field}` has {addr} twice: give each address once"));
            }
        }
    }
    let unspecified = bind.iter().find(|addr| addr.ip().is_unspecified());
    if let Some(addr) = unspecified
        && bind.len() > 1
    {
        return Err(format!(
            "`bind` has {addr}, which listens on every address, beside others: give it alone, and each address that the \
             others shall use with `advertise`"
        ));
    }
    if unspecified.is_none() && !advertise.is_empty() && advertise.len() != bind.len() {
        return Err(format!(
            "`advertise` has {} addresses and `bind` has {}: give one for each, in the same order",
            advertise.len(),
            bind.len()
        ));
    }
    Ok(())
}

/// Where the others reach a node that listens at `bound`.
pub(super) fn advertised(
    bound: &[SocketAddr],
    advertise: &[SocketAddr],
    seeds: &[SocketAddr],
) -> Result<Vec<SocketAddr>, Error> {
    if advertise.is_empty() {
        return bound
            .iter()
            .map(|bound| match bound.ip().is_unspecified() {
                true => Ok(SocketAddr::new(own_ip(seeds)?.ip(), bound.port())),
                false => Ok(*bound),
            })
            .collect();
    }
    // A node that listens everywhere is reached at all advertised addresses.
    let bound = bound.iter().chain(std::iter::repeat(&bound[0]));
    let with_port = |(addr, bound): (&SocketAddr, &SocketAddr)| match addr.port() {
        0 => SocketAddr::new(addr.ip(), bound.port()),
        _ => *addr,
    };
    Ok(advertise.iter().zip(bound).map(with_port).collect())
}

/// All seeds have to be known: nodes that found a cluster together compare their lists. Each has at least one
/// address.
pub(super) async fn resolve_all(seeds: &[String]) -> Result<Vec<Vec<SocketAddr>>, Error> {
    let mut resolved = Vec::with_capacity(seeds.len());
    let deadline = Instant::now() + RESOLVE_WITHIN;
    for seed in seeds {
        let mut addrs = Vec::new();
        for part in seed.split('/') {
            addrs.push(match part.parse() {
                Ok(addr) => usable(part, addr)?,
                Err(_) => resolve(part, deadline).await?,
            });
        }
        resolved.push(addrs);
    }
    Ok(resolved)
}

/// What seeds are known by.
pub(super) fn firsts(seeds: &[Vec<SocketAddr>]) -> Vec<SocketAddr> {
    seeds.iter().filter_map(|seed| seed.first().copied()).collect()
}

fn usable(seed: &str, addr: SocketAddr) -> Result<SocketAddr, Error> {
    let reason = match addr.port() {
        _ if is_link_local(addr.ip()) => link_local(addr),
        0 => NO_PORT.to_owned(),
        _ => return Ok(addr),
    };
    Err(Error::Address {
        given: seed.to_owned(),
        source: io::Error::new(io::ErrorKind::InvalidInput, reason),
    })
}

async fn resolve(seed: &str, deadline: Instant) -> Result<SocketAddr, Error> {
    let failed = |source| Error::Address {
        given: seed.to_owned(),
        source,
    };
    let port = seed
        .rsplit_once(':')
        .filter(|(host, _)| !host.is_empty())
        .and_then(|(_, port)| port.parse::<u16>().ok());
    let wrong = match port {
        None => Some("a seed is a host and a port, like db1.example:7400"),
        Some(0) => Some(NO_PORT),
        Some(_) => None,
    };
    if let Some(wrong) = wrong {
        return Err(failed(io::Error::new(io::ErrorKind::InvalidInput, wrong)));
    }
    loop {
        let source = match tokio::net::lookup_host(seed).await {
            Ok(found) => match first_usable(found) {
                Some(addr) => return usable(seed, addr),
                None => io::Error::new(io::ErrorKind::NotFound, "the name has no address"),
            },
            Err(source) => source,
        };
        if Instant::now() + RESOLVE_EVERY > deadline {
            return Err(failed(source));
        }
        tracing::info!(target: "antiphon::net", seed, error = %source, "cannot resolve a seed yet; trying again");
        tokio::time::sleep(RESOLVE_EVERY).await;
    }
}

/// A name may stand for an address of a link beside others.
fn first_usable(found: impl Iterator<Item = SocketAddr>) -> Option<SocketAddr> {
    let mut first = None;
    for addr in found {
        if !is_link_local(addr.ip()) {
            return Some(addr);
        }
        first.get_or_insert(addr);
    }
    first
}

/// The address of the interface towards the first seed. Nothing is sent.
fn own_ip(seeds: &[SocketAddr]) -> Result<SocketAddr, Error> {
    let guess = |seed: &SocketAddr| {
        let any: SocketAddr = if seed.is_ipv4() {
            ([0, 0, 0, 0], 0).into()
        } else {
            ([0u16; 8], 0).into()
        };
        let socket = UdpSocket::bind(any)?;
        socket.connect(seed)?;
        socket.local_addr()
    };
    seeds.first().and_then(|seed| guess(seed).ok()).ok_or_else(|| {
        conflict("`bind` names no address that others could dial, and `seeds` do not tell which it is: give `advertise`".into())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn addrs(given: &[&str]) -> Vec<SocketAddr> {
        given.iter().map(|addr| addr.parse().unwrap()).collect()
    }

    #[test]
    fn addresses_that_cannot_work_together_are_refused_with_what_to_do() {
        let nine: Vec<String> = (1..10).map(|host| format!("10.0.0.{host}:1")).collect();
        let nine: Vec<&str> = nine.iter().map(String::as_str).collect();
        for (bind, advertise, expected) in [
            (&["10.0.0.1:1", "10.0.0.1:1"][..], &[][..], "twice"),
            (&["10.0.0.1:1", "10.1.0.1:1"], &["192.0.2.1:1"], "one for each"),
            (&["10.0.0.1:1"], &["192.0.2.1:1", "192.0.2.2:1"], "one for each"),
            (&["0.0.0.0:1", "[::]:1"], &[], "alone"),
            (&["10.0.0.1:1", "[::]:2"], &[], "alone"),
            (&["[::]:1"], &["192.0.2.1:1", "192.0.2.1:1"], "twice"),
            (&nine, &[], "at most 8"),
            (&["[fe80::1%2]:1"], &[], "unique local"),
            (&["[::]:1"], &["[fe80::a]:1"], "link-local"),
        ] {
            let error = check_addresses(&addrs(bind), &addrs(advertise)).expect_err(expected);
            assert!(error.contains(expected), "{bind:?} {advertise:?}: {error}");
        }
        let free = addrs(&["127.0.0.1:0", "127.0.0.1:0"]);
        assert_eq!(check_addresses(&free, &[]), Ok(()), "each gets a port of its own");
    }

    #[tokio::test]
    async fn seeds_on_a_link_are_refused_and_passed_over_where_a_name_has_others() {
        let refused = resolve_all(&["[fe80::1]:7400".to_owned()]).await;
        let error = refused.expect_err("it has no interface").to_string();
        assert!(error.contains("unique local"), "{error}");
        let found = addrs(&["[fe80::1]:1", "[fd00::1]:1", "10.0.0.1:1"]);
        assert_eq!(first_usable(found.clone().into_iter()), Some(found[1]));
        assert_eq!(first_usable(found[..1].iter().copied()), Some(found[0]));
    }

    #[tokio::test]
    async fn a_seed_at_port_0_is_refused_before_any_name_is_asked_for() {
        for seed in ["127.0.0.1:0", "nowhere.invalid:0", "10.0.0.1:7400/[fd00::1]:0"] {
            let refused = resolve_all(&[seed.to_owned()]).await;
            let error = refused.expect_err(seed).to_string();
            assert!(error.contains("port 0"), "{seed}: {error}");
        }
    }

    #[test]
    fn what_is_advertised_stands_for_what_is_bound_in_the_same_order() {
        let bound = addrs(&["10.0.0.1:7", "[fd00::1]:8"]);
        assert_eq!(advertised(&bound, &[], &[]).unwrap(), bound);
        let outside = addrs(&["192.0.2.1:0", "[2001:db8::1]:9"]);
        let expected = addrs(&["192.0.2.1:7", "[2001:db8::1]:9"]);
        assert_eq!(advertised(&bound, &outside, &[]).unwrap(), expected);
        let everywhere = addrs(&["[::]:5"]);
        let expected = addrs(&["192.0.2.1:5", "[2001:db8::1]:9"]);
        assert_eq!(advertised(&everywhere, &outside, &[]).unwrap(), expected);
    }
}
