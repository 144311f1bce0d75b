//! What the exit codes mean. They are a promise to service managers and scripts.

use std::fmt::Arguments;
use std::io::{self, Write as _};

use antiphon::Lack;

/// Writes a line to stderr, as `eprintln!` does. That one panics if stderr cannot be written, and a panic
/// would take the place of the exit code, or end a task of a node that otherwise goes on.
macro_rules! complain {
    ($($text:tt)*) => { $crate::exit::line(format_args!($($text)*)) };
}
pub(crate) use complain;

/// See [`complain!`].
pub(crate) fn line(text: Arguments<'_>) {
    // Nobody is left to be told.
    let _ = writeln!(io::stderr().lock(), "{text}");
}

/// How the program ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Exit {
    /// The node left in order; the demo's sheet holds; the benchmark ran.
    Success,
    /// Something failed at run time: the address is taken, a name does not resolve, the demo's sheet does not
    /// hold. Another try may do better.
    Failure,
    /// The command line, environment or configuration file makes no sense. Nothing was started.
    Usage,
    /// The cluster refused the node, and trying again is pointless until the configuration changes.
    Refused,
    /// Nobody reads stdout any more: the node left in order.
    StdoutClosed,
    /// The node was asked to go on alone and did not answer: it may do so, now or later, or not.
    Unknown,
    /// A second signal arrived while the node was leaving, or one before the settings that were asked for
    /// were printed: it ended at once. Or the node that this process witnesses was ended by this signal.
    Signal(i32),
    /// The node that this process witnesses ended with this.
    OfChild(i32),
}

impl Exit {
    /// The number for the operating system.
    pub(crate) fn code(self) -> i32 {
        match self {
            Exit::Success => 0,
            Exit::Failure => 1,
            Exit::Usage => 2,
            Exit::Refused => 3,
            Exit::StdoutClosed => 4,
            Exit::Unknown => 5,
            Exit::Signal(signal) => 128 + signal,
            Exit::OfChild(code) => code,
        }
    }
}

/// The table of `node --help`.
pub(crate) const HELP: &str = "\
Exit codes:
  0    the node left in order (command, SIGTERM or SIGINT), or a signal came before it listened
  1    failed at run time: the address is in use, the name of a host does not resolve
  2    command line, environment or configuration file are wrong; nothing was started
  3    the cluster refused the node for good: it runs with another --membership or --policy, or a
       build too far from this one; with another key or cluster name, or a name that is taken, a
       node says so and goes on trying
  4    stdout was closed by its reader; the node left in order
  130  a second SIGINT, half a second after the first or later, or one before --print-config has
       printed: ended at once (143 for SIGTERM)
  128+N with --witness: the node was killed by signal N (137 for SIGKILL, 134 for an abort)";

/// The table of `locator --help`.
pub(crate) const HELP_LOCATOR: &str = "\
Exit codes:
  0    it stopped in order (SIGTERM or SIGINT)
  1    failed at run time: the address is in use, the name of a host does not resolve, the state file
       cannot be read, its folder is not there
  2    command line, environment or key file are wrong, or the state file is of another cluster or no
       locator's; nothing was started
  130  a second SIGINT, half a second after the first or later: ended at once (143 for SIGTERM)
When nobody reads stdout any more it goes on: newcomers need it.";

/// The table of `key --help`.
pub(crate) const HELP_KEY: &str = "\
Exit codes:
  0    the key is in the file
  1    it is not: the file exists already, or cannot be written
  2    the command line is wrong";

/// The table of `demo --help`.
pub(crate) const HELP_DEMO: &str = "\
Exit codes:
  0    the sheet holds, whether or not somebody reads it
  1    it does not, or something failed at run time
  2    the command line is wrong";

/// The table of `bench --help` and `swarm --help`.
pub(crate) const HELP_MEASURED: &str = "\
Exit codes:
  0    it was measured; or, after a signal, all nodes of a swarm have left in order
  1    failed at run time: nodes did not come up in time, the system allows too few open files
  2    the command line is wrong; nothing was started
  4    nobody reads the output; what ran was ended
  130  a second SIGINT while the nodes of a swarm leave: ended at once (143 for SIGTERM)";

/// The table of `recover --help`.
pub(crate) const HELP_RECOVER: &str = "\
Exit codes:
  0    the node goes on alone
  1    it does not: it is in a primary view, is not there, has changed, or you did not confirm
  2    the command line is wrong, the socket is of another node, several nodes have that name, or stdin
       is no terminal and --yes is not given; nothing was changed
  4    nobody reads what it would mean; nothing was changed
  5    it is not known: the node was asked to do it and did not answer, and may still do it; ask
       `antiphon members`";

/// An error that ends the program: what happened and what to do, for the person at the terminal.
#[derive(Debug)]
pub(crate) struct Failed {
    /// How the program ends.
    pub(crate) exit: Exit,
    /// Cause and remedy.
    pub(crate) message: String,
}

impl Failed {
    /// A wrong setting.
    pub(crate) fn usage(message: impl Into<String>) -> Self {
        Self {
            exit: Exit::Usage,
            message: message.into(),
        }
    }

    /// The system refused what the program needs, and perhaps what it lacks for that.
    pub(crate) fn cannot(what: &str, error: &io::Error) -> Self {
        let remedy = Lack::of(error).map_or(String::new(), |lack| format!("; {}", lack.remedy()));
        Self::run(format!("cannot {what}: {error}{remedy}"))
    }

    /// A failure at run time.
    pub(crate) fn run(message: impl Into<String>) -> Self {
        Self {
            exit: Exit::Failure,
            message: message.into(),
        }
    }
}
