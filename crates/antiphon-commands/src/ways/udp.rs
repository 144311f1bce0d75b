//! UDP: a datagram for each envelope. Nothing is sent again, and nothing says that it came but the reply.

use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use tokio::net::UdpSocket;
use tokio::sync::Mutex;
use tokio::task::JoinHandle;

use super::pending::Pending;
use super::{Lost, MAX_DATAGRAM, not_sent, sent};

/// The sockets that commands go out by, one for each family. Dropped, they are closed.
#[derive(Debug, Default)]
pub(crate) struct Datagrams {
    v4: Mutex<Option<Socket>>,
    v6: Mutex<Option<Socket>>,
    pending: Pending,
}

#[derive(Debug)]
struct Socket {
    socket: Arc<UdpSocket>,
    reading: JoinHandle<()>,
}

impl Drop for Socket {
    fn drop(&mut self) {
        self.reading.abort();
    }
}

impl Datagrams {
    pub(crate) async fn ask(
        &self,
        to: SocketAddr,
        envelope: &[u8],
        reply: bool,
    ) -> Result<Option<Bytes>, Lost> {
        let socket = self.socket(to).await.map_err(not_sent)?;
        let mut awaited = self.pending.add(envelope);
        socket.send_to(envelope, to).await.map_err(not_sent)?;
        if !reply {
            return Ok(None);
        }
        let reply = awaited.reply().await;
        reply.map(Some).ok_or_else(|| sent("the socket was closed"))
    }

    async fn socket(&self, to: SocketAddr) -> std::io::Result<Arc<UdpSocket>> {
        let (place, any) = match to {
            SocketAddr::V4(_) => (&self.v4, "0.0.0.0:0"),
            SocketAddr::V6(_) => (&self.v6, "[::]:0"),
        };
        let mut place = place.lock().await;
        if let Some(open) = &*place {
            return Ok(open.socket.clone());
        }
        let socket = Arc::new(UdpSocket::bind(any).await?);
        let reading = tokio::spawn(read(socket.clone(), self.pending.clone()));
        *place = Some(Socket {
            socket: socket.clone(),
            reading,
        });
        Ok(socket)
    }
}

async fn read(socket: Arc<UdpSocket>, pending: Pending) {
    let mut datagram = vec![0; MAX_DATAGRAM + 1];
    loop {
        // An error is of one datagram that was sent before: its command has its own deadline.
        if let Ok((length, _)) = socket.recv_from(&mut datagram).await {
            pending.answer(Bytes::copy_from_slice(&datagram[..length]));
        }
    }
}
