//! Settings from flags and files.

use std::collections::BTreeMap;

use antiphon::config::{Patience, Seed};
use antiphon::{
    Dissemination, EngineKind, GroupOptions, Interface, Multicast, Order, Policy, TotalEngine, Transport,
};
use clap::Parser as _;

use super::*;
use crate::args::{Cli, Command};

fn args(flags: &str) -> NodeArgs {
    let line = ["antiphon", "node"].into_iter().chain(flags.split_whitespace());
    match Cli::try_parse_from(line).unwrap().command {
        Command::Node(args) => *args,
        other => panic!("{other:?}"),
    }
}

fn resolve(flags: &str, file: &str) -> Result<Settings, String> {
    let given = Given::from_toml_str(file).map_err(|error| error.to_string())?;
    let own = toml::from_str::<Own>(file).map_err(|error| error.to_string())?;
    Settings::assemble(args(flags), (given, own), Given::effective).map_err(|failed| failed.message)
}

#[test]
fn the_bounds_of_a_payload_are_those_of_the_library() {
    for size in ["64KiB", "1GiB"] {
        resolve(&format!("--cluster c --name n --max-object {size}"), "").unwrap();
    }
}

#[test]
fn a_flag_wins_over_the_file_and_the_file_over_the_default() {
    let file = r#"
        cluster = "file"
        name = "f"
        bind = "127.0.0.1:1"
        seeds = ["127.0.0.1:1", "[::1]:2"]
        group = "g,h"
        order = "fifo"
        engine = "rotation"
        dissemination = "chain"
        slow-after = "90s"
        max-object = "64MiB"
        object-memory = "100MiB"
        transport = "udp"
        max-datagram = 1400
        profile = "wan"
        membership = "cut"
        policy = "any"
        primary-lease = false
        udp-probes = false
        weight = 3
        found = true
        allow-faults = true
        metadata = { role = "db" }
    "#;
    let settings = resolve(
        "--name flag --found=false --seeds 127.0.0.1:9 --metadata a=b=c",
        file,
    )
    .unwrap();
    assert_eq!(settings.cluster, "file");
    assert_eq!(settings.name, "flag");
    assert_eq!(settings.bind[0].port(), 1);
    assert_eq!(settings.seeds, [Seed(vec!["127.0.0.1:9".parse().unwrap()])]);
    assert_eq!(settings.groups, ["g", "h"]);
    assert_eq!(settings.options.order, Order::Fifo);
    assert_eq!(settings.options.engine, TotalEngine::Rotation);
    assert_eq!(settings.options.dissemination, Dissemination::Chain);
    assert_eq!(Patience(settings.options.slow_after).to_string(), "90s");
    assert_eq!(
        (
            settings.options.max_object_bytes,
            settings.options.object_memory_bytes
        ),
        (64 << 20, 100 << 20)
    );
    assert_eq!(
        (settings.transport, settings.max_datagram),
        (Transport::Udp, Some(1400))
    );
    assert_eq!(settings.profile.name, "wan");
    assert_eq!((settings.weight, settings.membership), (3, EngineKind::Cut));
    assert_eq!(settings.policy, Policy::Any);
    assert!(!settings.primary_lease && !settings.udp_probes);
    assert!(!settings.found);
    assert!(settings.allow_faults);
    assert!(!settings.json);
    assert_eq!(
        settings.metadata,
        BTreeMap::from([("a".to_owned(), "b=c".to_owned())])
    );
}

#[test]
fn two_names_are_enough_for_a_first_node() {
    let settings = resolve("--cluster c --name n", "").unwrap();
    assert_eq!(settings.bind, ["127.0.0.1:7400".parse().unwrap()]);
    assert_eq!(settings.groups, ["main"]);
    assert_eq!(settings.options.order, Order::Total);
    assert_eq!(settings.options, GroupOptions::default());
    // As --help says.
    assert_eq!(Patience(settings.options.slow_after).to_string(), "30s");
    assert_eq!(
        (
            settings.options.max_object_bytes,
            settings.options.object_memory_bytes
        ),
        (256 << 20, 512 << 20)
    );
    assert_eq!(
        (settings.transport, settings.max_datagram),
        (Transport::Tcp, None)
    );
    assert_eq!(settings.profile.name, "lan");
    assert_eq!(
        (settings.weight, settings.membership),
        (1, EngineKind::Coordinator)
    );
    assert_eq!(settings.policy, Policy::Majority);
    assert!(settings.primary_lease && settings.udp_probes);
    assert!(settings.seeds.is_empty() && settings.warnings.is_empty());
}

#[test]
fn what_is_printed_gives_the_same_settings_again() {
    let flags = "--cluster c --name n --bind [::1]:5 --bind 127.0.0.1:5 --seeds 127.0.0.1:5/[::1]:7,[::1]:6,dns:db:1 --locators loc:1,127.0.0.1 --dns-server 127.0.0.1 --group a --group b \
                 --metadata role=db,zone=z.1 --expect 3 --profile local --order fifo --engine rotation --dissemination chain --slow-after never --max-object 1MiB --spool / --json --weight 0 --membership cut --policy any --primary-lease=false --udp-probes=false \
                 --transport udp --max-datagram 9000";
    let printed = resolve(flags, "").unwrap().to_toml();
    let again = resolve("", &printed).unwrap();
    assert_eq!(again.to_toml(), printed);
    assert_eq!(again.metadata.len(), 2);
    let printed = resolve("--cluster c --name n --no-group", "").unwrap().to_toml();
    assert_eq!(resolve("", &printed).unwrap().groups, [""; 0]);
}

#[test]
fn where_multicast_goes_is_said_only_with_it_and_printed() {
    let flags = "--cluster c --name n --dissemination multicast";
    let default = resolve(flags, "").unwrap();
    let own = Multicast::of_cluster("c");
    assert_eq!(default.multicast, Some(own));
    let flags = "--cluster c --name n --dissemination multicast --multicast-group [ff12::1]:9 --multicast-interface 3 \
                 --multicast-hops 2 --insecure";
    let printed = resolve(flags, "").unwrap().to_toml();
    let again = resolve("", &printed).unwrap();
    assert_eq!(again.to_toml(), printed);
    let multicast = again.multicast.as_ref().unwrap();
    assert_eq!(
        (multicast.interface, multicast.hops),
        (Some(Interface::Index(3)), 2)
    );
    for (flags, expected) in [
        ("--multicast-hops 2", "--dissemination multicast"),
        (
            "--dissemination multicast --multicast-interface no/such",
            "network interface",
        ),
        (
            "--dissemination multicast --multicast-interface lo",
            "multicast-interface is \"lo\", but for the IPv4 group",
        ),
        (
            "--dissemination multicast --multicast-group [ff12::1]:9",
            "give --multicast-interface",
        ),
        (
            "--dissemination multicast --multicast-interface 10.0.0.1",
            "on interface 10.0.0.1 is not on loopback",
        ),
        (
            "--dissemination multicast --multicast-group [ff12::1]:9 --multicast-interface 3",
            "--insecure",
        ),
    ] {
        let error = resolve(&format!("--cluster c --name n {flags}"), "").unwrap_err();
        assert!(error.contains(expected), "{flags}: {error}");
    }
}

#[test]
fn an_unknown_key_in_the_file_is_named() {
    let error = resolve("", "cluster = \"c\"\nname = \"n\"\nseed = [\"127.0.0.1:1\"]").unwrap_err();
    assert!(
        error.contains("seed") && error.contains("seeds") && error.contains("line 3"),
        "{error}"
    );
    let error = resolve("", "key_file = \"k\"").unwrap_err();
    assert!(
        error.contains("key_file") && error.contains("key-file"),
        "{error}"
    );
}

#[test]
fn wrong_values_are_errors_that_name_the_setting() {
    for (flags, file, expected) in [
        ("--name n", "", "no cluster is given"),
        ("--cluster c", "", "ANTIPHON_NAME"),
        ("--cluster c --name n", "weight = -1", "weight"),
        ("--cluster c --name n", "seeds = [1]", "list of strings"),
        ("--cluster c --name n", "order = \"causal\"", "causal"),
        ("--cluster c --name n", "dissemination = \"ring\"", "ring"),
        ("--cluster c --name n", "slow-after = \"30\"", "slow-after"),
        ("--cluster c --name n", "max-object = \"big\"", "256MiB"),
        (
            "--cluster c --name n --spool /nonexistent/spool",
            "",
            "/nonexistent/spool",
        ),
        ("--cluster c --name n", "transport = \"sctp\"", "sctp"),
        ("--cluster c --name n", "expect = 0", "expect"),
        (
            "--cluster c --name n --max-object 2GiB",
            "",
            "max-object is 2GiB: give 64KiB to 1GiB",
        ),
        ("--cluster c --name n --max-object 1KiB", "", "max-object is 1KiB"),
        (
            "--cluster c --name n --object-memory 1MiB",
            "",
            "object-memory is 1MiB",
        ),
        ("--cluster c --name n --found --expect 2", "", "`expect`"),
        ("--cluster c --name n --weight 0", "", "weight 0"),
        (
            "--cluster c --name n --max-datagram 100",
            "",
            "`max_datagram` is 100",
        ),
        ("--cluster c --name n --locators 10.0.0.9", "", "--key-file"),
        ("--cluster c --name n --bind 127.0.0.1:99999", "", "bind"),
        ("--cluster c --name n --seeds ,", "", "seeds has an empty entry"),
        (
            "--cluster c --name n --seeds 127.0.0.1,",
            "",
            "seeds has an empty entry",
        ),
        ("--cluster c --name n", "seeds = \"\"", "seeds is empty"),
        ("--cluster c --name n --locators=", "", "locators is empty"),
        ("--cluster c --name n --bind=", "", "bind is empty"),
        ("--cluster c --name n --group=", "", "group is empty"),
        ("--cluster c --name n --metadata=", "", "metadata is empty"),
        (
            "--cluster c --name n --seeds 127.0.0.1:1,nowhere.invalid",
            "",
            "nowhere.invalid",
        ),
        ("--cluster c --name n --seeds nowhere.invalid", "", "dns:NAME"),
        (
            "--cluster c --name n --bind [fe80::1]:7400 --insecure",
            "",
            "bind \"[fe80::1]:7400\"",
        ),
        (
            "--cluster c --name n --bind [::]:7400 --advertise fe80::1 --insecure",
            "",
            "unique local",
        ),
        (
            "--cluster c --name n --seeds [fd00::1]:1,[fe80::1%2]:1 --insecure",
            "",
            "seeds \"[fe80::1%2]:1\"",
        ),
        ("--cluster c --name n --locators fe80::9", "", "unique local"),
        ("--cluster c --name n --metadata role", "", "key=value"),
        ("--cluster c --name n --group a --group a", "", "twice"),
        (
            "--cluster c --name n --metadata k=v --metadata k=w",
            "",
            "\"k\" twice",
        ),
        ("--cluster c --name n --metadata k=v,l=1,k=v", "", "\"k\" twice"),
        (
            "--cluster c --name n",
            "metadata = [\"k=v\", \"k=w\"]",
            "\"k\" twice",
        ),
        ("--cluster c --name n --key-file /nonexistent", "", "antiphon key"),
        (
            "--cluster c --name n --bind 0.0.0.0 --insecure",
            "",
            "--advertise",
        ),
    ] {
        let error = resolve(flags, file).expect_err(flags);
        assert!(error.contains(expected), "{flags} {file}: {error}");
    }
    let long = "x".repeat(65);
    assert!(
        resolve(&format!("--cluster {long} --name n"), "")
            .unwrap_err()
            .contains("64 bytes")
    );
}

#[test]
fn without_a_key_only_loopback_is_allowed_unless_insecure_is_said() {
    for flags in [
        "--bind 10.0.0.1",
        "--bind 127.0.0.1 --seeds 127.0.0.1,10.0.0.2:1",
        "--advertise 10.0.0.1:7400",
    ] {
        let flags = format!("--cluster c --name n {flags}");
        let error = resolve(&flags, "").unwrap_err();
        assert!(
            error.contains("loopback") && error.contains("--key-file"),
            "{error}"
        );
        let allowed = resolve(&format!("{flags} --insecure"), "").unwrap();
        assert!(allowed.warnings[0].contains("insecure"));
    }
    assert!(resolve("--cluster c --name n --bind [::1]:1 --seeds [::1]:1", "").is_ok());
    // The node itself refuses the IPv4 loopback address in an IPv6 one.
    assert!(resolve("--cluster c --name n --bind [::ffff:127.0.0.1]:1", "").is_err());
}

#[test]
fn a_seed_at_port_0_is_refused_in_a_flag_and_in_a_file() {
    let flags = "--cluster c --name n";
    for refused in [
        resolve(&format!("{flags} --seeds 127.0.0.1:1,127.0.0.1:0"), ""),
        resolve(flags, "seeds = [\"db.invalid:0\"]"),
    ] {
        let error = refused.unwrap_err();
        assert!(
            error.contains("seeds") && error.contains("nobody is reached at port 0"),
            "{error}"
        );
    }
}

#[test]
fn a_port_that_is_left_out_is_the_default_one() {
    let settings = resolve(
        "--cluster c --name n --bind 127.0.0.2 --seeds ::1,127.0.0.1,localhost:9/127.0.0.3",
        "",
    )
    .unwrap();
    assert_eq!(settings.bind, ["127.0.0.2:7400".parse().unwrap()]);
    assert_eq!(settings.seeds[0].to_string(), "[::1]:7400");
    assert_eq!(settings.seeds[2].0[0].port(), 9);
    assert_eq!(settings.seeds[2].0[1], "127.0.0.3:7400".parse().unwrap());
}
