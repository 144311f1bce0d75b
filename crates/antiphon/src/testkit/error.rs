//! Why a run did not end well.

use std::fmt;
use std::io;
use std::time::Duration;

/// What a scene returns if something fails: any error.
pub type SceneError = Box<dyn std::error::Error + Send + Sync>;

/// Lines of the log that go with a run that is stuck.
pub(super) const LAST_LINES: usize = 20;

/// Why a run did not end well. Its `Debug` reads like its text, so that a test may return it.
#[non_exhaustive]
pub enum RunError {
    /// The scene returned an error.
    Scene {
        /// What repeats it.
        seed: u64,
        /// What the scene returned.
        source: SceneError,
    },
    /// The scene did not end within this much virtual time.
    Stuck {
        /// What repeats it.
        seed: u64,
        /// See [`World::limit`](super::World::limit).
        limit: Duration,
        /// Each node, and what it waits for.
        waits: Vec<(String, String)>,
        /// What was logged last.
        last: Vec<String>,
    },
    /// This world has run already: make another one of the same seed.
    Again,
    /// The thread is inside a tokio runtime: call `run` from a plain `#[test]`.
    Nested,
    /// More founders than [`MAX_NODES`](super::MAX_NODES).
    TooMany,
    /// The runtime could not be made.
    Runtime(io::Error),
}

impl fmt::Display for RunError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RunError::Scene { seed, source } => write!(f, "seed {seed}: {source}"),
            RunError::Stuck {
                seed,
                limit,
                waits,
                last,
            } => {
                write!(
                    f,
                    "seed {seed}: not over after {limit:?} of virtual time; what each node waits for:"
                )?;
                for (name, wait) in waits {
                    write!(f, "\n  {name}: {wait}")?;
                }
                f.write_str("\nwhat happened last:")?;
                last.iter().try_for_each(|line| write!(f, "\n  {line}"))
            }
            RunError::Again => f.write_str("this world has run already; make another one of the same seed"),
            RunError::Nested => f.write_str(
                "`World::run` makes a runtime of its own and was called inside another one; call it from a plain `#[test]`",
            ),
            RunError::TooMany => write!(f, "a world has {} nodes at most", super::MAX_NODES),
            RunError::Runtime(source) => write!(f, "cannot make a runtime: {source}"),
        }
    }
}

impl fmt::Debug for RunError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl std::error::Error for RunError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            RunError::Scene { source, .. } => Some(source.as_ref()),
            RunError::Runtime(source) => Some(source),
            _ => None,
        }
    }
}

/// No node has this name: neither a founder nor one that [`World::node`](super::World::node) was asked for.
/// Of `World::node` itself: there is no room for it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct UnknownNode {
    /// What was given.
    pub name: String,
    /// The names there are.
    pub known: Vec<String>,
}

impl fmt::Display for UnknownNode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let known = self.known.join(", ");
        match self.known.len() >= super::MAX_NODES {
            true => write!(
                f,
                "no room for a node {:?}: a world has {} at most",
                self.name,
                super::MAX_NODES
            ),
            false => write!(f, "no node is called {:?}; there are: {known}", self.name),
        }
    }
}

impl std::error::Error for UnknownNode {}
