//! UDP at a gate: a datagram, an envelope; no answer to what is not from a member.

use std::sync::Arc;

use tokio::net::UdpSocket;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use crate::envelope::Way;
use crate::lane::MAX_SENT;
use crate::node::{Node, Served};
use crate::ways::MAX_DATAGRAM;

/// Datagrams that are served at a time, of all members: beyond them they wait in the socket, or are lost.
const SERVED: usize = 4 * MAX_SENT;

pub(super) async fn serve(socket: UdpSocket, node: Arc<Node>) {
    let socket = Arc::new(socket);
    let places = Arc::new(Semaphore::new(SERVED));
    let mut serving = JoinSet::new();
    let mut datagram = vec![0; MAX_DATAGRAM + 1];
    loop {
        let Ok(place) = places.clone().acquire_owned().await else {
            return;
        };
        while serving.try_join_next().is_some() {}
        // An error is of a datagram that was sent before.
        let Ok((length, from)) = socket.recv_from(&mut datagram).await else {
            continue;
        };
        if length > MAX_DATAGRAM {
            continue;
        }
        let envelope = datagram[..length].to_vec();
        let (socket, node) = (socket.clone(), node.clone());
        serving.spawn(async move {
            let served = node.serve(&envelope, &[Way::Udp], Some(from.ip())).await;
            if let Served::Reply(reply) = served {
                // What is lost is lost.
                let _ = socket.send_to(&reply, from).await;
            }
            drop(place);
        });
    }
}
