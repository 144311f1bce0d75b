//! Redis' protocol at a gate: `AP.PEER envelope`, and nothing else.

use std::sync::Arc;

use tokio::io::AsyncWriteExt as _;

use crate::envelope::Way;
use crate::node::{Node, Served};
use crate::ways::{Stream, resp};

pub(super) async fn serve(mut stream: impl Stream + 'static, node: &Arc<Node>) {
    loop {
        let reply = match resp::take(&mut stream).await {
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
    }
}
