//! Planted protocol mistakes.
//!
//! Compiled in only by the feature `planted`. A simulator run arms one mistake for its thread; the protocol asks at
//! the place where the mistake would be made. The checkers must notice each: that is what shows that they bite.

use std::cell::Cell;

thread_local! {
    static ARMED: Cell<Option<Bug>> = const { Cell::new(None) };
}

/// Arms one mistake for the current thread, or none.
pub fn arm(bug: Option<Bug>) {
    ARMED.with(|armed| armed.set(bug));
}

/// Whether this mistake is to be made.
pub(crate) fn is(bug: Bug) -> bool {
    ARMED.with(|armed| armed.get() == Some(bug))
}

macro_rules! bugs {
    ($($(#[doc = $doc:literal])* $name:ident),* $(,)?) => {
        /// A mistake that the protocol makes while armed.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Bug { $($(#[doc = $doc])* $name),* }
        impl Bug {
            /// All of them.
            pub const ALL: &'static [Bug] = &[$(Bug::$name),*];
            /// What goes wrong.
            pub fn description(self) -> &'static str {
                match self { $(Bug::$name => concat!($($doc),*).trim_ascii()),* }
            }
        }
    };
}

bugs! {
    /// A member delivers old-view messages that arrive after its flush report (R13).
    ReceiveAfterWedge,
}
