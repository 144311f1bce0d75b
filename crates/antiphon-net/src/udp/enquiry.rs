//! Whether UDP reaches a node: one hello, without a flow to follow it. The node answers, and remembers
//! nothing of it.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use antiphon_wire::datagram::{Datagram, Hello, decode};
use tokio::net::UdpSocket;
use tokio::time::{Instant, timeout_at};

use super::SMALLEST_DATAGRAM;

/// Hellos sent, in case one is lost.
const HELLOS: u32 = 3;

/// What a hello found.
#[derive(Debug)]
#[non_exhaustive]
pub enum Greeted {
    /// A node answered.
    Welcome {
        /// How long that took.
        after: Duration,
    },
    /// A node answered that takes probes by UDP, and messages by TCP only.
    ForProbes {
        /// How long that took.
        after: Duration,
    },
    /// The host refuses: nothing takes datagrams there.
    Refused,
    /// Nothing came back.
    Silent,
    /// The system cannot send there.
    Unreachable(io::Error),
    /// Something came back that is no answer to a hello.
    Stranger,
}

/// Says hello at an address, with a datagram of [`SMALLEST_DATAGRAM`] bytes, again if it seems to be lost,
/// and waits `within` in all.
///
/// # Cancel safety
/// Dropping the future changes nothing.
pub async fn greet(to: SocketAddr, advertised: SocketAddr, within: Duration) -> Greeted {
    match try_greet(to, advertised, within).await {
        Ok(greeted) => greeted,
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => Greeted::Refused,
        Err(error) => Greeted::Unreachable(error),
    }
}

async fn try_greet(to: SocketAddr, advertised: SocketAddr, within: Duration) -> io::Result<Greeted> {
    let any = match to {
        SocketAddr::V4(_) => SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)),
        SocketAddr::V6(_) => SocketAddr::from((Ipv6Addr::UNSPECIFIED, 0)),
    };
    let socket = UdpSocket::bind(any).await?;
    socket.connect(to).await?;
    let flow = getrandom::u64().map_err(io::Error::other)?;
    let mut hello = Vec::with_capacity(SMALLEST_DATAGRAM);
    Datagram::Hello(Hello {
        session: 0,
        flow,
        advertised,
    })
    .encode(&mut hello);
    hello.resize(SMALLEST_DATAGRAM, 0);
    let begun = Instant::now();
    let mut answer = [0; 2048];
    let mut strange = false;
    for attempt in 1..=HELLOS {
        socket.send(&hello).await?;
        let deadline = begun + within * attempt / HELLOS;
        while let Ok(received) = timeout_at(deadline, socket.recv(&mut answer)).await {
            match decode(&answer[..received?]) {
                Ok(Datagram::Welcome(welcome)) if welcome.flow == flow => {
                    let after = begun.elapsed();
                    return Ok(Greeted::Welcome { after });
                }
                Ok(Datagram::Unknown { session }) if session == flow => {
                    let after = begun.elapsed();
                    return Ok(Greeted::ForProbes { after });
                }
                _ => strange = true,
            }
        }
    }
    Ok(match strange {
        true => Greeted::Stranger,
        false => Greeted::Silent,
    })
}
