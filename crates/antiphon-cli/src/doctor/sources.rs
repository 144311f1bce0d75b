//! Sources and locators: the addresses that they lead to. The doctor looks once; a node looks again and
//! again.

use std::net::SocketAddr;

use antiphon::config::Effective;
use antiphon::discovery::{Looked, Source};
use antiphon_core::text::on_one_line;

use super::report::{Report, Step};

/// Addresses of one source that are asked.
const MAX_OF_ONE: usize = 64;

/// The addresses that were found.
#[derive(Debug, Default)]
pub(super) struct Found {
    pub(super) nodes: Vec<SocketAddr>,
    pub(super) locators: Vec<SocketAddr>,
    /// Sources that cannot be looked at: what they lead to is not known.
    pub(super) unseen: Vec<String>,
}

/// Looks at each source and each locator's name, and tells what was found, as far as the node would use it:
/// without a key, `confined`, that is loopback addresses alone.
pub(super) async fn look(report: &mut Report, settings: &Effective, confined: bool) -> Found {
    let mut found = Found::default();
    // Checked with the settings.
    let nodes = settings.sources.iter().filter_map(|text| {
        let source = text.parse::<Source>().ok()?;
        Some((text.clone(), false, source))
    });
    let locators = settings.locators.iter().filter_map(|text| {
        let source = Source::locator(text).ok()?;
        Some((format!("locator {text}"), true, source))
    });
    let mut looks = Vec::new();
    for (subject, is_locator, source) in nodes.chain(locators) {
        let servers = settings.dns_servers.clone();
        let look = tokio::spawn(async move { Some(source.look(&servers).await?.admitted(confined)) });
        looks.push((subject, is_locator, look));
    }
    for (subject, is_locator, look) in looks {
        // Fails only if the task panicked: a look has nothing to panic for.
        let Ok(looked) = look.await else { continue };
        let Some(looked) = looked else {
            let why = "nothing to look at: nodes are heard there once they speak; the `discovery` lines of a running node say which it hears";
            report.add(Step::skipped("source", &subject, why));
            found.unseen.push(subject);
            continue;
        };
        let addrs = tell(report, &subject, looked);
        match is_locator {
            true => found.locators.extend(addrs),
            false => found.nodes.extend(addrs),
        }
    }
    found
}

fn tell(report: &mut Report, subject: &str, mut looked: Looked) -> Vec<SocketAddr> {
    // DNS servers and files have part in it.
    looked.problem = looked.problem.map(|problem| on_one_line(&problem));
    let all = looked.found.len();
    looked.found.truncate(MAX_OF_ONE);
    let shown: Vec<String> = looked.found.iter().map(ToString::to_string).collect();
    let shown = shown.join(", ");
    let more = match all > MAX_OF_ONE {
        true => format!(", and {} more, which are not asked here", all - MAX_OF_ONE),
        false => String::new(),
    };
    report.add(match (looked.problem, all) {
        (None, 0) => nothing(subject, "it names nobody".to_owned()),
        (Some(problem), 0) => nothing(subject, problem),
        (None, _) => Step::ok("source", subject, format!("{shown}{more}")),
        (Some(problem), _) => Step::warning("source", subject, format!("{shown}{more}; but {problem}")),
    });
    looked.found
}

/// A node goes on looking, and there may be other ways to the cluster.
fn nothing(subject: &str, problem: String) -> Step {
    Step::failed(
        "source",
        "nothing-found",
        subject,
        problem,
        "mend the source; a node that runs goes on looking, with what it found before",
    )
}
