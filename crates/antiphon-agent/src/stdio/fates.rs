//! What becomes of messages that this node sends, as far as its lines do not tell it.

use std::collections::{BTreeMap, BTreeSet};

use antiphon::{Outcome, Progress, Receipt, SafeReceipt, TellOutcome, TellReceipt, Ticket};
use antiphon_api::Event;
use tokio::sync::{OwnedSemaphorePermit, mpsc, oneshot};

use super::printer::Printer;

/// The right to have a tell under way: of those to one member, and of all.
pub(super) type Right = [OwnedSemaphorePermit; 2];

/// A message with a fate that is not known yet.
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
    /// Of what this member was told alone, with the right to have it under way.
    Told(String, TellReceipt, Option<Right>),
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
            Fate::Delivered(receipt) => Known::Sent(receipt.ticket(), receipt.delivered().await),
            Fate::Safe(receipt) => Known::Sent(receipt.ticket(), receipt.safe().await),
            Fate::Told(to, receipt, right) => Known::Told(to, receipt.await, right),
        }
    }
}

/// What became of a message.
#[derive(Debug)]
enum Known {
    /// By the number that the message has in the stream too.
    Sent(Ticket, Outcome),
    /// With the right to have it under way, until it is printed.
    Told(String, TellOutcome, #[expect(dead_code)] Option<Right>),
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
    /// The line that tells it. Of what one member was told, only what was not delivered is worth one.
    fn told(self, group: &str) -> Option<Event> {
        let (group, ticket) = (group.to_owned(), self.ticket);
        let (to, outcome, parting) = match self.known {
            Known::Sent(_, outcome) => return Some(receipt(group, ticket, outcome)),
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

fn receipt(group: String, ticket: u64, outcome: Outcome) -> Event {
    let outcome = outcome.to_string();
    Event::Receipt {
        group,
        ticket,
        outcome,
    }
}

/// Which messages of this node the stream has shown, and which it owes.
///
/// A message that is delivered waits in the group's stream, and may never be taken from there: if the lease
/// ends first and the others go on without this node, the stream drops the message and a resync comes. So a
/// fate alone does not tell that a message was shown.
///
/// Both sets are bounded: `shown` by the messages with an awaited fate, `owed` by the group's credit, since
/// such a message is unread.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    /// They were shown before their fates came.
    shown: BTreeSet<Ticket>,
    /// They are delivered and not shown yet, with their numbers on the lines.
    owed: BTreeMap<Ticket, u64>,
}

impl Ledger {
    /// The stream shows a message of this node.
    pub(super) fn shows(&mut self, message: Ticket) {
        if self.owed.remove(&message).is_none() {
            self.shown.insert(message);
        }
    }

    /// The line that tells a fate, if the stream does not tell it: before the next break it shows what is
    /// delivered.
    pub(super) fn settles(&mut self, fate: Resolved, group: &str, breaks: u64) -> Option<Event> {
        if let Known::Sent(message, outcome) = &fate.known {
            let is_shown = self.shown.remove(message);
            if *outcome == Outcome::Delivered && fate.breaks == breaks {
                if !is_shown {
                    self.owed.insert(*message, fate.ticket);
                }
                return None;
            }
        }
        fate.told(group)
    }

    /// The stream goes on behind what it has dropped, or is over: the lines that tell what it still owed.
    pub(super) fn gives_up(&mut self, group: &str) -> impl Iterator<Item = Event> {
        let owed = std::mem::take(&mut self.owed).into_values();
        owed.map(|ticket| receipt(group.to_owned(), ticket, Outcome::Delivered))
    }
}

/// The fates of what this node says in a group, as they become known.
#[derive(Debug)]
pub(super) struct Fates {
    pub(super) resolved: mpsc::Receiver<Resolved>,
    /// When it is dropped, no further message is taken, and `resolved` ends behind the last fate.
    pub(super) not_over: oneshot::Sender<()>,
}

/// Waits for fates in the order of sending. No fate waits for that of an object: this is told when it is
/// known, and meanwhile how far the object is.
///
/// What one member is told does not come this way: where its receiver takes nothing it would hold up the
/// messages to all. The teller has [`await_fate`] tell its fate to the sender that is given here, which does
/// not keep `resolved` from its end.
pub(super) fn resolve(
    mut pending: mpsc::Receiver<Pending>,
    group: String,
    printer: Printer,
) -> (Fates, mpsc::WeakSender<Resolved>) {
    let (fates, resolved) = mpsc::channel(1);
    let (not_over, mut over) = oneshot::channel::<()>();
    let later = fates.downgrade();
    tokio::spawn(async move {
        loop {
            let next = tokio::select! {
                next = pending.recv() => next,
                _ = &mut over, if !pending.is_closed() => {
                    pending.close();
                    continue;
                }
            };
            let Some(pending) = next else { return };
            if pending.receipt.may_wait() {
                tokio::spawn(await_fate(pending, fates.clone(), group.clone(), printer.clone()));
                continue;
            }
            let Pending {
                ticket,
                breaks,
                receipt,
            } = pending;
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
    (Fates { resolved, not_over }, later)
}

/// Waits for one fate beside the others, and prints meanwhile how far it is.
pub(super) async fn await_fate(
    pending: Pending,
    fates: mpsc::Sender<Resolved>,
    group: String,
    printer: Printer,
) {
    let Pending {
        ticket,
        breaks,
        mut receipt,
    } = pending;
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
    // A reader that is behind holds up no fate of which it gets no line.
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
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sent(ticket: u64, outcome: Outcome) -> Resolved {
        Resolved {
            ticket: ticket + 100,
            breaks: 0,
            known: Known::Sent(Ticket(ticket), outcome),
        }
    }

    fn tickets(lines: impl IntoIterator<Item = Event>) -> Vec<(u64, String)> {
        let ticket = |line| match line {
            Event::Receipt { ticket, outcome, .. } => (ticket, outcome),
            other => panic!("{other:?}"),
        };
        lines.into_iter().map(ticket).collect()
    }

    #[test]
    fn what_the_stream_shows_needs_no_line_whichever_comes_first() {
        let mut ledger = Ledger::default();
        ledger.shows(Ticket(1));
        assert_eq!(ledger.settles(sent(1, Outcome::Delivered), "g", 0), None);
        assert_eq!(ledger.settles(sent(2, Outcome::Delivered), "g", 0), None);
        ledger.shows(Ticket(2));
        assert_eq!(tickets(ledger.gives_up("g")), []);
        assert!(ledger.shown.is_empty());
    }

    #[test]
    fn what_is_delivered_and_dropped_before_it_shows_has_its_line() {
        let mut ledger = Ledger::default();
        for ticket in 1..=3 {
            assert_eq!(ledger.settles(sent(ticket, Outcome::Delivered), "g", 0), None);
        }
        ledger.shows(Ticket(1));
        let delivered = |ticket| (ticket, Outcome::Delivered.to_string());
        assert_eq!(tickets(ledger.gives_up("g")), [delivered(102), delivered(103)]);
        assert_eq!(tickets(ledger.gives_up("g")), []);
        // What is known behind a break is not of this stream.
        let late = ledger.settles(sent(4, Outcome::Delivered), "g", 1);
        assert_eq!(tickets(late), [delivered(104)]);
        let refused = ledger.settles(sent(5, Outcome::NotDelivered), "g", 1);
        assert_eq!(tickets(refused), [(105, Outcome::NotDelivered.to_string())]);
    }
}
