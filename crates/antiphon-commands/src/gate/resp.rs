//! Redis' protocol at a gate: `AP.PEER envelope`, and nothing else.

use std::sync::Arc;

use tokio::io::AsyncWriteExt as _;
use tokio::time::timeout;

use super::HEAD_WITHIN;
use crate::envelope::Way;
use crate::node::{Node, Served};
use crate::ways::{Stream, resp};

pub(super) async fn serve(mut stream: impl Stream + 'static, node: &Arc<Node>) {
    // A stranger shows an envelope soon, or goes. A peer that has shown one may be idle.
    let first = timeout(HEAD_WITHIN, resp::take(&mut stream)).await;
    let mut taken = first.unwrap_or(Ok(None));
    loop {
        let reply = match taken {
            Ok(None) => return,
            Ok(Some(envelope)) => match node.serve(&envelope, &[Way::Resp], None).await {
                Served::Reply(reply) => resp::reply(&reply),
                Served::Seen => b"-ERR no reply\r\n".to_vec(),
                Served::Forged => b"-NOPERM\r\n".to_vec(),
            },
            Err(reason) => format!("-ERR {reason}\r\n").into_bytes(),
        };
        let ends = !reply.starts_with(b"$");
        if stream.write_all(&reply).await.is_err() || ends {
            let _ = stream.shutdown().await;
            return;
        }
        taken = resp::take(&mut stream).await;
    }
}
