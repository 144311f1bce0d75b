//! Tags of what a sender sends to a scoped group: it remembers where the last message of each scope is.
//!
//! A sender that uses more scopes than [`MAX_SCOPES`] says "after all" of those that it has forgotten: that
//! waits for more than it needs to, and is never wrong. What receivers make of tags is told in
//! `group/log/scopes.rs`.

use std::collections::BTreeMap;

use antiphon_wire::block::{After, Tag};

/// How many scopes a sender remembers the last message of.
const MAX_SCOPES: usize = 1 << 16;

/// Tags for what a sender sends: it remembers where the last message of each scope is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Tagger {
    /// The place of the next message, from 1.
    next: u64,
    /// The last place of the last message of each scope.
    last: BTreeMap<u32, u64>,
    /// The scopes of messages before this place are forgotten; 0 is none.
    forgotten: u64,
}

impl Default for Tagger {
    fn default() -> Self {
        Self {
            next: 1,
            last: BTreeMap::new(),
            forgotten: 0,
        }
    }
}

impl Tagger {
    /// The tag that the next message has if it is of this scope.
    pub(crate) fn tag(&self, scope: u32) -> Tag {
        let back = |to: u64| u32::try_from(self.next - to).ok();
        let after = match self.last.get(&scope) {
            Some(last) => back(*last).map(After::One),
            None if self.forgotten > 0 => back(self.forgotten - 1).map(After::All),
            None => Some(After::Nothing),
        };
        // Four thousand million messages back: the message then waits for all that are known.
        let after = after.unwrap_or(After::All(1));
        Tag { scope, after }
    }

    /// The next message is of this scope, and takes so many places in its sender's log.
    pub(crate) fn took(&mut self, scope: u32, places: u64) {
        self.next += places;
        self.last.insert(scope, self.next - 1);
        if self.last.len() > MAX_SCOPES {
            self.forget();
        }
    }

    /// What was tagged may not be sent: what comes next waits for all before it, and names nothing in
    /// particular.
    pub(crate) fn forget(&mut self) {
        self.last.clear();
        self.forgotten = self.next;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sender_that_has_forgotten_where_its_scopes_are_waits_for_more_and_never_for_less() {
        let mut tagger = Tagger::default();
        for scope in 0..=MAX_SCOPES as u32 {
            tagger.took(scope, 1);
        }
        assert_eq!(tagger.tag(0).after, After::All(1));
        tagger.took(9, 1);
        assert_eq!(tagger.tag(0).after, After::All(2));
        assert_eq!(tagger.tag(9).after, After::One(1));
    }
}
