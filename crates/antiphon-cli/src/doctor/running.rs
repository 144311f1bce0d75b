//! Nodes that run on this host, and what they say they wait for.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use antiphon_agent::console::{Client, ClientError, place};
use antiphon_api::ago;
use antiphon_api::console::{Answer, Hello, Question, REFUSAL_LASTS_MS, Status};

use antiphon_core::text::on_one_line;
use antiphon_net::tcp::{GIVE_THE_NODES_PORT, IS_AN_AGENTS_PORT};

use super::files;
use super::report::{Report, Step};
use crate::console::{Mute, readable, running};
use crate::settings::Settings;

/// The node with these very settings, running.
#[derive(Debug)]
pub(super) struct Own {
    hello: Hello,
    pub(super) status: Option<Status>,
}

impl Own {
    pub(super) fn pid(&self) -> u32 {
        self.hello.pid
    }

    /// Whether it listens at this address, as far as it says.
    pub(super) fn listens_at(&self, addr: SocketAddr) -> bool {
        listens_at(&self.hello, addr)
    }
}

fn listens_at(hello: &Hello, addr: SocketAddr) -> bool {
    hello.addrs.iter().any(|own| match own.parse::<SocketAddr>() {
        Ok(own) => own == addr || (addr.ip().is_unspecified() && own.port() == addr.port()),
        Err(_) => false,
    })
}

/// Asks the node of these settings, if it runs. With it come the consoles that could be its own and whose
/// node cannot be asked.
pub(super) async fn own(report: &mut Report, settings: &Settings) -> (Option<Own>, Vec<PathBuf>) {
    let (mut clients, mute) = match settings.console_at.as_deref() {
        Some(path) if path == Path::new("none") => (Vec::new(), Vec::new()),
        Some(path) => at(path).await,
        None => running(Some(&settings.cluster), Some(&settings.name)).await,
    };
    let silent = tell_of(report, mute);
    clients
        .retain(|client| client.hello().cluster == settings.cluster && client.hello().node == settings.name);
    let own = clients.iter().position(|client| {
        let listens = |addr: &SocketAddr| addr.port() == 0 || listens_at(client.hello(), *addr);
        settings.bind.iter().chain(&settings.advertise).any(listens)
    });
    let Some(mut client) = own.map(|own| clients.swap_remove(own)) else {
        match clients.first() {
            Some(namesake) => report.add(Step::warning(
                "running",
                "",
                format!(
                    "another node called {} of this cluster runs here, at {}: names are unique in a cluster",
                    settings.name,
                    on_one_line(&namesake.hello().addrs.join(", "))
                ),
            )),
            // It may well be the one that does not answer.
            None if !silent.is_empty() => {}
            None => report.add(Step::skipped(
                "running",
                "",
                format!(
                    "no node {} of cluster {} runs here as this user",
                    settings.name, settings.cluster
                ),
            )),
        }
        if settings.console_at.is_none() {
            without_consoles(report);
        }
        return (None, silent);
    };
    let status = tell(report, &mut client, Seeds::Asked).await;
    let own = Own {
        hello: client.hello().clone(),
        status,
    };
    (Some(own), silent)
}

/// Asks all nodes of this user, or the one at this socket; returns how many there are.
pub(super) async fn all(report: &mut Report, socket: Option<&Path>) -> usize {
    let (mut clients, mute) = match socket {
        Some(path) => at(path).await,
        None => running(None, None).await,
    };
    for client in &mut clients {
        tell(report, client, Seeds::NotAsked).await;
    }
    clients.len() + tell_of(report, mute).len()
}

/// The node at this socket, if it answers, or the socket and the reason, if it cannot be asked.
async fn at(path: &Path) -> (Vec<Client>, Vec<Mute>) {
    match Client::connect(path).await {
        Ok(client) => (vec![client], Vec::new()),
        Err(error @ (ClientError::Silent { .. } | ClientError::Refused(_))) => {
            (Vec::new(), vec![(path.to_owned(), error)])
        }
        // No node is there, or none that this build understands.
        Err(_) => (Vec::new(), Vec::new()),
    }
}

/// The nodes that run there cannot be asked, and without this the user would not know of them.
pub(super) fn without_consoles(report: &mut Report) {
    for problem in place::problems() {
        report.add(Step::warning(
            "running",
            "",
            format!("{problem}: a node that runs has no console there, and is not seen"),
        ));
    }
}

/// Tells of nodes that cannot be asked; returns where they listen.
fn tell_of(report: &mut Report, mute: Vec<Mute>) -> Vec<PathBuf> {
    let mut paths = Vec::new();
    for (path, error) in mute {
        report.add(match error {
            ClientError::Refused(_) => Step::failed(
                "running",
                "node-refuses",
                path.display(),
                format!("a node listens there and says: {error}"),
                "do what it says, so that it can be asked what it waits for",
            ),
            _ => Step::failed(
                "running",
                "node-stopped",
                path.display(),
                "a node listens there and does not answer: its process is stopped, or has no time",
                "continue it (kill -CONT), or give its host more time to run",
            ),
        });
        paths.push(path);
    }
    paths
}

/// Tells what a node says of itself.
async fn tell(report: &mut Report, client: &mut Client, seeds: Seeds) -> Option<Status> {
    let subject = format!(
        "{} (process {})",
        on_one_line(&client.hello().node),
        client.hello().pid
    );
    let told = client.ask(&Question::Status {}).await;
    let status = match told.map(|told| readable(&told)) {
        Ok(Ok(Answer::Status(status))) => *status,
        Ok(_) => return None,
        Err(error) => {
            report.add(Step::warning("running", subject, error.to_string()));
            return None;
        }
    };
    if let Some(step) = files::used_up(&subject, client.hello().pid) {
        report.add(step);
    }
    report.add(judge(&subject, &status, seeds));
    Some(status)
}

/// Whether the steps of the node's seeds follow, for which its settings are needed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Seeds {
    Asked,
    NotAsked,
}

/// Whether a node is a member and hears no majority that could decide the next view.
pub(super) fn lacks_majority(status: &Status) -> bool {
    status.quorum == Some(false) || status.state == "non-primary"
}

fn judge(subject: &str, status: &Status, seeds: Seeds) -> Step {
    let see = |steps: &str| match seeds {
        Seeds::Asked => format!("see the steps of {steps}"),
        Seeds::NotAsked => {
            format!("give `antiphon doctor` the settings of this node, for the steps of {steps}")
        }
    };
    let seconds = status.uptime_ms / 1000;
    // Whatever else is wrong follows from that, or is not seen for it.
    if !status.lacks.is_empty() {
        return Step::failed(
            "running",
            "lacks",
            subject,
            format!("its host refuses it what it needs: {}", status.lacks.join("; ")),
            "mend that first: until then it can neither dial others nor take their connections",
        );
    }
    if let Some(forming) = &status.forming {
        let mut cause = format!("runs for {seconds} s and is in no cluster yet");
        if let Some(refused) = &status.refused {
            let told = format!("refused {} ago: {}", ago(refused.ago_ms), refused.reason);
            cause.push_str(&format!("; {told}"));
            if refused.ago_ms <= REFUSAL_LASTS_MS {
                return Step::failed("running", "refused", subject, cause, "do what the refusal says");
            }
        }
        if !forming.agents.is_empty() {
            return Step::failed(
                "running",
                "agent-port",
                subject,
                format!("{cause}; {} {IS_AN_AGENTS_PORT}", forming.agents.join(", ")),
                GIVE_THE_NODES_PORT,
            );
        }
        if !forming.rejecting.is_empty() {
            return Step::failed(
                "running",
                "rejected",
                subject,
                format!(
                    "{cause}; {} ends each connection after this node's first frame",
                    forming.rejecting.join(", ")
                ),
                format!("key or cluster name differ: {}", see("that seed")),
            );
        }
        if let Some(asks) = &forming.asks {
            cause.push_str(&format!("; it asks {asks} to be admitted"));
        }
        if !forming.missing.is_empty() {
            cause.push_str(&format!("; no answer from {}", forming.missing.join(", ")));
        }
        if forming.remnant {
            cause.push_str("; it has met members without a majority, and gives them time to find it again");
        }
        return Step::failed(
            "running",
            "forming",
            subject,
            cause,
            see("those that it waits for"),
        );
    }
    if lacks_majority(status) {
        return Step::failed(
            "running",
            "no-majority",
            subject,
            format!(
                "runs for {seconds} s, and hears no majority; it does not hear {}",
                status.silent.join(", ")
            ),
            format!(
                "{}; `antiphon why NAME` tells more. Silence is no proof of death: run nodes with --witness, and a killed one proves its own where its host can be reached",
                see("those that it does not hear")
            ),
        );
    }
    let silent = match status.silent.as_slice() {
        [] => String::new(),
        silent => format!("; it does not hear {}", silent.join(", ")),
    };
    let text = format!(
        "runs for {seconds} s, {}, view {}, {} members{silent}",
        status.state,
        status.view.map_or("none".to_owned(), |view| view.to_string()),
        status.members
    );
    match silent.is_empty() {
        true => Step::ok("running", subject, text),
        false => Step::warning("running", subject, text),
    }
}

#[cfg(test)]
mod tests {
    use antiphon_api::console::{Forming, Refusal};

    use super::*;

    fn forming(refused_ago_ms: u64) -> Step {
        let status = Status {
            node: "a".to_owned(),
            cluster: "tea".to_owned(),
            state: "forming".to_owned(),
            incarnation: String::new(),
            uptime_ms: 100_000,
            seeds: Vec::new(),
            keyed: false,
            profile: "lan".to_owned(),
            view: None,
            members: 0,
            groups: Default::default(),
            forming: Some(Forming {
                missing: vec!["127.0.0.1:7402".to_owned()],
                rejecting: Vec::new(),
                agents: Vec::new(),
                candidates: Vec::new(),
                founder: true,
                asks: None,
                remnant: false,
                refused: None,
            }),
            quorum: None,
            silent: Vec::new(),
            refused: Some(Refusal {
                reason: "the name is taken".to_owned(),
                ago_ms: refused_ago_ms,
            }),
            connections_refused: 0,
            lacks: Vec::new(),
        };
        judge("a", &status, Seeds::Asked)
    }

    #[test]
    fn a_node_that_was_refused_long_ago_waits_for_its_seeds() {
        let told = |ago_ms| {
            let step = forming(ago_ms);
            (step.code(), step.text().to_owned())
        };
        let (code, _) = told(5_000);
        assert_eq!(code, Some("refused"));
        let (code, text) = told(60_000);
        assert_eq!(code, Some("forming"));
        assert!(
            text.contains("no answer from 127.0.0.1:7402") && text.contains("refused 60 s ago"),
            "{text}"
        );
    }
}
