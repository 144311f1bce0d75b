//! SIGHUP: an agent reads its certificates, tokens and commands again, and its configuration file, and says
//! whether all of that is in force. It sends no program away.

use std::path::PathBuf;
use std::sync::Arc;

use antiphon_agent::Hub;
use antiphon_agent::access::Access;
use antiphon_commands::{Commands, Tls};
use tokio::signal::unix::Signal;

use super::service::Manager;
use crate::exit::{Failed, complain};
use crate::settings::{Agent, Reread};

/// What is read again.
#[derive(Debug)]
pub(super) struct Reloads {
    /// What the command line and the environment say, which win over the file.
    given: Agent,
    config: Option<PathBuf>,
    /// The file as it was at the start: what takes a restart is in force as it was there.
    file: Reread,
    access: Access,
    /// Of commands to peers.
    tls: Option<Tls>,
}

impl Reloads {
    pub(super) fn new(
        given: Agent,
        config: Option<PathBuf>,
        access: Access,
        tls: Option<Tls>,
    ) -> Result<Self, Failed> {
        let file = config.as_deref().map(Reread::of).transpose()?.unwrap_or_default();
        Ok(Self {
            given,
            config,
            file,
            access,
            tls,
        })
    }

    /// Reads all again whenever this signal comes.
    pub(super) async fn watch(self, mut hangup: Signal, hub: Hub, manager: Arc<Manager>) {
        let reloads = Arc::new(self);
        while hangup.recv().await.is_some() {
            manager.reloading();
            let (commands, reloads) = (hub.commands().cloned(), reloads.clone());
            // Files may be slow.
            let read = tokio::task::spawn_blocking(move || reloads.reload(commands.as_ref()));
            // A panic there must not end this task: the next signal counts, too, and the manager waits to
            // hear that the agent is ready again.
            let all = read.await.unwrap_or(false);
            hub.reloaded(all);
            manager.reloaded();
        }
    }

    /// Whether all that the file says now is in force.
    fn reload(&self, commands: Option<&Commands>) -> bool {
        let file = match self.config.as_deref().map(Reread::of).transpose() {
            Ok(read) => read.unwrap_or_default(),
            Err(failed) => {
                complain!("antiphon: not reloaded: {}; all stays as it is", failed.message);
                return false;
            }
        };
        let changed = file.changed_since(&self.file);
        let agent = self.given.clone().over(file.agent());
        let mut done = Vec::new();
        let mut all = changed.is_empty();
        let said = self.access.reload(&agent.files).into_iter();
        let said: Vec<_> = said.chain(self.renew_tls(&agent)).collect();
        let is_any_there = !said.is_empty() || commands.is_some();
        for said in said {
            match said {
                Ok(what) => done.push(what),
                Err(reason) => {
                    all = false;
                    complain!("antiphon: not reloaded: {reason}");
                }
            }
        }
        match commands.map(Commands::reload) {
            Some(Ok(version)) => done.push(format!("the list of commands, version {version}")),
            Some(Err(error)) => {
                all = false;
                complain!("antiphon: not reloaded: {error}; the list of commands stays as it is");
            }
            None => {}
        }
        if !changed.is_empty() {
            complain!(
                "antiphon: changed in the file, and in force after a restart: {}",
                changed.join(", ")
            );
        }
        match (done.is_empty(), is_any_there) {
            (false, _) => complain!("antiphon: reloaded: {}", done.join(", ")),
            (true, false) => {
                complain!(
                    "antiphon: there is nothing to reload: neither certificates nor tokens nor commands"
                );
            }
            // Why it was not reloaded is said above.
            (true, true) => {}
        }
        all
    }

    /// Reads the certificates of commands again. None: they go without, as before.
    fn renew_tls(&self, agent: &Agent) -> Option<Result<String, String>> {
        let files = &agent.files;
        let given = (&files.certificate, &files.key, &agent.commands.authorities);
        Some(match (&self.tls, given) {
            (None, (_, _, None)) => return None,
            (Some(tls), (Some(certificate), Some(key), Some(authorities))) => {
                match tls.renew(certificate, key, authorities) {
                    Ok(()) => Ok("certificates of commands".to_owned()),
                    Err(error) => Err(format!(
                        "{error}; commands by HTTPS go on with the certificates before"
                    )),
                }
            }
            _ => Err(
                "commands-ca, with tls-cert and tls-key, cannot be given or left out while an agent runs: restart it"
                    .to_owned(),
            ),
        })
    }
}
