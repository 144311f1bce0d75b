//! Names into addresses.
//!
//! With the feature `dns` a resolver of our own asks: the system's servers, with its search list and its hosts file, or those of
//! [`Builder::dns_servers`](crate::Builder::dns_servers). It keeps no answer: what is asked again is asked for being news. The system's settings are
//! read again when they change, as they do when a network comes up after the node, and after a moment if they could not be read. Without the
//! feature the system resolves names, and SRV records cannot be had.

use std::net::{IpAddr, SocketAddr};
#[cfg(feature = "dns")]
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
#[cfg(feature = "dns")]
use std::time::{Instant, SystemTime};

/// A question takes at most this long, whatever servers do.
const WITHIN: Duration = Duration::from_secs(5);
/// Hosts of one SRV record that are used.
const MAX_SERVICES: usize = 64;

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
    asks: Asks,
}

#[cfg(feature = "dns")]
#[derive(Clone)]
enum Asks {
    These(Box<hickory_resolver::TokioResolver>),
    System(Arc<Mutex<System>>),
}

/// Made of the system's settings as they were.
#[cfg(feature = "dns")]
struct System {
    of: Option<(SystemTime, u64)>,
    at: Instant,
    /// Or why there is none, which is said when it is asked for: a node may do without names.
    inner: Result<hickory_resolver::TokioResolver, String>,
}

/// When the settings were written, and how long they are; nothing if they are not there.
#[cfg(feature = "dns")]
fn settings() -> Option<(SystemTime, u64)> {
    let settings = std::fs::metadata(SETTINGS).ok()?;
    Some((settings.modified().ok()?, settings.len()))
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
        let asks = match servers {
            [] => Asks::System(Arc::new(Mutex::new(System {
                of: settings(),
                at: Instant::now(),
                inner: Self::inner(&[]),
            }))),
            _ => Asks::These(Box::new(Self::inner(servers)?)),
        };
        Ok(Self { asks })
    }

    /// Whom to ask now.
    fn current(&self) -> Result<hickory_resolver::TokioResolver, String> {
        let system = match &self.asks {
            Asks::These(inner) => return Ok((**inner).clone()),
            Asks::System(system) => system,
        };
        let mut system = system.lock().unwrap_or_else(PoisonError::into_inner);
        let of = settings();
        if of != system.of || system.inner.is_err() && system.at.elapsed() >= AGAIN {
            *system = System {
                of,
                at: Instant::now(),
                inner: Self::inner(&[]),
            };
        }
        system.inner.clone()
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
        options.timeout = Duration::from_secs(2);
        options.attempts = 2;
        builder
            .build()
            .map_err(|error| format!("cannot make a resolver: {error}"))
    }

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
            Ok(Ok(found)) => found.iter().collect::<Vec<_>>(),
        };
        if found.is_empty() {
            return Err(format!("{name} has no address"));
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
                RData::SRV(service) if !service.target.is_root() => {
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
            Ok(Ok(found)) => found.map(|addr| addr.ip()).collect(),
        };
        match found.as_slice() {
            [] => Err(format!("{name} has no address")),
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
