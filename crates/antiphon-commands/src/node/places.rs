//! How many commands run at a time: of all, of a verb, of a peer.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use antiphon_api::blocks::{Code, Failure, Ran};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::{MAX_RUNNING, MAX_RUNNING_OF_ONE};
use crate::counts::failure;
use crate::list::Verb;

/// What runs.
#[derive(Debug)]
pub(super) struct Running {
    places: Arc<Semaphore>,
    by_verb: Arc<Mutex<HashMap<String, usize>>>,
    by_peer: Arc<Mutex<HashMap<String, usize>>>,
}

impl Default for Running {
    fn default() -> Self {
        Self {
            places: Arc::new(Semaphore::new(MAX_RUNNING)),
            by_verb: Arc::default(),
            by_peer: Arc::default(),
        }
    }
}

impl Running {
    /// A place for a command to run in.
    pub(super) fn place(&self, verb: &Verb, from: &str) -> Result<Runs, Failure> {
        let busy = |what: String| {
            failure(
                Code::Unavailable,
                Ran::No,
                format!("{what} run already: try again later"),
            )
        };
        let place = self.places.clone().try_acquire_owned();
        let place = place.map_err(|_| busy(format!("{MAX_RUNNING} commands")))?;
        let of_verb = Share::take(&self.by_verb, &verb.name, usize::from(verb.max_running));
        let of_verb = of_verb.ok_or_else(|| busy(format!("{} of {}", verb.max_running, verb.name)))?;
        let of_peer = Share::take(&self.by_peer, from, MAX_RUNNING_OF_ONE);
        let of_peer = of_peer.ok_or_else(|| busy(format!("{MAX_RUNNING_OF_ONE} commands of {from}")))?;
        Ok(Runs {
            _places: (place, of_verb, of_peer),
        })
    }
}

/// A command runs, as long as this is there.
pub(super) struct Runs {
    _places: (OwnedSemaphorePermit, Share, Share),
}

/// One of the places of a name.
struct Share {
    of: Arc<Mutex<HashMap<String, usize>>>,
    name: String,
}

impl Share {
    fn take(of: &Arc<Mutex<HashMap<String, usize>>>, name: &str, most: usize) -> Option<Self> {
        let mut counts = of.lock().unwrap_or_else(PoisonError::into_inner);
        let count = counts.entry(name.to_owned()).or_default();
        if *count >= most {
            return None;
        }
        *count += 1;
        Some(Self {
            of: of.clone(),
            name: name.to_owned(),
        })
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        let mut counts = self.of.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = counts.get_mut(&self.name) {
            *count -= 1;
            if *count == 0 {
                counts.remove(&self.name);
            }
        }
    }
}
