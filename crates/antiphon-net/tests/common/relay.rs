//! A network between two nodes that loses, doubles and reorders datagrams, and passes streams.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream, UdpSocket};
use tokio::task::JoinSet;

/// In thousandths of the datagrams of both directions.
#[derive(Debug)]
pub(crate) struct Weather {
    pub(crate) lost: AtomicU32,
    pub(crate) doubled: AtomicU32,
    pub(crate) late: AtomicU32,
    /// Bytes of the largest datagram that passes.
    pub(crate) largest: AtomicUsize,
}

impl Default for Weather {
    fn default() -> Self {
        Self {
            lost: AtomicU32::default(),
            doubled: AtomicU32::default(),
            late: AtomicU32::default(),
            largest: AtomicUsize::new(usize::MAX),
        }
    }
}

/// Who dials its address reaches the node behind it.
pub(crate) struct Relay {
    pub(crate) addr: SocketAddr,
    pub(crate) weather: Arc<Weather>,
    _tasks: JoinSet<()>,
}

impl Relay {
    pub(crate) async fn to(node: SocketAddr) -> Self {
        let (listener, front) = loop {
            let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
            let addr = listener.local_addr().expect("an address");
            if let Ok(front) = UdpSocket::bind(addr).await {
                break (listener, Arc::new(front));
            }
        };
        let addr = listener.local_addr().expect("an address");
        let back = Arc::new(UdpSocket::bind("127.0.0.1:0").await.expect("a port"));
        let weather = Arc::new(Weather::default());
        let client = Arc::new(Mutex::new(None));
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            let mut streams = JoinSet::new();
            while let Ok((mut near, _)) = listener.accept().await {
                streams.spawn(async move {
                    if let Ok(mut far) = TcpStream::connect(node).await {
                        let _ = copy_bidirectional(&mut near, &mut far).await;
                    }
                });
            }
        });
        let there = (front.clone(), back.clone(), weather.clone(), client.clone());
        tasks.spawn(async move {
            let (from, to, weather, client) = there;
            let mut passing = Passing::new(1);
            let mut buffer = vec![0; 1 << 16];
            while let Ok((length, who)) = from.recv_from(&mut buffer).await {
                *client.lock().expect("no panic") = Some(who);
                for datagram in passing.through(&weather, &buffer[..length]) {
                    let _ = to.send_to(&datagram, node).await;
                }
            }
        });
        let here = (front, back, weather.clone());
        tasks.spawn(async move {
            let (to, from, weather) = here;
            let mut passing = Passing::new(2);
            let mut buffer = vec![0; 1 << 16];
            while let Ok((length, _)) = from.recv_from(&mut buffer).await {
                let who = *client.lock().expect("no panic");
                for datagram in passing.through(&weather, &buffer[..length]) {
                    if let Some(who) = who {
                        let _ = to.send_to(&datagram, who).await;
                    }
                }
            }
        });
        Self {
            addr,
            weather,
            _tasks: tasks,
        }
    }
}

struct Passing {
    random: u64,
    held: Option<Vec<u8>>,
}

impl Passing {
    fn new(seed: u64) -> Self {
        Self {
            random: seed,
            held: None,
        }
    }

    fn happens(&mut self, thousandths: &AtomicU32) -> bool {
        // SplitMix64: the same weather in every run.
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.random;
        mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed >> 32) as u32 % 1000 < thousandths.load(Ordering::Relaxed)
    }

    /// What leaves when this comes in.
    fn through(&mut self, weather: &Weather, datagram: &[u8]) -> Vec<Vec<u8>> {
        let mut out = Vec::new();
        let fits = datagram.len() <= weather.largest.load(Ordering::Relaxed);
        if fits && !self.happens(&weather.lost) {
            out.push(datagram.to_vec());
            if self.happens(&weather.doubled) {
                out.push(datagram.to_vec());
            }
        }
        if let Some(held) = self.held.take() {
            out.push(held);
        } else if self.happens(&weather.late) {
            self.held = out.pop();
        }
        out
    }
}
