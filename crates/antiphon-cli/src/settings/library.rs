//! Hands the settings on to the library. It is the only place that does so: for a node that runs, and for the
//! doctor, which asks in the name of a node.

use std::path::Path;

use antiphon::Builder;
use antiphon::config::Seed;
use antiphon_agent::console::Console;
use antiphon_agent::stdio::Groups;

use super::Settings;
use crate::exit::Failed;

/// What to say of a node that founds nothing by its settings, which is seldom meant of all nodes.
const WAITS_FOR_A_CLUSTER: &str = "by sources and locators alone no node founds a cluster: if there is none to join yet, give --expect N, the same at each node, or --found at one";

impl Settings {
    /// A node with these settings.
    pub(crate) fn builder(&self) -> Builder {
        let builder = self.node.builder();
        match &self.last_vote {
            Some(path) => builder.last_vote(path),
            None => builder,
        }
    }

    /// The console of a node with these settings. It is opened before the node starts, so that no node starts
    /// if the path cannot be used. If the default place cannot be used, the node runs without a console, and
    /// its log says why.
    pub(crate) fn console(&self) -> Result<Option<Console>, Failed> {
        let console = match self.console_at.as_deref() {
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

    /// The groups that a node with these settings joins itself. An agent is in those of its clients.
    pub(crate) fn groups(&self, is_agent: bool) -> Groups {
        Groups {
            names: if is_agent { Vec::new() } else { self.groups.clone() },
            options: self.options,
            hint: self.waits_for_a_cluster().then_some(WAITS_FOR_A_CLUSTER),
        }
    }

    /// Whether the node founds no cluster: it has only nodes that it finds at run time to found one with, and
    /// was not told how many these are.
    fn waits_for_a_cluster(&self) -> bool {
        let own = |seed: &Seed| {
            let mut own = self.bind.iter().chain(&self.advertise);
            own.any(|own| seed.0.contains(own))
        };
        !self.looks_for_nobody() && !self.found && self.expect.is_none() && self.seeds.iter().all(own)
    }
}
