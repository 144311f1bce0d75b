//! The timing profiles of the cluster's nodes that run on this host. All nodes of a cluster need the same
//! one. Nodes do not tell each other which they have: only a console says it.
//!
//! A node that does not answer soon is left out: other steps tell of that.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use antiphon_agent::console::Client;
use antiphon_api::console::{Answer, Question, Status};
use tokio::time::timeout;

use super::report::{Report, Step};
use super::running::Own;
use crate::console::{readable, running};
use crate::settings::Settings;

/// How long a node may take to say it. A node that runs takes milliseconds.
const ANSWER_WITHIN: Duration = Duration::from_secs(1);

/// Warns of nodes whose profile is another one than the settings say: the node with these settings, wherever
/// its console is, and those with consoles at the usual places.
pub(super) async fn compare(report: &mut Report, settings: &Settings, own: Option<&Own>) {
    let own = own.and_then(|own| own.status.clone());
    let mut told: Vec<Status> = own.into_iter().collect();
    let (clients, _) = running(Some(&settings.cluster), None).await;
    for mut client in clients {
        if client.hello().cluster == settings.cluster
            && let Ok(Some(status)) = timeout(ANSWER_WITHIN, status(&mut client)).await
        {
            told.push(status);
        }
    }
    let mut others: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for status in told {
        if status.profile != settings.profile.name {
            others.entry(status.profile).or_default().insert(status.node);
        }
    }
    for (profile, nodes) in others {
        let nodes: Vec<String> = nodes.into_iter().collect();
        report.add(Step::warning(
            "profile",
            "",
            format!(
                "{} of this cluster runs here with profile {profile}, and these settings say {}: give all nodes of a cluster the same --profile; while they differ, a node that is cut off may go on for longer than the others wait",
                nodes.join(", "),
                settings.profile.name
            ),
        ));
    }
}

async fn status(client: &mut Client) -> Option<Status> {
    let told = client.ask(&Question::Status {}).await.ok()?;
    match readable(&told).ok()? {
        Answer::Status(status) => Some(*status),
        _ => None,
    }
}
