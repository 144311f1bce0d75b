//! A node in one process, and programs that speak to it as Redis' clients do.

use std::time::Duration;

use antiphon::memory::MemoryNetwork;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::Hub;
use crate::socket::counted::Counted;
use crate::socket::halves::Halves;
use crate::testing::{Agent, SOON, cluster};

struct Client {
    stream: TcpStream,
    bytes: Vec<u8>,
}

impl Client {
    async fn of(agent: &Agent) -> Self {
        Self {
            stream: agent.connect().await,
            bytes: Vec::new(),
        }
    }

    async fn say(&mut self, command: &[&str]) {
        let mut said = format!("*{}\r\n", command.len());
        for word in command {
            said += &format!("${}\r\n{word}\r\n", word.len());
        }
        self.stream.write_all(said.as_bytes()).await.unwrap();
    }

    /// The next value in short: what is in it, with brackets around arrays; none at the end.
    #[track_caller]
    fn next(&mut self) -> impl Future<Output = Option<String>> {
        let from = std::panic::Location::caller();
        async move {
            loop {
                if let Some((value, length)) = value(&self.bytes) {
                    self.bytes.drain(..length);
                    return Some(value);
                }
                let read = timeout(SOON, self.stream.read_buf(&mut self.bytes)).await;
                let read = read.unwrap_or_else(|_| panic!("{from}: nothing is said"));
                if read.unwrap_or(0) == 0 {
                    return None;
                }
            }
        }
    }

    #[track_caller]
    fn ask(&mut self, line: &str) -> impl Future<Output = String> {
        let command: Vec<String> = line.split(' ').map(str::to_owned).collect();
        let from = std::panic::Location::caller();
        async move {
            let words: Vec<&str> = command.iter().map(String::as_str).collect();
            self.say(&words).await;
            let reply = self.next().await;
            reply.unwrap_or_else(|| panic!("{from}: the connection has ended"))
        }
    }
}

/// A value at the beginning of these bytes, and its length.
fn value(bytes: &[u8]) -> Option<(String, usize)> {
    let end = bytes.windows(2).position(|two| two == b"\r\n")?;
    let head = String::from_utf8_lossy(&bytes[1..end]).into_owned();
    let at = end + 2;
    let text = match bytes[0] {
        b'+' | b':' => head,
        b'-' => format!("-{head}"),
        b'_' => "nil".to_owned(),
        b'$' | b'=' => {
            let Ok(length) = head.parse::<usize>() else {
                return Some(("nil".to_owned(), at));
            };
            let text = bytes.get(at..at + length + 2)?;
            let text = String::from_utf8_lossy(&text[..length]).into_owned();
            return Some((text, at + length + 2));
        }
        sign => {
            let Ok(count) = head.parse::<usize>() else {
                return Some(("nil".to_owned(), at));
            };
            let count = if sign == b'%' { 2 * count } else { count };
            let (mut values, mut length) = (Vec::new(), at);
            for _ in 0..count {
                let (value, more) = value(&bytes[length..])?;
                values.push(value);
                length += more;
            }
            let sign = if sign == b'>' { ">" } else { "" };
            return Some((format!("{sign}[{}]", values.join(" ")), length));
        }
    };
    Some((text, at))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn values_are_written_and_read_as_redis_has_it() {
    let node = Agent::alone().await;
    let mut client = Client::of(&node).await;
    for (line, expected) in [
        ("PING", "PONG"),
        ("ping hello", "hello"),
        ("ECHO x", "x"),
        ("GET k", "nil"),
        ("SET k v", "OK"),
        ("GET k", "v"),
        ("SET k w NX", "nil"),
        ("SET k w XX", "OK"),
        ("SET k x GET", "w"),
        ("SET none x XX", "nil"),
        ("SET none x XX GET", "nil"),
        ("SET k y NX GET", "x"),
        ("SET fresh x NX", "OK"),
        ("SETNX k y", "0"),
        ("SETNX l y", "1"),
        ("SETEX e 100 v", "OK"),
        ("PSETEX e 0 v", "-ERR invalid expire time in 'psetex' command"),
        ("SET e v EX x", "-ERR value is not an integer or out of range"),
        ("SET e v EX", "-ERR syntax error"),
        ("SET e v NX XX", "-ERR syntax error"),
        ("EXISTS k l none k", "3"),
        ("MGET k none l", "[x nil y]"),
        ("GETDEL l", "y"),
        ("GETDEL l", "nil"),
        ("DEL k e none", "2"),
        ("GET k", "nil"),
        ("INCR c", "1"),
        ("INCRBY c 41", "42"),
        ("DECR c", "41"),
        ("DECRBY c 1", "40"),
        ("DECRBY c -9223372036854775808", "-ERR decrement would overflow"),
        (
            "INCRBY c 9223372036854775807",
            "-ERR increment or decrement would overflow",
        ),
        ("INCRBY c -9223372036854775808", "-9223372036854775768"),
        ("DECRBY c 41", "-ERR increment or decrement would overflow"),
        ("INCRBY c 0", "-9223372036854775768"),
        ("INCRBY c x", "-ERR value is not an integer or out of range"),
        ("GET c", "nil"),
        ("SELECT 1", "OK"),
        ("GET fresh", "nil"),
        ("SELECT 16", "-ERR DB index is out of range"),
        ("SELECT 0", "OK"),
        ("GET fresh", "x"),
        ("WAIT 1 100", "0"),
        ("GET", "-ERR wrong number of arguments for 'get' command"),
        (
            "FLY to the",
            "-ERR unknown command 'FLY', with args beginning with: 'to' 'the' ",
        ),
        (
            "CLIENT SETNAME",
            "-ERR wrong number of arguments for 'client|setname' command",
        ),
        (
            "client kill x",
            "-ERR unknown subcommand 'kill'. CLIENT takes SETNAME, GETNAME, ID, INFO, SETINFO, NO-EVICT, NO-TOUCH.",
        ),
        (
            "CONFIG GET",
            "-ERR wrong number of arguments for 'config|get' command",
        ),
        (
            "CONFIG SET save x",
            "-ERR unknown subcommand 'SET'. CONFIG takes GET.",
        ),
        (
            "COMMAND GETKEYS GET k",
            "-ERR unknown subcommand 'GETKEYS'. COMMAND takes COUNT, DOCS, INFO, LIST.",
        ),
        ("AUTH default x", "OK"),
        (
            "AUTH ann x",
            "-WRONGPASS invalid username-password pair or user is disabled.",
        ),
        ("AUTH a b c", "-ERR syntax error"),
        ("INCRBY c +1", "-ERR value is not an integer or out of range"),
        ("INCRBY c 01", "-ERR value is not an integer or out of range"),
        ("CLIENT GETNAME", "nil"),
        ("CLIENT SETNAME ann", "OK"),
        ("CLIENT GETNAME", "ann"),
        ("CLIENT SETINFO LIB-NAME x", "OK"),
        ("CONFIG GET save", "[save ]"),
        ("COMMAND INFO get none", "[[get 2 [readonly fast] 1 1 1 []] nil]"),
        ("COMMAND DOCS", "[]"),
        ("HELLO 4", "-NOPROTO unsupported protocol version"),
        (
            "AP.JOIN g",
            "-REFUSED RESP2 has no pushes, by which this tells what happens: HELLO 3 first",
        ),
    ] {
        assert_eq!(client.ask(line).await, expected, "{line}");
    }
    assert!(client.ask("HELLO 3 AUTH a b").await.starts_with("-WRONGPASS"));
    let hello = client.ask("HELLO 3 AUTH default x SETNAME bob").await;
    assert!(
        hello.contains("server antiphon") && hello.contains("proto 3"),
        "{hello}"
    );
    assert_eq!(client.ask("CLIENT GETNAME").await, "bob");
    assert!(
        client
            .ask("INFO server")
            .await
            .starts_with("txt:# Server\r\nredis_version:")
    );
    let count = super::table::TABLE.len().to_string();
    assert_eq!(client.ask("COMMAND COUNT").await, count);
    assert_eq!(client.ask("RESET").await, "RESET");
    assert_eq!(client.ask("CLIENT GETNAME").await, "nil");
    assert_eq!(client.ask("QUIT").await, "OK");
    assert_eq!(client.next().await, None);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pipeline_is_replied_to_in_its_order_and_each_read_has_the_writes_before_it() {
    let node = Agent::alone().await;
    let mut client = Client::of(&node).await;
    let mut said = String::new();
    for number in 0..3000 {
        said += &format!("SET k {number}\r\nPING\r\nGET k\r\nINCR c\r\nFLY\r\n");
    }
    client.stream.write_all(said.as_bytes()).await.unwrap();
    for number in 0..3000 {
        assert_eq!(client.next().await.unwrap(), "OK");
        assert_eq!(client.next().await.unwrap(), "PONG");
        assert_eq!(client.next().await.unwrap(), number.to_string());
        assert_eq!(client.next().await.unwrap(), (number + 1).to_string());
        assert!(client.next().await.unwrap().starts_with("-ERR unknown"));
    }
}

/// The machine was so busy that the node lost its lease.
struct Busy;

/// Tries again while the machine is too busy: what is refused says nothing of an order.
async fn undisturbed(mut story: impl AsyncFnMut() -> Result<(), Busy>) {
    for _ in 0..10 {
        if story().await.is_ok() {
            return;
        }
    }
    panic!("this machine is too busy for a node's lease");
}

impl Client {
    async fn served(&mut self) -> Result<String, Busy> {
        let said = self.next().await.unwrap();
        match said.starts_with("-UNAVAILABLE") {
            true => Err(Busy),
            false => Ok(said),
        }
    }
}

/// The first of them wait for the map to be joined, and later ones need not.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_write_that_can_begin_at_once_does_not_overtake_those_that_wait() {
    const ROUNDS: usize = 1000;
    undisturbed(async || {
        let node = Agent::alone().await;
        let mut clients = Vec::new();
        for name in 0..3 {
            let mut client = Client::of(&node).await;
            let said = format!("DEL k{name}\r\nSETNX k{name} x\r\nINCR c{name}\r\n").repeat(ROUNDS);
            let said = said.into_bytes();
            // The last part comes when the first has long begun.
            client.stream.write_all(&said[..said.len() / 3]).await.unwrap();
            clients.push((client, said));
        }
        for (client, said) in &mut clients {
            client.stream.write_all(&said[said.len() / 3..]).await.unwrap();
        }
        for (mut client, _) in clients {
            for round in 0..ROUNDS {
                assert_eq!(client.served().await?, u8::from(round > 0).to_string());
                assert_eq!(client.served().await?, "1", "SETNX of round {round}");
                assert_eq!(client.served().await?, (round + 1).to_string());
            }
        }
        Ok(())
    })
    .await;
}

/// More parts than a map takes at once, and then a write to the last of their keys.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_connection_fills_no_map_and_its_writes_keep_their_order() {
    let keys: String = (0..1023).rev().map(|key| format!(" k{key}")).collect();
    let said = format!("{}SET k0 v\r\nGET k0\r\n", format!("DEL{keys}\r\n").repeat(6));
    undisturbed(async || {
        let node = Agent::alone().await;
        let mut client = Client::of(&node).await;
        assert_eq!(client.ask("SET k0 x").await, "OK");
        client.stream.write_all(said.as_bytes()).await.unwrap();
        for had in ["1", "0", "0", "0", "0", "0", "OK", "v"] {
            assert_eq!(client.served().await?, had);
        }
        Ok(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn replies_that_are_known_do_not_wait_with_a_command_that_waits() {
    let agent = Agent::alone().await;
    let mut client = Client::of(&agent).await;
    // As much as is written at once, and more.
    for length in [1_000, 70_000] {
        let value = "x".repeat(length);
        assert_eq!(client.ask(&format!("SET k {value}")).await, "OK");
        let both = b"GET k\r\nAP.GET redis/0 k LATEST\r\n";
        client.stream.write_all(both).await.unwrap();
        assert_eq!(client.next().await.unwrap(), value);
        assert!(client.next().await.unwrap().contains(&value));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn channels_are_groups() {
    let network = MemoryNetwork::new();
    let first = Agent::start(&network, 1, true).await;
    let second = Agent::start(&network, 2, false).await;
    let (mut hears, mut says) = (Client::of(&first).await, Client::of(&second).await);
    assert_eq!(hears.ask("SUBSCRIBE news").await, "[subscribe news 1]");
    assert_eq!(hears.ask("PING").await, "[pong ]");
    assert!(
        hears
            .ask("GET k")
            .await
            .starts_with("-ERR Can't execute 'get': only")
    );
    for number in 0..10 {
        assert_eq!(says.ask(&format!("PUBLISH news {number}")).await, "2");
    }
    for number in 0..10 {
        assert_eq!(hears.next().await.unwrap(), format!("[message news {number}]"));
    }
    assert_eq!(hears.ask("UNSUBSCRIBE").await, "[unsubscribe news 0]");
    assert_eq!(hears.ask("UNSUBSCRIBE").await, "[unsubscribe nil 0]");
    assert_eq!(hears.ask("GET k").await, "nil");
    // It was in to publish, and is a member now.
    assert!(says.ask("HELLO 3").await.contains("proto 3"));
    says.say(&["AP.JOIN", "news"]).await;
    assert_eq!(says.next().await.unwrap(), "OK");
    let view = says.next().await.unwrap();
    assert!(
        view.starts_with(">[ap.view news ") && view.contains("[n2/"),
        "{view}"
    );
    assert!(says.ask("HELLO 2").await.starts_with("-REFUSED"));
    let told = [
        says.ask("AP.SEND news hello SAFE").await,
        says.next().await.unwrap(),
    ];
    assert!(told.contains(&"OK".to_owned()), "{told:?}");
    assert!(
        told.iter().any(|told| told.starts_with(">[ap.message news n2/")),
        "{told:?}"
    );
    assert_eq!(says.ask("AP.LEAVE news").await, ">[ap.left news]");
    assert_eq!(says.next().await.unwrap(), "OK");
    assert!(says.ask("AP.LEAVE news").await.starts_with("-NOTHELD"));
    // One that publishes is told of nothing, and of all from when it subscribes.
    assert_eq!(says.ask("PUBLISH news one").await, "1");
    assert_eq!(hears.ask("PUBLISH news two").await, "2");
    assert_eq!(says.ask("SUBSCRIBE news").await, ">[subscribe news 1]");
    assert_eq!(hears.ask("PUBLISH news three").await, "2");
    assert_eq!(says.next().await.unwrap(), ">[message news three]");
    // To more channels than a client is in groups.
    for number in 0..crate::hub::MAX_JOINED + 2 {
        assert_eq!(hears.ask(&format!("PUBLISH c{number} x")).await, "1");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn locks_jobs_maps_and_calls_are_those_of_all_clients() {
    let network = MemoryNetwork::new();
    let first = Agent::start(&network, 1, true).await;
    let second = Agent::start(&network, 2, false).await;
    let (mut ann, mut bob) = (Client::of(&first).await, Client::of(&second).await);
    assert_eq!(
        ann.ask("AP.HELLO ann").await,
        format!(
            "[client ann node n1 cluster test build {}]",
            env!("CARGO_PKG_VERSION")
        )
    );
    assert!(bob.ask("AP.HELLO a/b").await.starts_with("-REFUSED"));
    let token = ann.ask("AP.LOCK x").await;
    assert!(token.parse::<u64>().is_ok(), "{token}");
    assert!(bob.ask("AP.LOCK x 50").await.starts_with("-TIMEOUT"));
    assert!(
        bob.ask(&format!("AP.UNLOCK x {token}"))
            .await
            .starts_with("-NOTHELD")
    );
    // What stands behind a wait begins when that is over.
    bob.say(&["AP.LOCK", "x"]).await;
    bob.say(&["PING"]).await;
    assert_eq!(ann.ask(&format!("AP.UNLOCK x {token}")).await, "OK");
    let next = bob.next().await.unwrap();
    assert!(next.parse::<u64>().unwrap() > token.parse().unwrap());
    assert_eq!(bob.next().await.unwrap(), "PONG");
    let job = ann.ask("AP.LEAD job").await;
    assert_eq!(ann.ask(&format!("AP.RESIGN job {job}")).await, "OK");
    // Its lock is free when it has gone.
    ann.say(&["AP.LOCK", "x"]).await;
    drop(bob);
    assert!(ann.next().await.unwrap().parse::<u64>().is_ok());
    let mut bob = Client::of(&second).await;
    let version = ann.ask("AP.PUT m k v VERSION 0").await;
    assert_eq!(bob.ask("AP.GET m k LATEST").await, format!("[v {version}]"));
    let conflict = bob.ask("AP.PUT m k w VERSION 0").await;
    assert!(
        conflict.starts_with("-CONFLICT the condition does not hold: the key has version "),
        "{conflict}"
    );
    let at_once = bob.ask("AP.PUT m k w PX 0").await;
    assert!(at_once.starts_with("-REFUSED a value's time"), "{at_once}");
    let said = bob.ask("AP.SEND chat x").await;
    assert!(
        said.starts_with("-NOTHELD") && said.contains("HELLO 3 first"),
        "{said}"
    );
    let later = bob
        .ask(&format!("AP.PUT m k w VERSION {version} PX 100000"))
        .await;
    assert_eq!(ann.ask("AP.GET m k LATEST").await, format!("[w {later}]"));
    assert_eq!(ann.ask("AP.REMOVE m k").await, format!("[w {later}]"));
    assert_eq!(ann.ask("AP.GET m k").await, "nil");
    assert!(
        ann.ask("AP.PUT m k w VERSION x")
            .await
            .starts_with("-ERR a token")
    );
    let members = ann.ask("AP.MEMBERS").await;
    assert_eq!(members, "[[n1 10.0.0.1:7400] [n2 10.0.0.2:7400]]");
    assert!(ann.ask("AP.WHY n9").await.contains("no node called n9"));
    assert!(bob.ask("AP.SERVE g v").await.starts_with("-REFUSED RESP2"));
    assert!(bob.ask("HELLO 3").await.contains("proto 3"));
    assert_eq!(bob.ask("AP.SERVE g v").await, "OK");
    ann.say(&["AP.CALL", "g", "v", "ANY", "what?", "10000"]).await;
    // Members have names where the node's own session tells them; here they are numbers.
    let request = bob.next().await.unwrap();
    assert!(
        request.starts_with(">[ap.request 1 g v ") && request.contains(" what? "),
        "{request}"
    );
    assert_eq!(bob.ask("AP.ANSWER 1 that").await, "OK");
    let answers = ann.next().await.unwrap();
    assert!(
        answers.starts_with("[[") && answers.ends_with(" OK that]]"),
        "{answers}"
    );
    for word in super::server::SUBCOMMANDS {
        let told = bob
            .ask(&format!("CLIENT {word} too many words for any of them"))
            .await;
        let wrong = format!("'client|{}'", word.to_lowercase());
        assert!(
            told.starts_with("-ERR wrong number") && told.contains(&wrong),
            "{told}"
        );
    }
    assert!(bob.ask("AP.ANSWER 1 that").await.starts_with("-NOTHELD"));
    assert!(ann.ask("AP.CALL g v n9 x").await.starts_with("-UNAVAILABLE"));
    ann.say(&["AP.CALL", "g", "v", "ANY", "late", "5000"]).await;
    assert!(bob.next().await.unwrap().starts_with(">[ap.request 2 g v "));
    assert_eq!(bob.next().await.unwrap(), ">[ap.cancelled 2]");
    ann.next().await.unwrap();
    for call in ["AP.CALL g v ANY x IN 2", "AP.CALL g v ANY x 1000 IN 2"] {
        assert!(bob.ask(call).await.starts_with("-NOTHELD"), "{call}");
    }
    let wrong = bob.ask("AP.CALL g v ANY x 1000 IN").await;
    assert!(wrong.starts_with("-ERR syntax"), "{wrong}");
    assert_eq!(ann.ask("SET k v").await, "OK");
    assert_eq!(bob.ask("GET k").await, "v");
    assert_eq!(ann.ask("WAIT 1 0").await, "1");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_no_resp_is_told_so_and_others_are_served_on() {
    let node = Agent::alone().await;
    let mut good = Client::of(&node).await;
    let mut bad = Client::of(&node).await;
    let lock = bad.ask("AP.LOCK x").await;
    assert!(lock.parse::<u64>().is_ok(), "{lock}");
    bad.stream.write_all(b"SET a b\r\n*1\r\nPING\r\n").await.unwrap();
    assert_eq!(bad.next().await.unwrap(), "OK");
    assert_eq!(
        bad.next().await.unwrap(),
        "-ERR Protocol error: expected '$', got 'P'"
    );
    assert_eq!(bad.next().await, None);
    assert!(good.ask("AP.LOCK x 10000").await.parse::<u64>().is_ok());
    // One that has said all is still answered.
    let mut last = Client::of(&node).await;
    last.stream.write_all(b"SET k v\r\nGET k\r\n").await.unwrap();
    last.stream.shutdown().await.unwrap();
    assert_eq!(last.next().await.unwrap(), "OK");
    assert_eq!(last.next().await.unwrap(), "v");
    assert_eq!(last.next().await, None);
    let mut web = Client::of(&node).await;
    web.stream
        .write_all(b"POST / HTTP/1.1\r\n\r\nSET k web\r\n")
        .await
        .unwrap();
    let mut answer = String::new();
    web.stream.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 400"), "{answer}");
    assert_eq!(good.ask("GET k").await, "v");
    assert_eq!(good.ask("SET \u{e4} x").await, "OK");
    good.stream.write_all(b"SET \"\\xff\" x\r\n").await.unwrap();
    assert!(good.next().await.unwrap().starts_with("-REFUSED keys"));
    let much = "v".repeat(1 << 20);
    assert!(good.ask(&format!("SET k {much}")).await.starts_with("-REFUSED"));
    node.hub.close().await;
    assert!(good.ask("SET k v").await.starts_with("-UNAVAILABLE"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reply_that_is_half_written_when_a_program_has_said_all_comes_whole() {
    let node = Agent::alone().await;
    let mut other = Client::of(&node).await;
    let value = "x".repeat(100_000);
    other.say(&["SET", "long", &value]).await;
    assert_eq!(other.next().await.as_deref(), Some("OK"));
    let (mut near, far) = tokio::io::duplex(4096);
    let (session, events) = node.hub.session().unwrap();
    let hub = node.hub.clone();
    let visitor = crate::access::Access::default().local(hub.meters().clone());
    let far = Counted::new(far, &Halves::default());
    tokio::spawn(async move { super::serve(far, b"", hub, session, events, &visitor).await });
    let mut said = Vec::new();
    let all = async {
        near.write_all(b"*2\r\n$3\r\nGET\r\n$4\r\nlong\r\n")
            .await
            .unwrap();
        while said.len() < 1000 {
            near.read_buf(&mut said).await.unwrap();
        }
        near.shutdown().await.unwrap();
        // It is over here, and its reply is on its way.
        while node.hub.sessions() > 1 {
            tokio::task::yield_now().await;
        }
        near.read_to_end(&mut said).await.unwrap();
    };
    timeout(SOON, all).await.unwrap();
    assert_eq!(said, format!("$100000\r\n{value}\r\n").as_bytes());
}

/// A command waits for another program, and so much stands behind it that nothing more is read.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_program_that_goes_while_much_that_it_said_is_unread_holds_nothing_any_more() {
    let node = Agent::alone().await;
    let mut other = Client::of(&node).await;
    other.ask("AP.LOCK b").await;
    let mut client = Client::of(&node).await;
    client.ask("AP.LOCK a").await;
    client.say(&["AP.LOCK", "b"]).await;
    let many = "PING\r\n".repeat(20_000);
    client.stream.write_all(many.as_bytes()).await.unwrap();
    drop(client);
    let token = other.ask("AP.LOCK a 5000").await;
    assert!(token.parse::<u64>().is_ok(), "{token}");
}

/// More commands than may wait for their replies at a time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_program_said_before_it_went_is_done_though_nobody_reads_the_replies() {
    let node = Agent::alone().await;
    let mut other = Client::of(&node).await;
    // It has a second for that: a busy machine may need another try.
    for attempt in 0..10 {
        let mut client = Client::of(&node).await;
        let many = format!("INCR n{attempt}\r\n").repeat(3_000);
        client.stream.write_all(many.as_bytes()).await.unwrap();
        // Unread replies, so that the agent's next write fails.
        let _ = client.stream.readable().await;
        drop(client);
        let (mut before, mut now) = (None, Some(String::new()));
        while before != now {
            tokio::time::sleep(Duration::from_millis(1_500)).await;
            (before, now) = (now, Some(other.ask(&format!("INCRBY n{attempt} 0")).await));
        }
        if now.as_deref() == Some("3000") {
            return;
        }
    }
    panic!("they are not done");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_refused_to_be_served_needs_no_pushes() {
    let node = Agent::alone().await;
    let mut client = Client::of(&node).await;
    client.ask("HELLO 3").await;
    let long = format!("AP.SERVE {} v", "g".repeat(60));
    assert!(client.ask(&long).await.starts_with("-REFUSED"));
    assert!(client.ask("HELLO 2").await.contains("proto 2"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn empty_commands_are_not_half_of_one() {
    let node = Agent::alone().await;
    let (mut near, far) = tokio::io::duplex(4096);
    let (session, events) = node.hub.session().unwrap();
    let hub = node.hub.clone();
    let visitor = crate::access::Access::default().local(hub.meters().clone());
    const MOST: usize = 1 << 20;
    let halves = Halves::of(MOST);
    let far = Counted::new(far, &halves);
    tokio::spawn(async move { super::serve(far, b"", hub, session, events, &visitor).await });
    for _ in 0..200 {
        near.write_all("\r\n".repeat(1_000).as_bytes()).await.unwrap();
    }
    assert!(halves.is_empty(MOST));
}

#[tokio::test(start_paused = true)]
async fn a_command_that_is_left_half_said_ends_its_connection_with_the_reason() {
    let hub = Hub::new(cluster(&MemoryNetwork::new(), 1, true).await);
    let (session, events) = hub.session().unwrap();
    let visitor = crate::access::Access::default().local(hub.meters().clone());
    let (mut near, far) = tokio::io::duplex(4096);
    let far = Counted::new(far, &Halves::default());
    tokio::spawn(async move { super::serve(far, b"*1", hub, session, events, &visitor).await });
    near.write_all(b"\r\n$4\r\nPI").await.unwrap();
    let mut said = String::new();
    near.read_to_string(&mut said).await.unwrap();
    assert!(said.starts_with("-ERR the rest of this did not come"), "{said}");
}

/// It reads late, and what it asked for fills more than sockets hold.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_replied_before_a_program_says_that_it_goes_is_for_it() {
    let node = Agent::alone().await;
    let mut client = Client::of(&node).await;
    let value = "x".repeat(1_000_000);
    let mut all = vec!["MGET"];
    for key in ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j"] {
        client.say(&["SET", key, &value]).await;
        assert_eq!(client.next().await.unwrap(), "OK");
        all.push(key);
    }
    client.say(&all).await;
    client.say(&["QUIT"]).await;
    tokio::time::sleep(std::time::Duration::from_millis(1_500)).await;
    let values = client.next().await.unwrap();
    assert!(values.len() > 10_000_000);
    assert_eq!(client.next().await.unwrap(), "OK");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_command_counts_as_one_local_read_if_the_copy_of_the_map_served_it() {
    let node = Agent::alone().await;
    let local_reads = async || {
        let page = crate::metrics::read(&node.hub).await;
        let mut lines = page.lines();
        let line = lines.find_map(|line| line.strip_prefix("antiphon_agent_local_reads_total "));
        line.unwrap().to_owned()
    };
    let mut client = Client::of(&node).await;
    assert_eq!(client.ask("WAIT 0 0").await, "0");
    // The first read makes the node join the map, and is an operation.
    client.ask("GET k").await;
    assert_eq!(local_reads().await, "0");
    client.ask("WAIT 0 0").await;
    assert_eq!(local_reads().await, "0");
    client.ask("MGET a b c").await;
    assert_eq!(local_reads().await, "1");
    client.ask("GET k").await;
    assert_eq!(local_reads().await, "2");
}
