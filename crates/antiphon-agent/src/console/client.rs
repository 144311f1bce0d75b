//! The asking side.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use antiphon_core::text::on_one_line;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixStream;
use tokio::time::timeout;

use antiphon_api::LineBuffer;
use antiphon_api::console::{Answer, Hello, MAX_ANSWER_BYTES, Problem, Question};

/// How long a node may take to answer. A node answers between two turns, so a process that takes longer is
/// stopped.
const ANSWER_WITHIN: Duration = Duration::from_secs(5);

/// How often a socket is tried again at which too many clients wait already.
const RETRY: Duration = Duration::from_millis(50);

/// A connection to a node's console.
#[derive(Debug)]
pub struct Client {
    stream: UnixStream,
    lines: LineBuffer,
    path: PathBuf,
    hello: Hello,
}

/// An answer.
#[derive(Debug, Clone, PartialEq)]
pub struct Answered {
    /// As this build understands it.
    pub answer: Answer,
    /// The line as it came, without its end: it holds also what only a newer node says.
    pub line: String,
}

/// Why a node could not be asked.
#[derive(Debug)]
#[non_exhaustive]
pub enum ClientError {
    /// Nobody listens at that path.
    NotThere {
        /// The path.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// Somebody listens, and said nothing in time: its process is stopped or overloaded.
    Silent {
        /// The path.
        path: PathBuf,
    },
    /// The connection ended, since the node has ended.
    Ended,
    /// The node did not answer the question.
    Refused(Problem),
    /// What came was no answer.
    Malformed(String),
}

impl fmt::Display for ClientError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ClientError::NotThere { path, source } => {
                write!(f, "no node answers at {}: {source}", path.display())
            }
            ClientError::Silent { path } => write!(
                f,
                "a node listens at {} and does not answer: its process is stopped, or has no time",
                path.display()
            ),
            ClientError::Ended => f.write_str("the node has ended"),
            ClientError::Refused(problem) => f.write_str(&on_one_line(&problem.reason)),
            ClientError::Malformed(reason) => {
                write!(
                    f,
                    "the answer is not understood ({}): use the `antiphon` that the node was started with",
                    on_one_line(reason)
                )
            }
        }
    }
}

impl std::error::Error for ClientError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            ClientError::NotThere { source, .. } => Some(source),
            _ => None,
        }
    }
}

/// Connects, or waits: the queue of a node that has been stopped for long is full of clients that asked.
async fn dial(path: &Path) -> io::Result<UnixStream> {
    loop {
        match UnixStream::connect(path).await {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => tokio::time::sleep(RETRY).await,
            connected => return connected,
        }
    }
}

impl Client {
    /// Connects to the node at this socket.
    ///
    /// # Errors
    /// [`ClientError`].
    ///
    /// # Cancel safety
    /// The connection ends if the future is dropped.
    pub async fn connect(path: &Path) -> Result<Self, ClientError> {
        let connected = timeout(ANSWER_WITHIN, dial(path)).await;
        let stream = connected
            .map_err(|_| ClientError::Silent {
                path: path.to_owned(),
            })?
            .map_err(|source| ClientError::NotThere {
                path: path.to_owned(),
                source,
            })?;
        let mut client = Self {
            stream,
            lines: LineBuffer::new(MAX_ANSWER_BYTES),
            path: path.to_owned(),
            hello: Hello {
                v: 0,
                cluster: String::new(),
                node: String::new(),
                addrs: Vec::new(),
                pid: 0,
                build: String::new(),
            },
        };
        match client.answer().await?.answer {
            Answer::Hello(hello) => client.hello = hello,
            Answer::Error(problem) => return Err(ClientError::Refused(problem)),
            _ => {
                return Err(ClientError::Malformed(
                    "it does not begin with a hello".to_owned(),
                ));
            }
        }
        Ok(client)
    }

    /// Which node's console this is.
    pub fn hello(&self) -> &Hello {
        &self.hello
    }

    /// The socket's path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Asks, and gives the first answer.
    ///
    /// # Errors
    /// [`ClientError`].
    ///
    /// # Cancel safety
    /// Not to be used again if the future is dropped.
    pub async fn ask(&mut self, question: &Question) -> Result<Answered, ClientError> {
        self.begin(question).await?;
        self.answer().await
    }

    /// Asks; the answers are read with [`answer`](Client::answer) or [`next`](Client::next).
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn begin(&mut self, question: &Question) -> Result<(), ClientError> {
        let line = question.to_line() + "\n";
        let written = timeout(ANSWER_WITHIN, self.stream.write_all(line.as_bytes())).await;
        match written {
            Ok(Ok(())) => Ok(()),
            // It may have said why before it ended the connection.
            Ok(Err(_)) => Err(self.answer().await.err().unwrap_or(ClientError::Ended)),
            Err(_) => Err(ClientError::Silent {
                path: self.path.clone(),
            }),
        }
    }

    /// The next answer, which must come soon.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn answer(&mut self) -> Result<Answered, ClientError> {
        let path = self.path.clone();
        match timeout(ANSWER_WITHIN, self.next()).await {
            Ok(answer) => answer,
            Err(_) => Err(ClientError::Silent { path }),
        }
    }

    /// The next answer, whenever it comes.
    ///
    /// # Errors
    /// [`ClientError`]; a question that was refused is one.
    ///
    /// # Cancel safety
    /// Nothing is lost if the future is dropped.
    pub async fn next(&mut self) -> Result<Answered, ClientError> {
        loop {
            let line = self
                .lines
                .pop()
                .map_err(|_| ClientError::Malformed("a line is too long".to_owned()))?;
            if let Some(line) = line {
                let line = String::from_utf8(line)
                    .map_err(|_| ClientError::Malformed("a line is not UTF-8".to_owned()))?;
                return match serde_json::from_str(&line) {
                    Ok(Answer::Error(problem)) => Err(ClientError::Refused(problem)),
                    Ok(answer) => Ok(Answered { answer, line }),
                    Err(error) => Err(ClientError::Malformed(error.to_string())),
                };
            }
            let mut bytes = [0; 16 << 10];
            match self.stream.read(&mut bytes).await {
                Ok(0) | Err(_) => return Err(ClientError::Ended),
                Ok(read) => self.lines.push(&bytes[..read]),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_node_that_sent_a_client_away_before_it_asked_is_heard_to_say_why() {
        let path = std::env::temp_dir().join(format!("antiphon-away-{}.sock", std::process::id()));
        let _ = std::fs::remove_file(&path);
        let listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
        let node = std::thread::spawn(move || {
            use std::io::Write as _;
            let (mut stream, _) = listener.accept().unwrap();
            let hello = r#"{"answer":"hello","v":1,"cluster":"c","node":"n","addrs":[],"pid":1,"build":"1"}"#;
            let busy = r#"{"answer":"error","code":"busy","reason":"another client needs this place"}"#;
            writeln!(stream, "{hello}\n{busy}").unwrap();
        });
        let mut client = Client::connect(&path).await.unwrap();
        node.join().unwrap();
        let why = client.begin(&Question::Members {}).await.unwrap_err();
        assert!(
            matches!(&why, ClientError::Refused(problem) if problem.code == "busy"),
            "{why}"
        );
        std::fs::remove_file(&path).unwrap();
    }

    #[tokio::test]
    async fn a_node_whose_queue_is_full_is_silent_and_not_gone() {
        let path = std::env::temp_dir().join(format!("antiphon-full-{}.sock", std::process::id()));
        let _ = std::fs::remove_file(&path);
        let listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
        // Linux takes the last word for how many may wait.
        rustix::net::listen(&listener, 0).unwrap();
        let mut waiting = Vec::new();
        while let Ok(stream) = UnixStream::connect(&path).await {
            waiting.push(stream);
            assert!(waiting.len() < 5000, "the queue has no end");
        }
        let silent = Client::connect(&path).await.unwrap_err();
        assert!(matches!(silent, ClientError::Silent { .. }), "{silent}");
        drop(listener);
        let gone = Client::connect(&path).await.unwrap_err();
        assert!(matches!(gone, ClientError::NotThere { .. }), "{gone}");
        std::fs::remove_file(&path).unwrap();
    }
}
