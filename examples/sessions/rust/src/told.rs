//! What open pages are told of their session, by whichever server changes it.
//!
//! ```text
//!  server a ─┐ in the scope of the session              ┌─ page of session 1   reads
//!  server b ─┼──► scoped group ──► tasks, a scope each ─┼─ page of session 2   has stalled: its scope waits,
//!  server c ─┘                                          └─ page of session 3   and no other does
//! ```
//! The sessions themselves are in one order, which the [map](crate::sessions) needs. What pages are told
//! needs an order within its session only. A group of [`Order::Scoped`] keeps each server's messages of one
//! scope in order and the scopes apart: a page that takes nothing delays no other page.
//!
//! A message tells a page what there is, not what changed. So a page that missed some connects again, gets
//! the session as it is, and passes over what has a lower version than it has shown.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use antiphon::{Cluster, Error, GroupSender, Message, Order, Scope, Scopes, Turn};
use tokio::sync::mpsc;

/// So many pages may stall at once before others wait, for [`MOST_WAIT`] at most.
const TASKS: usize = 16;
/// A page that takes nothing for so long is disconnected. It connects again when it goes on.
const MOST_WAIT: Duration = Duration::from_secs(5);
/// What may wait for one page.
const PAGE_MESSAGES: usize = 16;
/// The id of a session, which each message begins with.
const ID_BYTES: usize = 32;

/// The pages of each session that are open at this server; nothing once it stops.
type Pages = Arc<Mutex<Option<HashMap<String, Vec<mpsc::Sender<String>>>>>>;

/// Tells pages at all servers. A cheap handle.
#[derive(Clone)]
pub struct Told {
    sender: GroupSender,
    scopes: Scopes,
    pages: Pages,
}

impl Told {
    /// Joins the group of the servers.
    pub async fn join(cluster: &Cluster) -> Result<Self, Error> {
        let group = cluster.group("told").order(Order::Scoped).join().await?;
        let pages = Pages::new(Mutex::new(Some(HashMap::new())));
        let (sender, scopes) = (group.sender(), group.by_scope());
        for _ in 0..TASKS {
            tokio::spawn(pass_on(scopes.clone(), pages.clone()));
        }
        Ok(Self {
            sender,
            scopes,
            pages,
        })
    }

    /// Tells all open pages of a session what it is now.
    pub async fn tell(&self, id: &str, said: &str) {
        let sender = self.sender.in_scope(Scope::named(id));
        // Without a majority there is nobody to tell. Pages connect again, and are told then.
        let _ = sender.send(format!("{id}{said}")).await;
    }

    /// A page of this session is open; nothing if the server stops.
    pub fn open(&self, id: &str) -> Option<mpsc::Receiver<String>> {
        let (sender, receiver) = mpsc::channel(PAGE_MESSAGES);
        let mut pages = self.pages.lock().unwrap_or_else(PoisonError::into_inner);
        let pages = pages.as_mut()?;
        pages.retain(|_, of_session| {
            of_session.retain(|page| !page.is_closed());
            !of_session.is_empty()
        });
        pages.entry(id.to_owned()).or_default().push(sender);
        Some(receiver)
    }

    /// Ends what open pages read, so that they connect again to another server.
    pub fn close_pages(&self) {
        *self.pages.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// Leaves the group in order.
    pub async fn leave(self) {
        let _ = self.scopes.leave().await;
    }
}

/// One of the tasks: takes a scope that no other task has, and passes its messages on.
async fn pass_on(scopes: Scopes, pages: Pages) {
    while let Some(turn) = scopes.next().await {
        if let Turn::Messages(run) = turn {
            for message in run {
                pass_on_to_pages(&message, &pages).await;
            }
        }
    }
}

async fn pass_on_to_pages(message: &Message, pages: &Pages) {
    let Ok(text) = std::str::from_utf8(&message.payload) else {
        return;
    };
    let Some((id, said)) = text.split_at_checked(ID_BYTES) else {
        return;
    };
    let find = || {
        pages
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .as_ref()?
            .get(id)
            .cloned()
    };
    for page in find().unwrap_or_default() {
        if tokio::time::timeout(MOST_WAIT, page.send(said.to_owned()))
            .await
            .is_err()
        {
            let mut pages = pages.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(of_session) = pages.as_mut().and_then(|pages| pages.get_mut(id)) {
                of_session.retain(|other| !other.same_channel(&page));
            }
        }
    }
}
