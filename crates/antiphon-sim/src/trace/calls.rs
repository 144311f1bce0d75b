//! What members of a group call each other, as callers and handlers see it.

use std::sync::Arc;

use antiphon_core::GroupView;
use antiphon_core::wire::Incarnation;
use antiphon_replica::calls::{CallError, Replies, Rule, Target};

use crate::agenda::Micros;

/// What a caller, a handler or the application around them did. Each call has a number that no other one of
/// the run has, which its request carries to the handlers.
#[derive(Debug, Clone)]
pub enum CallDeed {
    /// The application begins to call and to serve as this incarnation, or goes on as another one.
    Is(Incarnation),
    /// The application takes a view: what it does from here on, it does in this view.
    Takes(Arc<GroupView>),
    /// From here on the application serves this verb, or does not any more.
    Serves {
        /// The verb.
        verb: String,
        /// Whether it does.
        serves: bool,
    },
    /// A call was taken.
    Calls {
        /// Its number.
        op: u64,
        /// The call whose handler makes it.
        within: Option<u64>,
        /// Which members are asked.
        target: Target,
        /// When it has its answer.
        rule: Rule,
        /// The time that it may take.
        deadline: Micros,
        /// What for.
        verb: String,
        /// A hash of its payload.
        payload: u64,
        /// Whether it was made when all was quiet: then some member can answer.
        at_rest: bool,
    },
    /// No caller waits for it any more.
    Cancels {
        /// Which.
        op: u64,
    },
    /// The application took its own request to all members, in the view that it took last.
    Delivered {
        /// Of which call.
        op: u64,
    },
    /// The application took the word that its request to all is not delivered to it.
    NotDelivered {
        /// Of which call.
        op: u64,
    },
    /// A call ended.
    Ended {
        /// Which.
        op: u64,
        /// With what.
        result: Result<Replies, CallError>,
    },
    /// A handler begins.
    Starts {
        /// For which call.
        op: u64,
        /// The caller.
        caller: Incarnation,
        /// What for.
        verb: String,
        /// A hash of the payload.
        payload: u64,
        /// Until then it is to answer.
        within: Micros,
    },
    /// A handler answers, and ends.
    Answers {
        /// Which call.
        op: u64,
        /// A hash of the reply, or of the error.
        answer: Result<u64, u64>,
    },
    /// A handler ends without an answer, or does not even begin.
    GivesUp {
        /// Which call.
        op: u64,
        /// Whether it had begun.
        began: bool,
    },
    /// A handler is stopped.
    Stops {
        /// For which call.
        op: u64,
    },
    /// Something that must not happen while all keep the rules.
    Wrong(String),
}
