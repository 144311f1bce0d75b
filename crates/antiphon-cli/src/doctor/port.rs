//! Whether the node could listen, and if not, which process does.

use std::io;
#[cfg(target_os = "linux")]
use std::net::IpAddr;
use std::net::{SocketAddr, TcpListener};
#[cfg(target_os = "linux")]
use std::path::Path;
use std::path::PathBuf;

use antiphon::Transport;
#[cfg(target_os = "linux")]
use antiphon_core::text::on_one_line;
use antiphon_net::{Lack, tcp, udp};

use super::report::{Report, Step};
use super::running::Own;
use crate::settings::Settings;

/// Where answers are waited for.
#[derive(Debug)]
pub(super) struct Port {
    pub(super) listeners: Vec<TcpListener>,
    /// Where others send answers to, to be heard by those.
    pub(super) reached_at: Vec<SocketAddr>,
    /// Whether that is where the node itself would be reached.
    pub(super) is_the_nodes: bool,
    /// What the node would advertise, ports filled in.
    pub(super) advertised: Vec<SocketAddr>,
    /// Whether the node could listen, or does already.
    pub(super) is_free: bool,
}

/// Whether one of these addresses is taken by a node that does not answer at its console, one of these.
pub(super) fn is_taken_by(addrs: &[SocketAddr], silent: &[PathBuf]) -> bool {
    addrs.iter().any(|addr| listens_with(*addr, silent))
}

/// Listens where the node would, or, if it runs already, beside it. `None` if that is not possible. A node
/// that runs may not answer at its console: `silent` are those that could be its console.
pub(super) fn take(
    report: &mut Report,
    settings: &Settings,
    own: Option<&Own>,
    silent: &[PathBuf],
) -> Option<Port> {
    let mut listeners = Vec::new();
    let (mut taken, mut is_free) = (false, true);
    for addr in &settings.bind {
        match listen(*addr, settings.transport) {
            Ok(listener) => {
                report.add(Step::ok("bind", addr, "free; listening here for answers"));
                listeners.push(listener);
            }
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
                let by_own = own.filter(|own| own.listens_at(*addr));
                let by_silent = by_own.is_none() && listens_with(*addr, silent);
                report.add(match by_own {
                    Some(own) => Step::ok(
                        "bind",
                        addr,
                        format!("taken by this very node, process {}, which runs", own.pid()),
                    ),
                    None if by_silent => {
                        Step::skipped("bind", addr, "taken by this very node, which does not answer")
                    }
                    None => in_use(*addr),
                });
                taken = true;
                is_free &= by_own.is_some() || by_silent;
            }
            Err(error) => {
                report.add(refused(*addr, &error));
                is_free = false;
            }
        }
    }
    if !taken && listeners.len() == settings.bind.len() {
        let bound: Vec<SocketAddr> = listeners.iter().filter_map(|it| it.local_addr().ok()).collect();
        let advertised = advertised(settings, &bound);
        return Some(Port {
            reached_at: advertised.clone(),
            listeners,
            is_the_nodes: true,
            advertised,
            is_free,
        });
    }
    let port = beside(report, settings)?;
    Some(Port { is_free, ..port })
}

/// Other ports on the same addresses.
fn beside(report: &mut Report, settings: &Settings) -> Option<Port> {
    let listeners: Vec<TcpListener> = settings
        .bind
        .iter()
        .filter_map(|addr| tcp::listen(SocketAddr::new(addr.ip(), 0)).ok())
        .collect();
    let bound: Vec<SocketAddr> = listeners.iter().filter_map(|it| it.local_addr().ok()).collect();
    // One that listens everywhere is reached at what is advertised, by whatever port.
    let reached_at: Vec<SocketAddr> = bound
        .iter()
        .flat_map(|bound| match bound.ip().is_unspecified() {
            true => settings
                .advertise
                .iter()
                .map(|addr| SocketAddr::new(addr.ip(), bound.port()))
                .collect(),
            false => vec![*bound],
        })
        .collect();
    if reached_at.is_empty() {
        return None;
    }
    let shown: Vec<String> = reached_at.iter().map(ToString::to_string).collect();
    report.add(Step::skipped(
        "bind",
        "",
        format!(
            "answers are waited for at {} instead: whether the node's own port is reached is not seen so, and a firewall may pass one and not the other",
            shown.join(", ")
        ),
    ));
    Some(Port {
        listeners,
        reached_at,
        is_the_nodes: false,
        advertised: advertised(settings, &settings.bind),
        is_free: true,
    })
}

fn advertised(settings: &Settings, bound: &[SocketAddr]) -> Vec<SocketAddr> {
    match settings.advertise.as_slice() {
        [] => bound.to_vec(),
        advertise => advertise.to_vec(),
    }
}

fn listen(addr: SocketAddr, transport: Transport) -> io::Result<TcpListener> {
    match transport {
        // Whether UDP can be bound, too; the socket itself is not needed.
        Transport::Udp => udp::listen(addr).map(|(listener, _)| listener),
        _ => tcp::listen(addr),
    }
}

fn in_use(addr: SocketAddr) -> Step {
    let by = owner(addr).map_or_else(
        || "by a socket that listens at no TCP port: one for UDP, or one that is only bound".to_owned(),
        |owner| format!("by {owner}"),
    );
    Step::failed(
        "bind",
        "address-in-use",
        addr,
        format!("it is in use {by}"),
        "stop that process, or give another --bind (and mend the seed lists that name this one)",
    )
}

fn refused(addr: SocketAddr, error: &io::Error) -> Step {
    let (code, remedy) = match error.kind() {
        io::ErrorKind::AddrNotAvailable => (
            "address-not-here",
            "no interface of this host has that address: give one that `ip address` shows; behind NAT, bind 0.0.0.0 and --advertise the outer address",
        ),
        io::ErrorKind::PermissionDenied => (
            "address-forbidden",
            "ports below 1024 need a privilege: take a higher one, or grant CAP_NET_BIND_SERVICE",
        ),
        _ => (
            "bind",
            Lack::of(error).map_or("give another --bind", Lack::remedy),
        ),
    };
    Step::failed("bind", code, addr, error.to_string(), remedy)
}

/// The process that listens at an address, as far as this user may see.
#[cfg(target_os = "linux")]
fn owner(addr: SocketAddr) -> Option<String> {
    let (user, inode) = listening(addr)?;
    let Some(process) = process_with(&inode) else {
        return Some(format!(
            "a process of user {user} that is not visible here: look as that user or root, and in containers on the same network"
        ));
    };
    let command = std::fs::read(process.join("cmdline")).unwrap_or_default();
    let pid = process.file_name().unwrap_or_default().to_string_lossy();
    Some(format!("process {pid} ({})", shown(&command)))
}

/// The folder in `/proc` of the process that has a socket, as far as this user may see.
#[cfg(target_os = "linux")]
fn process_with(inode: &str) -> Option<PathBuf> {
    let processes = std::fs::read_dir("/proc")
        .ok()?
        .flatten()
        .map(|entry| entry.path());
    // Among them are other names for the same, such as `self`.
    let is_number = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default();
        name.as_encoded_bytes().iter().all(u8::is_ascii_digit)
    };
    processes.filter(is_number).find(|process| has(process, inode))
}

/// Whether the process of this folder in `/proc` has a socket.
#[cfg(target_os = "linux")]
fn has(process: &Path, inode: &str) -> bool {
    let wanted = format!("socket:[{inode}]");
    let Ok(descriptors) = std::fs::read_dir(process.join("fd")) else {
        return false;
    };
    let mut links = descriptors
        .flatten()
        .filter_map(|fd| std::fs::read_link(fd.path()).ok());
    links.any(|link| link.to_string_lossy() == wanted)
}

/// Whether the process that listens at an address has one of these Unix sockets, too.
#[cfg(target_os = "linux")]
fn listens_with(addr: SocketAddr, consoles: &[PathBuf]) -> bool {
    let inodes: Vec<String> = consoles.iter().flat_map(|path| sockets_at(path)).collect();
    // Mostly there is none, and then no process is looked at.
    if inodes.is_empty() {
        return false;
    }
    let process = listening(addr).and_then(|(_, inode)| process_with(&inode));
    process.is_some_and(|process| inodes.iter().any(|inode| has(&process, inode)))
}

#[cfg(not(target_os = "linux"))]
fn listens_with(_addr: SocketAddr, _consoles: &[PathBuf]) -> bool {
    false
}

/// The inodes of the Unix sockets of this path: of the one that listens, and of those that it has accepted.
#[cfg(target_os = "linux")]
fn sockets_at(path: &Path) -> Vec<String> {
    let table = std::fs::read("/proc/net/unix").unwrap_or_default();
    let ends = format!(" {}", path.display());
    let inode = |line: &str| {
        let fields: Vec<&str> = line.strip_suffix(ends.as_str())?.split_whitespace().collect();
        match fields[..] {
            [_, _, _, _, _, _, inode] => Some(inode.to_owned()),
            _ => None,
        }
    };
    String::from_utf8_lossy(&table)
        .lines()
        .filter_map(inode)
        .collect()
}

/// A command line as it stands in `/proc`. The user who started the process wrote it, and may be any user of
/// this host.
#[cfg(target_os = "linux")]
fn shown(command: &[u8]) -> String {
    let command = String::from_utf8_lossy(command).replace('\0', " ");
    let short: String = command.trim().chars().take(120).collect();
    on_one_line(&short)
}

#[cfg(not(target_os = "linux"))]
fn owner(_addr: SocketAddr) -> Option<String> {
    Some("another process".to_owned())
}

/// Of the socket that listens at an address or at all of its family, from the kernel's tables: its user and
/// its inode.
#[cfg(target_os = "linux")]
fn listening(addr: SocketAddr) -> Option<(String, String)> {
    const LISTEN: &str = "0A";
    for table in ["/proc/net/tcp", "/proc/net/tcp6"] {
        let Ok(text) = std::fs::read_to_string(table) else {
            continue;
        };
        for line in text.lines().skip(1) {
            let fields: Vec<&str> = line.split_whitespace().collect();
            let [_, local, _, state, _, _, _, user, _, inode, ..] = fields[..] else {
                continue;
            };
            if state == LISTEN && local_matches(local, addr) {
                return Some((user.to_owned(), inode.to_owned()));
            }
        }
    }
    None
}

/// Whether an entry such as `0100007F:1CE8` stands for the address: words of four bytes, each in the host's
/// order.
#[cfg(target_os = "linux")]
fn local_matches(local: &str, addr: SocketAddr) -> bool {
    let Some((ip, port)) = local.split_once(':') else {
        return false;
    };
    if u16::from_str_radix(port, 16) != Ok(addr.port()) {
        return false;
    }
    let words: Option<Vec<[u8; 4]>> = ip
        .as_bytes()
        .chunks(8)
        .map(|word| {
            let word = std::str::from_utf8(word).ok()?;
            Some(u32::from_str_radix(word, 16).ok()?.to_ne_bytes())
        })
        .collect();
    let bytes = words.unwrap_or_default().concat();
    let listens: IpAddr = match (<[u8; 4]>::try_from(&bytes[..]), <[u8; 16]>::try_from(&bytes[..])) {
        (Ok(v4), _) => v4.into(),
        (_, Ok(v6)) => IpAddr::from(v6).to_canonical(),
        _ => return false,
    };
    listens == addr.ip().to_canonical() || listens.is_unspecified() || addr.ip().is_unspecified()
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn whoever_has_the_port_cannot_write_to_the_terminal_by_its_name() {
        let command = b"nc\0-l\0\x1b]0;owned\x07\nok      everything: fine\0";
        assert_eq!(
            shown(command),
            "nc -l \\u{1b}]0;owned\\u{7}\\nok      everything: fine"
        );
    }

    #[test]
    fn a_process_that_has_both_the_port_and_a_console_is_known_by_the_console() {
        let folder = std::env::temp_dir().join(format!("antiphon-port-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let (console, longer) = (folder.join("a b"), folder.join("x/a b"));
        let served = std::os::unix::net::UnixListener::bind(&console).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let addrs = [listener.local_addr().unwrap()];
        assert!(is_taken_by(&addrs, &[longer.clone(), console.clone()]));
        assert!(!is_taken_by(&addrs, &[longer]) && !is_taken_by(&addrs, &[]));
        drop(served);
        assert!(!is_taken_by(&addrs, &[console]));
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn the_kernels_table_is_read() {
        let addr = |text: &str| text.parse::<SocketAddr>().unwrap();
        if cfg!(target_endian = "little") {
            assert!(local_matches("0100007F:1CE8", addr("127.0.0.1:7400")));
            assert!(!local_matches("0100007F:1CE9", addr("127.0.0.1:7400")));
            assert!(!local_matches("0200007F:1CE8", addr("127.0.0.1:7400")));
            assert!(local_matches("00000000:1CE8", addr("127.0.0.1:7400")));
            assert!(local_matches(
                "00000000000000000000000001000000:1CE8",
                addr("[::1]:7400")
            ));
            assert!(local_matches(
                "0000000000000000FFFF00000100007F:1CE8",
                addr("127.0.0.1:7400")
            ));
        }
        assert!(!local_matches("nonsense", addr("127.0.0.1:7400")));
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let owner = owner(listener.local_addr().unwrap()).expect("this process");
        assert!(owner.contains(&std::process::id().to_string()), "{owner}");
        let (user, _) = listening(listener.local_addr().unwrap()).expect("a listener");
        assert_eq!(user, rustix::process::geteuid().as_raw().to_string());
    }
}
