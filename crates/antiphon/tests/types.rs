//! Each public type of the library, once: what is done with it. And what a few look like as text and as JSON.

use std::collections::BTreeMap;
use std::fmt::{Debug, Display};
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use antiphon::config::{self, Effective, Given, KeyFile, Patience, Size};
use antiphon::discovery::{Finder, Looked, Source, SourceError};
use antiphon::inspection::{
    self, Doubt, Edge, Joining, Lifeline, Looking, MemberSeen, Refused, Said, Seated,
};
use antiphon::replicated::locks::Token;
use antiphon::replicated::{
    AgreedTime, At, CountingError, Gone, Item, LockError, Loss, MapError, Put, ReadError, ReplicaError,
    ReplicaEvent, ReplicaMember, ReplicaStatus, ReplicaStatusWatch, Standing, Transfer, Version, WatchEvent,
    WriteError, counters, locks, map,
};
use antiphon::witness::{Handed, Unproven};
use antiphon::*;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

/// What is told: shown, copied, written.
fn told<T: Display + Clone + Debug + Serialize>() {}
/// What is told and can be given back.
fn both<T: Display + Clone + Debug + Serialize + DeserializeOwned>() {}
/// What is written by people.
fn given<T: Display + FromStr + Clone + Debug + Serialize + DeserializeOwned>() {}
/// What has a text alone.
fn error<T: std::error::Error + Clone>() {}
/// A handle, a stream, or something to be made.
fn handle<T: Clone + Debug>() {}
fn stream<T: Debug>() {}

#[test]
fn each_public_type_is_what_its_kind_promises() {
    given::<Dissemination>();
    given::<EngineKind>();
    given::<Incarnation>();
    given::<Lineage>();
    given::<Order>();
    given::<Outcome>();
    given::<Phase>();
    given::<Patience>();
    given::<Policy>();
    given::<Size>();
    given::<Source>();
    given::<TotalEngine>();
    given::<Transport>();
    given::<ViewId>();
    given::<ViewStamp>();

    both::<Fault>();
    both::<GroupOptions>();
    both::<Handed>();
    both::<Interface>();
    both::<LinkStatus>();
    both::<Looked>();
    both::<Member>();
    both::<Multicast>();
    given::<Profile>();
    both::<Progress>();
    both::<Scope>();
    both::<Subview>();
    both::<Awaits>();

    told::<Abandoned>();
    told::<Accusation>();
    told::<Alone>();
    told::<Cause>();
    told::<ClusterEvent>();
    told::<config::Error>();
    told::<ConfigError>();
    told::<Departed>();
    told::<Departure>();
    told::<Doubt>();
    told::<Edge>();
    told::<Error>();
    told::<Event>();
    told::<Evidence>();
    told::<Examined>();
    told::<GroupStatus>();
    told::<GroupViewId>();
    told::<Heard>();
    told::<Inspection>();
    told::<Joining>();
    told::<Lack>();
    told::<Lifeline>();
    told::<LinkCause>();
    told::<Located>();
    told::<LocatorEvent>();
    told::<Looking>();
    told::<MemberSeen>();
    told::<Message>();
    told::<NodeView>();
    told::<NodeViewId>();
    told::<Noted>();
    told::<Part>();
    told::<Parting>();
    told::<PathStatus>();
    told::<PathTrouble>();
    told::<PeerLinks>();
    told::<PeerPath>();
    told::<Recovery>();
    told::<RecoveryError>();
    told::<Refused>();
    told::<Said>();
    told::<Seated>();
    told::<SendError>();
    told::<Settings>();
    told::<SourceError>();
    told::<TellError>();
    told::<TellOutcome>();
    told::<inspection::State>();
    told::<Status>();
    told::<TransportCounters>();
    told::<Unproven>();
    told::<View>();
    told::<ViewChange>();
    told::<WhyEntry>();
    told::<WhyReport>();

    error::<config::Error>();
    error::<Error>();
    error::<IdError>();
    error::<NameError>();

    handle::<Builder>();
    handle::<Cluster>();
    handle::<Effective>();
    handle::<Finder>();
    handle::<Given>();
    handle::<KeyFile>();
    handle::<GroupBuilder>();
    handle::<GroupSender>();
    handle::<LocatorBuilder>();
    handle::<Messages>();
    handle::<Observer>();
    handle::<Run>();
    handle::<Scopes>();
    handle::<memory::MemoryNetwork>();
    // Not shown: it is a secret.
    handle::<ClusterKey>();
    stream::<ClusterEvents>();
    stream::<Group>();
    stream::<Guest>();
    stream::<Locator>();
    stream::<Receipt>();
    stream::<SafeReceipt>();
    stream::<ScopeRun>();
    stream::<TellReceipt>();
    stream::<Turn>();
}

#[test]
fn each_public_type_of_replicated_state_is_what_its_kind_promises() {
    both::<AgreedTime>();
    both::<At>();
    both::<Gone>();
    both::<Item<u64>>();
    both::<Loss>();
    both::<Put>();
    both::<ReplicaMember>();
    both::<Standing>();
    both::<Token>();
    both::<Transfer>();
    both::<Version>();
    both::<WatchEvent<String, u64>>();
    both::<counters::Changed>();
    both::<counters::Counter>();
    both::<locks::Event>();
    both::<map::Changed>();
    both::<map::Stamp>();
    told::<CountingError>();
    told::<LockError>();
    told::<MapError>();
    told::<ReadError>();
    told::<ReplicaError>();
    told::<ReplicaEvent<map::Changed>>();
    told::<ReplicaStatus>();
    told::<WriteError>();
    handle::<Counters>();
    handle::<Locks>();
    handle::<Map<String, u64>>();
    handle::<ReplicaStatusWatch>();
    handle::<Replicated<map::MapMachine>>();

    let item = Item {
        value: 7_u64,
        version: Version(3),
        modified: map::Stamp::new(AgreedTime { millis: 1_500 }, 0),
        expires: None,
    };
    let put = WatchEvent::Put {
        key: "a".to_owned(),
        item,
    };
    assert_eq!(put.to_string(), "a: 7 (version 3)");
    let written = serde_json::to_value(&put).unwrap();
    assert_eq!(written["put"]["key"], "a");
    assert_eq!(
        serde_json::from_value::<WatchEvent<String, u64>>(written).unwrap(),
        put
    );
    assert_eq!(
        Put::Found(Some(Version(3))).to_string(),
        "not written: there is version 3"
    );
    assert_eq!(
        serde_json::to_value(WriteError::NotSent).unwrap(),
        WriteError::NotSent.to_string()
    );
}

fn incarnation(number: u128) -> Incarnation {
    Incarnation(number << 96)
}

fn member(name: &str, number: u128) -> Member {
    Member {
        incarnation: incarnation(number),
        name: name.to_owned(),
        addr: "127.0.0.1:1".parse().unwrap(),
        further: Vec::new(),
        metadata: BTreeMap::from([("role".to_owned(), "db".to_owned())]),
        weight: 1,
    }
}

fn view() -> NodeView {
    let gone = |name, number, cause, accusers| Departure {
        member: member(name, number),
        cause,
        accusers,
    };
    let accusation = Accusation {
        accuser: incarnation(1),
        evidence: Evidence::Silent { for_ms: 1500 },
        before_ms: 12,
    };
    let from = incarnation(2);
    NodeView {
        lineage: Lineage(10),
        id: NodeViewId::Primary {
            id: ViewId { epoch: 1, counter: 4 },
        },
        number: 57301,
        members: vec![member("a", 1), member("b", 2)],
        joined: vec![incarnation(2)],
        departed: vec![
            gone("c", 3, Cause::Left, vec![]),
            gone("d", 4, Cause::Unreachable { from }, vec![accusation]),
        ],
        merged: Vec::new(),
        wire_level: 1,
    }
}

#[test]
fn a_node_view_has_the_fields_of_the_programs_event_and_more() {
    let written = serde_json::to_value(view()).unwrap();
    let member = |name: &str, number: u128| {
        json!({
            "name": name, "incarnation": incarnation(number), "addr": "127.0.0.1:1",
            "metadata": {"role": "db"}, "weight": 1,
        })
    };
    let mut removed = member("d", 4);
    let why = json!({
        "cause": "unreachable from b", "accusers": ["a"], "evidence": "a: silent for 1500 ms", "before_ms": 12,
    });
    removed
        .as_object_mut()
        .unwrap()
        .extend(why.as_object().unwrap().clone());
    assert_eq!(
        written,
        json!({
            "id": 57301, "number": 57301, "primary": true,
            "members": [member("a", 1), member("b", 2)], "joined": ["b"], "left": [member("c", 3)],
            "crashed": [removed], "lineage": Lineage(10).to_string(), "wire_level": 1,
        })
    );
    assert_eq!(
        ClusterEvent::View(Arc::new(view())).to_string(),
        "view 57301 [a b], joined: b, left: c, d: unreachable from b (a: silent for 1500 ms)"
    );
}

/// What the library writes is what the types of the API read: nothing of it is passed over as unknown.
#[test]
fn the_types_of_the_api_read_each_event_as_it_was_written() {
    let a = Arc::new(member("a", 1));
    let whole = Arc::new(view());
    let links = vec![LinkStatus {
        addr: a.addr,
        up: false,
    }];
    let events = [
        ClusterEvent::Incarnation(incarnation(1)),
        ClusterEvent::Forming {
            missing: vec![a.addr],
            rejecting: vec![a.addr],
            agents: Vec::new(),
            awaits: Awaits::Founders {
                present: 1,
                needed: 2,
            },
        },
        ClusterEvent::Alone { reason: Alone::Told },
        ClusterEvent::Discovery {
            source: "dns:db:7400".into(),
            found: vec![a.addr],
            problem: Some("x".into()),
        },
        ClusterEvent::Merge {
            parts: vec![Part {
                lineage: Lineage(1),
                view: ViewId { epoch: 1, counter: 7 },
                members: vec![a.clone()],
            }],
        },
        ClusterEvent::View(whole.clone()),
        ClusterEvent::PastView(Arc::new(ViewChange::of(&whole))),
        ClusterEvent::Refused {
            reason: "x".into(),
            fatal: true,
        },
        ClusterEvent::Expelled { cause: "x".into() },
        ClusterEvent::Link {
            peer: a.clone(),
            links: PeerLinks {
                peer: a.incarnation,
                links,
                in_use: 0,
            },
            number: 0,
            cause: LinkCause::Trouble(PathTrouble::TimedOut),
        },
        ClusterEvent::Starved {
            missed: Duration::from_millis(2900),
            within: Duration::from_millis(3100),
        },
        ClusterEvent::Lease { held: true },
        ClusterEvent::Path {
            peer: a.clone(),
            through: None,
            hears_directly: true,
            heard_directly: false,
        },
        ClusterEvent::Multicast {
            peer: a.clone(),
            hears: true,
        },
        ClusterEvent::Overrun,
        ClusterEvent::Left,
    ];
    for event in &events {
        is_read(&serde_json::to_value(event).unwrap());
        assert!(!event.to_string().contains('\n'), "{event}");
    }
    for event in [
        Event::Transitional {
            members: vec![a.clone()],
        },
        Event::Suspended,
        Event::Resync { cause: "x".into() },
        Event::Refused { reason: "x".into() },
        Event::Left,
    ] {
        let written = serde_json::to_value(event.told("g")).unwrap();
        assert_eq!(written["group"], "g", "{written}");
        is_read(&written);
        let alone = serde_json::to_value(&event).unwrap();
        assert_eq!(alone["event"], written["event"]);
        assert!(alone.get("group").is_none_or(Value::is_null), "{alone}");
    }
}

/// What is read is written again with the same values, whatever of the library's own is left out.
fn is_read(written: &Value) {
    let read: antiphon_api::Event = serde_json::from_value(written.clone()).unwrap();
    let again = serde_json::to_value(&read).unwrap();
    assert_ne!(read, antiphon_api::Event::Unknown, "{written}");
    for (field, value) in again.as_object().unwrap() {
        assert!(
            is_within(value, &written[field]),
            "{field} of {written} is {value}"
        );
    }
}

fn is_within(part: &Value, whole: &Value) -> bool {
    match (part, whole) {
        (Value::Object(part), Value::Object(whole)) => part
            .iter()
            .all(|(key, value)| whole.get(key).is_some_and(|whole| is_within(value, whole))),
        (Value::Array(part), Value::Array(whole)) => {
            part.len() == whole.len() && part.iter().zip(whole).all(|(part, whole)| is_within(part, whole))
        }
        (part, whole) => part == whole,
    }
}

#[tokio::test]
async fn a_groups_stream_is_written_as_the_program_prints_it() {
    let network = memory::MemoryNetwork::new();
    let node = Cluster::builder("shop")
        .name("a")
        .bind("127.0.0.1:1")
        .memory(&network)
        .found();
    let cluster = node.join().await.unwrap();
    let mut group = cluster.group("g").join().await.unwrap();
    group.send("hi").await.unwrap();
    group.send([0xff, 0x00, 0xfe]).await.unwrap();
    let mut lines = Vec::new();
    while lines.len() < 3 {
        let event = group.next().await.unwrap();
        lines.push(serde_json::to_value(event.told("g")).unwrap());
    }
    let id = lines[0]["id"].clone();
    assert_eq!(
        lines[0],
        json!({
            "event": "view", "group": "g", "id": id, "members": ["a"], "joined": ["a"], "left": [], "crashed": [],
            "transitional": lines[0]["transitional"], "primary": true,
        })
    );
    assert_eq!(
        lines[1],
        json!({"event": "message", "group": "g", "view": id, "sender": "a", "seq": 1, "payload": "hi"})
    );
    assert_eq!(lines[2]["payload"], json!({"base64": "/wD+"}));
    lines.iter().for_each(is_read);
    let status = serde_json::to_value(cluster.status().await.unwrap()).unwrap();
    assert_eq!(status["state"], "primary");
    assert_eq!(status["groups"], json!({"g": 1}));
    let seen = serde_json::to_value(cluster.inspect().await.unwrap()).unwrap();
    assert_eq!(seen["state"], "seated");
    assert_eq!(seen["members"][0]["lifeline"], Value::Null);
    cluster.leave().await.unwrap();
}

#[test]
fn what_is_given_is_read_as_it_is_written() {
    let options = GroupOptions::default().order(Order::Scoped).slow_after(None);
    let written = serde_json::to_value(options).unwrap();
    assert_eq!(
        written,
        json!({
            "order": "scoped", "window_bytes": 1 << 20, "dissemination": "direct", "slow_after_ms": null,
            "engine": "sequencer", "max_object_bytes": 256 << 20, "object_memory_bytes": 512 << 20,
        })
    );
    assert_eq!(serde_json::from_value::<GroupOptions>(written).unwrap(), options);
    assert_eq!(
        serde_json::from_value::<GroupOptions>(json!({"order": "fifo"})).unwrap(),
        GroupOptions::default().order(Order::Fifo)
    );
    let wrong = serde_json::from_value::<Order>(json!("causal"))
        .unwrap_err()
        .to_string();
    assert_eq!(
        wrong,
        "\"causal\" is no order, expected one of `unordered`, `scoped`, `fifo`, `total`"
    );
    let lan = serde_json::to_value(Profile::lan()).unwrap();
    assert_eq!(
        (&lan["name"], &lan["suspect_after_ms"]),
        (&json!("lan"), &json!(1500))
    );
    assert_eq!(serde_json::from_value::<Profile>(lan).unwrap(), Profile::lan());
    let patient: Profile = serde_json::from_value(json!({"name": "wan", "suspect_after_ms": 9000})).unwrap();
    assert_eq!(patient.suspect_after, Duration::from_secs(9));
    assert_eq!("wan".parse::<Profile>(), Ok(Profile::wan()));
    let one = member("a", 1);
    let again: Member = serde_json::from_value(serde_json::to_value(&one).unwrap()).unwrap();
    assert_eq!(again, one);
}

#[test]
fn a_copy_of_an_error_says_the_same() {
    let taken = std::io::Error::from_raw_os_error(98);
    for error in [
        Error::Bind {
            addr: "127.0.0.1:1".parse().unwrap(),
            source: taken,
        },
        Error::Timer {
            source: std::io::Error::other("no"),
        },
        Error::Closed,
    ] {
        assert_eq!(error.clone().to_string(), error.to_string());
        assert_eq!(serde_json::to_value(&error).unwrap(), error.to_string());
    }
}
