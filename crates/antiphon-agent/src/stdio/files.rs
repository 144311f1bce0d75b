//! Files to send. A task of each group reads and sends them one after the other, and small messages pass
//! them.
//!
//! A file counts when its line was taken. When the node leaves, it first sends the files that were taken, for
//! [`SENT_WITHIN`] at most. Each file that is not sent by then is refused by a line.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use antiphon::GroupSender;
use antiphon_api::{Event, Payload};
use tokio::sync::{mpsc, watch};
use tokio::task::spawn_blocking;
use tokio::time::timeout;

use super::fates::{Fate, Pending};
use super::printer::Printer;
use super::session::NotSent;
use super::stdout::LAST_LINES_WITHIN;

/// How long a node that leaves goes on to send the files that it has taken. Service managers and containers
/// kill after 10 s or later.
const SENT_WITHIN: Duration = Duration::from_secs(5);

/// The files of all groups that were taken and neither sent nor told of.
#[derive(Debug, Clone, Default)]
pub(super) struct Files(Arc<watch::Sender<Taken>>);

#[derive(Debug, Default)]
struct Taken {
    files: usize,
    /// The node leaves and waits no longer: what is not sent yet is refused.
    given_up: bool,
}

/// A file that was taken. Dropped, it was sent, or a line has told of it.
#[derive(Debug)]
pub(super) struct File(Files);

impl Files {
    pub(super) fn take(&self) -> File {
        self.0.send_modify(|taken| taken.files += 1);
        File(self.clone())
    }

    /// Waits until each file is sent or refused. Behind [`SENT_WITHIN`] those that are not sent are refused;
    /// a reader that does not take the lines of these is not waited for.
    pub(super) async fn settle(&self) {
        self.settle_within(SENT_WITHIN).await;
    }

    async fn settle_within(&self, within: Duration) {
        if timeout(within, self.settled()).await.is_err() {
            self.0.send_modify(|taken| taken.given_up = true);
            let _ = timeout(LAST_LINES_WITHIN, self.settled()).await;
        }
    }

    /// Returns when each file is sent or refused.
    pub(super) async fn settled(&self) {
        self.until(|taken| taken.files == 0).await;
    }

    async fn until(&self, holds: impl FnMut(&Taken) -> bool) {
        // The sender is part of `self`, so waiting cannot fail.
        let _ = self.0.subscribe().wait_for(holds).await;
    }
}

impl Drop for File {
    fn drop(&mut self) {
        self.0.0.send_modify(|taken| taken.files -= 1);
    }
}

/// A large payload to send.
#[derive(Debug)]
pub(super) struct Large {
    pub(super) ticket: u64,
    pub(super) payload: Payload,
    pub(super) safe: bool,
    /// The request, for the line that says what was refused.
    pub(super) echo: serde_json::Value,
    pub(super) file: File,
}

/// The task that sends a group's large payloads, one after the other.
pub(super) struct LargeOnes {
    pub(super) group: String,
    pub(super) sender: GroupSender,
    pub(super) receipts: mpsc::Sender<Pending>,
    pub(super) breaks: Arc<AtomicU64>,
    pub(super) printer: Printer,
    pub(super) files: Files,
}

impl LargeOnes {
    pub(super) async fn send_all(self, mut waiting: mpsc::Receiver<Large>) {
        while let Some(Large {
            ticket,
            payload,
            safe,
            echo,
            file,
        }) = waiting.recv().await
        {
            let breaks = self.breaks.load(Ordering::Relaxed);
            let sent = tokio::select! {
                biased;
                () = self.files.until(|taken| taken.given_up) => Err(NotSent::Refused {
                    group: self.group.clone(),
                    reason: "this node is leaving, and the file was not sent in time".to_owned(),
                }),
                sent = self.send(payload, safe) => sent,
            };
            match sent {
                Ok(receipt) => {
                    let pending = Pending {
                        ticket,
                        breaks,
                        receipt,
                    };
                    // Fails only when the group is over and nobody prints fates any more.
                    let _ = self.receipts.send(pending).await;
                }
                Err(NotSent::Senseless(reason)) => {
                    let error = Event::Error {
                        reason,
                        request: echo,
                    };
                    self.printer.print(&error).await;
                }
                Err(NotSent::Refused { group, reason }) => {
                    let refused = Event::Refused {
                        group: Some(group),
                        reason,
                        fatal: false,
                        request: Some(echo),
                    };
                    self.printer.print(&refused).await;
                }
            }
            drop(file);
        }
    }

    /// Dropped before it is ready, it has sent nothing.
    async fn send(&self, payload: Payload, safe: bool) -> Result<Fate, NotSent> {
        // In a thread of its own: a disk that does not answer must not keep the node from leaving.
        let read = spawn_blocking(|| payload.into_bytes()).await;
        let payload = read.map_err(|error| NotSent::Senseless(error.to_string()))?;
        let payload = payload.map_err(NotSent::Senseless)?;
        let sent = if safe {
            self.sender.send_safe_bytes(payload).await.map(Fate::Safe)
        } else {
            self.sender.send_bytes(payload).await.map(Fate::Delivered)
        };
        sent.map_err(|error| NotSent::of(&self.group, error))
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use antiphon::SendError;
    use antiphon::memory::MemoryNetwork;

    use super::*;
    use crate::stdio::stdout;
    use crate::testing;

    #[tokio::test(flavor = "multi_thread")]
    async fn files_for_which_the_group_has_no_room_are_refused_when_the_node_leaves() {
        let cluster = testing::cluster(&MemoryNetwork::new(), 1, true).await;
        let mut group = cluster.group("g").start().await.unwrap();
        while !matches!(group.next().await, Some(antiphon::Event::View(_))) {}
        // Nobody takes the messages from here on, until the group takes no more.
        let sender = group.sender();
        while timeout(
            Duration::from_millis(200),
            sender.send_bytes(vec![0; 60_000].into()),
        )
        .await
        .is_ok()
        {}
        assert!(matches!(sender.try_send([0; 60_000]), Err(SendError::Full)));
        let (reader, target) = io::pipe().unwrap();
        let (stdout, writer) = stdout::start(target);
        let files = Files::default();
        let (receipts, mut pending) = mpsc::channel(1);
        let large_ones = LargeOnes {
            group: "g".to_owned(),
            sender,
            receipts,
            breaks: Arc::default(),
            printer: Printer::new(stdout, true),
            files: files.clone(),
        };
        let (large, waiting) = mpsc::channel(16);
        let task = tokio::spawn(large_ones.send_all(waiting));
        let path = std::env::temp_dir().join(format!("antiphon-large-{}", std::process::id()));
        std::fs::write(&path, vec![0; 60_000]).unwrap();
        for ticket in 1..=3 {
            let sent = large.send(Large {
                ticket,
                payload: Payload::File {
                    file: path.to_string_lossy().into_owned(),
                    bytes: None,
                },
                safe: false,
                echo: ticket.into(),
                file: files.take(),
            });
            sent.await.unwrap();
        }
        files.settle_within(Duration::from_millis(300)).await;
        files.settled().await;
        drop(large);
        task.await.unwrap();
        assert!(pending.recv().await.is_none(), "none was sent");
        assert!(writer.written().await);
        drop(std::fs::remove_file(path));
        let told = io::read_to_string(reader).unwrap();
        let requests = told.lines().map(|line| {
            let line: serde_json::Value = serde_json::from_str(line).unwrap();
            assert_eq!((&line["event"], &line["group"]), (&"refused".into(), &"g".into()));
            line["request"].clone()
        });
        assert!(requests.eq([1, 2, 3].map(serde_json::Value::from)), "{told}");
    }
}
