//! Tests: lines that tell a member something while it takes nothing, and the lines behind them.

use std::collections::BTreeSet;
use std::io::{self, Write};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use antiphon::memory::MemoryNetwork;
use antiphon::{Cluster, Event, Group, GroupOptions};
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::time::timeout;

use super::stdin::Input;
use super::{Groups, Printer, Session, Spool, stdout};
use crate::Hub;
use crate::testing::{self, SOON, until};

#[derive(Clone, Default)]
struct Paper(Arc<Mutex<Vec<u8>>>);

impl Write for Paper {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Paper {
    /// The whole lines that have this in them.
    fn lines_with(&self, what: &str) -> Vec<Value> {
        let bytes = self.0.lock().unwrap().clone();
        let text = String::from_utf8(bytes).unwrap();
        let lines = text.split_inclusive('\n');
        lines
            .filter(|line| line.ends_with('\n') && line.contains(what))
            .map(|line| serde_json::from_str(line).unwrap())
            .collect()
    }

    fn has(&self, what: &str) -> bool {
        let bytes = self.0.lock().unwrap();
        bytes.windows(what.len()).any(|window| window == what.as_bytes())
    }
}

/// n1, which obeys lines. n2 and n3 are in its group.
struct Teller {
    paper: Paper,
    input: mpsc::Sender<Input>,
    _session: Session,
    _leave: mpsc::Receiver<()>,
}

impl Teller {
    async fn start(cluster: Cluster) -> Self {
        let paper = Paper::default();
        let (stdout, _writer) = stdout::start(paper.clone());
        let groups = Groups {
            names: vec!["g".to_owned()],
            options: GroupOptions::default(),
            hint: None,
        };
        let (events, printer) = (cluster.events(), Printer::new(stdout, true));
        let spool = Arc::new(Spool::new(None, cluster.incarnation()));
        let started = Session::start(Hub::new(cluster), events, &groups, printer, spool).await;
        let mut session = started.unwrap();
        let (input, lines) = mpsc::channel(64);
        let (asked, _leave) = mpsc::channel(1);
        session.obey(lines, asked);
        Self {
            paper,
            input,
            _session: session,
            _leave,
        }
    }

    async fn with_two_others() -> (Self, Group, Group) {
        let network = MemoryNetwork::new();
        let teller = Self::start(testing::cluster(&network, 1, true).await).await;
        let mut others = Vec::new();
        for number in [2, 3] {
            let cluster = testing::cluster(&network, number, false).await;
            others.push(cluster.group("g").join().await.unwrap());
        }
        let [second, third] = <[Group; 2]>::try_from(others).unwrap();
        let all = json!(["n1", "n2", "n3"]);
        let views = || teller.paper.lines_with(r#""event":"view""#);
        until(|| views().iter().any(|view| view["members"] == all)).await;
        (teller, second, third)
    }

    async fn say(&self, line: Value) {
        let line = Input::Line(line.to_string().into());
        self.input.send(line).await.unwrap();
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
        let refused = self.paper.lines_with(r#""event":"refused""#);
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
    until(|| teller.paper.has(r#""event":"why""#)).await;
    let refused = teller.refused("n2");
    assert!(
        !refused.is_empty() && refused.len() < COUNT / 2,
        "{}",
        refused.len()
    );
    let reasons = teller.paper.lines_with(r#""event":"refused""#);
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
        assert!(!teller.paper.has(r#""event":"why""#), "n2 has read nothing");
        for number in 0..COUNT {
            assert_eq!(next_told(&mut second).await, number.to_string());
        }
    };
    tokio::join!(said, reads);
    until(|| teller.paper.has(r#""event":"why""#)).await;
    assert!(!teller.paper.has(r#""event":"refused""#));
}
