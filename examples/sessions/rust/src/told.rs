//! What open pages are told of their session, by whichever server changes it.
//!
//! ```text
//!  server a ─┐                                        ┌─ pages of session 1
//!  server b ─┼──► the map ──► watch, at each server ──┼─ pages of session 2   have stalled, and skip some
//!  server c ─┘                                        └─ pages of session 3
//! ```
//! A change that was answered is in the [map](crate::sessions). So each server tells its pages of it, also if
//! the one that made it has died since; and a server that was cut off tells them of all sessions when it is
//! back.
//!
//! A page is told what there is, not what changed. So it needs the newest only, and one that takes nothing
//! delays no other. It passes over what has a lower version than it has shown.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::watch;

/// The newest of each session that has pages open at this server; nothing once it stops.
type Pages = Option<HashMap<String, watch::Sender<String>>>;

/// Tells the pages that are open at this server. A cheap handle.
#[derive(Clone)]
pub struct Told(Arc<Mutex<Pages>>);

impl Told {
    /// No page is open yet.
    pub fn new() -> Self {
        Self(Arc::new(Mutex::new(Some(HashMap::new()))))
    }

    /// Tells all open pages of a session what it is now.
    pub fn tell(&self, id: &str, said: impl FnOnce() -> String) {
        let pages = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(of_session) = pages.as_ref().and_then(|pages| pages.get(id)) {
            of_session.send_replace(said());
        }
    }

    /// A page of this session is open; nothing if the server stops.
    pub fn open(&self, id: &str) -> Option<watch::Receiver<String>> {
        let mut pages = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let pages = pages.as_mut()?;
        pages.retain(|_, of_session| of_session.receiver_count() > 0);
        Some(pages.entry(id.to_owned()).or_default().subscribe())
    }

    /// Ends what open pages read, so that they connect again to another server.
    pub fn close_pages(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
}
