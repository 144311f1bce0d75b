//! A WebSocket of envelopes: each is served beside the others, up to a bound; replies in any order.

use std::sync::Arc;

use bytes::Bytes;
use futures_util::stream::SplitStream;
use futures_util::{SinkExt as _, StreamExt as _};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::protocol::Role;

use super::paced::Busy;
use super::{HEAD_WITHIN, WRITE_WITHIN};
use crate::envelope::{MAX_COMMAND_BYTES, Way};
use crate::lane::MAX_SENT;
use crate::node::{Node, Served};
use crate::ways::websocket::config;

pub(super) async fn serve(stream: impl AsyncRead + AsyncWrite + Send + Unpin, node: &Arc<Node>, busy: &Busy) {
    let config = config(MAX_COMMAND_BYTES);
    let socket = WebSocketStream::from_raw_socket(stream, Role::Server, Some(config)).await;
    let (mut sink, mut stream) = socket.split();
    // A peer that takes no replies gets no more commands served.
    let (reply, mut replies) = mpsc::channel(MAX_SENT);
    let read = async {
        let mut serving = JoinSet::new();
        // A stranger shows an envelope soon, or goes: one that is forged ends the connection.
        let first = timeout(HEAD_WITHIN, take(&mut stream)).await;
        let mut taken = first.unwrap_or_default();
        while let Some(envelope) = taken {
            while serving.try_join_next().is_some() {}
            if serving.len() >= MAX_SENT {
                serving.join_next().await;
            }
            let (node, reply, busy) = (node.clone(), reply.clone(), busy.one_more());
            serving.spawn(async move {
                let served = node.serve(&envelope, &[Way::Websocket], None).await;
                // The writer has gone, or waits for the peer.
                let _ = reply.send(served).await;
                drop(busy);
            });
            taken = take(&mut stream).await;
        }
    };
    let write = async {
        while let Some(served) = replies.recv().await {
            // Forged or a copy: a stranger that has a copy could keep its place with it.
            let Served::Reply(envelope) = served else { break };
            match timeout(WRITE_WITHIN, sink.send(Message::Binary(envelope))).await {
                Ok(Ok(())) => {}
                _ => break,
            }
        }
    };
    tokio::select! {
        () = read => {}
        () = write => {}
    }
}

/// The next envelope. None: the connection is over.
async fn take<S: AsyncRead + AsyncWrite + Unpin>(
    stream: &mut SplitStream<WebSocketStream<S>>,
) -> Option<Bytes> {
    while let Some(Ok(message)) = stream.next().await {
        if let Message::Binary(envelope) = message {
            return Some(envelope);
        }
    }
    None
}
