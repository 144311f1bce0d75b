//! An agent's ports with TLS and tokens: what each carrier must show, what it is told if it does not, and
//! what becomes of connections that mean harm.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use antiphon::memory::MemoryNetwork;
use antiphon::{Builder, Cluster, Profile};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::*;
use crate::access::{Files, WRONG_WAITS};

const TOKEN: &str = "0123456789abcdef0123456789abcdef";
const WRONG: &str = "0123456789abcdef0123456789abcdee";
/// For what takes a moment, on a busy machine.
const SOON: Duration = Duration::from_secs(20);

fn made(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/tls").join(name)
}

/// An agent's port, and the files of what it asks for.
struct Port {
    hub: Hub,
    addr: SocketAddr,
    access: Access,
    files: Files,
    folder: PathBuf,
    _serving: Serving,
}

impl Drop for Port {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

impl Port {
    async fn open(name: &str, tls: bool, tokens: bool, client_ca: bool) -> Self {
        Self::of(node().found(), name, (tls, tokens, client_ca)).await
    }

    async fn of(node: Builder, name: &str, (tls, tokens, client_ca): (bool, bool, bool)) -> Self {
        let folder = std::env::temp_dir().join(format!("antiphon-port-{}-{name}", std::process::id()));
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir(&folder).unwrap();
        let put = |name: &str, text: &[u8]| put(&folder, name, text);
        let copy = |name: &str| put(name, &std::fs::read(made(name)).unwrap());
        let files = Files {
            certificate: tls.then(|| copy("agent.pem")),
            key: tls.then(|| copy("agent.key")),
            client_ca: client_ca.then(|| made("ca.pem")),
            tokens: tokens.then(|| put("tokens", TOKEN.as_bytes())),
        };
        let access = Access::read(&files).unwrap();
        let hub = Hub::new(node.start().await.unwrap());
        let addrs = ["127.0.0.1:0".parse().unwrap()];
        let listener = Listener::guarded(None, &addrs, access.clone()).await.unwrap();
        let addr = listener.addrs()[0];
        Self {
            _serving: listener.serve(&hub),
            hub,
            addr,
            access,
            files,
            folder,
        }
    }

    async fn plain(&self) -> TcpStream {
        TcpStream::connect(self.addr).await.unwrap()
    }

    async fn tls(&self) -> TlsStream<TcpStream> {
        self.tls_as(None).await.unwrap()
    }

    async fn tls_as(&self, client: Option<&str>) -> io::Result<TlsStream<TcpStream>> {
        let name = ServerName::try_from("agent.example").unwrap();
        TlsConnector::from(config(client))
            .connect(name, self.plain().await)
            .await
    }

    async fn meter(&self, series: &str) -> f64 {
        let page = crate::metrics::read(&self.hub).await;
        let line = page
            .lines()
            .find_map(|line| line.strip_prefix(&format!("{series} ")));
        line.unwrap_or_else(|| panic!("no {series} in\n{page}"))
            .parse()
            .unwrap()
    }
}

fn node() -> Builder {
    let node = Cluster::builder("ports").name("n1").bind("10.0.0.1:7400");
    node.memory(&MemoryNetwork::new()).profile(Profile::local())
}

fn put(folder: &Path, name: &str, text: &[u8]) -> PathBuf {
    use std::os::unix::fs::PermissionsExt as _;
    let path = folder.join(name);
    std::fs::write(&path, text).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
    path
}

/// A client that trusts the tests' authority, and shows a certificate if it has one.
fn config(client: Option<&str>) -> Arc<ClientConfig> {
    let mut roots = RootCertStore::empty();
    roots
        .add(CertificateDer::from_pem_file(made("ca.pem")).unwrap())
        .unwrap();
    let builder = ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots);
    Arc::new(match client {
        None => builder.with_no_client_auth(),
        Some(name) => {
            let certificate = CertificateDer::from_pem_file(made(&format!("{name}.pem"))).unwrap();
            let key = PrivateKeyDer::from_pem_file(made(&format!("{name}.key"))).unwrap();
            builder.with_client_auth_cert(vec![certificate], key).unwrap()
        }
    })
}

/// Says something, and reads until what comes back has this in it, or the end.
async fn told(
    stream: &mut (impl AsyncRead + AsyncWrite + Unpin),
    said: impl AsRef<[u8]>,
    until: &str,
) -> String {
    // It may have been sent away before all is written.
    let _ = stream.write_all(said.as_ref()).await;
    let _ = stream.flush().await;
    let mut all = Vec::new();
    let reading = async {
        while !String::from_utf8_lossy(&all).contains(until) {
            if stream.read_buf(&mut all).await.unwrap_or(0) == 0 {
                break;
            }
        }
    };
    let in_time = timeout(SOON, reading).await.is_ok();
    let all = String::from_utf8_lossy(&all).into_owned();
    assert!(in_time, "no {until:?} in time: {all}");
    all
}

/// What it is told until its end.
async fn all(stream: &mut (impl AsyncRead + AsyncWrite + Unpin), said: impl AsRef<[u8]>) -> String {
    told(stream, said, "\0").await
}

fn get(path: &str, headers: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n{headers}\r\n")
}

fn bearer(token: &str) -> String {
    format!("Authorization: Bearer {token}\r\n")
}

fn hello(token: &str) -> String {
    format!("{{\"hello\":{{\"token\":\"{token}\",\"name\":\"ann\",\"id\":0}}}}\n{{\"leave\":{{}}}}\n")
}

const WEBSOCKET: &str = "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n";

#[tokio::test]
async fn beyond_loopback_an_agent_listens_with_tls_and_a_credential_alone() {
    let everywhere: SocketAddr = "0.0.0.0:0".parse().unwrap();
    for (tls, tokens, client_ca) in [
        (false, false, false),
        (true, false, false),
        (false, true, false),
        (true, true, false),
        (true, false, true),
    ] {
        let port = Port::open(
            &format!("beyond-{tls}-{tokens}-{client_ca}"),
            tls,
            tokens,
            client_ca,
        )
        .await;
        let listening = Listener::guarded(None, &[everywhere], port.access.clone()).await;
        let is_enough = tls && (tokens || client_ca);
        assert_eq!(listening.is_ok(), is_enough, "{tls} {tokens} {client_ca}");
        // A socket that was handed over is no way round it.
        let mut listener = Listener::guarded(None, &[], port.access.clone()).await.unwrap();
        let handed = StdTcp::bind(everywhere).unwrap();
        let inherited = listener.inherit(handed.into());
        assert_eq!(inherited.is_ok(), is_enough);
        if let Err(error) = inherited {
            let reason = error.to_string();
            assert!(
                reason.contains("--tls-cert") && reason.contains("--token-file"),
                "{reason}"
            );
        }
    }
}

#[tokio::test]
async fn what_is_handed_over_must_listen_for_streams() {
    let mut listener = Listener::bind(None, &[]).await.unwrap();
    let handed: [OwnedFd; 3] = [
        std::net::UdpSocket::bind("127.0.0.1:0").unwrap().into(),
        std::os::unix::net::UnixStream::pair().unwrap().0.into(),
        std::fs::File::open("/dev/null").unwrap().into(),
    ];
    for handed in handed {
        let error = listener.inherit(handed).unwrap_err().to_string();
        assert!(error.contains("ListenStream="), "{error}");
    }
    listener
        .inherit(StdTcp::bind("127.0.0.1:0").unwrap().into())
        .unwrap();
    assert_eq!(listener.addrs().len(), 1);
}

#[tokio::test]
async fn a_stranger_learns_no_addresses_of_the_nodes_that_are_awaited() {
    let waits = node().seeds(["10.0.0.1:7400", "10.0.0.9:7400"]);
    let port = Port::of(waits, "awaits", (true, true, false)).await;
    let (mut stranger, mut known) = (port.tls().await, port.tls().await);
    told(&mut known, get("/v1/members", &bearer(TOKEN)), "}\n").await;
    let told_the_known = async {
        while !told(&mut known, get("/readyz", ""), "}\n")
            .await
            .contains("10.0.0.9")
        {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(SOON, told_the_known).await.expect("it is told");
    let told = told(&mut stranger, get("/readyz", ""), "}\n").await;
    assert!(
        told.starts_with("HTTP/1.1 503") && told.contains("in no view"),
        "{told}"
    );
    assert!(!told.contains("10.0.0.9"), "{told}");
}

#[tokio::test]
async fn each_carrier_is_served_with_a_token_and_told_what_is_missing_without() {
    let port = Port::open("tokens", true, true, false).await;
    // JSON lines.
    let served = all(&mut port.tls().await, hello(TOKEN)).await;
    assert!(served.contains(r#""client":"ann""#), "{served}");
    for (said, expected) in [
        (hello(WRONG), "none of the agent's"),
        ("{\"hello\":{}}\n".to_owned(), "a token is asked for"),
        ("{\"members\":{}}\n".to_owned(), "a token is asked for"),
        ("{\"hello\n".to_owned(), "a token is asked for"),
        ("{\"hello\":{\"token\":7}}\n".to_owned(), "a token is asked for"),
        (format!("{}\n", "{\"members\":{}}"), "a token is asked for"),
    ] {
        let told = all(&mut port.tls().await, &said).await;
        assert!(
            told.starts_with(r#"{"event":"error""#) && told.contains(expected),
            "{said}: {told}"
        );
        assert!(!told.contains(WRONG) && told.lines().count() == 1, "{told}");
    }
    // HTTP, and a WebSocket by its header.
    let mut http = port.tls().await;
    let served = told(&mut http, get("/v1/members", &bearer(TOKEN)), "}\n").await;
    assert!(served.starts_with("HTTP/1.1 200"), "{served}");
    for headers in ["", "Authorization: Basic YTpi\r\n", "Authorization: Bearer\r\n"] {
        let told = told(&mut http, get("/v1/members", headers), "}\n").await;
        assert!(
            told.starts_with("HTTP/1.1 401")
                && told.contains("www-authenticate: Bearer realm=\"antiphon\"\r\n"),
            "{told}"
        );
    }
    for path in [
        "/v1/members",
        "/metrics",
        "/v1/openapi.json",
        "/nothing",
        "/v1/stream",
    ] {
        let told = told(&mut http, get(path, ""), "}\n").await;
        assert!(told.starts_with("HTTP/1.1 401"), "{path}: {told}");
    }
    let refused = told(&mut http, get("/v1/members", &bearer(WRONG)), "}\n").await;
    assert!(
        refused.starts_with("HTTP/1.1 401") && refused.contains("error=\"invalid_token\""),
        "{refused}"
    );
    // What watches over the process needs none.
    for path in ["/livez", "/readyz"] {
        let told = told(&mut http, get(path, ""), "}\n").await;
        assert!(!told.starts_with("HTTP/1.1 401"), "{told}");
    }
    let refused = told(&mut port.tls().await, get("/v1/stream", WEBSOCKET), "}\n").await;
    assert!(refused.starts_with("HTTP/1.1 401"), "{refused}");
    let headers = format!("{WEBSOCKET}{}", bearer(TOKEN));
    let served = told(&mut port.tls().await, get("/v1/stream", &headers), "\r\n\r\n").await;
    assert!(served.starts_with("HTTP/1.1 101"), "{served}");
    // RESP.
    let mut resp = port.tls().await;
    for command in ["PING\r\n", "GET k\r\n", "NOTHING\r\n", "AP.MEMBERS\r\n"] {
        assert_eq!(
            told(&mut resp, command, "\n").await,
            "-NOAUTH Authentication required.\r\n"
        );
    }
    assert!(
        told(&mut resp, "HELLO 3\r\n", "\n")
            .await
            .starts_with("-NOAUTH HELLO must")
    );
    for command in [format!("AUTH {WRONG}\r\n"), format!("AUTH root {TOKEN}\r\n")] {
        assert!(told(&mut resp, command, "\n").await.starts_with("-WRONGPASS "));
    }
    assert_eq!(
        told(&mut resp, format!("AUTH default {TOKEN}\r\nPING\r\n"), "PONG\r\n").await,
        "+OK\r\n+PONG\r\n"
    );
    // It has to be shown again after this, as in Redis.
    assert!(told(&mut resp, "RESET\r\nPING\r\n", "-").await.contains("+RESET"));
    let served = told(
        &mut port.tls().await,
        format!("HELLO 3 AUTH default {TOKEN}\r\nPING\r\n"),
        "PONG",
    )
    .await;
    assert!(served.starts_with('%') && served.contains("antiphon"), "{served}");
    let mut resp = port.tls().await;
    let third = all(&mut resp, format!("AUTH {WRONG}\r\n").repeat(4)).await;
    assert_eq!(third.matches("-WRONGPASS").count(), 3, "{third}");
    assert_eq!(
        port.meter("antiphon_agent_authentication_failures_total{reason=\"wrong\"}")
            .await,
        7.0
    );
    assert!(
        port.meter("antiphon_agent_authentication_failures_total{reason=\"missing\"}")
            .await
            >= 17.0
    );
}

#[tokio::test]
async fn on_loopback_a_token_does_without_tls_and_tls_without_a_token() {
    let port = Port::open("token-alone", false, true, false).await;
    let refused = all(&mut port.plain().await, "{\"members\":{}}\n").await;
    assert!(refused.contains("a token is asked for"), "{refused}");
    assert!(
        all(&mut port.plain().await, hello(TOKEN))
            .await
            .contains("welcome")
    );
    let port = Port::open("tls-alone", true, false, false).await;
    assert!(
        all(&mut port.tls().await, hello(WRONG)).await.contains("welcome"),
        "nobody looks at it"
    );
    assert_eq!(told(&mut port.tls().await, "PING\r\n", "\n").await, "+PONG\r\n");
    assert!(
        told(&mut port.tls().await, format!("AUTH {TOKEN}\r\n"), "\n")
            .await
            .starts_with("-ERR AUTH <password>")
    );
}

#[tokio::test]
async fn a_certificate_of_a_client_is_as_good_as_a_token() {
    let port = Port::open("certificates", true, false, true).await;
    let mut client = port.tls_as(Some("client")).await.unwrap();
    assert_eq!(told(&mut client, "PING\r\n", "\n").await, "+PONG\r\n");
    // The client of TLS 1.3 learns it when it reads.
    for client in [None, Some("stranger"), Some("agent")] {
        let refused = match port.tls_as(client).await {
            Ok(mut stream) => all(&mut stream, "PING\r\n").await,
            Err(_) => String::new(),
        };
        assert_eq!(refused, "", "{client:?}");
    }
    let failures = "antiphon_agent_authentication_failures_total{reason=\"certificate\"}";
    assert_eq!(port.meter(failures).await, 3.0);
    assert_eq!(
        port.meter("antiphon_agent_connections_refused_total{reason=\"handshake\"}")
            .await,
        3.0
    );
    // With tokens as well, either is enough.
    let port = Port::open("either", true, true, true).await;
    assert_eq!(
        told(&mut port.tls_as(Some("client")).await.unwrap(), "PING\r\n", "\n").await,
        "+PONG\r\n"
    );
    assert!(
        told(&mut port.tls().await, "PING\r\n", "\n")
            .await
            .starts_with("-NOAUTH")
    );
    assert!(all(&mut port.tls().await, hello(TOKEN)).await.contains("welcome"));
}

#[tokio::test]
async fn plain_where_tls_is_spoken_is_told_so_in_its_own_words_and_so_is_tls_where_it_is_not() {
    let port = Port::open("plain", true, true, false).await;
    let http = all(&mut port.plain().await, get("/livez", "")).await;
    assert!(
        http.starts_with("HTTP/1.1 400 Bad Request\r\n") && http.contains("this port speaks TLS"),
        "{http}"
    );
    let resp = all(&mut port.plain().await, "*1\r\n$4\r\nPING\r\n").await;
    assert!(resp.starts_with("-ERR this port speaks TLS"), "{resp}");
    for said in [hello(TOKEN), "\x01\x02".to_owned()] {
        let told = all(&mut port.plain().await, said).await;
        assert!(
            told.starts_with(r#"{"event":"refused""#) && told.contains("this port speaks TLS"),
            "{told}"
        );
    }
    assert_eq!(
        port.meter("antiphon_agent_connections_refused_total{reason=\"plain\"}")
            .await,
        4.0
    );
    let port = Port::open("no-tls", false, false, false).await;
    let told = all(
        &mut port.plain().await,
        b"\x16\x03\x01\x00\x05\x01\x00\x00\x01\x03",
    )
    .await;
    assert!(told.contains("this port speaks no TLS"), "{told}");
    // A node that takes this port for a node's is told so, with TLS or without, in a way that it knows.
    for tls in [false, true] {
        let port = Port::open(&format!("astray-{tls}"), tls, false, false).await;
        let told = all(&mut port.plain().await, b"\x16\0\0\0ATPH and a frame").await;
        assert!(
            told.starts_with(r#"{"event":"refused""#) && told.contains("the port of an agent for programs"),
            "{told}"
        );
    }
    assert!(port.tls_as(None).await.is_err());
}

#[tokio::test]
async fn with_tls_a_host_is_called_by_the_names_of_the_certificate_and_by_no_others() {
    let port = Port::open("hosts", true, false, false).await;
    let mut http = port.tls().await;
    for (host, status) in [
        ("agent.example", 200),
        ("agent.example:7480", 200),
        ("a.agents.example", 200),
        ("10.1.2.3:7480", 200),
        ("localhost", 200),
        ("evil.example", 403),
        ("10.1.2.4", 403),
    ] {
        let request = format!("GET /livez HTTP/1.1\r\nHost: {host}\r\n\r\n");
        let told = told(&mut http, request, "}\n").await;
        assert!(told.starts_with(&format!("HTTP/1.1 {status} ")), "{host}: {told}");
    }
    let plain = Port::open("plain-hosts", false, false, false).await;
    let request = "GET /livez HTTP/1.1\r\nHost: agent.example\r\n\r\n";
    assert!(
        told(&mut plain.plain().await, request, "}\n")
            .await
            .starts_with("HTTP/1.1 403")
    );
}

#[tokio::test]
async fn a_node_that_is_about_to_leave_is_not_ready() {
    let port = Port::open("leaving", false, false, false).await;
    let mut http = port.plain().await;
    let begun = Instant::now();
    while !told(&mut http, get("/readyz", ""), "}\n")
        .await
        .starts_with("HTTP/1.1 200 ")
    {
        assert!(begun.elapsed() < SOON);
    }
    port.hub.close().await;
    let ready = told(&mut http, get("/readyz", ""), "}\n").await;
    assert!(
        ready.starts_with("HTTP/1.1 503 ") && ready.contains("is leaving"),
        "{ready}"
    );
    assert!(
        told(&mut http, get("/livez", ""), "}\n")
            .await
            .starts_with("HTTP/1.1 200 ")
    );
}

#[tokio::test]
async fn a_wrong_token_is_answered_slowly_and_holds_up_nobody_else() {
    let port = Port::open("slow", false, true, false).await;
    let begun = Instant::now();
    let wrong = async {
        let mut tries = tokio::task::JoinSet::new();
        for _ in 0..50 {
            let mut stream = port.plain().await;
            tries.spawn(async move { all(&mut stream, hello(WRONG)).await });
        }
        tries.join_all().await
    };
    let right = async {
        for _ in 0..20 {
            assert!(
                all(&mut port.plain().await, hello(TOKEN))
                    .await
                    .contains("welcome")
            );
        }
        begun.elapsed()
    };
    let (wrong, right) = tokio::join!(wrong, right);
    assert!(wrong.iter().all(|told| told.contains("none of the agent's")));
    assert!(begun.elapsed() >= WRONG_WAITS);
    assert!(right < SOON, "{right:?}");
}

#[tokio::test]
async fn what_is_no_command_counts_as_malformed() {
    let port = Port::open("malformed", false, false, false).await;
    let said = b"{\"bogus\":1}\n{nonsense\n{\"hello\":\"\xff\"}\n{\"leave\":{}}\n";
    let told = all(&mut port.plain().await, said).await;
    assert_eq!(told.matches(r#"{"event":"error""#).count(), 3, "{told}");
    assert_eq!(port.meter("antiphon_agent_malformed_commands_total").await, 3.0);
}

#[tokio::test]
async fn what_is_too_long_before_a_token_is_not_kept() {
    let port = Port::open("long", false, true, false).await;
    let long = "x".repeat(1 << 20);
    let told = all(
        &mut port.plain().await,
        format!("{{\"hello\":{{\"token\":\"{long}"),
    )
    .await;
    assert!(told.contains("at most 4096 bytes"), "{told}");
    let told = all(
        &mut port.plain().await,
        format!("{{\"hello\":{{\"token\":\"{long}\"}}}}\n"),
    )
    .await;
    assert!(told.contains("at most 4096 bytes"), "{told}");
    let told = all(&mut port.plain().await, " ".repeat(1 << 20)).await;
    assert!(told.contains("at most 4096 bytes"), "{told}");
    let told = all(
        &mut port.plain().await,
        format!("*2\r\n$4\r\nAUTH\r\n$1000000\r\n{long}"),
    )
    .await;
    let bound = "-NOAUTH 16384 bytes at most are taken before AUTH";
    assert!(told.starts_with(bound), "{told}");
    // Whole commands count, too.
    let told = all(&mut port.plain().await, "PING\r\n".repeat(5000)).await;
    assert!(told.matches("Authentication required").count() >= 4000);
    assert!(told.contains(bound), "{told}");
    let told = all(&mut port.plain().await, get("/v1/members", &bearer(&long))).await;
    assert!(told.starts_with("HTTP/1.1 431"), "{told}");
    let told = all(
        &mut port.plain().await,
        format!("AUTH {}\r\nQUIT\r\n", "a".repeat(8000)),
    )
    .await;
    assert!(
        told.starts_with("-WRONGPASS") && told.ends_with("+OK\r\n"),
        "{told}"
    );
    // A program that begins with much behind its token is served.
    let many = "{\"send\":{\"payload\":\"x\"}}\n".repeat(1000);
    let told = all(
        &mut port.plain().await,
        hello(TOKEN).replace("{\"leave\":{}}\n", &many) + "{\"leave\":{}}\n",
    )
    .await;
    assert_eq!(told.matches("name a group").count(), 1000);
}

#[tokio::test]
async fn what_stalls_before_it_has_shown_anything_is_sent_away_in_time() {
    let tls = Port::open("stalls", true, true, false).await;
    let plain = Port::open("plain-stalls", false, true, false).await;
    let begun = Instant::now();
    let ends = |mut stream: TcpStream, said: &'static [u8], trickles: bool| async move {
        let _ = stream.write_all(said).await;
        let mut all = Vec::new();
        loop {
            match timeout(Duration::from_secs(1), stream.read_buf(&mut all)).await {
                Ok(Ok(1..)) => {}
                Ok(_) => return (begun.elapsed(), String::from_utf8_lossy(&all).into_owned()),
                Err(_) if trickles => drop(stream.write_all(b"PING\r\n").await),
                Err(_) => {}
            }
            assert!(
                begun.elapsed() < 4 * SPEAK_WITHIN,
                "{said:?}: it is never sent away"
            );
        }
    };
    let stalled = tokio::join!(
        // Nothing; a handshake that says nothing more; half a record.
        ends(tls.plain().await, b"", false),
        ends(tls.plain().await, b"\x16", false),
        ends(tls.plain().await, b"\x16\x03\x01\x02\x00\x01\x00", false),
        ends(plain.plain().await, b"{\"hello\":", false),
        ends(plain.plain().await, b"PING\r\n", true),
        ends(plain.plain().await, b"GET /livez HTTP/1.1\r\n", false),
    );
    let stalled = <[_; 6]>::from(stalled);
    for (number, (after, told)) in stalled.iter().enumerate() {
        assert!(
            *after < 2 * SPEAK_WITHIN + Duration::from_secs(3),
            "{number}: {after:?} {told}"
        );
    }
    assert!(stalled[3].1.contains("no token was shown"), "{}", stalled[3].1);
    assert!(
        stalled[4].1.ends_with("-NOAUTH no token was shown in time\r\n"),
        "{}",
        stalled[4].1
    );
    // Half a handshake and the end: nothing is left of it.
    let mut half = tls.plain().await;
    half.write_all(b"\x16\x03\x01").await.unwrap();
    half.shutdown().await.unwrap();
    assert_eq!(all(&mut half, "").await, "");
    assert!(all(&mut tls.tls().await, hello(TOKEN)).await.contains("welcome"));
}

#[tokio::test]
async fn what_needs_no_token_keeps_no_place_of_those_that_have_shown_none() {
    let port = Port::open("no-place", false, true, false).await;
    let begun = Instant::now();
    let live = "GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n";
    let mut asks = port.plain().await;
    let asking = async {
        let mut all = Vec::new();
        loop {
            let _ = asks.write_all(live.as_bytes()).await;
            match timeout(Duration::from_secs(1), asks.read_buf(&mut all)).await {
                Ok(Ok(1..)) => tokio::time::sleep(Duration::from_millis(500)).await,
                Ok(_) => return String::from_utf8_lossy(&all).into_owned(),
                Err(_) => {}
            }
            assert!(begun.elapsed() < 2 * SPEAK_WITHIN, "it goes on asking");
        }
    };
    // What it has shown no more than before, RESET does not forget.
    let mut tries = port.plain().await;
    let auth = format!("AUTH {WRONG}\r\n");
    let tried = all(&mut tries, format!("{auth}{auth}RESET\r\n{auth}PING\r\n"));
    let (asked, tried) = tokio::join!(asking, tried);
    assert!(asked.starts_with("HTTP/1.1 200") && begun.elapsed() >= SPEAK_WITHIN);
    assert_eq!(tried.matches("-WRONGPASS").count(), 3, "{tried}");
    assert!(
        tried.ends_with("is disabled.\r\n"),
        "the third wrong one is the end: {tried}"
    );
    // With a token it stays.
    let mut knows = port.plain().await;
    let with = live.replace("\r\n\r\n", &format!("\r\nAuthorization: Bearer {TOKEN}\r\n\r\n"));
    let with = with.replace("/livez", "/v1/members");
    for _ in 0..2 {
        let told = told(&mut knows, &with, "}\n").await;
        assert!(told.starts_with("HTTP/1.1 200"), "{told}");
        tokio::time::sleep(SPEAK_WITHIN + Duration::from_secs(1)).await;
    }
}

#[tokio::test]
async fn new_certificates_are_for_new_connections_and_the_others_go_on() {
    let port = Port::open("rotation", true, true, false).await;
    let shown = |stream: &TlsStream<TcpStream>| stream.get_ref().1.peer_certificates().unwrap()[0].clone();
    let mut before = port.tls().await;
    told(&mut before, format!("AUTH {TOKEN}\r\n"), "\n").await;
    let first = shown(&before);
    assert_eq!(first, CertificateDer::from_pem_file(made("agent.pem")).unwrap());
    put(
        &port.folder,
        "agent.pem",
        &std::fs::read(made("agent-2.pem")).unwrap(),
    );
    // The key is missing yet: nothing changes.
    let said = port.access.reload(&port.files);
    assert!(
        said[0]
            .as_ref()
            .is_err_and(|reason| reason.contains("stay in force")),
        "{said:?}"
    );
    assert_eq!(shown(&port.tls().await), first);
    put(
        &port.folder,
        "agent.key",
        &std::fs::read(made("agent-2.key")).unwrap(),
    );
    put(&port.folder, "tokens", WRONG.as_bytes());
    let said = port.access.reload(&port.files);
    assert!(said.iter().all(Result::is_ok), "{said:?}");
    assert_eq!(
        shown(&port.tls().await),
        CertificateDer::from_pem_file(made("agent-2.pem")).unwrap()
    );
    assert_eq!(told(&mut before, "PING\r\n", "\n").await, "+PONG\r\n");
    assert!(
        all(&mut port.tls().await, hello(TOKEN))
            .await
            .contains("none of the agent's")
    );
    assert!(all(&mut port.tls().await, hello(WRONG)).await.contains("welcome"));
}

#[tokio::test(start_paused = true)]
async fn a_program_that_takes_nothing_of_its_tls_is_slow_like_any_other() {
    let port = Port::open("deaf", true, false, false).await;
    let (client, server) = tokio::io::duplex(4096);
    let acceptor = tokio_rustls::TlsAcceptor::from(port.access.certificates().unwrap().config());
    let name = ServerName::try_from("agent.example").unwrap();
    let connector = TlsConnector::from(config(None));
    let (client, server) = tokio::join!(connector.connect(name, client), acceptor.accept(server));
    let (_client, mut server) = (client.unwrap(), server.unwrap());
    // TLS takes it all, and gets rid of a part.
    let begun = tokio::time::Instant::now();
    let ended = write_all(&mut server, &[0; 20_000]).await.unwrap_err();
    assert!(ended.to_string().starts_with("slow: "), "{ended}");
    assert_eq!(begun.elapsed(), READ_WITHIN);
}
