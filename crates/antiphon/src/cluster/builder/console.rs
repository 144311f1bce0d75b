//! A node's console: whether it is to have one, and where.

use std::path::PathBuf;

use antiphon_core::{Config, Policy};

use super::Builder;
use crate::Error;
use crate::console::{Facts, Server};

/// Where a node's console is to be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Wanted {
    Default,
    At(PathBuf),
}

impl Builder {
    /// Opens a [`console`](crate::console) at the default place, where `antiphon members`, `why`, `view` and `doctor` find it. If
    /// that place cannot be used, the node runs without, and its log says why. Unless this or [`console_at`](Builder::console_at) is
    /// called, there is none.
    pub fn console(mut self) -> Self {
        self.console = Some(Wanted::Default);
        self
    }

    /// Opens a [`console`](crate::console) at this path, which must not exist, or be a socket that nobody listens at.
    pub fn console_at(mut self, path: impl Into<PathBuf>) -> Self {
        self.console = Some(Wanted::At(path.into()));
        self
    }
}

/// Listens before the node starts, so that a path that cannot be used starts nothing.
pub(super) fn open(wanted: Option<&Wanted>, config: &Config) -> Result<Option<(Server, Facts)>, Error> {
    let server = match wanted {
        None => return Ok(None),
        Some(Wanted::At(path)) => Server::listen_at(path).map_err(|source| Error::Console {
            path: path.clone(),
            source,
        })?,
        Some(Wanted::Default) => match Server::listen(&config.cluster, &config.name) {
            Ok(server) => server,
            Err(error) => {
                tracing::warn!(target: "antiphon::console", node = %config.name, %error, "no console: this node cannot be asked with `antiphon members`");
                return Ok(None);
            }
        },
    };
    tracing::info!(target: "antiphon::console", node = %config.name, path = %server.path().display(), "console open");
    let facts = Facts {
        seeds: config.seeds.iter().map(ToString::to_string).collect(),
        keyed: config.key.is_some(),
        profile: config.profile.name.to_string(),
        goes_on_apart: config.policy == Policy::Any,
    };
    Ok(Some((server, facts)))
}
