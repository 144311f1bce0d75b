//! Discovery by UDP multicast, for development: nodes announce where they are, and listen.
//!
//! ```text
//!   Announce { addr, member }, sealed as every frame ──► group ──► all that listen there
//! ```
//! An announcement only says that a node with the cluster's name and key may be at an address. If it is
//! replayed, or forged without a key, it leads to an address where the node finds nobody, or hears frames
//! that do not open. It is sealed by an identity of its own, made at the start, so no nonce of the node's is
//! used.
//!
//! A node announces itself at once, again after a quarter of a second in case the first announcement was
//! lost, then each second or so without a cluster and each five in one; at once when it loses its cluster.
//! It answers a new announcer within 100 ms; a process that was started again is a new announcer, wherever it
//! is. A member answers each announcement of a node that is no member. The reason: two nodes that start again
//! beside it hear each other at once, and must hear of the member before they found (they wait half a second
//! and more, see the founding in the core). An announcer that was not heard for 30 s is forgotten.
//!
//! # Bounds
//! 256 addresses: the address heard longest ago makes room. 512 datagrams a second are opened, the others
//! dropped. A node answers with at most one datagram in 250 ms. Hops are 1: nothing leaves the network.

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use antiphon_core::wire::Incarnation;
use antiphon_core::wire::codec::{decode_all, encode_to_vec};
use antiphon_core::wire::frame::{FrameCodec, Kind as FrameKind, peek};
use antiphon_core::wire::membership::Discovery;
use antiphon_core::wire::record::Record;
use antiphon_core::{ClusterKey, MAX_HINTS};
use antiphon_net::udp::{self, MulticastConfig};
use bytes::Bytes;
use tokio::net::UdpSocket;
use tokio::time::Instant;

use super::board::Place;
use super::tasks::{Pace, jitter};
use crate::{Interface, Multicast};

/// Without a cluster a node announces itself this often.
const SEEKING: Duration = Duration::from_secs(1);
/// In a cluster.
const SETTLED: Duration = Duration::from_secs(5);
/// A new announcer is answered within this time.
const ANSWER: Duration = Duration::from_millis(100);
/// Between two announcements at least.
const APART: Duration = Duration::from_millis(250);
/// An announcer that was not heard for this long is forgotten.
const REMEMBERED: Duration = Duration::from_secs(30);
/// Datagrams opened in a second.
const MAX_A_SECOND: u32 = 512;
/// An announcement is far smaller.
const MAX_BYTES: usize = 512;

/// Sockets that listen and send at a group.
#[derive(Debug)]
pub(crate) struct Air {
    ears: UdpSocket,
    mouth: UdpSocket,
    group: SocketAddr,
    codec: FrameCodec,
    me: Incarnation,
    addr: SocketAddr,
}

/// Where and how discovery by multicast listens and sends. The text says what cannot be, and what to do.
pub(crate) fn config(
    multicast: &Multicast,
    own: Option<IpAddr>,
    confined: bool,
) -> Result<MulticastConfig, String> {
    let group = multicast.group;
    let mut config = MulticastConfig::new(group, own.filter(IpAddr::is_ipv4).unwrap_or(IpAddr::from([0; 4])));
    match multicast.interface {
        Some(Interface::Address(ip)) if ip.is_ipv4() && group.is_ipv4() => config.interface = ip,
        Some(Interface::Index(index)) if index > 0 && group.is_ipv6() => {
            config.interface = IpAddr::from([0u16; 8]);
            config.interface_index = index;
        }
        None if group.is_ipv4() => {}
        _ if group.is_ipv4() => {
            return Err("for an IPv4 group the interface is one of its IPv4 addresses".to_owned());
        }
        _ => return Err("for an IPv6 group the interface is its name or number".to_owned()),
    }
    if confined && !(group.is_ipv4() && config.interface.is_loopback()) {
        return Err(format!(
            "group {group} is not on loopback, and there is no key: whoever hears it could lead this node astray. Give a key \
             (--key-file FILE), say that the network is trusted (--insecure), or stay on this host: multicast@127.0.0.1"
        ));
    }
    Ok(config)
}

/// Joins the group. Must be called on a tokio runtime.
pub(crate) fn open(
    config: &MulticastConfig,
    cluster: &str,
    key: Option<&ClusterKey>,
    me: Incarnation,
    addr: SocketAddr,
) -> io::Result<Air> {
    let sockets = udp::multicast_sockets(config)?;
    Ok(Air {
        ears: UdpSocket::from_std(sockets.ears)?,
        mouth: UdpSocket::from_std(sockets.mouth)?,
        group: sockets.group,
        codec: FrameCodec::new(cluster, key, me),
        me,
        addr,
    })
}

/// Announces and listens.
pub(super) async fn run(air: Air, place: Place, mut pace: Pace) {
    let mut scene = Scene {
        air,
        heard: BTreeMap::new(),
        told: None,
        opened: (Instant::now(), 0),
        mute: None,
    };
    let mut announce_at = Instant::now();
    let mut announced = announce_at - APART;
    let mut first = true;
    let mut buffer = vec![0; MAX_BYTES + 1];
    loop {
        tokio::select! {
            () = tokio::time::sleep_until(announce_at) => {
                scene.announce(pace.settled()).await;
                announced = Instant::now();
                announce_at = match std::mem::take(&mut first) {
                    true => announced + APART,
                    false => announced + jitter(if pace.settled() { SETTLED } else { SEEKING }),
                };
            }
            () = pace.lost() => announce_at = Instant::now().max(announced + APART),
            received = scene.air.ears.recv_from(&mut buffer) => match received {
                Ok((length, _)) => {
                    if scene.hear(&buffer[..length], pace.settled()) {
                        let soon = (Instant::now() + jitter(ANSWER) / 2).max(announced + APART);
                        announce_at = announce_at.min(soon);
                    }
                }
                // Such as a network that goes down: it may come up again.
                Err(_) => tokio::time::sleep(SEEKING).await,
            }
        }
        scene.tell(&place);
    }
}

struct Scene {
    air: Air,
    /// Which incarnation announced itself at an address last, and when.
    heard: BTreeMap<SocketAddr, (Incarnation, Instant)>,
    /// What the board was told last.
    told: Option<(Vec<SocketAddr>, Option<String>)>,
    /// The present second, and how many datagrams were opened in it.
    opened: (Instant, u32),
    /// Why nothing can be sent.
    mute: Option<String>,
}

impl Scene {
    async fn announce(&mut self, member: bool) {
        let announce = Record::Discovery(Discovery::Announce {
            addr: self.air.addr,
            member,
        });
        let frame = self.air.codec.seal(FrameKind::Control, &encode_to_vec(&announce));
        let sent = self.air.mouth.send_to(&frame, self.air.group).await;
        self.mute = sent
            .err()
            .map(|error| format!("nothing can be sent to {}: {error}", self.air.group));
    }

    /// Whether the sender is to be answered: a new announcer; or, if this node is a member, any announcer
    /// that is none.
    fn hear(&mut self, datagram: &[u8], is_member: bool) -> bool {
        let now = Instant::now();
        if now - self.opened.0 >= Duration::from_secs(1) {
            self.opened = (now, 0);
        }
        let Ok((_, sender)) = peek(datagram) else {
            return false;
        };
        if sender == self.air.me || datagram.len() > MAX_BYTES {
            return false;
        }
        self.opened.1 += 1;
        if self.opened.1 > MAX_A_SECOND {
            return false;
        }
        // Other clusters may speak here as well: that is no trouble.
        let Ok(opened) = self.air.codec.open(Bytes::copy_from_slice(datagram)) else {
            return false;
        };
        let Ok(Record::Discovery(Discovery::Announce { addr, member })) = decode_all(opened.records) else {
            return false;
        };
        if addr == self.air.addr {
            return false;
        }
        let before = self.heard.insert(addr, (sender, now));
        if self.heard.len() > MAX_HINTS {
            let oldest = self.heard.iter().min_by_key(|(_, (_, at))| *at);
            oldest
                .map(|(addr, _)| *addr)
                .map(|oldest| self.heard.remove(&oldest));
        }
        before.is_none_or(|(known, _)| known != sender) || is_member && !member
    }

    fn tell(&mut self, place: &Place) {
        let now = Instant::now();
        self.heard.retain(|_, (_, at)| now - *at < REMEMBERED);
        let found: Vec<SocketAddr> = self.heard.keys().copied().collect();
        let state = (found, self.mute.clone());
        if self.told.as_ref() != Some(&state) {
            match state.clone() {
                (found, None) => place.found(found),
                (found, Some(problem)) => place.partly(found, problem),
            }
            self.told = Some(state);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn scene(key: Option<&ClusterKey>) -> Scene {
        let (cluster, me, port) = ("c", 1, 1000);
        let any = || UdpSocket::bind("127.0.0.1:0");
        let (ears, mouth) = (any().await.unwrap(), any().await.unwrap());
        Scene {
            air: Air {
                ears,
                mouth,
                group: "127.0.0.1:9".parse().unwrap(),
                codec: FrameCodec::new(cluster, key, Incarnation(me)),
                me: Incarnation(me),
                addr: SocketAddr::from(([127, 0, 0, 1], port)),
            },
            heard: BTreeMap::new(),
            told: None,
            opened: (Instant::now(), 0),
            mute: None,
        }
    }

    fn word(codec: &mut FrameCodec, port: u16) -> Bytes {
        let addr = SocketAddr::from(([127, 0, 0, 1], port));
        let announce = Record::Discovery(Discovery::Announce { addr, member: false });
        codec.seal(FrameKind::Control, &encode_to_vec(&announce))
    }

    #[tokio::test]
    async fn only_announcements_of_the_cluster_count_and_each_once() {
        let mut scene = scene(None).await;
        let mut peer = FrameCodec::new("c", None, Incarnation(2));
        assert!(scene.hear(&word(&mut peer, 1001), false));
        assert!(!scene.hear(&word(&mut peer, 1001), false), "known");
        let replayed = word(&mut peer, 1002);
        assert!(scene.hear(&replayed, false));
        scene.heard.clear();
        assert!(!scene.hear(&replayed, false), "an old one");
        let mut own = FrameCodec::new("c", None, Incarnation(1));
        assert!(!scene.hear(&word(&mut own, 1003), false));
        let mut other = FrameCodec::new("other", None, Incarnation(3));
        assert!(!scene.hear(&word(&mut other, 1004), false));
        assert!(!scene.hear(&[0; 600], false));
        assert!(!scene.hear(b"hello", false));
        let odd = peer.seal(FrameKind::Control, &[255]);
        assert!(!scene.hear(&odd, false));
    }

    #[tokio::test]
    async fn a_process_that_was_started_again_is_answered_and_by_members_each_time() {
        let mut scene = scene(None).await;
        let mut before = FrameCodec::new("c", None, Incarnation(2));
        let mut again = FrameCodec::new("c", None, Incarnation(3));
        assert!(scene.hear(&word(&mut before, 1001), true));
        assert!(scene.hear(&word(&mut again, 1001), true), "at the same address");
        assert!(
            scene.hear(&word(&mut again, 1001), true),
            "it has not found the cluster yet"
        );
        assert!(
            !scene.hear(&word(&mut again, 1001), false),
            "this node could tell it nothing"
        );
        let announce = Record::Discovery(Discovery::Announce {
            addr: SocketAddr::from(([127, 0, 0, 1], 1001)),
            member: true,
        });
        let joined = again.seal(FrameKind::Control, &encode_to_vec(&announce));
        assert!(!scene.hear(&joined, true));
        assert_eq!(scene.heard.len(), 1);
    }

    #[tokio::test]
    async fn with_a_key_only_those_who_have_it_are_heard() {
        let key = ClusterKey::parse(&"5e".repeat(32)).unwrap();
        let other = ClusterKey::parse(&"77".repeat(32)).unwrap();
        let mut scene = scene(Some(&key)).await;
        for stranger in [None, Some(&other)] {
            let mut peer = FrameCodec::new("c", stranger, Incarnation(2));
            assert!(!scene.hear(&word(&mut peer, 1001), false));
        }
        let mut peer = FrameCodec::new("c", Some(&key), Incarnation(2));
        assert!(scene.hear(&word(&mut peer, 1001), false));
    }

    #[tokio::test]
    async fn what_is_no_word_of_the_cluster_and_what_this_node_says_keep_no_announcement_out() {
        let mut scene = scene(None).await;
        let mut own = FrameCodec::new("c", None, Incarnation(1));
        for _ in 0..MAX_A_SECOND {
            scene.hear(b"hello", false);
            scene.hear(&word(&mut own, 1000), false);
        }
        let mut peer = FrameCodec::new("c", None, Incarnation(2));
        assert!(scene.hear(&word(&mut peer, 1001), false));
    }

    #[tokio::test]
    async fn a_flood_fills_nothing() {
        let mut scene = scene(None).await;
        let mut peer = FrameCodec::new("c", None, Incarnation(2));
        let heard = (1001..4000)
            .filter(|port| scene.hear(&word(&mut peer, *port), false))
            .count();
        assert!(heard <= MAX_A_SECOND as usize * 2, "{heard}");
        assert!(scene.heard.len() <= MAX_HINTS);
    }

    #[test]
    fn without_a_key_it_stays_on_loopback() {
        let group = |text: &str| Multicast::at(text.parse().unwrap());
        let local = Some(IpAddr::from([127, 0, 0, 1]));
        let abroad = Some(IpAddr::from([10, 0, 0, 1]));
        assert!(config(&group("239.255.0.1:7402"), local, true).is_ok());
        let error = config(&group("239.255.0.1:7402"), abroad, true).unwrap_err();
        assert!(
            error.contains("multicast@127.0.0.1") && error.contains("--key-file"),
            "{error}"
        );
        assert!(config(&group("239.255.0.1:7402"), abroad, false).is_ok());
        assert!(config(&group("[ff15::1]:7402"), local, false).is_err());
    }
}
