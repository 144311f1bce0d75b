//! The core's configuration of a node.

use std::net::SocketAddr;

use antiphon_core::Config;

use super::Builder;
use super::addresses::firsts;
use crate::discovery::Source;

impl Builder {
    /// The core's configuration of a node with these settings that goes by this name, is reached at these
    /// addresses (at least one), and has these seeds, each with its addresses. Of use to ask others in the
    /// name of a node that does not run.
    #[doc(hidden)]
    pub fn core_config(&self, name: &str, addrs: &[SocketAddr], seeds: &[Vec<SocketAddr>]) -> Config {
        let mut config = Config::new(&self.cluster, name, addrs[0]);
        config.further = addrs[1..].to_vec();
        config.seeds = firsts(seeds);
        let with_further = seeds.iter().filter(|seed| seed.len() > 1);
        config.further_of_seeds = with_further.map(|seed| (seed[0], seed[1..].to_vec())).collect();
        config.discovers = !self.sources.is_empty()
            || !self.locators.is_empty()
            || self.seeds.iter().any(|seed| Source::is_meant_by(seed));
        config.expect = self.expect;
        config.found = self.found;
        config.metadata = self.metadata.clone();
        config.weight = self.weight;
        config.primary_lease = self.primary_lease;
        config.udp_probes = self.udp_probes;
        config.policy = self.policy;
        config.engine = self.membership;
        config.profile = self.profile.clone();
        config.key = self.key.clone();
        config.witness = self.last_vote.is_some();
        config.multicast = self.multicast.is_some();
        config.rejoin = self.rejoin;
        config.unix_time_ms = self.host.unix_time_ms();
        config
    }
}
