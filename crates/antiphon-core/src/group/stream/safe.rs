//! Safe delivery: a member delivers a message only when it knows that every member of the view holds the
//! message and all that comes before it in the order (R17, R23).
//!
//! ```text
//!  fifo     s ──message──► all ──row──► all                                        2 delays     agreed: 1
//!  total    s ──message──► all
//!                 └──► sequencer ──order──► all ──row──► all                       3 delays     agreed: 2
//!           sequencer ──message and order──► all ──row──► all                      2 delays     agreed: 1
//!             both, from five members on: row ──► sequencer ──mark──► all            a delay more
//! rotation s ──message──► all ──nulls──► all ──row──► all                          3 delays     agreed: 2
//! ```
//! The level is the sender's choice, per message; a block has messages of one level, so it costs a bit of a
//! block. A member that takes in safe messages tells *all* others how far it has come at the end of the same
//! receive batch: its **row**. A row has columns, each a number up to which this member holds everything:
//!
//! | order | columns | a column's number |
//! |---|---|---|
//! | fifo, unordered, scoped | one per sender | the first message of that sender that is not held |
//! | total | one | the first position whose order record (or, in the rotation, earlier place) *or* message is not held |
//!
//! A safe message is delivered when the rows of all members of the view have passed it (not of the senders
//! alone). The maker of a column is always ahead of all others in it, so it tells nothing: the sender does
//! not tell of its own messages, nor the sequencer of the order.
//!
//! Rows go to all, because collecting them at one member takes a delay more. But that is (n − 1)² frames for
//! a message that comes alone, 49 among eight members, and each frame costs its sender and its receiver more
//! than a delay. So from five members on the sequencer collects the rows. It tells all members the **mark**:
//! the place that all rows have reached. That is 2 (n − 1) frames. The mark takes the place of the
//! sequencer's own row, for which no member waits.
//!
//! Agreed messages need no row. Without safe messages no row is sent, nothing is kept, and a block costs one
//! comparison. An agreed message behind a safe one waits for it, since the order says so; in an unordered
//! group it does not wait.
//!
//! # Lost rows
//! Rows may be lost. The message itself and its order record cannot be lost for long, since their maker looks
//! after those. If a member cannot deliver for want of rows, it asks the members that lag for theirs, with
//! its own row in the question. It asks at the retransmit interval, doubling to eight times that. For want of
//! a mark it asks the sequencer. A row says "up to here", and so does a mark: a late or doubled one does no
//! harm.
//!
//! # Which member dies when
//! - **The sender, before all hold the message**: no member has delivered it. The flush finds out whether any
//!   survivor holds it. If so, it is in the cut, and comes behind the transitional notice.
//! - **The sender, after some have delivered it**: all members held it then. So every survivor has it, and in
//!   total order also all messages before it and their records. Every cut contains it at its place (R15,
//!   R16), also a cut that is made without the members that delivered it.
//! - **A receiver, before its row has reached any member**: no member delivers. The flush delivers the
//!   message, and says that the dead member may not have it.
//! - **A receiver whose row has reached some members**: these deliver before the notice, the others behind
//!   it. Both are right: the dead member held the message, and before the notice members are told no more
//!   than that.
//! - **The sequencer**: no member waits for its row. But if it alone has a record, no other member delivers
//!   at that position. Members that its last mark has reached deliver before the notice, the others behind
//!   it.
//! - **A member that hangs**: all wait for its row until the detector or the application's slowness removes
//!   it. That is what safe means. A slow *application* holds up no member: a row is about what is held, not
//!   what is consumed.
//!
//! What a flush completes is safe among its participants: `flush/safe.rs`.
//!
//! # Invariants
//! - A row never says more than a report to a flush that comes after it: logs and order only grow, and a
//!   member reports what it holds.
//! - Rows belong to one view and one incarnation each. A joiner's begin at nothing.
//! - What is kept is one number per member and column: 4096 at most.
//!
//! That all members hold what was safe is for the simulator to judge (`check/inside/held`, G24).

use std::collections::VecDeque;

use antiphon_wire::group::{GroupData, Reach};

use super::Stream;
use crate::group::Effect;
use crate::group::log::Log;
use crate::{Class, Profile, Time};

impl Stream {
    /// A safe message has come in.
    pub(super) fn note_safe(&mut self) {
        self.safe.used = true;
    }

    /// Whether safe messages are held that were not delivered.
    pub(crate) fn has_undelivered_safe(&self) -> bool {
        self.logs.iter().any(Log::has_undelivered_safe)
    }

    /// Whether this member holds a message of a sender, and all that comes before it in the order.
    pub(crate) fn holds(&self, sender: usize, seq: u64) -> bool {
        self.engine.holds(&self.logs, sender, seq)
    }

    /// A member's row arrived. True if messages may have become deliverable.
    pub(crate) fn rows(&mut self, from: usize, ask: bool, reach: &[Reach]) -> bool {
        if from == self.me {
            self.dropped += 1;
            return false;
        }
        let mut news = false;
        for Reach { column, until } in reach {
            let column = usize::from(*column);
            let absurd = !self.safe.total && column == self.me && *until > self.logs[self.me].next();
            if column >= self.safe.until.len() || absurd {
                self.dropped += 1;
                continue;
            }
            if self.safe.learn(from, column, *until) {
                self.safe.recompute(column);
                news = true;
            }
        }
        if news {
            self.safe.backoff = 0;
        }
        if ask && !self.safe.askers.contains(&from) {
            self.safe.used = true;
            self.safe.askers.push(from);
        }
        news
    }

    /// An acknowledgement says the same of this member's own messages.
    pub(super) fn row_of_ack(&mut self, from: usize, held: u64) -> bool {
        if self.safe.total || !self.safe.used || !self.safe.learn(from, self.me, held) {
            return false;
        }
        self.safe.recompute(self.me);
        true
    }

    /// Tells the others how far this member has come, if they wait for that, at the end of a receive batch.
    pub(super) fn tell_rows(&mut self, now: Time, profile: &Profile, out: &mut VecDeque<Effect>) {
        if !self.safe.used {
            return;
        }
        let owes = |(rank, (log, covered)): (usize, (&Log, &u64))| {
            log.safe_end() > *covered && (self.safe.total || rank != self.me)
        };
        if self.collects_rows() && self.safe.until[0] > self.safe.told[0] {
            self.safe.told[0] = self.safe.until[0];
            out.push_back(Effect::Data {
                to: self.others(),
                class: Class::Control,
                records: vec![self.whole_row(false)],
            });
        }
        if !self.makes_order() && self.logs.iter().zip(&self.safe.covered).enumerate().any(owes) {
            let (row, covered) = self.engine.reach(&self.logs);
            let news: Vec<_> = (0..row.len())
                .filter(|column| row[*column] > self.safe.told[*column])
                .filter(|column| self.safe.total || *column != self.me && self.safe_news(*column))
                .collect();
            if !news.is_empty() {
                let record = self.row(false, &row, news.iter().copied());
                for column in news {
                    self.safe.told[column] = row[column];
                }
                self.safe.covered = if self.safe.total {
                    covered
                } else {
                    self.safe.told.clone()
                };
                out.push_back(Effect::Data {
                    to: match self.safe.collector {
                        Some(collector) => vec![self.members[collector]],
                        None => self.others(),
                    },
                    class: Class::Control,
                    records: vec![record],
                });
            }
        }
        for asker in std::mem::take(&mut self.safe.askers) {
            let record = self.whole_row(false);
            self.send_to(asker, Class::Control, record, out);
        }
        self.watch_rows(now, profile);
    }

    /// A member that cannot deliver for want of rows asks for them after a while.
    pub(crate) fn watch_rows(&mut self, now: Time, profile: &Profile) {
        if !self.safe.used || self.waiting_columns().is_empty() {
            self.safe.ask_at = None;
            self.safe.backoff = 0;
        } else {
            let patience = profile.retransmit * 2 * (1 << self.safe.backoff.min(3));
            self.safe.ask_at.get_or_insert(now + patience);
        }
    }

    /// Whether a sender's log has safe messages that the others have not been told of.
    fn safe_news(&self, sender: usize) -> bool {
        self.logs[sender].safe_end() > self.safe.covered[sender]
    }

    fn row(&self, ask: bool, row: &[u64], columns: impl Iterator<Item = usize>) -> GroupData {
        let reach = columns.map(|column| Reach {
            column: column as u16,
            until: row[column],
        });
        GroupData::Rows {
            group: self.group,
            view: self.id,
            ask,
            reach: reach.collect(),
        }
    }

    /// Whether this member collects the rows of all.
    fn collects_rows(&self) -> bool {
        self.safe.collector == Some(self.me)
    }

    /// All that this member says: its row, or its mark if it collects the rows of others.
    fn whole_row(&self, ask: bool) -> GroupData {
        let row = match self.collects_rows() && !planted!(MarkOfOwnRow) {
            true => self.safe.until.clone(),
            false => self.engine.reach(&self.logs).0,
        };
        self.row(ask, &row, 0..row.len())
    }

    /// The columns in which the next message is safe and waits for rows, and its number there.
    fn waiting_columns(&self) -> Vec<(usize, u64)> {
        self.engine
            .waits_for_rows(&self.logs, |rank| self.safe.until(rank))
    }

    /// The rows or the mark did not come: asks the members that lag.
    pub(super) fn ask_for_rows(&mut self, now: Time, profile: &Profile, out: &mut VecDeque<Effect>) {
        if self.safe.ask_at.is_none_or(|at| at > now) {
            return;
        }
        self.safe.ask_at = None;
        let columns = self.waiting_columns();
        let safe = &self.safe;
        let lags = |member: &usize| {
            columns.iter().any(|(column, next)| {
                safe.waits_for(*member, *column) && safe.known(*member, *column) <= *next
            })
        };
        let to: Vec<_> = (0..self.members.len())
            .filter(lags)
            .map(|rank| self.members[rank])
            .collect();
        if to.is_empty() {
            return;
        }
        let records = vec![self.whole_row(true)];
        let class = Class::Control;
        out.push_back(Effect::Data { to, class, records });
        self.safe.backoff = (self.safe.backoff + 1).min(3);
        self.safe.ask_at = Some(now + profile.retransmit * 2 * (1 << self.safe.backoff));
    }
}
