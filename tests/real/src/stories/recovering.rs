//! The operator's way out (R11): what a majority that is lost for good leaves behind goes on by a person's
//! word.

use super::*;
use crate::Cluster;

pub(super) const STORIES: &[Story] = &[story!(
    when_two_of_three_hosts_are_lost_for_good_the_third_goes_on_by_an_operators_word_and_new_ones_join
)];

fn when_two_of_three_hosts_are_lost_for_good_the_third_goes_on_by_an_operators_word_and_new_ones_join(
    engine: Engine,
) {
    let Some(mut cluster) = Cluster::on_hosts(5, told_on(engine)) else {
        return;
    };
    let socket = cluster.folder().join("socket").to_string_lossy().into_owned();
    cluster.start(&["n1", "n2"]);
    cluster.start_with("n3", &["--console", &socket]);
    let three = ["n1", "n2", "n3"];
    cluster.until_together(&three, SOON);
    three.iter().for_each(|name| cluster.say(name, 20));
    cluster.until_delivered(&three, SOON);
    assert_eq!(
        ask(&socket, &["recover", "--from", "n3", "--yes"]).1,
        Some(1),
        "nothing is lost yet"
    );

    // The machines are gone: nothing of them is heard again, and nothing proves it.
    cluster.partition(&[&["n1"], &["n2"], &["n3", "n4", "n5"]]);
    cluster.kill("n1");
    cluster.kill("n2");
    cluster.until("the survivor knows that it has no majority", DETECTED, |trace| {
        !trace.last("n3").primary()
    });
    cluster.throughout("it waits for as long as it takes", WATCHED, |trace| {
        !trace.last("n3").primary()
    });
    let (shown, code) = ask(&socket, &["recover", "--from", "n3"]);
    assert_eq!((shown.len(), code), (1, Some(2)), "nobody said yes");
    assert_eq!(shown[0]["may_fork"], true);
    assert!(!cluster.look(|trace| trace.last("n3").primary()));

    let (lines, code) = ask(&socket, &["recover", "--from", "n3", "--yes"]);
    assert_eq!((lines.len(), code), (2, Some(0)), "{lines:?}");
    assert_eq!(
        (&lines[1]["answer"], &lines[1]["view"]),
        (&"recovered".into(), &"2:1".into())
    );
    cluster.until_together(&["n3"], SOON);
    cluster.say("n3", 20);
    cluster.until_delivered(&["n3"], SOON);
    cluster.start(&["n4", "n5"]);
    let rest = ["n3", "n4", "n5"];
    cluster.until_together(&rest, SOON);
    rest.iter().for_each(|name| cluster.say(name, 20));
    cluster.until_delivered(&rest, SOON);
    let (members, _) = ask(&socket, &["members"]);
    assert_eq!(members[0]["recoveries"], 1, "whoever looks later sees it");
    cluster.finish();
}
