//! Tests: lines that tell a member something while it takes nothing, and the lines behind them.

use std::collections::BTreeSet;
use std::time::Duration;

use antiphon::memory::MemoryNetwork;
use antiphon::{Event, Group};
use serde_json::{Value, json};
use tokio::time::timeout;

use crate::Hub;
use crate::testing::{self, Obedient, SOON, until};

/// n1, which obeys lines. n2 and n3 are in its group.
struct Teller(Obedient);

impl Teller {
    async fn with_two_others() -> (Self, Group, Group) {
        let network = MemoryNetwork::new();
        let hub = Hub::new(testing::cluster(&network, 1, true).await);
        let teller = Self(Obedient::start(hub, &["g"]).await);
        let mut others = Vec::new();
        for number in [2, 3] {
            let cluster = testing::cluster(&network, number, false).await;
            others.push(cluster.group("g").join().await.unwrap());
        }
        let [second, third] = <[Group; 2]>::try_from(others).unwrap();
        let all = json!(["n1", "n2", "n3"]);
        let views = || teller.0.paper.lines_with(r#""event":"view""#);
        until(|| views().iter().any(|view| view["members"] == all)).await;
        (teller, second, third)
    }

    async fn say(&self, line: Value) {
        self.0.say(line).await;
    }

    fn has(&self, what: &str) -> bool {
        !self.0.paper.lines_with(what).is_empty()
    }

    async fn tell(&self, to: &str, payload: String, wait: bool) {
        let tell = match wait {
            true => json!({"tell": {"group": "g", "to": to, "payload": payload, "wait": true}}),
            false => json!({"tell": {"group": "g", "to": to, "payload": payload}}),
        };
        self.say(tell).await;
    }

    /// What it was to tell this member, and refused.
    fn refused(&self, to: &str) -> Vec<String> {
        let refused = self.0.paper.lines_with(r#""event":"refused""#);
        let tells = refused.iter().map(|line| &line["request"]["tell"]);
        tells
            .filter(|tell| tell["to"] == to)
            .map(|tell| tell["payload"].as_str().unwrap().to_owned())
            .collect()
    }
}

/// The next thing that a member is told.
async fn next_told(group: &mut Group) -> String {
    let told = async {
        loop {
            match group.next().await {
                Some(Event::Told(message)) => break String::from_utf8(message.payload.to_vec()).unwrap(),
                Some(_) => {}
                None => panic!("the group is over"),
            }
        }
    };
    timeout(SOON, told).await.expect("it is told soon")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_tell_to_a_member_without_room_is_refused_and_holds_up_no_other_line() {
    const COUNT: usize = 60_000;
    let (teller, mut second, mut third) = Teller::with_two_others().await;
    let said = async {
        for number in 0..COUNT {
            teller.tell("n2", number.to_string(), false).await;
        }
        teller.tell("n3", "at once".to_owned(), false).await;
        teller.say(json!({"why": {"node": "n2"}})).await;
    };
    timeout(3 * SOON, said).await.expect("no line waits for n2");
    assert_eq!(next_told(&mut third).await, "at once");
    until(|| teller.has(r#""event":"why""#)).await;
    let refused = teller.refused("n2");
    assert!(
        !refused.is_empty() && refused.len() < COUNT / 2,
        "{}",
        refused.len()
    );
    let reasons = teller.0.paper.lines_with(r#""event":"refused""#);
    assert_eq!(reasons.len(), refused.len(), "nothing else is refused");
    let reason = reasons[0]["reason"].as_str().unwrap();
    assert!(
        reason.starts_with("n2 has no room: 8388608 bytes or 32768 tells"),
        "{reason}"
    );
    let refused: BTreeSet<String> = refused.into_iter().collect();
    // What was taken is told when it reads, in the order of the lines.
    for number in (0..COUNT).map(|number| number.to_string()) {
        if !refused.contains(&number) {
            assert_eq!(next_told(&mut second).await, number);
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_tell_that_says_so_waits_for_room_and_so_does_what_stands_behind_it() {
    const COUNT: usize = 30_000;
    let (teller, mut second, _third) = Teller::with_two_others().await;
    let said = async {
        for number in 0..COUNT {
            teller.tell("n2", number.to_string(), true).await;
        }
        teller.say(json!({"why": {"node": "n2"}})).await;
    };
    let reads = async {
        // Long enough for most of them, if none waited.
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert!(!teller.has(r#""event":"why""#), "n2 has read nothing");
        for number in 0..COUNT {
            assert_eq!(next_told(&mut second).await, number.to_string());
        }
    };
    tokio::join!(said, reads);
    until(|| teller.has(r#""event":"why""#)).await;
    assert!(!teller.has(r#""event":"refused""#));
}
