//! What only a person may make a node do.

use super::{Node, Phase};
use crate::{Recovery, RecoveryError, Time};

impl Node {
    /// What would be given up if this node went on alone by [`Node::recover`]: to be shown to a person before
    /// that.
    ///
    /// # Errors
    /// [`RecoveryError`]: why that is no way out here.
    pub fn recovery(&self, now: Time) -> Result<Recovery, RecoveryError> {
        match self.phase {
            Phase::Running => self.membership.recovery(now),
            Phase::LeavingGroups { .. } | Phase::LeavingCluster => Err(RecoveryError::Leaving),
            Phase::Stopped => Err(RecoveryError::NoView),
        }
    }

    /// An operator's word (R11): this node, which has lost the majority, goes on alone as the first member of
    /// a new lineage, and all other members of its last primary view are left behind. It is an unsafe
    /// override, and its view says so. What others have done that this node does not know is given up. If a
    /// majority of them lives on, there are two clusters until they meet. Never call it by a program's own
    /// judgement.
    ///
    /// # Errors
    /// [`RecoveryError`]; nothing has changed.
    pub fn recover(&mut self, now: Time, shown: &Recovery) -> Result<(), RecoveryError> {
        self.notice_lateness(now);
        // What has been noticed until now decides whether it may be.
        self.recovery(now)?;
        self.membership.recover(now, shown)?;
        self.touch(now);
        Ok(())
    }
}
