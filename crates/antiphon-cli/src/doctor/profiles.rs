//! The timing profiles of the cluster's nodes that run on this host. All nodes of a cluster need the same
//! one. Nodes do not tell each other which they have: only a console says it.
//!
//! A node that does not answer soon is left out: other steps tell of that.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::time::Duration;

use antiphon_agent::console::{Client, place};
use antiphon_api::console::{Answer, Question, Status};
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::report::{Report, Step};
use crate::console::readable;
use crate::settings::Settings;

/// How long a node may take to say it. A node that runs takes milliseconds.
const ANSWER_WITHIN: Duration = Duration::from_secs(1);

/// Warns of nodes whose profile is another one than the settings say.
pub(super) async fn compare(report: &mut Report, settings: &Settings) {
    let mut asking = JoinSet::new();
    for path in place::running() {
        if place::may_be(&path, Some(&settings.cluster), None) {
            asking.spawn(timeout(ANSWER_WITHIN, status(path, settings.cluster.clone())));
        }
    }
    let mut others: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    while let Some(asked) = asking.join_next().await {
        let Ok(Ok(Some(status))) = asked else { continue };
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

/// What the node at this console says of itself, if it is one of this cluster.
async fn status(path: PathBuf, cluster: String) -> Option<Status> {
    let mut client = Client::connect(&path).await.ok()?;
    if client.hello().cluster != cluster {
        return None;
    }
    let told = client.ask(&Question::Status {}).await.ok()?;
    match readable(&told).ok()? {
        Answer::Status(status) => Some(*status),
        _ => None,
    }
}
