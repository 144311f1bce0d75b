//! Names into addresses.
//!
//! With the feature `dns` a resolver of our own asks: the system's servers, with its search list and its
//! hosts file, or those of [`Builder::dns_servers`](crate::Builder::dns_servers). It keeps no answer: a name
//! is asked again to learn of changes. The system's settings are read again when they change, as they do when
//! a network comes up after the node, and after a moment if they could not be read. Without the feature the
//! system resolves names, and SRV records cannot be had.

use std::net::{IpAddr, SocketAddr};
#[cfg(feature = "dns")]
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
#[cfg(feature = "dns")]
use std::time::{Instant, SystemTime};

use antiphon_core::MAX_HINTS;

use super::source::is_of_a_host;

/// A question takes at most this long, whatever servers do.
const WITHIN: Duration = Duration::from_secs(5);
/// Hosts of one SRV record that are used.
const MAX_SERVICES: usize = 64;

/// The system's own names of hosts, which are looked at before a server is asked.
#[cfg(feature = "dns")]
const HOSTS: &str = "/etc/hosts";
/// The system's settings.
#[cfg(feature = "dns")]
const SETTINGS: &str = "/etc/resolv.conf";
/// Settings that cannot be read are looked at again after this long.
#[cfg(feature = "dns")]
const AGAIN: Duration = Duration::from_secs(2);

/// Asks for names.
#[derive(Clone)]
pub(crate) struct Resolver {
    #[cfg(feature = "dns")]
    servers: Arc<[SocketAddr]>,
    #[cfg(feature = "dns")]
    made: Arc<Mutex<Made>>,
}

/// Made of files of the system as they were.
#[cfg(feature = "dns")]
struct Made {
    of: Vec<Written>,
    at: Instant,
    /// The resolver, or why there is none. That is said only when a name is asked for: a node may do without
    /// names.
    inner: Result<hickory_resolver::TokioResolver, String>,
}

/// When a file was written, and how long it is; nothing if it is not there.
#[cfg(feature = "dns")]
type Written = Option<(SystemTime, u64)>;

#[cfg(feature = "dns")]
fn written(path: &str) -> Written {
    let file = std::fs::metadata(path).ok()?;
    Some((file.modified().ok()?, file.len()))
}

impl std::fmt::Debug for Resolver {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Resolver")
    }
}

#[cfg(feature = "dns")]
impl Resolver {
    /// One that asks these servers; the system's if there are none. The text says what is wrong.
    pub(crate) fn new(servers: &[SocketAddr]) -> Result<Self, String> {
        let made = Made::now(servers);
        // Those of the system may be mended.
        if let (Err(problem), false) = (&made.inner, servers.is_empty()) {
            return Err(problem.clone());
        }
        Ok(Self {
            servers: servers.into(),
            made: Arc::new(Mutex::new(made)),
        })
    }

    /// The resolver to ask now.
    fn current(&self) -> Result<hickory_resolver::TokioResolver, String> {
        let mut made = self.made.lock().unwrap_or_else(PoisonError::into_inner);
        let is_old = made.of != Made::files(&self.servers);
        if is_old || made.inner.is_err() && made.at.elapsed() >= AGAIN {
            *made = Made::now(&self.servers);
        }
        made.inner.clone()
    }
}

#[cfg(feature = "dns")]
impl Made {
    fn now(servers: &[SocketAddr]) -> Self {
        Self {
            of: Self::files(servers),
            at: Instant::now(),
            inner: Self::inner(servers),
        }
    }

    /// What it is made of, as that is now: the names of hosts, and the settings where servers are not given.
    fn files(servers: &[SocketAddr]) -> Vec<Written> {
        let settings = servers.is_empty().then_some(SETTINGS);
        settings.into_iter().chain([HOSTS]).map(written).collect()
    }

    fn inner(servers: &[SocketAddr]) -> Result<hickory_resolver::TokioResolver, String> {
        use hickory_resolver::TokioResolver;
        use hickory_resolver::config::{
            ConnectionConfig, LookupIpStrategy, NameServerConfig, ResolverConfig,
        };
        use hickory_resolver::net::runtime::TokioRuntimeProvider;

        let mut builder = if servers.is_empty() {
            TokioResolver::builder_tokio().map_err(|error| {
                format!("the system's DNS settings (/etc/resolv.conf) cannot be read: {error}")
            })?
        } else {
            let servers = servers.iter().map(|server| {
                let mut connections = vec![ConnectionConfig::udp(), ConnectionConfig::tcp()];
                for connection in &mut connections {
                    connection.port = server.port();
                }
                let mut config = NameServerConfig::udp(server.ip());
                config.connections = connections;
                config
            });
            let config = ResolverConfig::from_parts(None, Vec::new(), servers.collect());
            TokioResolver::builder_with_config(config, TokioRuntimeProvider::default())
        };
        let options = builder.options_mut();
        options.ip_strategy = LookupIpStrategy::Ipv4AndIpv6;
        options.cache_size = 0;
        options.positive_max_ttl = Some(Duration::ZERO);
        options.negative_max_ttl = Some(Duration::ZERO);
        // Silence at one of its questions, for IPv4 and IPv6, must end before `WITHIN`: the answer to the
        // other comes with it.
        options.timeout = Duration::from_secs(2);
        options.attempts = 1;
        builder
            .build()
            .map_err(|error| format!("cannot make a resolver: {error}"))
    }
}

#[cfg(feature = "dns")]
impl Resolver {
    /// All addresses of a name, at least one.
    pub(crate) async fn addresses(&self, name: &str) -> Result<Vec<IpAddr>, String> {
        if let Ok(ip) = name.parse() {
            return Ok(vec![ip]);
        }
        let inner = self.current()?;
        let asked = tokio::time::timeout(WITHIN, inner.lookup_ip(name)).await;
        let found = match asked {
            Err(_) => return Err(no_answer(name)),
            Ok(Err(error)) => return Err(trouble(name, "address", &error)),
            Ok(Ok(found)) => bounded(found.iter().collect()),
        };
        if found.is_empty() {
            return Err(format!("{name} has no address of a host"));
        }
        Ok(found)
    }

    /// The hosts and ports of a service, at least one.
    pub(crate) async fn services(&self, name: &str) -> Result<Vec<(String, u16)>, String> {
        use hickory_resolver::proto::rr::RData;

        let inner = self.current()?;
        let asked = tokio::time::timeout(WITHIN, inner.srv_lookup(name)).await;
        let found = match asked {
            Err(_) => return Err(no_answer(name)),
            Ok(Err(error)) => return Err(trouble(name, "SRV record", &error)),
            Ok(Ok(found)) => found,
        };
        let services: Vec<(String, u16)> = found
            .answers()
            .iter()
            .filter_map(|record| match &record.data {
                // A target of "." says that there is no such service.
                RData::SRV(service) if !service.target.is_root() && service.port != 0 => {
                    Some((service.target.to_utf8(), service.port))
                }
                _ => None,
            })
            .take(MAX_SERVICES)
            .collect();
        if services.is_empty() {
            return Err(format!("{name} has no SRV record that names a host"));
        }
        Ok(services)
    }
}

/// Of one answer no more is used than of all sources together, and always the same, in whatever order servers
/// give it. A filter, or a service without a host, answers `0.0.0.0`: that is no answer.
fn bounded(mut found: Vec<IpAddr>) -> Vec<IpAddr> {
    found.retain(|ip| is_of_a_host(*ip));
    found.sort_unstable();
    found.dedup();
    found.truncate(MAX_HINTS);
    found
}

#[cfg(feature = "dns")]
fn no_answer(name: &str) -> String {
    format!("no DNS server answers for {name} within {} s", WITHIN.as_secs())
}

#[cfg(feature = "dns")]
fn trouble(name: &str, what: &str, error: &hickory_resolver::net::NetError) -> String {
    if error.is_nx_domain() {
        format!("there is no name {name} (NXDOMAIN)")
    } else if error.is_no_records_found() {
        format!("{name} has no {what}")
    } else {
        format!("cannot resolve {name}: {error}")
    }
}

#[cfg(not(feature = "dns"))]
impl Resolver {
    pub(crate) fn new(servers: &[SocketAddr]) -> Result<Self, String> {
        match servers {
            [] => Ok(Self {}),
            _ => Err("DNS servers of one's own need the feature `dns` of the crate".to_owned()),
        }
    }

    pub(crate) async fn addresses(&self, name: &str) -> Result<Vec<IpAddr>, String> {
        let asked = tokio::time::timeout(WITHIN, tokio::net::lookup_host((name, 0))).await;
        let found: Vec<IpAddr> = match asked {
            Err(_) => return Err(format!("no answer for {name} within {} s", WITHIN.as_secs())),
            Ok(Err(error)) => return Err(format!("cannot resolve {name}: {error}")),
            Ok(Ok(found)) => bounded(found.map(|addr| addr.ip()).collect()),
        };
        match found.as_slice() {
            [] => Err(format!("{name} has no address of a host")),
            _ => Ok(found),
        }
    }

    pub(crate) async fn services(&self, name: &str) -> Result<Vec<(String, u16)>, String> {
        let _ = MAX_SERVICES;
        Err(format!(
            "SRV records such as {name} need the feature `dns` of the crate"
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_bounded_and_the_same_in_any_order() {
        let many = (0..1000u32).map(|number| IpAddr::from((0x0a00_0000 + number).to_be_bytes()));
        let some = bounded(many.clone().collect());
        assert_eq!(some.len(), MAX_HINTS);
        assert_eq!(bounded(many.rev().collect()), some);
    }

    #[test]
    fn an_answer_that_names_no_host_is_none() {
        let addrs =
            |texts: &[&str]| -> Vec<IpAddr> { texts.iter().map(|text| text.parse().unwrap()).collect() };
        assert!(bounded(addrs(&["0.0.0.0", "::", "239.255.0.1", "ff02::1"])).is_empty());
        assert_eq!(bounded(addrs(&["0.0.0.0", "10.0.0.1"])), addrs(&["10.0.0.1"]));
    }

    #[cfg(feature = "dns")]
    #[test]
    fn it_is_made_anew_when_a_file_that_it_was_made_of_is_another() {
        for servers in [&[][..], &["127.0.0.1:53".parse().unwrap()]] {
            let resolver = Resolver::new(servers).unwrap();
            let made = || resolver.made.lock().unwrap().at;
            let first = made();
            let _ = resolver.current();
            assert_eq!(made(), first, "nothing has changed");
            // As if the last file, with the names of hosts, had been written before.
            *resolver.made.lock().unwrap().of.last_mut().unwrap() = Some((SystemTime::UNIX_EPOCH, 1));
            let _ = resolver.current();
            assert!(made() > first);
            let again = made();
            let _ = resolver.current();
            assert_eq!(made(), again);
        }
    }
}
