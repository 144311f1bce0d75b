//! What becomes of messages that this node sends, as far as its lines do not tell it.

use antiphon::{Outcome, Progress, Receipt, SafeReceipt, TellOutcome, TellReceipt};
use antiphon_api::Event;
use tokio::sync::{OwnedSemaphorePermit, mpsc, oneshot};

use super::session::Printer;

/// A message whose fate is not known yet.
#[derive(Debug)]
pub(super) struct Pending {
    pub(super) ticket: u64,
    /// How many breaks the group had before it was accepted.
    pub(super) breaks: u64,
    pub(super) receipt: Fate,
}

/// Tells a message's fate.
#[derive(Debug)]
pub(super) enum Fate {
    Delivered(Receipt),
    Safe(SafeReceipt),
    /// Of what this member was told alone, with the right to wait for it.
    Told(String, TellReceipt, OwnedSemaphorePermit),
}

impl Fate {
    /// Whether others are known before it: it is an object, or for one member.
    fn may_wait(&self) -> bool {
        match self {
            Fate::Delivered(receipt) => receipt.progress().is_some(),
            Fate::Safe(receipt) => receipt.progress().is_some(),
            Fate::Told(..) => true,
        }
    }

    async fn progressed(&mut self) -> Option<Progress> {
        match self {
            Fate::Delivered(receipt) => receipt.progressed().await,
            Fate::Safe(receipt) => receipt.progressed().await,
            Fate::Told(..) => None,
        }
    }

    async fn known(self) -> Known {
        match self {
            Fate::Delivered(receipt) => Known::Sent(receipt.delivered().await),
            Fate::Safe(receipt) => Known::Sent(receipt.safe().await),
            Fate::Told(to, receipt, right) => Known::Told(to, receipt.await, right),
        }
    }
}

/// What became of a message.
#[derive(Debug)]
enum Known {
    Sent(Outcome),
    /// With the right to wait, until it is printed.
    Told(String, TellOutcome, #[expect(dead_code)] OwnedSemaphorePermit),
}

impl Known {
    /// Whether no line can come of it: what one member was told and took.
    fn needs_no_line(&self) -> bool {
        matches!(self, Known::Told(_, TellOutcome::Delivered, _))
    }
}

/// A fate.
#[derive(Debug)]
pub(super) struct Resolved {
    ticket: u64,
    breaks: u64,
    known: Known,
}

impl Resolved {
    /// The line that tells it, if nothing else does. A delivered message shows in the stream unless there was
    /// a break; of what one member was told, only what was not delivered is worth a line.
    pub(super) fn told(self, group: &str, breaks: u64) -> Option<Event> {
        let (group, ticket) = (group.to_owned(), self.ticket);
        let (to, outcome, parting) = match self.known {
            Known::Sent(Outcome::Delivered) if self.breaks == breaks => return None,
            Known::Sent(outcome) => {
                let outcome = outcome.to_string();
                return Some(Event::Receipt {
                    group,
                    ticket,
                    outcome,
                });
            }
            Known::Told(_, TellOutcome::Delivered, _) => return None,
            Known::Told(to, TellOutcome::NotDelivered(parting), _) => (to, Outcome::NotDelivered, parting),
            Known::Told(to, TellOutcome::Unknown(parting), _) => (to, Outcome::Unknown, parting),
        };
        Some(Event::TellReceipt {
            group,
            to,
            ticket,
            outcome: outcome.to_string(),
            cause: parting.to_string(),
        })
    }
}

/// Waits for fates in the order of sending. Nothing waits for an object: its fate is told when it is known,
/// and how far it is meanwhile. Nor does anything wait for what one member was told: each of these has a
/// right to wait, of which the teller took one, and keeps it until its line is printed or it needs none.
///
/// When `over` is dropped, no further message is taken, and the receiver ends behind the last fate.
pub(super) fn resolve(
    mut pending: mpsc::Receiver<Pending>,
    mut over: oneshot::Receiver<()>,
    group: String,
    printer: Printer,
) -> mpsc::Receiver<Resolved> {
    let (fates, resolved) = mpsc::channel(1);
    tokio::spawn(async move {
        loop {
            let next = tokio::select! {
                next = pending.recv() => next,
                _ = &mut over, if !pending.is_closed() => {
                    pending.close();
                    continue;
                }
            };
            let Some(Pending {
                ticket,
                breaks,
                mut receipt,
            }) = next
            else {
                return;
            };
            if receipt.may_wait() {
                let (fates, group, printer) = (fates.clone(), group.clone(), printer.clone());
                tokio::spawn(async move {
                    while let Some(Progress { bytes, length, .. }) = receipt.progressed().await {
                        let group = group.clone();
                        printer
                            .print(&Event::Progress {
                                group,
                                ticket,
                                bytes,
                                length,
                            })
                            .await;
                    }
                    let known = receipt.known().await;
                    // A reader that is behind makes nothing wait that it is not told of.
                    if known.needs_no_line() {
                        return;
                    }
                    // Fails only when nobody prints fates any more.
                    let _ = fates
                        .send(Resolved {
                            ticket,
                            breaks,
                            known,
                        })
                        .await;
                });
                continue;
            }
            let known = receipt.known().await;
            if fates
                .send(Resolved {
                    ticket,
                    breaks,
                    known,
                })
                .await
                .is_err()
            {
                return;
            }
        }
    });
    resolved
}
