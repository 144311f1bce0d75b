//! Names of hosts, each looked up by itself, all at the same time.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::time::Duration;

use antiphon::config::{DEFAULT_PORT, Written as WrittenAddress};
use antiphon::discovery::Source;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout_at};

use super::report::{Report, Step};
use crate::settings::Written;

/// What each name, with its port, stands for, and how long it took to find out.
type Looked = BTreeMap<String, (Result<Vec<SocketAddr>, String>, Duration)>;

/// The rest of the given texts: addresses, and names that have an address.
#[derive(Debug, Default)]
pub(super) struct Usable {
    pub(super) bind: Vec<String>,
    pub(super) advertise: Vec<String>,
    pub(super) seeds: Vec<String>,
    /// Seeds that were left out: a node with one of these does not start.
    pub(super) unresolved: Vec<String>,
}

/// Looks up every name, within this time, and tells what it stands for.
pub(super) async fn resolve(report: &mut Report, written: &Written, within: Duration) -> Usable {
    let mut usable = Usable::default();
    let texts = written.bind.iter().chain(&written.advertise);
    let written_out = written.seeds.iter().filter(|text| !Source::is_meant_by(text));
    let parts = texts.chain(written_out).flat_map(|text| text.split('/'));
    let looked = look_up(parts.filter_map(|part| name_of(part.trim())), within).await;
    let unresolved = &mut usable.unresolved;
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
                all &= tell(report, field, part.trim(), &looked, within);
            }
            // What this node itself is called must resolve, or it cannot start: the check of the settings
            // says so.
            match all || field != "seeds" {
                true => good.push(text.clone()),
                false => unresolved.push(text.clone()),
            }
        }
    }
    usable
}

/// The name that is to be looked up, with its port; none if it is no name.
fn name_of(text: &str) -> Option<String> {
    match WrittenAddress::parse(text, DEFAULT_PORT) {
        Ok(WrittenAddress::Name(host, port)) => Some(format!("{host}:{port}")),
        // The check of the settings says what is wrong with a text that is neither.
        Ok(WrittenAddress::Address(_)) | Err(_) => None,
    }
}

async fn look_up(names: impl Iterator<Item = String>, within: Duration) -> Looked {
    let begun = Instant::now();
    let mut lookups = JoinSet::new();
    let names: BTreeSet<String> = names.collect();
    for name in names {
        lookups.spawn(async move {
            let found = tokio::net::lookup_host(&name).await;
            let found = found.map(Iterator::collect).map_err(|error| error.to_string());
            (name, (found, begun.elapsed()))
        });
    }
    let mut looked = Looked::new();
    while let Ok(Some(found)) = timeout_at(begun + within, lookups.join_next()).await {
        looked.extend(found.ok());
    }
    looked
}

/// Says what a name stands for. Whether it can be used.
fn tell(report: &mut Report, field: &str, text: &str, looked: &Looked, within: Duration) -> bool {
    let Some(name) = name_of(text) else {
        return true;
    };
    let failed = |cause: String| {
        Step::failed(
            "name",
            "name-not-resolved",
            format!("{field} {text}"),
            cause,
            "mend the name, or the resolver of this host (/etc/hosts, /etc/resolv.conf), or give an IP address",
        )
    };
    let step = match looked.get(&name) {
        None => failed(format!("no answer within {} s", within.as_secs_f32())),
        Some((Err(error), _)) => failed(format!("it does not resolve: {error}")),
        Some((Ok(addrs), took)) => {
            let took = took.as_millis();
            let mut addrs: Vec<String> = addrs.iter().map(ToString::to_string).collect();
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

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn many_names_take_as_long_as_one_and_none_longer_than_is_given() {
        let names = (0..8).map(|number| format!("nowhere-{number}.invalid:1"));
        let within = Duration::from_secs(1);
        let begun = Instant::now();
        let looked = look_up(names.chain(["localhost:7".to_owned()]), within).await;
        assert!(begun.elapsed() < within * 3, "{:?}", begun.elapsed());
        let (found, _) = &looked["localhost:7"];
        assert!(found.as_ref().unwrap().iter().all(|addr| addr.port() == 7));
        assert!(
            looked
                .iter()
                .all(|(name, (found, _))| found.is_err() || name.starts_with("localhost"))
        );
    }

    #[test]
    fn addresses_are_no_names_and_names_have_a_port() {
        assert_eq!(name_of("10.0.0.1"), None);
        assert_eq!(name_of("[fd00::1]:1"), None);
        assert_eq!(name_of("[fd00::1]"), None);
        assert_eq!(name_of("127.0.0.1:99999"), None);
        assert_eq!(name_of("db.example").as_deref(), Some("db.example:7400"));
        assert_eq!(name_of("db.example:1").as_deref(), Some("db.example:1"));
    }
}
