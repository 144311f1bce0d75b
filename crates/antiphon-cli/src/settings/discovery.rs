//! Where a node finds others at run time.

use std::net::{IpAddr, SocketAddr};

use antiphon::discovery::Source;

use super::Seed;
use crate::exit::Failed;

/// DNS servers listen here unless told otherwise.
const DNS_PORT: u16 = 53;

/// Sources among the seeds, locators, and whom to ask for names; checked, and kept as they were given.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct DiscoverySettings {
    pub(crate) sources: Vec<String>,
    pub(crate) locators: Vec<String>,
    pub(crate) dns_servers: Vec<SocketAddr>,
}

impl DiscoverySettings {
    pub(super) fn merge(
        seeds: &[String],
        locators: Option<Vec<String>>,
        dns_servers: Option<Vec<String>>,
    ) -> Result<Self, Failed> {
        let sources: Vec<String> = seeds
            .iter()
            .filter(|text| Source::is_meant_by(text))
            .cloned()
            .collect();
        for source in &sources {
            let parsed = source.parse::<Source>();
            parsed.map_err(|error| Failed::usage(format!("seeds {error}")))?;
        }
        let locators = locators.unwrap_or_default();
        for locator in &locators {
            Source::locator(locator).map_err(|error| Failed::usage(format!("locators {error}")))?;
        }
        let dns_servers = dns_servers.unwrap_or_default();
        let dns_servers = dns_servers
            .iter()
            .map(|text| server(text))
            .collect::<Result<_, _>>()?;
        Ok(Self {
            sources,
            locators,
            dns_servers,
        })
    }

    /// Whether nobody is looked for at run time.
    pub(crate) fn is_empty(&self) -> bool {
        self.sources.is_empty() && self.locators.is_empty()
    }

    /// The seeds as the library takes them: those that are written out, then the sources.
    pub(crate) fn all_seeds(&self, written: &[Seed]) -> Vec<String> {
        let written = written.iter().map(ToString::to_string);
        written.chain(self.sources.iter().cloned()).collect()
    }
}

fn server(text: &str) -> Result<SocketAddr, Failed> {
    let ip = || {
        text.parse::<IpAddr>()
            .ok()
            .map(|ip| SocketAddr::new(ip, DNS_PORT))
    };
    text.parse().ok().or_else(ip).ok_or_else(|| {
        Failed::usage(format!(
            "dns-server {text:?} is no address; expected such as 10.0.0.53 or 127.0.0.1:8600"
        ))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn strings(texts: &[&str]) -> Vec<String> {
        texts.iter().map(|text| (*text).to_owned()).collect()
    }

    #[test]
    fn sources_are_told_from_seeds_and_checked() {
        let seeds = strings(&["10.0.0.1:7400", "dns:db.example", "file:/etc/nodes", "dns:7400"]);
        let settings = DiscoverySettings::merge(
            &seeds,
            Some(strings(&["loc.example"])),
            Some(strings(&["10.0.0.53", "[::1]:8600"])),
        )
        .unwrap();
        assert_eq!(settings.sources, ["dns:db.example", "file:/etc/nodes"]);
        assert_eq!(settings.locators, ["loc.example"]);
        assert_eq!(
            settings.dns_servers,
            ["10.0.0.53:53".parse().unwrap(), "[::1]:8600".parse().unwrap()]
        );
        let one = Seed(vec!["10.0.0.1:7400".parse().unwrap()]);
        assert_eq!(
            settings.all_seeds(&[one]),
            ["10.0.0.1:7400", "dns:db.example", "file:/etc/nodes"]
        );
    }

    #[test]
    fn what_cannot_be_meant_is_refused_by_name() {
        let none: &[&str] = &[];
        for (seeds, locators, servers, expected) in [
            (&["srv:"][..], none, none, "seeds"),
            (none, &["a b"][..], none, "locators"),
            (none, &["multicast"][..], none, "locators"),
            (none, none, &["ns.example"][..], "dns-server"),
        ] {
            let refused =
                DiscoverySettings::merge(&strings(seeds), Some(strings(locators)), Some(strings(servers)));
            let message = refused.unwrap_err().message;
            assert!(message.contains(expected), "{message}");
        }
    }
}
