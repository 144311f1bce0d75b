//! Writes events as lines, in the form that was asked for, and nothing behind the last line.

use std::sync::Arc;

use antiphon_api::{Event, Today, Told};
use tokio::sync::{RwLock, watch};

use super::stdout::Stdout;

/// Writes lines in the form that was asked for.
#[derive(Debug, Clone)]
pub struct Printer {
    stdout: Stdout,
    json: bool,
    end: Arc<End>,
}

/// Keeps the last line the last.
#[derive(Debug)]
struct End {
    /// The last line is about to be printed: no other line is.
    over: watch::Sender<bool>,
    /// Each task that has a line reads it while it waits for room. So the last line comes behind all of them.
    printing: RwLock<()>,
}

impl Printer {
    /// JSON lines, or text for people.
    pub fn new(stdout: Stdout, json: bool) -> Self {
        Self {
            stdout,
            json,
            end: Arc::new(End {
                over: watch::Sender::new(false),
                printing: RwLock::new(()),
            }),
        }
    }

    /// Whether it writes JSON.
    pub fn is_json(&self) -> bool {
        self.json
    }

    /// Prints an event, waiting while the reader is behind. Prints nothing behind the last line.
    pub async fn print(&self, event: &Event) {
        self.print_text(self.text(event)).await;
    }

    /// Prints a text as it is. Prints nothing behind the last line.
    pub async fn print_text(&self, text: String) {
        let _printing = self.end.printing.read().await;
        if *self.end.over.borrow() {
            return;
        }
        tokio::select! {
            // First, so a line for which there is room costs no look at the end.
            biased;
            () = self.stdout.print(text) => {}
            () = self.end.came() => {}
        }
    }

    /// Prints the last line. Lines that still wait for room are dropped, as are all that come later.
    pub async fn print_last(&self, event: &Event) {
        self.end.over.send_replace(true);
        let _alone = self.end.printing.write().await;
        self.stdout.print(self.text(event)).await;
    }

    fn text(&self, event: &Event) -> String {
        if self.json {
            event.to_json()
        } else {
            Today(&Told::now(event.clone())).to_string()
        }
    }

    /// Returns when nobody reads any more.
    pub async fn closed(&self) {
        self.stdout.closed().await;
    }

    /// Whether nobody reads any more.
    pub fn is_stdout_closed(&self) -> bool {
        self.stdout.is_closed()
    }
}

impl End {
    async fn came(&self) {
        // The sender is part of `self`, so waiting cannot fail.
        let _ = self.over.subscribe().wait_for(|over| *over).await;
    }
}

#[cfg(test)]
mod tests {
    use std::io::{self, BufRead as _};
    use std::time::Duration;

    use super::*;
    use crate::stdio::stdout;

    #[tokio::test(flavor = "multi_thread")]
    async fn no_line_comes_behind_the_last_one_whichever_waits_or_comes_later() {
        let (reader, target) = io::pipe().unwrap();
        let (stdout, writer) = stdout::start(target);
        let printer = Printer::new(stdout, true);
        // More than the pipe and the queue hold: most of them wait for room.
        for _ in 0..1000 {
            let printer = printer.clone();
            tokio::spawn(async move { printer.print_text("x".repeat(1000)).await });
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
        let reading = std::thread::spawn(move || io::BufReader::new(reader).lines().last());
        printer.print_last(&Event::Left).await;
        printer.print_text("later".to_owned()).await;
        drop(printer);
        assert!(writer.written().await);
        let last = reading.join().unwrap().unwrap().unwrap();
        assert_eq!(last, Event::Left.to_json());
    }
}
