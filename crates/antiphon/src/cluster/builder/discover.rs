//! Makes the sources and tasks that find others, from what the settings give.

use std::net::SocketAddr;

use antiphon_core::wire::Incarnation;
use antiphon_net::udp::MulticastConfig;

use super::Builder;
use super::addresses::conflict;
use crate::Error;
use crate::discovery::{self, Kind, MAX_SOURCES, Resolver, Source, Sources};

/// What is found at run time, before anything is opened.
#[derive(Debug, Default)]
pub(super) struct Found {
    nodes: Vec<Source>,
    locators: Vec<Source>,
}

impl Found {
    pub(super) fn is_empty(&self) -> bool {
        self.nodes.is_empty() && self.locators.is_empty()
    }

    pub(super) fn nodes(&self) -> &[Source] {
        &self.nodes
    }
}

impl Builder {
    /// The seeds that are written out, and everything else.
    pub(super) fn split_seeds(&self) -> Result<(Vec<String>, Found), Error> {
        let (sources, written): (Vec<String>, Vec<String>) = self
            .seeds
            .iter()
            .cloned()
            .partition(|seed| Source::is_meant_by(seed));
        let mut found = Found {
            nodes: self.sources.clone(),
            locators: Vec::new(),
        };
        for text in &sources {
            let source = text
                .parse()
                .map_err(|error| conflict(format!("`seeds` {error}")))?;
            found.nodes.push(source);
        }
        let locators = Source::locators(self.locators.clone())
            .map_err(|error| conflict(format!("`locators` {error}")))?;
        found.locators = locators.into_iter().map(|(_, source)| source).collect();
        for locator in &found.locators {
            if let Kind::Fixed(addr) = locator.0 {
                self.check_loopback("locators", addr)?;
            }
        }
        for (field, sources) in [("seeds", &found.nodes), ("locators", &found.locators)] {
            if sources.len() > MAX_SOURCES {
                return Err(conflict(format!(
                    "`{field}` has {} sources; the most are {MAX_SOURCES}: a name or a file can stand for many nodes",
                    sources.len()
                )));
            }
        }
        let multicast = found
            .nodes
            .iter()
            .filter(|source| matches!(source.0, Kind::Multicast { .. }));
        if multicast.count() > 1 {
            return Err(conflict(
                "`seeds` has `multicast` twice: a node announces itself at one group".into(),
            ));
        }
        if self.memory.is_some() && !found.is_empty() {
            return Err(conflict(
                "a network inside the process has no names, files, multicast or locators: leave them out of `seeds`, and `locators`".into(),
            ));
        }
        Ok((written, found))
    }

    /// Where a node announces itself by this source, if it does.
    pub(super) fn announced_at(
        &self,
        source: &Source,
        bind: &[SocketAddr],
    ) -> Result<Option<MulticastConfig>, Error> {
        let Some(multicast) = source.multicast(&self.cluster) else {
            return Ok(None);
        };
        let multicast = multicast.map_err(|error| conflict(format!("`seeds` {error}")))?;
        let own = bind.iter().map(SocketAddr::ip).find(std::net::IpAddr::is_ipv4);
        discovery::multicast_config(&multicast, own, self.is_confined())
            .map(Some)
            .map_err(|problem| conflict(format!("`seeds` {source}: {problem}")))
    }

    /// Makes what can fail at once, so that it fails at the start.
    pub(super) fn open_sources(
        &self,
        found: Found,
        bind: &[SocketAddr],
        addr: SocketAddr,
    ) -> Result<Sources, Error> {
        let resolver = Resolver::new(&self.dns_servers).map_err(conflict)?;
        let mut air = None;
        for source in &found.nodes {
            let Some(config) = self.announced_at(source, bind)? else {
                continue;
            };
            let high = getrandom::u64().map_err(|_| Error::Entropy)?;
            let low = getrandom::u64().map_err(|_| Error::Entropy)?;
            let me = Incarnation(u128::from(high) << 64 | u128::from(low));
            let opened = discovery::open_multicast(&config, &self.cluster, self.key.as_ref(), me, addr);
            air = Some(opened.map_err(|source| Error::Multicast {
                group: config.group,
                source,
            })?);
        }
        Ok(Sources {
            nodes: found.nodes,
            locators: found.locators,
            resolver,
            air,
        })
    }
}
