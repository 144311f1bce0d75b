//! Names: resolved again for ever.
//!
//! An answer replaces what was found before; no answer, or an empty one, does not: a DNS server that is restarted, or a service none
//! of whose hosts is ready, must not make nodes forget each other. So an address that is no longer there may be asked in vain for a
//! while, which costs a connection attempt.

use std::net::SocketAddr;

use super::board::Place;
use super::resolver::Resolver;
use super::source::Kind;
use super::tasks::Pace;

/// Resolves one name again and again.
pub(super) async fn run(kind: Kind, resolver: Resolver, place: Place, mut pace: Pace) {
    loop {
        let (found, problem) = resolve(std::slice::from_ref(&kind), &resolver).await;
        let failed = found.is_empty();
        match (failed, problem) {
            (false, None) => place.found(found),
            (false, Some(problem)) => place.partly(found, problem),
            (true, problem) => place.failed(problem.unwrap_or_else(|| "nothing was found".to_owned())),
        }
        pace.rest(failed).await;
    }
}

/// The addresses of these, and what is wrong with the first of them that has none.
pub(super) async fn resolve(kinds: &[Kind], resolver: &Resolver) -> (Vec<SocketAddr>, Option<String>) {
    let mut found = Vec::new();
    let mut problem = None;
    let mut note = |result: Result<Vec<SocketAddr>, String>| match result {
        Ok(addrs) => found.extend(addrs),
        Err(reason) => {
            problem.get_or_insert(reason);
        }
    };
    for kind in kinds {
        match kind {
            Kind::Fixed(addr) => note(Ok(vec![*addr])),
            Kind::Dns { name, port } => note(addresses(resolver, name, *port).await),
            Kind::Srv { name } => match resolver.services(name).await {
                Err(reason) => note(Err(reason)),
                Ok(services) => {
                    for (host, port) in services {
                        note(addresses(resolver, &host, port).await);
                    }
                }
            },
            Kind::File { .. } | Kind::Multicast { .. } | Kind::Own { .. } => {}
        }
    }
    (found, problem)
}

async fn addresses(resolver: &Resolver, name: &str, port: u16) -> Result<Vec<SocketAddr>, String> {
    let found = resolver.addresses(name).await?;
    Ok(found.into_iter().map(|ip| SocketAddr::new(ip, port)).collect())
}
