//! An agent as its operators meet it: TLS and tokens, SIGHUP, a service manager, metrics, its end.

mod common;

use std::fs;
use std::io::{BufRead as _, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::{UnixDatagram, UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use common::{Bench, PATIENCE, free_addrs, list};
use rustix::process::{Pid, Signal, kill_process};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use serde_json::Value;

const TOKEN: &str = "0123456789abcdef0123456789abcdef";
const NEXT: &str = "fedcba9876543210fedcba9876543210";
/// The agent `a` of a cluster of its own, at any port.
const ALONE: &str = "--cluster operating --name a --bind 127.0.0.1:0 --profile local --listen 127.0.0.1:0";
/// In which `packaging/systemd/antiphon-agent.service` has it ended.
const STOPS_WITHIN: Duration = Duration::from_secs(30);

fn made(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../antiphon-agent/tests/tls")
        .join(name)
}

/// A running agent; killed with the test.
struct Agent {
    child: Child,
    lines: mpsc::Receiver<Value>,
    log: mpsc::Receiver<String>,
    addrs: Vec<SocketAddr>,
    /// Where it listens for commands of peers.
    commands: Option<SocketAddr>,
}

impl Drop for Agent {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Agent {
    fn command(bench: &Bench, arguments: &str) -> Command {
        let mut command = bench.program();
        for variable in [
            "NOTIFY_SOCKET",
            "WATCHDOG_USEC",
            "WATCHDOG_PID",
            "LISTEN_FDS",
            "LISTEN_PID",
        ] {
            command.env_remove(variable);
        }
        command
            .args(["agent", "--json"])
            .args(arguments.split_whitespace())
            .stdin(Stdio::null());
        command
    }

    fn start(bench: &Bench, arguments: &str) -> Self {
        Self::of(Self::command(bench, arguments))
    }

    fn of(mut command: Command) -> Self {
        let mut child = command
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let (to_lines, lines) = mpsc::channel();
        let (to_log, log) = mpsc::channel();
        let (stdout, stderr) = (child.stdout.take().unwrap(), child.stderr.take().unwrap());
        std::thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                let _ = to_lines
                    .send(serde_json::from_str(&line).unwrap_or_else(|error| panic!("{line}: {error}")));
            }
        });
        std::thread::spawn(move || {
            BufReader::new(stderr)
                .lines()
                .map_while(Result::ok)
                .for_each(|line| drop(to_log.send(line)));
        });
        let mut agent = Self {
            child,
            lines,
            log,
            addrs: Vec::new(),
            commands: None,
        };
        let serving = agent.event("serving");
        let addrs = serving["addrs"].as_array().unwrap().iter();
        agent.addrs = addrs
            .map(|addr| addr.as_str().unwrap().parse().unwrap())
            .collect();
        agent.commands = serving["commands"].as_str().map(|addr| addr.parse().unwrap());
        agent
    }

    #[track_caller]
    fn event(&self, event: &str) -> Value {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let Ok(line) = self.lines.recv_timeout(left) else {
                panic!(
                    "no {event}; it says: {:?}",
                    self.log.try_iter().collect::<Vec<_>>()
                );
            };
            if line["event"] == event {
                return line;
            }
        }
    }

    /// Waits until it says this on stderr.
    #[track_caller]
    fn said(&self, what: &str) {
        let deadline = Instant::now() + PATIENCE;
        let mut all = Vec::new();
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let Ok(line) = self.log.recv_timeout(left) else {
                panic!("no {what:?} in {all:?}")
            };
            if line.contains(what) {
                return;
            }
            all.push(line);
        }
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    fn plain(&self) -> TcpStream {
        let stream = TcpStream::connect(self.addrs[0]).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream
    }

    fn tls(&self) -> StreamOwned<ClientConnection, TcpStream> {
        tls_to(self.plain())
    }

    /// The status and the body of an answer at its first address.
    fn get(&self, path: &str) -> (u16, String) {
        get(&mut self.plain(), path, "")
    }

    fn until_ready(&self) {
        let deadline = Instant::now() + PATIENCE;
        while self.get("/readyz").0 != 200 {
            assert!(Instant::now() < deadline, "{:?}", self.get("/readyz"));
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Ends it by SIGTERM: how long it took.
    fn stop(mut self) -> Duration {
        let begun = Instant::now();
        self.signal(Signal::TERM);
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                assert!(
                    status.success(),
                    "{status}: {:?}",
                    self.log.try_iter().collect::<Vec<_>>()
                );
                return begun.elapsed();
            }
            assert!(begun.elapsed() < STOPS_WITHIN, "it did not end");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

fn tls_to(stream: TcpStream) -> StreamOwned<ClientConnection, TcpStream> {
    let mut roots = RootCertStore::empty();
    roots
        .add(CertificateDer::from_pem_file(made("ca.pem")).unwrap())
        .unwrap();
    let config = ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let name = ServerName::try_from("agent.example").unwrap();
    StreamOwned::new(ClientConnection::new(Arc::new(config), name).unwrap(), stream)
}

fn get(stream: &mut (impl Read + Write), path: &str, headers: &str) -> (u16, String) {
    let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{headers}\r\n");
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    // TLS may miss its goodbye.
    let _ = stream.read_to_string(&mut answer);
    let (head, body) = answer
        .split_once("\r\n\r\n")
        .unwrap_or_else(|| panic!("{path}: {answer:?}"));
    (head[9..12].parse().unwrap(), body.to_owned())
}

fn put(bench: &Bench, name: &str, text: impl AsRef<[u8]>) -> PathBuf {
    let path = bench.directory.join(name);
    fs::write(&path, text).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    path
}

/// One line of an answer.
fn line(stream: &mut impl Read) -> String {
    let mut line = Vec::new();
    let mut byte = [0];
    while !line.ends_with(b"\n") && stream.read(&mut byte).is_ok_and(|read| read == 1) {
        line.push(byte[0]);
    }
    String::from_utf8(line).unwrap()
}

#[test]
fn settings_that_would_let_strangers_in_start_nothing() {
    let bench = Bench::new();
    let certificate = made("agent.pem").display().to_string();
    let key = put(&bench, "key", fs::read(made("agent.key")).unwrap())
        .display()
        .to_string();
    let tokens = put(&bench, "tokens", TOKEN).display().to_string();
    let short = put(&bench, "short", "secret").display().to_string();
    let open = put(&bench, "open", TOKEN);
    fs::set_permissions(&open, fs::Permissions::from_mode(0o644)).unwrap();
    let open = open.display().to_string();
    let tls = format!("--tls-cert {certificate} --tls-key {key}");
    for (flags, expected) in [
        ("--listen 0.0.0.0:0".to_owned(), "beyond loopback"),
        (format!("--listen 0.0.0.0:0 --token-file {tokens}"), "--tls-cert"),
        (format!("--listen 0.0.0.0:0 {tls}"), "--token-file"),
        (format!("--listen [::]:0 {tls}"), "--tls-client-ca"),
        (format!("--tls-cert {certificate}"), "give tls-key"),
        (format!("--tls-key {key}"), "give tls-cert"),
        (format!("--tls-client-ca {certificate}"), "give tls-cert"),
        (format!("--token-file {open}"), "chmod 600"),
        (format!("--token-file {short}"), "128 bits"),
        ("--token-file /nonexistent".to_owned(), "/nonexistent"),
        (format!("--tls-cert {key} --tls-key {key}"), "no certificate"),
    ] {
        let output = bench.run(&format!("agent --cluster c --name a --bind 127.0.0.1:0 {flags}"));
        let error = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{flags}: {error}");
        assert!(
            error.contains(expected) && !error.contains("secret"),
            "{flags}: {error}"
        );
    }
    // The same in the file, by the same names.
    let text = format!(
        "cluster = \"c\"\nname = \"a\"\nlisten = [\"127.0.0.1:1\"]\ntls-cert = \"{certificate}\"\ntls-key = \"{key}\"\ntoken-file = \"{tokens}\"\n"
    );
    let file = put(&bench, "agent.toml", text);
    let printed = bench.text(&format!(
        "agent --print-config --config {} --token-file x",
        file.display()
    ));
    for line in [
        &format!("tls-cert = \"{certificate}\""),
        "token-file = \"x\"",
        "listen = [\"127.0.0.1:1\"]",
    ] {
        assert!(
            printed.lines().any(|printed| printed == line),
            "{line} is not in\n{printed}"
        );
    }
}

#[test]
fn with_tls_and_a_token_an_agent_serves_at_all_addresses() {
    let bench = Bench::new();
    let key = put(&bench, "key", fs::read(made("agent.key")).unwrap());
    let tokens = put(&bench, "tokens", TOKEN);
    let (certificate, key, tokens) = (made("agent.pem"), key.display(), tokens.display());
    let mut agent = Agent::start(
        &bench,
        &format!(
            "--cluster c --name a --bind 127.0.0.1:0 --profile local --listen 0.0.0.0:0 --tls-cert {} --tls-key {key} --token-file {tokens}",
            certificate.display()
        ),
    );
    assert!(agent.addrs[0].ip().is_unspecified());
    agent.addrs[0].set_ip([127, 0, 0, 1].into());
    let bearer = format!("Authorization: Bearer {TOKEN}\r\n");
    let deadline = Instant::now() + PATIENCE;
    while get(&mut agent.tls(), "/readyz", "").0 != 200 {
        assert!(Instant::now() < deadline);
    }
    assert_eq!(get(&mut agent.tls(), "/v1/members", &bearer).0, 200);
    assert_eq!(get(&mut agent.tls(), "/v1/members", "").0, 401);
    let (status, reason) = get(&mut agent.plain(), "/v1/members", &bearer);
    assert!(
        status == 400 && reason.contains("this port speaks TLS"),
        "{reason}"
    );
    agent.stop();
}

#[test]
fn sighup_reloads_what_can_be_and_names_what_takes_a_restart() {
    let bench = Bench::new();
    let certificate = put(&bench, "agent.pem", fs::read(made("agent.pem")).unwrap());
    let key = put(&bench, "agent.key", fs::read(made("agent.key")).unwrap());
    let tokens = put(&bench, "tokens", TOKEN);
    let text = |tokens: &Path, more: &str| {
        format!(
            "cluster = \"operating\"\nname = \"a\"\nbind = \"127.0.0.1:0\"\nprofile = \"local\"\nlisten = [\"127.0.0.1:0\"]\n\
             tls-cert = \"{}\"\ntls-key = \"{}\"\ntoken-file = \"{}\"\n{more}",
            certificate.display(),
            key.display(),
            tokens.display()
        )
    };
    let config = put(&bench, "agent.toml", text(&tokens, ""));
    let agent = Agent::start(&bench, &format!("--config {}", config.display()));
    let admitted = |token: &str| {
        let mut stream = agent.tls();
        write!(stream, "AUTH {token}\r\n").unwrap();
        (line(&mut stream) == "+OK\r\n").then_some(stream)
    };
    let mut client = admitted(TOKEN).expect("it is in the file");
    assert!(admitted(NEXT).is_none());
    // Another token file, another certificate, and what takes a restart.
    let others = put(&bench, "others", format!("{TOKEN}\n{NEXT}\n"));
    put(&bench, "agent.pem", fs::read(made("agent-2.pem")).unwrap());
    put(&bench, "agent.key", fs::read(made("agent-2.key")).unwrap());
    fs::write(&config, text(&others, "weight = 2\njson = true\n")).unwrap();
    agent.signal(Signal::HUP);
    agent.said("in force after a restart: json, weight");
    agent.said("reloaded: certificates, tokens: 2");
    let stream = admitted(NEXT).expect("it is in the new file");
    let shown = stream.conn.peer_certificates().unwrap()[0].clone();
    assert_eq!(shown, CertificateDer::from_pem_file(made("agent-2.pem")).unwrap());
    // What takes a restart is not in force at the second signal either, until the file is as it was.
    agent.signal(Signal::HUP);
    agent.said("in force after a restart: json, weight");
    agent.said("reloaded: certificates, tokens: 2");
    fs::write(&config, text(&others, "")).unwrap();
    agent.signal(Signal::HUP);
    agent.said("reloaded: certificates, tokens: 2");
    // What is bad is not taken, and said so; what is good beside it is.
    put(&bench, "agent.key", "no key");
    put(&bench, "others", NEXT);
    agent.signal(Signal::HUP);
    agent.said("the certificates before stay in force");
    agent.said("reloaded: tokens: 1");
    assert!(admitted(NEXT).is_some() && admitted(TOKEN).is_none());
    fs::write(&config, "cluster = 1\n").unwrap();
    agent.signal(Signal::HUP);
    agent.said("not reloaded: configuration file");
    fs::write(&config, "cluster = \"operating\"\nname = \"a\"\n").unwrap();
    agent.signal(Signal::HUP);
    agent.said("restart it");
    assert!(admitted(NEXT).is_some(), "a token is asked for as before");
    // A client that was admitted with a token that is gone is served on.
    client.write_all(b"PING\r\n").unwrap();
    assert_eq!(line(&mut client), "+PONG\r\n");
    let bearer = format!("Authorization: Bearer {NEXT}\r\n");
    let page = || get(&mut agent.tls(), "/metrics", &bearer).1;
    counted("antiphon_agent_reloads_total{outcome=\"kept\"} 5", page);
    counted("antiphon_agent_reloads_total{outcome=\"done\"} 1", page);
    agent.stop();
}

#[test]
fn sighup_renews_the_certificates_of_commands() {
    let bench = Bench::new();
    let copy = |name: &str, of: &str| put(&bench, name, fs::read(made(of)).unwrap());
    let authorities = copy("authorities.pem", "ca.pem");
    let commands = put(
        &bench,
        "commands.toml",
        "version = 1\n[[verb]]\nname = \"members\"\nfrom = \"all\"\nto = \"all\"\ndeliver = { node = \"members\" }\n",
    );
    let signing = put(&bench, "cluster.key", format!("{}\n", "0f".repeat(32)));
    let tokens = put(&bench, "tokens", TOKEN);
    let text = |certificate: &str| {
        let (certificate, key) = (
            made(&format!("{certificate}.pem")),
            put(
                &bench,
                "key",
                fs::read(made(&format!("{certificate}.key"))).unwrap(),
            ),
        );
        format!(
            "tls-cert = \"{}\"\ntls-key = \"{}\"\n",
            certificate.display(),
            key.display()
        )
    };
    let of_commands = format!(
        "commands = \"{}\"\ncommands-listen = \"127.0.0.1:0\"\n",
        commands.display()
    );
    let text = |certificate: &str| {
        let authorities = authorities.display();
        format!(
            "{}{of_commands}commands-ca = \"{authorities}\"\n",
            text(certificate)
        )
    };
    let config = put(&bench, "agent.toml", text("agent"));
    let agent = Agent::start(
        &bench,
        &format!(
            "{ALONE} --config {} --token-file {} --key-file {}",
            config.display(),
            tokens.display(),
            signing.display()
        ),
    );
    let gate = agent.commands.expect("it listens for commands of peers");
    let shown = || {
        let mut stream = tls_to(TcpStream::connect(gate).unwrap());
        stream.sock.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.conn.complete_io(&mut stream.sock).unwrap();
        stream.conn.peer_certificates().unwrap()[0].clone()
    };
    let is = |name: &str| CertificateDer::from_pem_file(made(name)).unwrap();
    assert_eq!(shown(), is("agent.pem"));
    // Its own authorities cannot be used: what it shows to clients is renewed, and this is not.
    fs::write(&config, text("agent-2")).unwrap();
    put(&bench, "authorities.pem", "none");
    agent.signal(Signal::HUP);
    agent.said("commands by HTTPS go on with the certificates before");
    agent.said("reloaded: certificates, tokens: 1, the list of commands");
    assert_eq!(shown(), is("agent.pem"));
    copy("authorities.pem", "ca.pem");
    agent.signal(Signal::HUP);
    agent.said("reloaded: certificates, tokens: 1, certificates of commands, the list of commands");
    assert_eq!(shown(), is("agent-2.pem"));
    fs::write(&config, &of_commands).unwrap();
    agent.signal(Signal::HUP);
    agent.said("commands-ca, with tls-cert and tls-key, cannot be given or left out");
    assert_eq!(shown(), is("agent-2.pem"));
    agent.stop();
}

/// What is said is counted a moment later.
#[track_caller]
fn counted(line: &str, page: impl Fn() -> String) {
    let deadline = Instant::now() + PATIENCE;
    while !page().contains(line) {
        assert!(Instant::now() < deadline, "{line} is not in {}", page());
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn without_certificates_and_tokens_sighup_ends_nothing() {
    let bench = Bench::new();
    let agent = Agent::start(&bench, ALONE);
    agent.signal(Signal::HUP);
    agent.said("there is nothing to reload");
    agent.until_ready();
    let page = || agent.get("/metrics").1;
    counted("antiphon_agent_reloads_total{outcome=\"done\"} 1", page);
    agent.stop();
}

/// A service manager's socket, and what it heard.
struct Manager {
    socket: UnixDatagram,
    path: PathBuf,
}

impl Manager {
    fn new(bench: &Bench) -> Self {
        let path = bench.directory.join("notify");
        let socket = UnixDatagram::bind(&path).unwrap();
        Self { socket, path }
    }

    /// What it hears next within this time.
    fn hears(&self, within: Duration) -> Option<String> {
        self.socket
            .set_read_timeout(Some(within.max(Duration::from_millis(1))))
            .unwrap();
        let mut bytes = [0; 4096];
        let length = self.socket.recv(&mut bytes).ok()?;
        Some(String::from_utf8(bytes[..length].to_vec()).unwrap())
    }

    /// Waits for a notice with this line.
    #[track_caller]
    fn until(&self, begins: &str) -> String {
        let deadline = Instant::now() + PATIENCE;
        let mut heard = Vec::new();
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let Some(notice) = self.hears(left) else {
                panic!("no {begins} in {heard:?}")
            };
            if notice.lines().any(|line| line.starts_with(begins)) {
                return notice;
            }
            heard.push(notice);
        }
    }

    /// The notices until this time is over.
    fn during(&self, time: Duration) -> Vec<String> {
        let until = Instant::now() + time;
        let mut heard = Vec::new();
        while Instant::now() < until {
            heard.extend(self.hears(until.saturating_duration_since(Instant::now())));
        }
        heard
    }
}

#[test]
fn a_service_manager_hears_when_an_agent_is_ready_lives_reloads_and_stops() {
    let bench = Bench::new();
    let manager = Manager::new(&bench);
    let addrs = free_addrs(2);
    let start = |name: &str, addr: SocketAddr, managed: bool| {
        let flags = format!(
            "--cluster operating --name {name} --bind {addr} --seeds {} --profile local --listen 127.0.0.1:0",
            list(&addrs)
        );
        let mut command = Agent::command(&bench, &flags);
        if managed {
            command
                .env("NOTIFY_SOCKET", &manager.path)
                .env("WATCHDOG_USEC", "1000000");
        }
        Agent::of(command)
    };
    let first = start("a", addrs[0], true);
    manager.until("STATUS=looks for its cluster");
    // Alone it is in no cluster: it lives, and is not ready.
    assert_eq!(first.get("/livez").0, 200);
    let (status, reason) = first.get("/readyz");
    assert!(
        status == 503 && reason.contains("there is no cluster yet"),
        "{reason}"
    );
    let early = manager.during(Duration::from_millis(1500));
    assert!(early.iter().any(|notice| notice == "WATCHDOG=1"), "{early:?}");
    assert!(
        !early.iter().any(|notice| notice.contains("READY=1")),
        "{early:?}"
    );
    first.signal(Signal::HUP);
    first.said("there is nothing to reload");
    let second = start("b", addrs[1], false);
    let ready = manager.until("READY=1");
    assert!(
        ready.contains("\nSTATUS=in view ") && ready.ends_with(" nodes"),
        "{ready}"
    );
    first.until_ready();
    let (_, page) = first.get("/metrics");
    assert!(
        page.contains("\nantiphon_node_primary 1\n") && page.contains("\nantiphon_node_view_members 2\n"),
        "{page}"
    );
    // A process that hangs is silent, and heard again when it goes on.
    first.signal(Signal::STOP);
    std::thread::sleep(Duration::from_millis(50));
    manager.during(Duration::from_millis(1));
    while manager.hears(Duration::from_millis(1)).is_some() {}
    assert_eq!(manager.during(Duration::from_millis(1500)), [""; 0]);
    first.signal(Signal::CONT);
    manager.until("WATCHDOG=1");
    let before = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    first.signal(Signal::HUP);
    let reloading = manager.until("RELOADING=1");
    let at = reloading
        .lines()
        .find_map(|line| line.strip_prefix("MONOTONIC_USEC="));
    assert!(
        at.unwrap().parse::<i64>().unwrap() >= before.tv_sec * 1_000_000,
        "{reloading}"
    );
    manager.until("READY=1");
    first.signal(Signal::TERM);
    manager.until("STOPPING=1");
    first.event("left");
    drop(first);
    // Without a majority it is not ready; it is told in its status, and that alone.
    second.stop();
}

#[test]
fn a_notify_socket_that_is_none_is_an_error_and_one_that_is_gone_is_not() {
    let bench = Bench::new();
    let output = Agent::command(&bench, ALONE)
        .env("NOTIFY_SOCKET", "relative")
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("NOTIFY_SOCKET"));
    let mut command = Agent::command(&bench, ALONE);
    command.env("NOTIFY_SOCKET", bench.directory.join("gone"));
    let agent = Agent::of(command);
    agent.until_ready();
    agent.stop();
}

/// An agent that is handed these sockets as a service manager does: as files 3 and 4, by its own number.
fn handed(bench: &Bench, sockets: [OwnedFd; 2], count: &str, flags: &str) -> Command {
    let [first, second] = sockets;
    let agent = Agent::command(bench, flags);
    let mut command = Command::new("sh");
    // A shell has only its standard files to pass on.
    let script = "exec 3<&0 4<&1 0</dev/null 1>&2 2>/dev/null; export LISTEN_PID=$$; exec \"$@\"";
    command
        .args(["-c", script, "sh"])
        .arg(agent.get_program())
        .args(agent.get_args());
    for (key, value) in agent.get_envs() {
        match value {
            Some(value) => command.env(key, value),
            None => command.env_remove(key),
        };
    }
    command.env("LISTEN_FDS", count).stdin(first).stdout(second);
    command
}

#[test]
fn sockets_that_a_service_manager_hands_over_are_served() {
    let bench = Bench::new();
    let path = bench.directory.join("agent.sock");
    let sockets = || {
        let _ = fs::remove_file(&path);
        let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
        let addr = tcp.local_addr().unwrap();
        (
            addr,
            [
                OwnedFd::from(tcp),
                OwnedFd::from(UnixListener::bind(&path).unwrap()),
            ],
        )
    };
    let flags = "--cluster operating --name a --bind 127.0.0.1:0 --profile local";
    let (addr, both) = sockets();
    // Its stdout comes through the shell's stderr.
    let mut child = handed(&bench, both, "2", flags)
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stderr.take().unwrap()).lines();
    let mut events = lines.map(|line| serde_json::from_str::<Value>(&line.unwrap()).unwrap());
    let serving = events.find(|line| line["event"] == "serving").unwrap();
    // These, and not the default address.
    assert_eq!(serving["addrs"], serde_json::json!([addr.to_string()]));
    assert_eq!(serving["socket"], path.display().to_string());
    assert_eq!(get(&mut TcpStream::connect(addr).unwrap(), "/livez", "").0, 200);
    assert_eq!(get(&mut UnixStream::connect(&path).unwrap(), "/livez", "").0, 200);
    kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
    child.wait().unwrap();
    assert!(path.exists(), "the file is the manager's");
    // What is no socket, is missing, or is open to strangers, starts nothing.
    let refused = |sockets: [OwnedFd; 2], count: &str| {
        let mut child = handed(&bench, sockets, count, flags)
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let deadline = Instant::now() + PATIENCE;
        while child.try_wait().unwrap().is_none() && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(5));
        }
        let _ = child.kill();
        child.wait().unwrap().code()
    };
    let open = OwnedFd::from(TcpListener::bind("0.0.0.0:0").unwrap());
    let [_, unix] = sockets().1;
    assert_eq!(refused([open, unix], "2"), Some(2));
    let [_, unix] = sockets().1;
    assert_eq!(
        refused([OwnedFd::from(fs::File::open("/dev/null").unwrap()), unix], "2"),
        Some(2)
    );
    for count in ["3", "65", "-1", "x"] {
        assert_eq!(refused(sockets().1, count), Some(2), "{count}");
    }
}

#[test]
fn what_is_handed_to_another_process_is_left_alone() {
    let bench = Bench::new();
    let mut command = Agent::command(&bench, ALONE);
    command.env("LISTEN_FDS", "1").env("LISTEN_PID", "1");
    let agent = Agent::of(command);
    assert_eq!(agent.addrs.len(), 1);
    agent.stop();
}

#[test]
fn an_agent_ends_in_order_and_in_time_with_clients_that_do_not_read() {
    let bench = Bench::new();
    let agent = Agent::start(&bench, ALONE);
    agent.until_ready();
    let mut deaf = agent.plain();
    deaf.write_all(b"{\"join\":{\"group\":\"g\",\"id\":1}}\n")
        .unwrap();
    assert!(line(&mut deaf).contains("reply"));
    let mut events = agent.plain();
    events
        .write_all(b"GET /v1/groups/g/events HTTP/1.1\r\nHost: localhost\r\n\r\n")
        .unwrap();
    assert!(line(&mut events).contains("200"));
    let mut flood = agent.plain();
    flood
        .write_all(b"{\"join\":{\"group\":\"g\",\"id\":1}}\n")
        .unwrap();
    flood.set_write_timeout(Some(Duration::from_secs(1))).unwrap();
    let message = format!(
        "{{\"send\":{{\"group\":\"g\",\"payload\":\"{}\"}}}}\n",
        "x".repeat(60_000)
    );
    // Until nothing more is taken.
    let mut sent = 0;
    while sent < 400 && flood.write_all(message.as_bytes()).is_ok() {
        sent += 1;
    }
    assert!((10..400).contains(&sent), "{sent}: they hold it up");
    let mut half_open = agent.plain();
    half_open.write_all(b"GET / HT").unwrap();
    let took = agent.stop();
    assert!(took < STOPS_WITHIN / 2, "{took:?}");
}

#[test]
fn the_units_fit_the_program() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging/systemd");
    let service = fs::read_to_string(folder.join("antiphon-agent.service")).unwrap();
    for line in [
        "Type=notify",
        &format!("TimeoutStopSec={}", STOPS_WITHIN.as_secs()),
        "ExecStart=/usr/bin/antiphon agent --config /etc/antiphon/agent.toml",
        "ExecReload=/bin/kill -HUP $MAINPID",
        // With code 1 it is tried again, without end: names may resolve later.
        "RestartPreventExitStatus=2 3",
        "Restart=on-failure",
        "StartLimitIntervalSec=0",
        "NoNewPrivileges=yes",
        "ProtectSystem=strict",
    ] {
        assert!(service.lines().any(|found| found == line), "{line}");
    }
    // Where systemd is installed, it says what it thinks of them.
    let bench = Bench::new();
    let units = ["antiphon-agent.service", "antiphon-agent.socket"].map(|name| {
        let text = fs::read_to_string(folder.join(name)).unwrap();
        put(&bench, name, text.replace("/usr/bin/antiphon", "/bin/true"))
    });
    if let Ok(output) = Command::new("systemd-analyze")
        .args(["verify", "--man=no"])
        .args(&units)
        .output()
    {
        let said = String::from_utf8_lossy(&output.stderr);
        let names = ["antiphon-agent.service", "antiphon-agent.socket"];
        let ours: Vec<&str> = said
            .lines()
            .filter(|line| names.iter().any(|name| line.contains(name)))
            .collect();
        assert!(ours.is_empty(), "{ours:?}");
    }
}
