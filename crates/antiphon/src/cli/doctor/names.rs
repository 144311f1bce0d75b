//! Names of hosts, each looked up by itself.

use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use antiphon::discovery::Source;

use super::report::{Report, Step};
use crate::cli::settings::{DEFAULT_PORT, Written};

/// How long one name may take: as long as resolvers try by default, and a little more.
const RESOLVE_WITHIN: Duration = Duration::from_secs(12);

/// What is left of the addresses: those that are addresses, or names that have one.
#[derive(Debug, Default)]
pub(super) struct Usable {
    pub(super) bind: Vec<String>,
    pub(super) advertise: Vec<String>,
    pub(super) seeds: Vec<String>,
}

/// Looks up every name and tells what it stands for.
pub(super) async fn resolve(report: &mut Report, written: &Written) -> Usable {
    let mut usable = Usable::default();
    for (field, texts, good) in [
        ("bind", &written.bind, &mut usable.bind),
        ("advertise", &written.advertise, &mut usable.advertise),
        ("seeds", &written.seeds, &mut usable.seeds),
    ] {
        for text in texts {
            if field == "seeds" && Source::is_meant_by(text) {
                // No host name: it is looked at as a source, once it is known to be a sound one.
                good.push(text.clone());
                continue;
            }
            let mut all = true;
            for part in text.split('/') {
                all &= resolve_one(report, field, part.trim()).await;
            }
            // What this node itself is called must resolve, or it cannot start: the check of the settings says so.
            if all || field != "seeds" {
                good.push(text.clone());
            }
        }
    }
    usable
}

async fn resolve_one(report: &mut Report, field: &str, text: &str) -> bool {
    if text.parse::<SocketAddr>().is_ok() || text.parse::<IpAddr>().is_ok() {
        return true;
    }
    let has_port = text
        .rsplit_once(':')
        .is_some_and(|(_, port)| port.parse::<u16>().is_ok());
    let full = if has_port {
        text.to_owned()
    } else {
        format!("{text}:{DEFAULT_PORT}")
    };
    let begun = Instant::now();
    let found = tokio::time::timeout(RESOLVE_WITHIN, tokio::net::lookup_host(&full)).await;
    let took = begun.elapsed().as_millis();
    let failed = |cause: String| {
        Step::failed(
            "name",
            "name-not-resolved",
            format!("{field} {text}"),
            cause,
            "mend the name, or the resolver of this host (/etc/hosts, /etc/resolv.conf), or give an IP address",
        )
    };
    let step = match found {
        Err(_) => failed(format!("no answer within {} s", RESOLVE_WITHIN.as_secs())),
        Ok(Err(error)) => failed(format!("it does not resolve: {error}")),
        Ok(Ok(addrs)) => {
            let mut addrs: Vec<String> = addrs.map(|addr| addr.to_string()).collect();
            addrs.dedup();
            match addrs.as_slice() {
                [] => failed("it has no address".to_owned()),
                [addr] => Step::ok("name", format!("{field} {text}"), format!("{addr}, in {took} ms")),
                [first, ..] => Step::warning(
                    "name",
                    format!("{field} {text}"),
                    format!(
                        "{}, in {took} ms; the first, {first}, is used, and it must be the same at every node",
                        addrs.join(", ")
                    ),
                ),
            }
        }
    };
    let good = !step.is_failed();
    report.add(step);
    good
}
