//! What the transport's tests share: waiting with a bound, and frames to send.
#![allow(dead_code)]

use std::net::SocketAddr;
use std::time::Duration;

use antiphon_core::Class;
use antiphon_core::wire::Incarnation;
use antiphon_core::wire::frame::{Frame, FrameCodec, Kind};
use antiphon_net::tcp::{TcpConfig, TcpTransport, listen};
use antiphon_net::udp::{self, UdpConfig, UdpTransport};
use antiphon_net::{Input, Inputs, Transport};
use bytes::Bytes;

/// Sends a frame in a turn of its own.
#[allow(dead_code, reason = "not all suites send this way")]
pub(crate) fn send(transport: &mut dyn Transport, to: SocketAddr, class: Class, frame: Frame) {
    transport.send(to, class, frame);
    transport.flush();
}

/// Long enough for a loaded machine; no test waits for it unless something is broken.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

pub(crate) async fn next(inputs: &mut Inputs) -> Input {
    let mut one = Vec::new();
    let received = tokio::time::timeout(PATIENCE, inputs.recv_many(&mut one, 1))
        .await
        .expect("an input in time");
    assert_eq!(received, 1, "the transport is gone");
    one.remove(0)
}

/// The first input for which `wanted` returns something; others are passed over.
pub(crate) async fn wait_for<T>(inputs: &mut Inputs, mut wanted: impl FnMut(Input) -> Option<T>) -> T {
    loop {
        if let Some(found) = wanted(next(inputs).await) {
            return found;
        }
    }
}

pub(crate) fn codec(who: u128) -> FrameCodec {
    FrameCodec::new("test", None, Incarnation(who))
}

pub(crate) fn frame(codec: &mut FrameCodec, kind: Kind, text: &str) -> Frame {
    codec.seal(kind, text.as_bytes()).into()
}

pub(crate) fn text(codec: &mut FrameCodec, frame: Bytes) -> String {
    let opened = codec.open(frame).expect("an authentic frame");
    String::from_utf8(opened.records.to_vec()).expect("text")
}

pub(crate) fn tcp(bind: &str, change: impl FnOnce(&mut TcpConfig)) -> (TcpTransport, Inputs, SocketAddr) {
    let listener = listen(bind.parse().expect("an address")).expect("a free port");
    let addr = listener.local_addr().expect("an address");
    let mut config = TcpConfig::new(addr);
    change(&mut config);
    let (transport, inputs) = TcpTransport::start(listener, config).expect("a runtime");
    (transport, inputs, addr)
}

pub(crate) fn udp(bind: &str, change: impl FnOnce(&mut UdpConfig)) -> (UdpTransport, Inputs, SocketAddr) {
    let listeners = udp::listen(bind.parse().expect("an address")).expect("a free port");
    let addr = listeners.0.local_addr().expect("an address");
    let mut config = UdpConfig::new(addr);
    change(&mut config);
    let (transport, inputs) = UdpTransport::start(listeners, config).expect("a runtime");
    (transport, inputs, addr)
}
