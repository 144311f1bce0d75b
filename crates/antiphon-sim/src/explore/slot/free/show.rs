//! Steps of free runs, for people.

use std::fmt;

use antiphon_core::explore::slot::Acceptance;
use antiphon_core::wire::membership::Ballot;

use super::{Did, Message, Move, Reason};

impl fmt::Display for Move {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { who, what } = self;
        match what {
            Did::Answer(message) => write!(f, "{who} answers {message}"),
            Did::Cast(value) => write!(f, "{who} casts {value:?} in the fast ballot"),
            Did::GoOn(reason, message) => {
                write!(f, "{who} {reason}")?;
                message
                    .iter()
                    .try_for_each(|message| write!(f, ", sends {message}"))
            }
            Did::Install(view) => write!(f, "{who} installs {view:?}"),
            Did::Leave(view) => write!(f, "{who} learns of {view:?} and is out"),
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Reason::Decides => f.write_str("wants another view"),
            Reason::ChangesItsMind => f.write_str("changes its mind"),
            Reason::HasPromises => f.write_str("has the promises of a quorum"),
            Reason::Learns(dead, vote) => match (&vote.promised, &vote.accepted) {
                (_, Some(Acceptance { ballot, value })) => {
                    write!(
                        f,
                        "learns that {dead} died, having accepted {value:?} in ballot {}",
                        show(*ballot)
                    )
                }
                (Some(promised), None) => {
                    write!(
                        f,
                        "learns that {dead} died, having promised ballot {}",
                        show(*promised)
                    )
                }
                (None, None) => write!(f, "learns that {dead} died without a vote"),
            },
        }
    }
}

impl fmt::Display for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Message::Prepare { ballot, .. } => write!(f, "Prepare {}", show(*ballot)),
            Message::Promise { ballot, .. } => write!(f, "Promise {}", show(*ballot)),
            Message::Accept { ballot, value, .. } => write!(f, "Accept {} {value:?}", show(*ballot)),
            Message::Accepted { ballot, value, .. } => write!(f, "Accepted {} {value:?}", show(*ballot)),
            Message::Cast { value, .. } => write!(f, "Cast {value:?}"),
        }
    }
}

fn show(ballot: Ballot) -> String {
    format!("{}.{}", ballot.round, ballot.proposer.0)
}
