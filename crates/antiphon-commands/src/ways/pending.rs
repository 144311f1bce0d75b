//! Commands whose replies come in any order.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use serde::Deserialize;
use tokio::sync::oneshot;

use crate::envelope::{json_of, signature};

/// Those that wait, by the signatures of their commands.
#[derive(Debug, Clone, Default)]
pub(crate) struct Pending(Arc<Mutex<HashMap<String, oneshot::Sender<Bytes>>>>);

/// One that waits. Dropped, it does not any more.
pub(crate) struct Awaited {
    of: String,
    pending: Pending,
    reply: oneshot::Receiver<Bytes>,
}

impl Pending {
    /// Before its command is sent.
    pub(crate) fn add(&self, envelope: &[u8]) -> Awaited {
        let (tell, reply) = oneshot::channel();
        let of = signature(envelope).to_owned();
        self.waiting().insert(of.clone(), tell);
        Awaited {
            of,
            pending: self.clone(),
            reply,
        }
    }

    /// A reply comes. It is verified by what waits for it.
    pub(crate) fn answer(&self, reply: Bytes) {
        #[derive(Deserialize)]
        struct Of<'a> {
            of: &'a str,
        }
        let of = serde_json::from_slice::<Of<'_>>(json_of(&reply)).ok();
        let waiting = of.and_then(|of| self.waiting().remove(of.of));
        if let Some(waiting) = waiting {
            // It may have gone.
            let _ = waiting.send(reply);
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.waiting().is_empty()
    }

    /// No more replies come.
    pub(crate) fn close(&self) {
        self.waiting().clear();
    }

    fn waiting(&self) -> MutexGuard<'_, HashMap<String, oneshot::Sender<Bytes>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Awaited {
    /// None: no more replies come.
    pub(crate) async fn reply(&mut self) -> Option<Bytes> {
        (&mut self.reply).await.ok()
    }
}

impl Drop for Awaited {
    fn drop(&mut self) {
        self.pending.waiting().remove(&self.of);
    }
}
