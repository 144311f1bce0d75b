//! The operator's way out, as a console tells and does it.
//!
//! There are two questions: what a recovery would mean, and to do it. The second names what the first has
//! shown. If the view is another one since, or there is more to warn of, the node refuses and the operator
//! looks again: so nobody gives up what he has not seen.

use antiphon::{Abandoned, NodeView, NodeViewId, RecoveryError};
use antiphon_api::console::{Answer, LeftBehind, Problem, Recovered, Recovery};

use crate::told::millis;

/// What is to be told, and what it stands for.
pub(super) fn told(node: &str, cluster: &str, shown: &antiphon::Recovery) -> Answer {
    let others = shown.others.iter().map(|other| LeftBehind {
        name: other.member.name.clone(),
        addr: other.member.addr.to_string(),
        heard_ms: millis(other.heard),
        here: other.here,
        dead: other.dead,
    });
    Answer::Recovery(Box::new(Recovery {
        node: node.to_owned(),
        cluster: cluster.to_owned(),
        lineage: shown.lineage.to_string(),
        view: shown.view.to_string(),
        number: shown.number,
        lost_ms: millis(shown.lost),
        quorum: shown.quorum,
        may_fork: shown.may_fork(),
        others: others.collect(),
        warnings: warnings(node, shown),
    }))
}

fn warnings(node: &str, shown: &antiphon::Recovery) -> Vec<String> {
    let names = |wanted: &dyn Fn(&Abandoned) -> bool| {
        let names = shown.others.iter().filter(|other| wanted(other));
        let names: Vec<&str> = names.map(|other| other.member.name.as_str()).collect();
        names.join(", ")
    };
    let mut warnings = Vec::new();
    if shown.quorum {
        warnings.push(format!(
            "the members that {node} hears are enough to go on by themselves: most likely the cluster comes back within seconds, with nothing given up. Wait, and look again"
        ));
    }
    warnings.push(format!(
        "whatever the others have delivered, or were promised as safe, that {node} does not have is given up for ever: all since they lost each other, and all that other members did in later views than {}",
        shown.number
    ));
    let here = names(&|other| other.here);
    if !here.is_empty() {
        warnings.push(format!(
            "{here} will join {node} as new members and give up what they have. If one of them has more than {node}, recover from that one"
        ));
    }
    let unknown = names(&|other| !other.here && !other.dead);
    if shown.may_fork() {
        warnings.push(format!(
            "{unknown}: NOT proven dead, and together they may be a majority that goes on without {node}. Then there are TWO clusters until they meet, and the lighter one gives up all that it did. Make sure that they are off, or their processes ended, before you go on"
        ));
    } else if !unknown.is_empty() {
        warnings.push(format!(
            "{unknown}: not proven dead. Whoever of them still runs gives up what it has and joins {node} when it hears of it"
        ));
    }
    warnings.push(format!(
        "do this on one node only: a second recovery elsewhere makes a second cluster. Nodes that are started from now on join {node}"
    ));
    warnings
}

/// It is done.
pub(super) fn done(node: &str, cluster: &str, view: &NodeView) -> Answer {
    Answer::Recovered(Recovered {
        node: node.to_owned(),
        cluster: cluster.to_owned(),
        lineage: view.lineage.to_string(),
        view: match view.id {
            NodeViewId::Primary { id } => id.to_string(),
            other => other.to_string(),
        },
        number: view.number,
    })
}

/// Why it is not.
pub(super) fn refused(reason: &RecoveryError) -> Answer {
    Answer::Error(Problem {
        code: "not-recovered".to_owned(),
        reason: reason.to_string(),
    })
}
