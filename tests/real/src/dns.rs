//! A DNS server of a few names, for stories about nodes that find each other by them.
//!
//! It answers A, AAAA and SRV over UDP from a zone that may change at any time; it may be silent, or fail. No
//! recursion, no compression, no cache: what a story needs, and nothing that could be trusted.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

const A: u16 = 1;
const AAAA: u16 = 28;
const SRV: u16 = 33;

/// How the server behaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Mood {
    /// It answers.
    #[default]
    Answers,
    /// It says that it has failed.
    Fails,
    /// It says nothing.
    Silent,
}

#[derive(Debug, Default)]
struct Zone {
    addresses: BTreeMap<String, Vec<IpAddr>>,
    services: BTreeMap<String, Vec<(String, u16)>>,
    mood: Mood,
}

/// A server in a thread of its own, until it is dropped.
#[derive(Debug)]
pub(crate) struct DnsServer {
    addr: SocketAddr,
    zone: Arc<Mutex<Zone>>,
    stop: Arc<AtomicBool>,
}

impl DnsServer {
    /// One with an empty zone, at a free port of this address.
    ///
    /// # Panics
    /// If it cannot listen.
    pub(crate) fn start(ip: IpAddr) -> Self {
        let socket = UdpSocket::bind((ip, 0)).unwrap_or_else(|e| panic!("{ip}: {e}"));
        let addr = socket.local_addr().unwrap_or_else(|e| panic!("{ip}: {e}"));
        let within = Some(Duration::from_millis(50));
        socket.set_read_timeout(within).unwrap_or_else(|e| panic!("{e}"));
        let zone = Arc::<Mutex<Zone>>::default();
        let stop = Arc::<AtomicBool>::default();
        let (served, stopped) = (zone.clone(), stop.clone());
        std::thread::spawn(move || serve(&socket, &served, &stopped));
        Self { addr, zone, stop }
    }

    /// Where it listens.
    pub(crate) fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// From now on a name has these addresses; none removes it.
    pub(crate) fn addresses(&self, name: &str, addresses: &[IpAddr]) {
        self.change(|zone| match addresses {
            [] => drop(zone.addresses.remove(name)),
            some => drop(zone.addresses.insert(name.to_owned(), some.to_vec())),
        });
    }

    /// From now on a service is at these hosts and ports.
    pub(crate) fn service(&self, name: &str, at: &[(&str, u16)]) {
        let at = at
            .iter()
            .map(|(host, port)| ((*host).to_owned(), *port))
            .collect();
        self.change(|zone| drop(zone.services.insert(name.to_owned(), at)));
    }

    /// From now on it behaves so.
    pub(crate) fn mood(&self, mood: Mood) {
        self.change(|zone| zone.mood = mood);
    }

    fn change(&self, how: impl FnOnce(&mut Zone)) {
        how(&mut self.zone.lock().unwrap_or_else(PoisonError::into_inner));
    }
}

impl Drop for DnsServer {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
    }
}

fn serve(socket: &UdpSocket, zone: &Mutex<Zone>, stop: &AtomicBool) {
    let mut buffer = [0; 1500];
    while !stop.load(Ordering::Acquire) {
        let (length, from) = match socket.recv_from(&mut buffer) {
            Ok(received) => received,
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => continue,
            Err(_) => return,
        };
        let answer = answer(
            &zone.lock().unwrap_or_else(PoisonError::into_inner),
            &buffer[..length],
        );
        if let Some(answer) = answer {
            // A resolver that is gone asks nobody any more.
            let _ = socket.send_to(&answer, from);
        }
    }
}

fn answer(zone: &Zone, query: &[u8]) -> Option<Vec<u8>> {
    if query.len() < 12 || zone.mood == Mood::Silent {
        return None;
    }
    // The question: labels to an empty one, then type and class.
    let mut labels = Vec::new();
    let mut at = 12;
    while *query.get(at)? != 0 {
        let length = usize::from(query[at]);
        labels.push(String::from_utf8_lossy(query.get(at + 1..at + 1 + length)?).to_lowercase());
        at += 1 + length;
    }
    let kind = u16::from_be_bytes(query.get(at + 1..at + 3)?.try_into().ok()?);
    let question = query.get(12..at + 5)?;
    let name = labels.join(".");
    let known = zone.addresses.contains_key(&name) || zone.services.contains_key(&name);
    let answers: Vec<Vec<u8>> = match kind {
        A | AAAA => {
            let addresses = zone.addresses.get(&name).into_iter().flatten();
            let bytes = addresses.filter_map(|ip| match (ip, kind) {
                (IpAddr::V4(ip), A) => Some(ip.octets().to_vec()),
                (IpAddr::V6(ip), AAAA) => Some(ip.octets().to_vec()),
                _ => None,
            });
            bytes.collect()
        }
        SRV => {
            let services = zone.services.get(&name).into_iter().flatten();
            let bytes = services.map(|(host, port)| {
                let mut bytes = vec![0, 0, 0, 0];
                bytes.extend(port.to_be_bytes());
                for label in host.split('.').filter(|label| !label.is_empty()) {
                    bytes.push(label.len() as u8);
                    bytes.extend(label.as_bytes());
                }
                bytes.push(0);
                bytes
            });
            bytes.collect()
        }
        _ => Vec::new(),
    };
    let code = match zone.mood {
        Mood::Fails => 2,
        _ if known => 0,
        _ => 3,
    };
    let answers = if code == 0 { answers } else { Vec::new() };
    let mut out = query[..2].to_vec();
    // An authoritative answer, to a question with recursion desired or not.
    out.extend([0x84 | (query[2] & 1), 0x80 | code]);
    out.extend([0, 1]);
    out.extend((answers.len() as u16).to_be_bytes());
    out.extend([0; 4]);
    out.extend(question);
    for bytes in answers {
        // The name of the question, at offset 12.
        out.extend([0xc0, 12]);
        out.extend(kind.to_be_bytes());
        out.extend([0, 1, 0, 0, 0, 5]);
        out.extend((bytes.len() as u16).to_be_bytes());
        out.extend(bytes);
    }
    Some(out)
}
