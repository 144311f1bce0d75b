use std::collections::{BTreeMap, BTreeSet};

use antiphon::memory::MemoryNetwork;
use antiphon::{Cluster, Profile};

use super::families::FAMILIES;
use super::page::Kind;
use super::*;
use crate::Hub;

/// What a page says: help, type and samples of each family. It fails at what the format does not allow.
fn parsed(text: &str) -> BTreeMap<String, (String, Vec<(String, f64)>)> {
    let mut families: BTreeMap<String, (String, Vec<(String, f64)>)> = BTreeMap::new();
    let mut open = String::new();
    assert!(text.ends_with('\n'));
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        if let Some(help) = line.strip_prefix("# HELP ") {
            let (name, help) = help.split_once(' ').expect("a help");
            assert!(!help.is_empty() && !families.contains_key(name), "{line}");
            let kind = lines.next().expect("a type");
            let kind = kind.strip_prefix(&format!("# TYPE {name} ")).expect(kind);
            families.insert(name.to_owned(), (kind.to_owned(), Vec::new()));
            open = name.to_owned();
            continue;
        }
        let (series, number) = line.rsplit_once(' ').expect(line);
        let (name, labels) = match series.split_once('{') {
            Some((name, labels)) => (name, labels.strip_suffix('}').expect(line)),
            None => (series, ""),
        };
        assert_eq!(name, open, "samples stand together below their family");
        for label in labels.split("\",").filter(|label| !label.is_empty()) {
            let (label, value) = label.split_once("=\"").expect(line);
            assert!(
                label
                    .bytes()
                    .all(|byte| byte.is_ascii_lowercase() || byte == b'_'),
                "{line}"
            );
            assert!(!value.trim_end_matches('"').contains('"'), "{line}");
        }
        let samples = &mut families.get_mut(name).expect(line).1;
        assert!(samples.iter().all(|(other, _)| other != labels), "twice: {line}");
        samples.push((labels.to_owned(), number.parse().expect(line)));
    }
    families
}

fn value(page: &str, name: &str, labels: &str) -> f64 {
    let families = parsed(page);
    let samples = &families
        .get(name)
        .unwrap_or_else(|| panic!("{name} is not on the page"))
        .1;
    let found = samples.iter().find(|(of, _)| of == labels);
    found
        .unwrap_or_else(|| panic!("{name} has no {labels}: {samples:?}"))
        .1
}

async fn node() -> Hub {
    let cluster = Cluster::builder("metrics")
        .name("n1")
        .bind("10.0.0.1:7400")
        .memory(&MemoryNetwork::new())
        .profile(Profile::local())
        .found();
    Hub::new(cluster.start().await.unwrap())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_page_has_each_family_once_and_counts_what_happened() {
    let hub = node().await;
    let following = tokio::spawn(hub.meters().clone().follow(hub.cluster().clone()));
    while !hub.cluster().view().is_some_and(|view| view.is_primary()) {
        tokio::task::yield_now().await;
    }
    let (session, mut events) = hub.session().unwrap();
    let ask = |line: &str| antiphon_api::Command::parse(line).unwrap();
    session
        .obey(ask(r#"{"put":{"map":"m","key":"k","value":"v","id":1}}"#))
        .await;
    session
        .obey(ask(r#"{"unlock":{"name":"l","token":7,"id":2}}"#))
        .await;
    session.obey(ask(r#"{"send":{"payload":"v"}}"#)).await;
    session
        .obey(ask(r#"{"join":{"group":"secret-name","id":4}}"#))
        .await;
    let mut replies = 0;
    while replies < 3 {
        if let antiphon_api::Event::Reply(_) = events.next().await.unwrap() {
            replies += 1;
        }
    }
    let connected = hub.meters().connected(Carrier::Resp);
    hub.meters().refused(Refused::Plain);
    let page = read(&hub).await;
    let families = parsed(&page);
    let named: BTreeSet<&str> = families.keys().map(String::as_str).collect();
    let listed: BTreeSet<&str> = FAMILIES.iter().map(|family| family.name).collect();
    assert_eq!(named, listed);
    for family in FAMILIES {
        let (kind, samples) = &families[family.name];
        assert_eq!(kind, family.kind.text());
        for (labels, _) in samples {
            let names: Vec<&str> = labels
                .split("\",")
                .filter_map(|label| Some(label.split_once('=')?.0))
                .collect();
            assert_eq!(names, family.labels, "{}", family.name);
        }
    }
    for (name, labels, expected) in [
        ("antiphon_build_info", "version=\"0.1.0\"", 1.0),
        ("antiphon_node_answers", "", 1.0),
        ("antiphon_node_primary", "", 1.0),
        ("antiphon_node_view_members", "", 1.0),
        ("antiphon_node_incarnations_total", "", 1.0),
        (
            "antiphon_agent_operations_total",
            "op=\"put\",outcome=\"done\"",
            1.0,
        ),
        (
            "antiphon_agent_operations_total",
            "op=\"join\",outcome=\"done\"",
            1.0,
        ),
        (
            "antiphon_agent_operations_total",
            "op=\"unlock\",outcome=\"not_held\"",
            1.0,
        ),
        ("antiphon_agent_malformed_commands_total", "", 1.0),
        ("antiphon_agent_clients", "", 1.0),
        ("antiphon_agent_groups", "", 1.0),
        ("antiphon_agent_connections", "carrier=\"resp\"", 1.0),
        (
            "antiphon_agent_connections_refused_total",
            "reason=\"plain\"",
            1.0,
        ),
    ] {
        assert_eq!(value(&page, name, labels), expected, "{name}");
    }
    assert!(value(&page, "antiphon_node_views_total", "") >= 1.0);
    assert!(value(&page, "antiphon_node_view_number", "") >= 1.0);
    assert!(!page.contains("secret-name"), "no name of a program's is a label");
    drop((connected, session));
    let page = read(&hub).await;
    assert_eq!(
        value(&page, "antiphon_agent_connections", "carrier=\"resp\""),
        0.0
    );
    assert_eq!(
        value(&page, "antiphon_agent_connections_total", "carrier=\"resp\""),
        1.0
    );
    // Of a node that has ended there is what was counted.
    hub.cluster().abort();
    hub.cluster().closed().await;
    following.await.unwrap();
    let page = read(&hub).await;
    assert_eq!(value(&page, "antiphon_node_answers", ""), 0.0);
    assert!(!page.contains("antiphon_node_primary") && page.contains("antiphon_agent_clients"));
}

#[test]
fn names_have_their_units_and_counters_say_that_they_are_sums() {
    let mut names = BTreeSet::new();
    for family in FAMILIES {
        let name = family.name;
        assert!(name.starts_with("antiphon_") && names.insert(name), "{name}");
        assert_eq!(name.ends_with("_total"), family.kind == Kind::Counter, "{name}");
        assert!(family.help.ends_with('.'), "{name}");
    }
}

#[test]
fn the_document_lists_each_family_as_it_is() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/metrics.md");
    let document = std::fs::read_to_string(path).unwrap();
    let row = |family: &&super::page::Family| {
        let labels: Vec<String> = family.labels.iter().map(|label| format!("`{label}`")).collect();
        let (name, kind) = (family.name, family.kind.text());
        format!("| `{name}` | {kind} | {} | {} |", labels.join(", "), family.help)
    };
    for family in FAMILIES {
        let row = row(family);
        assert!(
            document.lines().any(|line| line == row),
            "docs/metrics.md lacks\n{row}"
        );
    }
    let rows = document.lines().filter(|line| line.starts_with("| `antiphon_"));
    assert_eq!(rows.count(), FAMILIES.len());
    // Each value of each label is told, but for the words of commands.
    let words = |all: Vec<&'static str>| all;
    for word in [
        words(Carrier::ALL.iter().map(|label| label.text()).collect()),
        words(Refused::ALL.iter().map(|label| label.text()).collect()),
        words(Failed::ALL.iter().map(|label| label.text()).collect()),
        words(Removal::ALL.iter().map(|label| label.text()).collect()),
        words(Reload::ALL.iter().map(|label| label.text()).collect()),
        words(Gone::ALL.iter().map(|label| label.text()).collect()),
    ]
    .concat()
    {
        assert!(
            document.contains(&format!("`{word}`")),
            "docs/metrics.md does not tell of {word}"
        );
    }
}
