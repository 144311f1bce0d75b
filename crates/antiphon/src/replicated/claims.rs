//! The claims of a member to locks, and what the table and the member say of them.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use antiphon_replica::locks::{Cause, Event, Token, What};
use tokio::sync::watch;

use super::locking::Loss;
use super::shared::Happened;

/// A call that hands a claim over. However it ends, it is undone unless it may have happened. If it may have,
/// the table tells, or the end of this member.
pub(super) struct Handover {
    claims: Arc<Claims>,
    client: u64,
    pub(super) may_have_happened: bool,
}

impl Handover {
    pub(super) fn begin(claims: &Arc<Claims>, client: u64) -> Self {
        claims.begin_handing_over(client);
        Self {
            claims: claims.clone(),
            client,
            may_have_happened: false,
        }
    }
}

impl Drop for Handover {
    fn drop(&mut self) {
        if !self.may_have_happened {
            self.claims.undo_handing_over(self.client);
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ClaimState {
    Waits,
    Held(Token),
    /// How many calls to hand it over are under way: it may be another member's already.
    HandingOver {
        token: Token,
        calls: u32,
    },
    TimedOut,
    Lost(Loss),
}

/// The claims of this member, as the table speaks of them.
#[derive(Default)]
pub(super) struct Claims {
    last: AtomicU64,
    claims: Mutex<BTreeMap<u64, watch::Sender<ClaimState>>>,
}

impl Claims {
    pub(super) fn new_client(&self) -> u64 {
        self.last.fetch_add(1, Ordering::Relaxed) + 1
    }

    pub(super) fn add(&self, client: u64, sender: Option<watch::Sender<ClaimState>>) {
        self.claims().extend(sender.map(|sender| (client, sender)));
    }

    /// Whether it was there.
    pub(super) fn remove(&self, client: u64) -> bool {
        self.claims().remove(&client).is_some()
    }

    pub(super) fn lose(&self, client: u64, loss: Loss) {
        self.change(client, |state| state.lose(loss));
    }

    pub(super) fn begin_handing_over(&self, client: u64) {
        self.change(client, |state| {
            *state = match *state {
                ClaimState::Held(token) => ClaimState::HandingOver { token, calls: 1 },
                ClaimState::HandingOver { token, calls } => ClaimState::HandingOver {
                    token,
                    calls: calls.saturating_add(1),
                },
                _ => return false,
            };
            true
        });
    }

    /// Nothing came of it.
    pub(super) fn undo_handing_over(&self, client: u64) {
        self.change(client, |state| {
            *state = match *state {
                ClaimState::HandingOver { token, calls: ..=1 } => ClaimState::Held(token),
                ClaimState::HandingOver { token, calls } => ClaimState::HandingOver {
                    token,
                    calls: calls - 1,
                },
                _ => return false,
            };
            true
        });
    }

    pub(super) fn change(&self, client: u64, change: impl FnOnce(&mut ClaimState) -> bool) {
        if let Some(claim) = self.claims().get(&client) {
            claim.send_if_modified(change);
        }
    }

    /// What the table, or the member, says.
    pub(super) fn hear(&self, happened: &Happened<'_, Event>) {
        let claims = self.claims();
        match happened {
            Happened::Machine { me, event } => {
                // Other members have clients of the same numbers.
                let claim = claims.get(&event.owner.client);
                let Some(claim) = claim.filter(|_| event.owner.member == *me) else {
                    return;
                };
                claim.send_if_modified(|state| match event.what {
                    What::Granted(token) => {
                        *state = ClaimState::Held(token);
                        true
                    }
                    What::TimedOut => {
                        *state = ClaimState::TimedOut;
                        true
                    }
                    What::Released(_) => state.lose(Loss::Released),
                    // Told only if this member goes and comes in one change: what else ends it is `Void`.
                    What::Lost(_, Cause::Crashed) => state.lose(Loss::Removed),
                    What::Lost(_, Cause::Left) => state.lose(Loss::Left),
                    What::Lost(_, Cause::Diverged) => state.lose(Loss::Diverged),
                    What::Lost(_, Cause::Forgotten) => state.lose(Loss::Released),
                    What::Lost(_, Cause::HandedOver(_)) => state.lose(Loss::HandedOver),
                });
            }
            Happened::Unsure => {
                for claim in claims.values() {
                    claim.send_if_modified(|state| {
                        *state != ClaimState::Waits && state.lose(Loss::Interrupted)
                    });
                }
            }
            Happened::Void(loss) => {
                for claim in claims.values() {
                    claim.send_if_modified(|state| state.lose(*loss));
                }
            }
        }
    }

    fn claims(&self) -> MutexGuard<'_, BTreeMap<u64, watch::Sender<ClaimState>>> {
        self.claims.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ClaimState {
    /// Whether this is news.
    pub(super) fn lose(&mut self, loss: Loss) -> bool {
        let news = matches!(self, Self::Waits | Self::Held(_) | Self::HandingOver { .. })
            // The lease was lost first, and the membership then.
            || *self == Self::Lost(Loss::Interrupted) && loss != Loss::Interrupted;
        if news {
            *self = Self::Lost(loss);
        }
        news
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_that_is_being_handed_over_when_the_lease_ends_is_lost_also_if_nothing_comes_of_that() {
        let claims = Claims::default();
        let client = claims.new_client();
        let (sender, state) = watch::channel(ClaimState::Held(Token(1)));
        claims.add(client, Some(sender));
        claims.begin_handing_over(client);
        claims.hear(&Happened::Unsure);
        assert_eq!(*state.borrow(), ClaimState::Lost(Loss::Interrupted));
        claims.undo_handing_over(client);
        assert_eq!(*state.borrow(), ClaimState::Lost(Loss::Interrupted));
        claims.hear(&Happened::Void(Loss::Removed));
        assert_eq!(*state.borrow(), ClaimState::Lost(Loss::Removed));
    }

    #[test]
    fn a_call_to_hand_over_that_ends_before_the_table_had_it_is_undone_and_no_other() {
        let claims = Arc::new(Claims::default());
        let client = claims.new_client();
        let (sender, state) = watch::channel(ClaimState::Held(Token(1)));
        claims.add(client, Some(sender));
        drop(Handover::begin(&claims, client));
        assert_eq!(*state.borrow(), ClaimState::Held(Token(1)));
        let mut entered = Handover::begin(&claims, client);
        entered.may_have_happened = true;
        drop(entered);
        assert!(
            matches!(*state.borrow(), ClaimState::HandingOver { .. }),
            "another member may hold it"
        );
    }

    #[test]
    fn a_lost_lease_is_made_precise_by_what_follows_and_the_first_precise_cause_stays() {
        for loss in [Loss::Removed, Loss::Left, Loss::Diverged, Loss::Stopped] {
            for interrupted in [false, true] {
                let claims = Claims::default();
                let client = claims.new_client();
                let (sender, state) = watch::channel(ClaimState::Held(Token(1)));
                claims.add(client, Some(sender));
                if interrupted {
                    claims.hear(&Happened::Unsure);
                    assert_eq!(*state.borrow(), ClaimState::Lost(Loss::Interrupted));
                }
                claims.hear(&Happened::Void(loss));
                assert_eq!(*state.borrow(), ClaimState::Lost(loss));
                // A member whose state differed leaves later, and then its node stops.
                for later in [Loss::Left, Loss::Stopped] {
                    claims.hear(&Happened::Void(later));
                    claims.hear(&Happened::Unsure);
                    assert_eq!(*state.borrow(), ClaimState::Lost(loss), "{later:?} came later");
                }
            }
        }
    }
}
