//! What the settings mean to the library: the only place where they are handed on, for a node that runs and
//! for the doctor that asks in the name of one.

use std::net::SocketAddr;
use std::path::Path;

use antiphon::{Builder, Cluster, GroupOptions};
use antiphon_agent::console::Console;
use antiphon_agent::stdio::Groups;

use super::{Seed, Settings};
use crate::exit::Failed;

/// What to say of a node that founds nothing by its settings, which is seldom meant of all nodes.
const WAITS_FOR_A_CLUSTER: &str = "by sources and locators alone no node founds a cluster: if there is none to join yet, give --expect N, the same at each node, or --found at one";

impl Settings {
    /// A node with these settings.
    pub(crate) fn builder(&self) -> Result<Builder, Failed> {
        let mut builder = Cluster::builder(&self.cluster)
            .name(&self.name)
            .seeds(self.discovery.all_seeds(&self.seeds))
            .locators(&self.discovery.locators)
            .dns_servers(self.discovery.dns_servers.iter().copied())
            .profile(self.profile.clone())
            .transport(self.transport.transport())
            .membership(self.membership.engine())
            .policy(self.policy.policy())
            .primary_lease(self.primary_lease)
            .udp_probes(self.udp_probes)
            .weight(self.weight);
        if let Some(bytes) = self.max_datagram {
            builder = builder.max_datagram(bytes);
        }
        if let Some(multicast) = &self.multicast {
            builder = builder.multicast(multicast.to_library()?);
        }
        for (key, value) in &self.metadata {
            builder = builder.metadata(key, value);
        }
        for bind in &self.bind {
            builder = builder.bind(bind);
        }
        for advertise in &self.advertise {
            builder = builder.advertise(advertise);
        }
        if let Some(expect) = self.expect {
            builder = builder.expect(expect);
        }
        if self.found {
            builder = builder.found();
        }
        if let Some(key) = &self.key {
            builder = builder.key(key.clone());
        }
        if let Some(path) = &self.testament {
            builder = builder.testament(path);
        }
        if self.insecure {
            builder = builder.insecure();
        }
        if self.allow_faults {
            builder = builder.allow_faults();
        }
        Ok(builder)
    }

    /// The console of a node with these settings: opened before the node starts, so that a path that cannot
    /// be used starts nothing. At the default place a node runs without one if there is no way, and its log
    /// says why.
    pub(crate) fn console(&self) -> Result<Option<Console>, Failed> {
        let console = match self.socket.as_deref() {
            Some(path) if path == Path::new("none") => return Ok(None),
            Some(path) => Console::listen_at(path).map_err(|error| {
                Failed::run(format!(
                    "cannot open a console at {}: {error}; another node may have it, or the directory cannot be written",
                    path.display()
                ))
            })?,
            None => match Console::listen(&self.cluster, &self.name) {
                Ok(console) => console,
                Err(error) => {
                    tracing::warn!(target: "antiphon::console", node = %self.name, %error, "no console: this node cannot be asked with `antiphon members`");
                    return Ok(None);
                }
            },
        };
        tracing::info!(target: "antiphon::console", node = %self.name, path = %console.path().display(), "console open");
        Ok(Some(console))
    }

    /// The groups that a node with these settings joins.
    pub(crate) fn groups(&self) -> Groups {
        Groups {
            names: self.groups.clone(),
            options: self.group_options(),
            hint: self.waits_for_a_cluster().then_some(WAITS_FOR_A_CLUSTER),
        }
    }

    /// Whether a node with these settings can start and join its groups, as far as the settings alone tell:
    /// what the library refuses only when the node is a member is found here.
    pub(super) fn check_as_the_library_does(&self) -> Result<(), Failed> {
        let seeds: Vec<Vec<SocketAddr>> = self.seeds.iter().map(|seed| seed.0.clone()).collect();
        let options = self.group_options();
        let groups: Vec<_> = self.groups.iter().map(|group| (group.clone(), options)).collect();
        let checked = self.builder()?.check(&seeds, &groups);
        checked.map_err(|error| Failed::usage(error.to_string()))
    }

    /// Whether it founds no cluster, since it has nobody to found one with but whom it finds at run time, and
    /// was not told how many these are.
    fn waits_for_a_cluster(&self) -> bool {
        let own = |seed: &Seed| {
            let mut own = self.bind.iter().chain(&self.advertise);
            own.any(|own| seed.0.contains(own))
        };
        !self.discovery.is_empty() && !self.found && self.expect.is_none() && self.seeds.iter().all(own)
    }

    /// Each of its groups.
    pub(crate) fn group_options(&self) -> GroupOptions {
        GroupOptions::default()
            .order(self.order.order())
            .engine(self.engine.engine())
            .dissemination(self.dissemination.dissemination())
            .slow_after(self.slow_after.0)
            .max_object_bytes(self.max_object.0)
            .object_memory_bytes(self.object_memory.0)
    }
}
