//! Settings from texts, files and variables.

use super::*;
use crate::Event;

fn given(text: &str) -> Given {
    Given::from_toml_str(text).unwrap()
}

fn variables(pairs: &[(&str, &str)]) -> Result<Given, Error> {
    let find = |name: &str| pairs.iter().find(|(key, _)| *key == name);
    Given::from_variables("APP_", |name| find(name).map(|(_, value)| (*value).into()))
}

#[test]
fn what_is_above_wins_setting_by_setting() {
    let file =
        given("cluster = \"c\"\nname = \"f\"\nweight = 3\nseeds = \"127.0.0.1:1,[::1]:2\"\nfound = true");
    let environment = variables(&[
        ("APP_NAME", "e"),
        ("APP_SEEDS", "127.0.0.1:9"),
        ("OTHER_WEIGHT", "1"),
    ])
    .unwrap();
    let flags = Given {
        found: Some(false),
        ..Given::default()
    };
    let effective = flags.over(environment).over(file).effective().unwrap();
    assert_eq!(effective.name.as_deref(), Some("e"));
    assert_eq!((effective.weight, effective.found), (3, false));
    assert_eq!(effective.all_seeds(), ["127.0.0.1:9"]);
}

#[test]
fn each_key_is_read_from_a_variable_as_from_a_file() {
    let values = [
        ("cluster", "c", "\"c\""),
        ("name", "n", "\"n\""),
        ("bind", "127.0.0.1:5", "\"127.0.0.1:5\""),
        ("advertise", "127.0.0.1:5", "[\"127.0.0.1:5\"]"),
        ("seeds", "127.0.0.1:5,file:/x", "[\"127.0.0.1:5\", \"file:/x\"]"),
        ("locators", "127.0.0.1", "\"127.0.0.1\""),
        ("dns-server", "127.0.0.1", "\"127.0.0.1\""),
        ("group", "a,b", "[\"a\", \"b\"]"),
        ("no-group", "false", "false"),
        ("order", "total", "\"total\""),
        ("engine", "rotation", "\"rotation\""),
        ("dissemination", "multicast", "\"multicast\""),
        ("multicast-group", "239.1.2.3:4", "\"239.1.2.3:4\""),
        ("multicast-interface", "127.0.0.1", "\"127.0.0.1\""),
        ("multicast-hops", "2", "2"),
        ("slow-after", "1500ms", "\"1500ms\""),
        ("max-object", "1MiB", "\"1MiB\""),
        ("object-memory", "3MiB", "\"3MiB\""),
        ("transport", "udp", "\"udp\""),
        ("max-datagram", "9000", "9000"),
        ("metadata", "role=db,zone=1", "{ role = \"db\", zone = \"1\" }"),
        ("expect", "3", "3"),
        ("found", "false", "false"),
        ("profile", "wan", "\"wan\""),
        ("membership", "cut", "\"cut\""),
        ("policy", "any", "\"any\""),
        ("primary-lease", "false", "false"),
        ("udp-probes", "false", "false"),
        ("weight", "2", "2"),
        ("insecure", "true", "true"),
        ("allow-faults", "true", "true"),
    ];
    let keys: Vec<&str> = values.iter().map(|(key, ..)| *key).collect();
    let all: Vec<&str> = Given::KEYS
        .iter()
        .copied()
        .filter(|key| *key != "key-file")
        .collect();
    assert_eq!(keys, all);
    let names: Vec<String> = keys
        .iter()
        .map(|key| format!("APP_{}", key.replace('-', "_").to_uppercase()))
        .collect();
    let pairs: Vec<(&str, &str)> = names
        .iter()
        .zip(values)
        .map(|(name, (_, value, _))| (name.as_str(), value))
        .collect();
    let lines: Vec<String> = values
        .iter()
        .map(|(key, _, toml)| format!("{key} = {toml}\n"))
        .collect();
    let from_variables = variables(&pairs).unwrap().effective().unwrap();
    let from_file = given(&lines.concat()).effective().unwrap();
    assert_eq!(from_variables.to_toml(), from_file.to_toml());
    let again = given(&from_file.to_toml()).effective().unwrap();
    assert_eq!(again.to_toml(), from_file.to_toml());
}

#[test]
fn an_error_says_where_what_and_what_is_accepted() {
    let file = std::env::temp_dir().join(format!("antiphon-config-{}.toml", std::process::id()));
    for (text, expected) in [
        (
            "cluster = \"c\"\nseed = [\"x\"]",
            &["line 2", "`seed`", "`seeds`", "`weight`"][..],
        ),
        (
            "cluster = \"c\"\norder = \"causal\"",
            &["line 2", "\"causal\" is no order", "`fifo`"],
        ),
        (
            "cluster = \"c\"\nprofile = \"moon\"",
            &["line 2", "\"moon\" is no profile", "`wan`"],
        ),
        ("cluster = \"c\"\nslow-after = \"30\"", &["line 2", "30s"]),
        ("cluster = \"c\"\nmax-object = \"big\"", &["line 2", "256MiB"]),
        ("cluster = \"c\"\nweight = -1", &["line 2", "weight", "u16"]),
        (
            "cluster = \"c\"\n\nbind = \"10.0.0.1:99999\"",
            &["line 3: bind", "65535"],
        ),
        (
            "cluster = \"c\"\nbind = \"10.0.0.1:1\"",
            &["line 2: bind 10.0.0.1:1", "loopback", "--key-file"],
        ),
        (
            "cluster = \"c\"\nseeds = [\"127.0.0.1:7400\", \"127.0.0.1:0\"]",
            &["line 2: seeds \"127.0.0.1:0\"", "nobody is reached at port 0"],
        ),
        (
            "cluster = \"c\"\nfound = true\nexpect = 2",
            &["`found`", "`expect`"],
        ),
        (
            "cluster = \"c\"\nkey-file = \"/nonexistent\"",
            &["line 2: cannot read key file /nonexistent"],
        ),
    ] {
        std::fs::write(&file, text).unwrap();
        let error = Builder::from_toml_file(&file).unwrap_err().to_string();
        let at = format!("configuration file {}: ", file.display());
        assert!(error.starts_with(&at), "{error}");
        for expected in expected {
            assert!(error.contains(expected), "{text}: {error}");
        }
        assert!(Builder::from_toml_str(text).is_err());
    }
    std::fs::remove_file(&file).unwrap();
    let error = Builder::from_toml_file(&file).unwrap_err().to_string();
    assert!(error.starts_with("cannot read configuration file"), "{error}");
    assert_eq!(
        Builder::from_toml_str("name = \"n\"").unwrap_err(),
        Error::Missing { key: "cluster" }
    );
}

#[test]
fn a_variable_that_is_not_understood_is_named() {
    for (name, value, expected) in [
        ("APP_WEIGHT", "-1", "\"-1\" is no number from 0 to 65535"),
        ("APP_FOUND", "yes", "\"yes\" is neither true nor false"),
        ("APP_ORDER", "causal", "expected one of `unordered`"),
        ("APP_SLOW_AFTER", "30", "\"30\": expected a time"),
        ("APP_METADATA", "role", "key=value"),
        ("APP_METADATA", "", "metadata is empty"),
    ] {
        let error = variables(&[(name, value)]).unwrap_err().to_string();
        assert!(error.starts_with(name) && error.contains(expected), "{error}");
    }
    let empty = variables(&[("APP_CLUSTER", "c"), ("APP_SEEDS", "")]).unwrap();
    let error = empty.effective().unwrap_err().to_string();
    assert!(error.contains("seeds is empty"), "{error}");
}

#[test]
fn a_nodes_name_has_no_slash_since_those_of_its_clients_have_one() {
    for (name, is_refused) in [("a/x", true), ("a.x", false)] {
        let given = variables(&[("APP_CLUSTER", "c"), ("APP_NAME", name)]).unwrap();
        let refused = given.effective().map(drop).map_err(|error| error.to_string());
        assert_eq!(refused.is_err_and(|error| error.contains("slash")), is_refused);
        let builder = crate::Cluster::builder("c").name(name);
        let refused = builder.check(&[], &[]).map_err(|error| error.to_string());
        assert_eq!(refused.is_err_and(|error| error.contains("slash")), is_refused);
    }
}

#[test]
fn sources_are_told_from_seeds_and_what_cannot_be_meant_is_refused_by_name() {
    let text = "cluster = \"c\"\nexpect = 2\ninsecure = true\nlocators = \"loc.example\"\n\
                seeds = [\"10.0.0.1\", \"dns:db.example\", \"file:/etc/nodes\"]\n\
                dns-server = [\"10.0.0.53\", \"[::1]:8600\"]";
    let effective = given(text).effective().unwrap();
    assert_eq!(effective.sources, ["dns:db.example", "file:/etc/nodes"]);
    assert_eq!(effective.locators, ["loc.example"]);
    let often =
        "cluster = \"c\"\ninsecure = true\nlocators = [\"10.0.0.9\", \"l.example\", \"10.0.0.9:7410\"]";
    let often = given(often).effective().unwrap();
    assert_eq!(often.locators, ["10.0.0.9", "l.example"]);
    assert_eq!(
        effective.dns_servers,
        ["10.0.0.53:53".parse().unwrap(), "[::1]:8600".parse().unwrap()]
    );
    assert_eq!(
        effective.all_seeds(),
        ["10.0.0.1:7400", "dns:db.example", "file:/etc/nodes"]
    );
    for (key, value) in [
        ("seeds", "srv:"),
        ("locators", "a b"),
        ("locators", "multicast"),
        ("dns-server", "ns.example"),
    ] {
        let text = format!("cluster = \"c\"\n{key} = {value:?}");
        let error = given(&text).effective().unwrap_err();
        assert!(
            matches!(&error, Error::Value { key: at, .. } if *at == key),
            "{error:?}"
        );
        assert!(error.to_string().starts_with(key), "{error}");
    }
}

#[test]
fn what_is_the_programs_alone_is_passed_over() {
    let text = "cluster = \"c\"\njson = true\nsocket = \"none\"\nspool = \"/nonexistent\"\nwitness = true";
    given(text).effective().unwrap();
    let error = Given::from_toml_str("config = \"x\"").unwrap_err().to_string();
    assert!(error.contains("`config`"), "{error}");
}

#[tokio::test]
async fn a_node_runs_with_what_is_given_and_its_groups_have_their_options() {
    let text = "cluster = \"c\"\nname = \"n\"\nbind = \"127.0.0.1:0\"\nfound = true\norder = \"fifo\"\nmetadata = { role = \"db\" }";
    let cluster = Builder::from_toml_str(text).unwrap().join().await.unwrap();
    assert_eq!(cluster.name(), "n");
    assert_eq!(cluster.view().unwrap().members[0].metadata["role"], "db");
    let mut group = cluster.group("g").join().await.unwrap();
    match group.next().await.unwrap() {
        Event::View(view) => assert_eq!(view.order, Order::Fifo),
        other => panic!("{other:?}"),
    }
    cluster.leave().await.unwrap();
}
