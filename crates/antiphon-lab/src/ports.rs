//! Ports on loopback that nobody listens at.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::sync::atomic::{AtomicU32, Ordering};

/// Below the range from which kernels take ports for outgoing connections, so that a restarted node finds its
/// own free.
const PORTS: std::ops::Range<u16> = 20_000..32_000;

/// So many addresses at which nobody listens, as far as can be known, none of them given twice; fewer if
/// there are no more.
pub fn free_addrs(count: usize) -> Vec<SocketAddr> {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let span = u32::from(PORTS.end - PORTS.start);
    // Programs that run at the same time start at different places.
    let offset = std::process::id().wrapping_mul(97) % span;
    let ports = std::iter::repeat_with(|| NEXT.fetch_add(1, Ordering::Relaxed)).take(span as usize);
    ports
        // Within PORTS, so it fits.
        .map(|step| PORTS.start + (offset.wrapping_add(step) % span) as u16)
        .map(|port| SocketAddr::from((Ipv4Addr::LOCALHOST, port)))
        .filter(|addr| TcpListener::bind(addr).is_ok())
        .take(count)
        .collect()
}
