//! Clusters inside this process, over TCP and in memory: they form, order, lose members, heal.

use std::time::Duration;

use antiphon::memory::MemoryNetwork;
use antiphon::{
    Builder, Cluster, ClusterEvent, ClusterKey, EngineKind, Error, Event, Fault, Group, GroupSender,
    MAX_TELL_BYTES, Member, Message, Order, Outcome, Parting, Phase, Profile, SendError, TELL_CREDIT_BYTES,
    TellError, TellOutcome, TellReceipt, Transport, View,
};

/// Long enough for a loaded machine; no test waits for it unless something is broken.
const PATIENCE: Duration = Duration::from_secs(30);

/// What the nodes of a test have in common.
#[derive(Clone)]
struct Net {
    way: Way,
    membership: EngineKind,
}

#[derive(Clone)]
enum Way {
    Tcp(&'static str),
    /// Keyed, in datagrams of the usual size.
    Udp(&'static str),
    Memory(MemoryNetwork),
}

impl Net {
    fn tcp(bind: &'static str) -> Self {
        Way::Tcp(bind).into()
    }

    fn udp(bind: &'static str) -> Self {
        Way::Udp(bind).into()
    }

    fn memory() -> Self {
        Way::Memory(MemoryNetwork::new()).into()
    }

    fn on(self, membership: EngineKind) -> Self {
        Net { membership, ..self }
    }

    fn builder(&self, name: &str) -> Builder {
        let builder = Cluster::builder("test")
            .name(name)
            .profile(Profile::local())
            .allow_faults()
            .membership(self.membership);
        match &self.way {
            Way::Tcp(bind) => builder.bind(bind),
            Way::Udp(bind) => builder
                .bind(bind)
                .transport(Transport::Udp)
                .max_datagram(1400)
                .key(ClusterKey::from_bytes([7; 32])),
            Way::Memory(network) => builder.bind("10.0.0.1:0").memory(network),
        }
    }
}

impl From<Way> for Net {
    fn from(way: Way) -> Self {
        Net {
            way,
            membership: EngineKind::Coordinator,
        }
    }
}

/// Over TCP and in memory, on each engine.
fn over_tcp_and_in_memory() -> impl Iterator<Item = Net> {
    let on = |engine| [Net::tcp("127.0.0.1:0").on(engine), Net::memory().on(engine)];
    EngineKind::ALL.into_iter().flat_map(on)
}

async fn in_time<T>(what: &str, future: impl Future<Output = T>) -> T {
    match tokio::time::timeout(PATIENCE, future).await {
        Ok(value) => value,
        Err(_) => panic!("not in time: {what}"),
    }
}

/// A cluster founded by its first node, the others joining through it.
async fn cluster(net: &Net, names: &[&str]) -> Vec<Cluster> {
    let first = in_time("founding", net.builder(names[0]).found().join())
        .await
        .expect("founds");
    let mut nodes = vec![first];
    for name in &names[1..] {
        let seed = nodes[0].addr();
        nodes.push(
            in_time("joining", net.builder(name).seeds([seed]).join())
                .await
                .expect("joins"),
        );
    }
    for node in &nodes {
        node_view(node, names).await;
    }
    nodes
}

/// Waits until a node's view is primary and has exactly these members, in whatever order.
async fn node_view(node: &Cluster, names: &[&str]) {
    let mut wanted = names.to_vec();
    wanted.sort_unstable();
    let mut events = node.events();
    in_time(&format!("{} sees {names:?}", node.name()), async {
        loop {
            let event = events.next().await.expect("the node runs");
            let ClusterEvent::View(view) = event else { continue };
            let mut members: Vec<&str> = view.members.iter().map(|member| member.name.as_str()).collect();
            members.sort_unstable();
            if view.is_primary() && members == wanted {
                return;
            }
        }
    })
    .await;
}

async fn groups(nodes: &[Cluster], order: Order) -> Vec<Group> {
    let mut groups = Vec::new();
    for node in nodes {
        groups.push(
            in_time("joining a group", node.group("orders").order(order).join())
                .await
                .expect("joins"),
        );
    }
    for group in &mut groups {
        group_view(group, nodes.len()).await;
    }
    groups
}

/// Reads up to a view with this many members.
async fn group_view(group: &mut Group, members: usize) -> std::sync::Arc<View> {
    in_time(&format!("a group view of {members}"), async {
        loop {
            match group.next().await.expect("the group goes on") {
                Event::View(view) if view.members.len() == members => return view,
                _ => {}
            }
        }
    })
    .await
}

/// Reads this many messages.
async fn messages(group: &mut Group, count: usize) -> Vec<Message> {
    let mut got = Vec::new();
    in_time(&format!("{count} messages"), async {
        while got.len() < count {
            if let Event::Message(message) = group.next().await.expect("the group goes on") {
                got.push(message);
            }
        }
    })
    .await;
    got
}

/// Reads until it has this many direct messages.
async fn told(group: &mut Group, count: usize) -> Vec<Message> {
    let mut got = Vec::new();
    in_time(&format!("{count} direct messages"), async {
        while got.len() < count {
            if let Event::Told(message) = group.next().await.expect("the group goes on") {
                got.push(message);
            }
        }
    })
    .await;
    got
}

fn member(node: &Cluster, name: &str) -> Member {
    let view = node.view().expect("a member");
    let member = view.members.iter().find(|member| member.name == name);
    member.expect("another member").clone()
}

/// Tells a member these numbers, as fast as it has room.
fn tell_numbers(
    sender: GroupSender,
    to: Member,
    count: usize,
    bytes: usize,
) -> tokio::task::JoinHandle<Vec<TellReceipt>> {
    tokio::spawn(async move {
        let mut receipts = Vec::new();
        for i in 0..count {
            receipts.push(sender.tell(&to, format!("{i:0bytes$}")).await.expect("accepted"));
        }
        receipts
    })
}

fn are_in_order(told: &[Message], from: &str) {
    for (i, message) in told.iter().enumerate() {
        let number = std::str::from_utf8(&message.payload).expect("a number");
        assert_eq!(number.parse(), Ok(i));
        assert_eq!((message.sender.name.as_str(), message.seq), (from, i as u64 + 1));
    }
}

fn texts(messages: &[Message]) -> Vec<String> {
    messages
        .iter()
        .map(|m| format!("{}:{}", m.sender.name, String::from_utf8_lossy(&m.payload)))
        .collect()
}

async fn all_members_deliver_the_same_sequence(net: Net) {
    let nodes = cluster(&net, &["a", "b", "c"]).await;
    let mut groups = groups(&nodes, Order::Total).await;
    let senders: Vec<_> = groups.iter().map(Group::sender).collect();
    let sending = senders.into_iter().map(|sender| {
        tokio::spawn(async move {
            for i in 0..200 {
                let receipt = sender.send(format!("{i}")).await.expect("accepted");
                if i % 50 == 0 {
                    assert_eq!(receipt.delivered().await, Outcome::Delivered);
                }
            }
        })
    });
    let sending: Vec<_> = sending.collect();
    let mut sequences = Vec::new();
    for group in &mut groups {
        sequences.push(texts(&messages(group, 600).await));
    }
    for task in sending {
        in_time("senders", task).await.expect("no panic");
    }
    assert_eq!(sequences[0], sequences[1]);
    assert_eq!(sequences[0], sequences[2]);
    for name in ["a", "b", "c"] {
        let of_one: Vec<&String> = sequences[0]
            .iter()
            .filter(|text| text.starts_with(name))
            .collect();
        let expected: Vec<String> = (0..200).map(|i| format!("{name}:{i}")).collect();
        assert_eq!(
            of_one,
            expected.iter().collect::<Vec<_>>(),
            "once each, in the order sent"
        );
    }
    for node in &nodes {
        in_time("leaving", node.leave()).await.expect("leaves");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn all_members_deliver_the_same_sequence_over_ipv4() {
    for engine in EngineKind::ALL {
        all_members_deliver_the_same_sequence(Net::tcp("127.0.0.1:0").on(engine)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn all_members_deliver_the_same_sequence_over_ipv6() {
    for engine in EngineKind::ALL {
        all_members_deliver_the_same_sequence(Net::tcp("[::1]:0").on(engine)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn all_members_deliver_the_same_sequence_by_udp_with_a_key_over_both_families() {
    for engine in EngineKind::ALL {
        all_members_deliver_the_same_sequence(Net::udp("127.0.0.1:0").on(engine)).await;
        all_members_deliver_the_same_sequence(Net::udp("[::1]:0").on(engine)).await;
    }
}

#[tokio::test]
async fn a_start_that_is_dropped_when_the_group_is_joined_leaves_it_again() {
    let nodes = cluster(&Net::memory(), &["a"]).await;
    let mut starting = Box::pin(nodes[0].group("g").start());
    std::future::poll_fn(|context| {
        assert!(starting.as_mut().poll(context).is_pending());
        std::task::Poll::Ready(())
    })
    .await;
    // The node joins, and says so to nobody.
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    drop(starting);
    in_time("joining again", async {
        while let Err(error) = nodes[0].group("g").start().await {
            assert!(matches!(error, Error::StillLeaving { .. }), "{error}");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn by_udp_large_messages_arrive_in_order_though_a_fifth_of_the_frames_is_lost() {
    let nodes = cluster(&Net::udp("127.0.0.1:0"), &["a", "b"]).await;
    let mut groups = groups(&nodes, Order::Fifo).await;
    in_time("UDP is used", async {
        while nodes[0]
            .status()
            .await
            .expect("the node runs")
            .transport
            .segments_sent
            == 0
        {
            groups[0].send("anything").await.expect("accepted");
            for group in &mut groups {
                messages(group, 1).await;
            }
        }
    })
    .await;
    let lossy = Fault {
        drop: 0.2,
        ..Fault::default()
    };
    nodes[0]
        .set_faults([("b".to_owned(), lossy)])
        .await
        .expect("allowed");
    let sender = groups[0].sender();
    let sending = tokio::spawn(async move {
        for i in 0..100u8 {
            sender.send(vec![i; 50_000]).await.expect("accepted");
        }
    });
    let [own, other] = &mut groups[..] else {
        panic!("two members")
    };
    let (_, got) = tokio::join!(messages(own, 100), messages(other, 100));
    for (message, i) in got.iter().zip(0u8..) {
        assert!(message.payload.len() == 50_000 && message.payload.iter().all(|byte| *byte == i));
    }
    in_time("the sender", sending).await.expect("no panic");
    let counters = nodes[0].status().await.expect("the node runs").transport;
    assert!(
        counters.frames_faulted > 0 && counters.segments_sent > 3000,
        "{counters:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn all_members_deliver_the_same_sequence_in_memory() {
    for engine in EngineKind::ALL {
        all_members_deliver_the_same_sequence(Net::memory().on(engine)).await;
    }
}

async fn a_dropped_node_is_removed_and_the_rest_go_on(net: Net) {
    let mut nodes = cluster(&net, &["a", "b", "c"]).await;
    let mut groups = groups(&nodes, Order::Total).await;
    drop((nodes.remove(0), groups.remove(0)));
    for node in &nodes {
        node_view(node, &["b", "c"]).await;
    }
    for group in &mut groups {
        let view = group_view(group, 2).await;
        assert_eq!(view.crashed.len(), 1, "{view}");
        assert_eq!(view.crashed[0].name, "a");
    }
    groups[0].send("after").await.expect("accepted");
    for group in &mut groups {
        assert_eq!(texts(&messages(group, 1).await), ["b:after"]);
    }
    let why = nodes[0].why("a").await.expect("answers");
    assert!(
        why.entries
            .iter()
            .any(|entry| matches!(entry, antiphon::WhyEntry::Departed { .. })),
        "{why:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dropped_elder_is_removed_and_the_rest_go_on_over_tcp() {
    for engine in EngineKind::ALL {
        a_dropped_node_is_removed_and_the_rest_go_on(Net::tcp("127.0.0.1:0").on(engine)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dropped_elder_is_removed_and_the_rest_go_on_by_udp() {
    for engine in EngineKind::ALL {
        a_dropped_node_is_removed_and_the_rest_go_on(Net::udp("127.0.0.1:0").on(engine)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dropped_elder_is_removed_and_the_rest_go_on_in_memory() {
    for engine in EngineKind::ALL {
        a_dropped_node_is_removed_and_the_rest_go_on(Net::memory().on(engine)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_leaving_node_sent_is_delivered_and_the_view_says_left() {
    for net in over_tcp_and_in_memory() {
        let nodes = cluster(&net, &["a", "b"]).await;
        let mut groups = groups(&nodes, Order::Total).await;
        for i in 0..50 {
            groups[1].send(format!("{i}")).await.expect("accepted");
        }
        in_time("leaving", nodes[1].leave()).await.expect("leaves");
        assert_eq!(messages(&mut groups[0], 50).await.len(), 50);
        let view = group_view(&mut groups[0], 1).await;
        assert_eq!(view.left.len(), 1, "{view}");
        node_view(&nodes[0], &["a"]).await;
        assert!(matches!(groups[1].send("late").await, Err(SendError::Closed)));
        assert!(nodes[1].status().await.is_err());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cut_off_minority_refuses_to_send_and_resyncs_after_the_heal() {
    for net in over_tcp_and_in_memory() {
        let nodes = cluster(&net, &["a", "b", "c"]).await;
        let mut groups = groups(&nodes, Order::Total).await;
        nodes[2].block(["a", "b"]).await.expect("allowed");
        nodes[0].block(["c"]).await.expect("allowed");
        nodes[1].block(["c"]).await.expect("allowed");
        node_view(&nodes[0], &["a", "b"]).await;
        node_view(&nodes[1], &["a", "b"]).await;
        in_time("the minority is suspended", async {
            while !matches!(
                groups[2].next().await.expect("the group goes on"),
                Event::Suspended
            ) {}
        })
        .await;
        assert!(matches!(
            groups[2].send("from the minority").await,
            Err(SendError::NotPrimary)
        ));
        assert_eq!(nodes[2].status().await.expect("runs").phase, Phase::NonPrimary);
        groups[0].send("from the majority").await.expect("accepted");
        assert_eq!(texts(&messages(&mut groups[1], 1).await), ["a:from the majority"]);

        let none: [&str; 0] = [];
        for node in &nodes {
            node.block(none).await.expect("allowed");
        }
        in_time("the minority is told that its state is void", async {
            while !matches!(
                groups[2].next().await.expect("the group goes on"),
                Event::Resync { .. }
            ) {}
        })
        .await;
        for node in &nodes {
            node_view(node, &["a", "b", "c"]).await;
        }
        for group in &mut groups {
            group_view(group, 3).await;
        }
        groups[2].send("reunited").await.expect("accepted");
        for group in &mut groups {
            assert_eq!(
                texts(&messages(group, 1).await).last().map(String::as_str),
                Some("c:reunited")
            );
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn five_nodes_started_at_once_form_one_cluster() {
    for engine in EngineKind::ALL {
        five_nodes_form_one_cluster(engine).await;
    }
}

async fn five_nodes_form_one_cluster(engine: EngineKind) {
    let network = MemoryNetwork::new();
    let seeds: Vec<String> = (1..=5).map(|port| format!("10.0.0.1:{port}")).collect();
    let starts = seeds.iter().map(|addr| {
        let builder = Cluster::builder("test")
            .name(addr)
            .profile(Profile::local())
            .bind(addr)
            .membership(engine)
            .seeds(&seeds);
        tokio::spawn(builder.memory(&network).join())
    });
    let starts: Vec<_> = starts.collect();
    let mut nodes = Vec::new();
    for start in starts {
        nodes.push(in_time("forming", start).await.expect("no panic").expect("joins"));
    }
    let names: Vec<&str> = seeds.iter().map(String::as_str).collect();
    for node in &nodes {
        node_view(node, &names).await;
    }
    let lineages: std::collections::BTreeSet<_> = nodes
        .iter()
        .filter_map(|node| node.view())
        .map(|v| v.lineage)
        .collect();
    assert_eq!(lineages.len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reader_that_stops_holds_its_group_up_and_nothing_is_lost_when_it_goes_on() {
    let net = Net::memory();
    let nodes = cluster(&net, &["a", "b"]).await;
    let mut groups = groups(&nodes, Order::Total).await;
    let sender = groups[0].sender();
    let payload = vec![0u8; 10_000];
    // b reads nothing: a, reading all, is stopped by credit after a bounded number of messages.
    let mut accepted = 0;
    let mut drain = Vec::new();
    loop {
        let sent = tokio::time::timeout(Duration::from_millis(500), sender.send(payload.clone())).await;
        while groups[0].try_next().is_some() {}
        match sent {
            Ok(sent) => drop(sent.expect("accepted")),
            Err(_) => break,
        }
        accepted += 1;
        assert!(
            accepted < 2000,
            "20 MB were accepted though a member reads nothing"
        );
    }
    node_view(&nodes[0], &["a", "b"]).await;
    let mut received = 0;
    while received < accepted {
        drain.clear();
        in_time("the rest", groups[1].next_batch(&mut drain, 64)).await;
        received += drain
            .iter()
            .filter(|event| matches!(event, Event::Message(_)))
            .count();
        while groups[0].try_next().is_some() {}
    }
    assert_eq!(received, accepted);
}

#[tokio::test(flavor = "multi_thread")]
async fn settings_that_cannot_work_say_what_to_change() {
    let plain = Cluster::builder("test")
        .bind("0.0.0.0:0")
        .found()
        .start()
        .await
        .expect_err("not without a key");
    let text = plain.to_string();
    assert!(
        text.contains("--key-file") && text.contains("--insecure") && text.contains("bind"),
        "{text}"
    );
    let seeds = Cluster::builder("test")
        .seeds(["192.0.2.1:7400"])
        .start()
        .await
        .expect_err("not without a key");
    assert!(seeds.to_string().contains("`seeds`"), "{seeds}");
    let both = Cluster::builder("test")
        .found()
        .expect(3)
        .start()
        .await
        .expect_err("a contradiction")
        .to_string();
    assert!(both.contains("found") && both.contains("expect"), "{both}");
    let seed = Cluster::builder("test")
        .seeds(["no-port"])
        .start()
        .await
        .expect_err("no port")
        .to_string();
    assert!(seed.contains("no-port"), "{seed}");
    let mut never = Profile::local();
    never.heartbeat = Duration::MAX;
    for net in over_tcp_and_in_memory() {
        let started = net.builder("a").profile(never.clone()).found().start().await;
        assert!(matches!(started, Err(Error::Config(_))), "{started:?}");
    }
    let taken = in_time("founding", Cluster::builder("test").found().join())
        .await
        .expect("founds");
    let again = Cluster::builder("test")
        .bind(taken.addr())
        .found()
        .start()
        .await
        .expect_err("the port is taken");
    assert!(matches!(again, antiphon::Error::Bind { .. }), "{again}");
}

#[tokio::test(flavor = "multi_thread")]
async fn after_an_abort_every_handle_says_closed() {
    let net = Net::tcp("127.0.0.1:0");
    let nodes = cluster(&net, &["a"]).await;
    let mut group = groups(&nodes, Order::Fifo).await.remove(0);
    let receipt = group.send("words").await.expect("accepted");
    assert_eq!(in_time("delivery", receipt.delivered()).await, Outcome::Delivered);
    let receipt = group.send("last words").await.expect("accepted");
    nodes[0].abort();
    in_time("closing", nodes[0].closed()).await;
    while group.next().await.is_some() {}
    assert!(matches!(group.send("more").await, Err(SendError::Closed)));
    assert!(matches!(nodes[0].why("a").await, Err(antiphon::Error::Closed)));
    // Which fate it is depends on how far the message came; that there is one does not.
    in_time("a fate", receipt.delivered()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_of_the_other_engine_is_refused_and_its_groups_are_closed() {
    let net = Net::memory();
    let nodes = cluster(&net.clone().on(EngineKind::Coordinator), &["a"]).await;
    let other = net.on(EngineKind::Cut).builder("b").seeds([nodes[0].addr()]);
    let other = in_time("starting", other.start()).await.expect("starts");
    let mut events = other.events();
    let reason = in_time("the refusal", async {
        loop {
            let event = events.next().await.expect("the node runs");
            if let ClusterEvent::Refused { reason, fatal: true } = event {
                return reason;
            }
        }
    });
    let reason = reason.await;
    assert!(
        reason.contains("`coordinator`") && reason.contains("`cut`"),
        "{reason}"
    );
    // No setting of the group is at fault.
    let group = other.group("g").start().await;
    assert!(matches!(group, Err(antiphon::Error::Closed)), "{group:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn two_members_tell_each_other_ten_thousand_things_in_order_while_all_send_to_all() {
    for engine in EngineKind::ALL {
        let nodes = cluster(&Net::memory().on(engine), &["a", "b"]).await;
        let mut groups = groups(&nodes, Order::Total).await;
        let telling = [(0, "b"), (1, "a")].map(|(from, to)| {
            let sender = groups[from].sender();
            tell_numbers(sender, member(&nodes[from], to), 10_000, 1)
        });
        let sending = groups.iter().map(Group::sender).map(|sender| {
            tokio::spawn(async move {
                for i in 0..500 {
                    sender.send(i.to_string()).await.expect("accepted");
                }
            })
        });
        let sending: Vec<_> = sending.collect();
        for (group, from) in groups.iter_mut().zip(["b", "a"]) {
            let (mut told, mut messages) = (Vec::new(), 0);
            in_time("all that was told and sent", async {
                while told.len() < 10_000 || messages < 1000 {
                    match group.next().await.expect("the group goes on") {
                        Event::Told(message) => told.push(message),
                        Event::Message(_) => messages += 1,
                        _ => {}
                    }
                }
            })
            .await;
            are_in_order(&told, from);
        }
        for task in sending {
            in_time("senders", task).await.expect("no panic");
        }
        for task in telling {
            for receipt in in_time("tellers", task).await.expect("no panic") {
                assert_eq!(in_time("a receipt", receipt).await, TellOutcome::Delivered);
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_member_that_does_not_read_delays_only_what_it_is_told_itself() {
    let nodes = cluster(&Net::memory(), &["a", "b", "c"]).await;
    let mut groups = groups(&nodes, Order::Total).await;
    let (b, c) = (member(&nodes[0], "b"), member(&nodes[0], "c"));
    // 2 MB, of which c has room for 1 MiB.
    let to_c = tell_numbers(groups[0].sender(), c.clone(), 200, 10_000);
    let to_b = tell_numbers(groups[0].sender(), b, 1000, 10_000);
    are_in_order(&told(&mut groups[1], 1000).await, "a");
    in_time("b's teller", to_b).await.expect("no panic");
    groups[0].send("to all").await.expect("accepted");
    assert_eq!(texts(&messages(&mut groups[0], 1).await), ["a:to all"]);
    let more = tokio::time::timeout(Duration::from_millis(200), groups[0].tell(&c, "more"));
    assert!(more.await.is_err(), "2 MB were accepted though c reads nothing");
    assert_eq!(groups[0].try_tell(&c, "more").err(), Some(TellError::Full));
    assert!(!to_c.is_finished());
    are_in_order(&told(&mut groups[2], 200).await, "a");
    for receipt in in_time("c's teller", to_c).await.expect("no panic") {
        assert_eq!(in_time("a receipt", receipt).await, TellOutcome::Delivered);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_crashed_member_was_told_has_an_outcome_with_the_cause() {
    for net in over_tcp_and_in_memory() {
        let mut nodes = cluster(&net, &["a", "c"]).await;
        // b ends with its runtime, at once, as by a crash. Its group stays: dropped, it reads what waits.
        let host = tokio::runtime::Runtime::new().expect("a runtime");
        let joins = host.spawn(net.builder("b").seeds([nodes[0].addr()]).join());
        let joined = in_time("joining", joins).await.expect("no panic");
        nodes.insert(1, joined.expect("joins"));
        for node in &nodes {
            node_view(node, &["a", "b", "c"]).await;
        }
        let mut groups = groups(&nodes, Order::Total).await;
        let b = member(&nodes[0], "b");
        let mut receipts = Vec::new();
        // b reads nothing: its credit and a's line are used up soon.
        let bound = Duration::from_millis(300);
        loop {
            match tokio::time::timeout(bound, groups[0].tell(&b, [0; 10_000])).await {
                Ok(told) => receipts.push(told.expect("accepted")),
                Err(_) if receipts.len() > TELL_CREDIT_BYTES / 10_000 => break,
                Err(_) => {}
            }
        }
        let sender = groups[0].sender();
        let to = b.clone();
        let waits = tokio::spawn(async move { sender.tell(&to, "too late").await });
        host.shutdown_background();
        let view = group_view(&mut groups[0], 2).await;
        assert_eq!(view.crashed[0].name, "b");
        let mut outcomes = Vec::new();
        for receipt in receipts {
            outcomes.push(in_time("a receipt", receipt).await);
        }
        let crashed = |outcome: &TellOutcome| {
            matches!(
                outcome,
                TellOutcome::NotDelivered(Parting::Crashed) | TellOutcome::Unknown(Parting::Crashed)
            )
        };
        let first = outcomes
            .iter()
            .position(|outcome| *outcome != TellOutcome::Delivered);
        assert!(outcomes[first.unwrap()..].iter().all(crashed), "{outcomes:?}");
        let last = outcomes.last().unwrap();
        assert_eq!(*last, TellOutcome::NotDelivered(Parting::Crashed));
        // It may have come into the line before the view did.
        match in_time("the teller", waits).await.expect("no panic") {
            Ok(receipt) => assert!(crashed(&in_time("a receipt", receipt).await)),
            Err(error) => assert_eq!(error, TellError::NoSuchMember),
        }
        assert_eq!(
            groups[0].tell(&b, "gone").await.err(),
            Some(TellError::NoSuchMember)
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_told_is_refused_with_the_reason() {
    let nodes = cluster(&Net::memory(), &["a", "b"]).await;
    let groups = groups(&nodes, Order::Fifo).await;
    let (a, b) = (member(&nodes[0], "a"), member(&nodes[0], "b"));
    let limit = MAX_TELL_BYTES;
    let large = groups[0].tell(&b, vec![0; limit + 1]).await;
    assert_eq!(large.err(), Some(TellError::TooLarge { limit }));
    assert_eq!(
        groups[0].tell(&a, "myself").await.err(),
        Some(TellError::NoSuchMember)
    );
    let receipt = groups[0]
        .tell(b.incarnation, vec![0; limit])
        .await
        .expect("accepted");
    assert_eq!(
        in_time("a receipt", receipt.outcome()).await,
        TellOutcome::Delivered
    );
    in_time("leaving", nodes[0].leave()).await.expect("leaves");
    assert_eq!(
        groups[0].tell(&b, "late").await.err(),
        Some(TellError::NoSuchGroup)
    );
}
