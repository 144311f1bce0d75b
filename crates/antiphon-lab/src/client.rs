//! A program as a client of an agent: a connection that speaks in lines, and is cut when it is dropped.

use std::io::{self, BufRead as _, BufReader};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::mouth::Mouth;

/// Between two looks at a connection that is to end.
const LOOK_EVERY: Duration = Duration::from_millis(3);

/// A connection.
#[derive(Debug)]
pub(crate) struct Client {
    stream: UnixStream,
    mouth: Arc<Mouth>,
    listener: Option<JoinHandle<()>>,
}

impl Client {
    /// Connects to the socket of an agent. `hear` is called in a thread of its own with each line.
    pub(crate) fn connect(socket: &Path, hear: impl Fn(&str) + Send + 'static) -> io::Result<Self> {
        let stream = UnixStream::connect(socket)?;
        let (said, heard) = (stream.try_clone()?, stream.try_clone()?);
        let listener = std::thread::spawn(move || {
            let (mut heard, mut line) = (BufReader::new(heard), String::new());
            // What ends without a newline is of an agent that was killed within a line.
            while heard.read_line(&mut line).is_ok() && line.ends_with('\n') {
                hear(line.trim_end());
                line.clear();
            }
        });
        Ok(Self {
            stream,
            mouth: Mouth::new(said),
            listener: Some(listener),
        })
    }

    pub(crate) fn mouth(&self) -> &Arc<Mouth> {
        &self.mouth
    }

    /// Waits until the agent has ended the connection, and all that it said was read.
    pub(crate) fn wait(&self, bound: Duration) {
        let until = Instant::now() + bound;
        let ended = || self.listener.as_ref().is_none_or(JoinHandle::is_finished);
        while !ended() && Instant::now() < until {
            std::thread::sleep(LOOK_EVERY);
        }
    }
}

impl Drop for Client {
    /// All that the agent had said until then is read. A thread that holds the trace must not drop it: the
    /// listener writes there.
    fn drop(&mut self) {
        self.mouth.close();
        // It fails only if the agent has ended it.
        let _ = self.stream.shutdown(Shutdown::Both);
        if let Some(listener) = self.listener.take() {
            // A panic there is shown already.
            let _ = listener.join();
        }
    }
}
