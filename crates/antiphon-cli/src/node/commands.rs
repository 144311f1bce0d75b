//! Commands to peers of an agent: its list, its gate, and what both need of the node.

use antiphon::Cluster;
use antiphon_commands::gate::Gate;
use antiphon_commands::{Commands, Config, Tls};

use crate::exit::Failed;
use crate::settings::Settings;

/// What is opened before there is a node.
pub(super) struct Opened {
    config: Config,
    gate: Option<Gate>,
}

impl Opened {
    /// None: the agent has no list.
    pub(super) async fn open(settings: &Settings) -> Result<Option<Self>, Failed> {
        let given = &settings.agent.commands;
        let files = &settings.agent.files;
        let usage = |error: antiphon_commands::list::ListError| Failed::usage(error.to_string());
        let Some(list) = given.list.clone() else {
            return match &given.listen {
                Some(_) => Err(Failed::usage(
                    "--commands-listen is for commands of a list: give it with --commands FILE",
                )),
                None => Ok(None),
            };
        };
        let certificate = files.certificate.as_ref().zip(files.key.as_ref());
        let tls = match (certificate, &given.authorities) {
            (Some((certificate, key)), Some(authorities)) => {
                Some(Tls::read(certificate, key, authorities).map_err(usage)?)
            }
            (None, Some(_)) => {
                return Err(Failed::usage(
                    "--commands-ca is for commands by HTTPS, which need a certificate of this agent: give --tls-cert and --tls-key",
                ));
            }
            (_, None) => None,
        };
        let config = Config {
            list,
            key: settings.key.clone(),
            tls,
        };
        Commands::check(&config).map_err(usage)?;
        let gate = match &given.listen {
            Some(addr) => Some(listen(addr).await?),
            None => None,
        };
        Ok(Some(Self { config, gate }))
    }

    /// What the node's metadata says, for peers to find the gate.
    pub(super) fn metadata(&self) -> Option<(String, String)> {
        self.gate
            .as_ref()
            .map(|gate| gate.metadata(self.config.tls.is_some()))
    }

    /// By which commands go over HTTPS, for its renewal.
    pub(super) fn tls(&self) -> Option<Tls> {
        self.config.tls.clone()
    }

    /// Where the gate is.
    pub(super) fn addr(&self) -> Option<String> {
        self.gate.as_ref().map(|gate| gate.addr().to_string())
    }

    pub(super) fn start(self, cluster: Cluster) -> Result<Commands, Failed> {
        Commands::start(cluster, self.config, self.gate).map_err(|error| Failed::usage(error.to_string()))
    }
}

async fn listen(addr: &str) -> Result<Gate, Failed> {
    let addr = super::address("--commands-listen", addr, "0.0.0.0:7490 or [::]:7490").await?;
    Gate::bind(addr)
        .await
        .map_err(|error| Failed::run(format!("cannot listen at {addr} for commands of peers: {error}")))
}
