//! What members say to each other about the order.

use antiphon_wire::group::{GroupData, Run};
use antiphon_wire::{GroupId, GroupViewId};

/// The token and what it carries.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Passed {
    pub(crate) hop: u64,
    /// The first position of the runs.
    pub(crate) first: u64,
    pub(crate) runs: Vec<Run>,
}

/// A record about the order, less its group and view.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Word {
    /// The runs have the positions from `first` on, and all members hold those before `stable`. With no runs,
    /// the order reaches up to `first`. With `ask`, the maker wants an acknowledgement at once.
    Orders {
        first: u64,
        stable: u64,
        ask: bool,
        runs: Vec<Run>,
    },
    /// The positions from `first` on are not held.
    Missing { first: u64 },
    /// The token.
    Token(Passed),
    /// The token of this hop was here.
    TokenHeld { hop: u64 },
}

/// What comes of a word.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Heard {
    /// Nothing more is to be done.
    Taken,
    /// It makes no sense here.
    Refused,
    /// The member that said it gets this answer.
    Answered(Word),
    /// The maker of the order said it, and is owed an acknowledgement: at once if it asked.
    Owed { ask: bool },
}

impl Word {
    /// What a record says about the order, if it does.
    pub(crate) fn of(record: GroupData) -> Option<Word> {
        match record {
            GroupData::Orders {
                first,
                stable,
                ask,
                runs,
                ..
            } => Some(Word::Orders {
                first,
                stable,
                ask,
                runs,
            }),
            GroupData::OrderNak { first, .. } => Some(Word::Missing { first }),
            GroupData::Token { hop, first, runs, .. } => Some(Word::Token(Passed { hop, first, runs })),
            GroupData::TokenHeld { hop, .. } => Some(Word::TokenHeld { hop }),
            _ => None,
        }
    }

    /// The record that says it in this view.
    pub(crate) fn record(self, group: GroupId, view: GroupViewId) -> GroupData {
        match self {
            Word::Orders {
                first,
                stable,
                ask,
                runs,
            } => GroupData::Orders {
                group,
                view,
                first,
                stable,
                ask,
                runs,
            },
            Word::Missing { first } => GroupData::OrderNak { group, view, first },
            Word::Token(Passed { hop, first, runs }) => GroupData::Token {
                group,
                view,
                hop,
                first,
                runs,
            },
            Word::TokenHeld { hop } => GroupData::TokenHeld { group, view, hop },
        }
    }
}
