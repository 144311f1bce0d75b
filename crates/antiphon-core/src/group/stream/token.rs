//! The token's way between members (see `order/token.rs`): pass it on, take it, send it again.

use std::collections::VecDeque;

use antiphon_wire::group::GroupData;

use super::Stream;
use crate::group::Effect;
use crate::order::{Engine, Passed, Taken};
use crate::{Class, Profile, Time};

impl Stream {
    /// The token arrived.
    pub(crate) fn token(&mut self, from: usize, passed: Passed, out: &mut VecDeque<Effect>) {
        let before = (self.me + self.members.len() - 1) % self.members.len();
        let Engine::Token(token) = &mut self.engine else {
            self.dropped += 1;
            return;
        };
        if from != before || from == self.me {
            self.dropped += 1;
            return;
        }
        match token.take(&passed) {
            Taken::Here => self.token_at = None,
            Taken::Copy => self.tell_token_held(passed.hop, out),
            Taken::Refused => self.dropped += 1,
        }
    }

    /// The next member has had the token of this hop.
    pub(crate) fn token_held(&mut self, hop: u64) {
        if let Engine::Token(token) = &mut self.engine {
            token.arrived(hop);
        }
    }

    /// Passes the token on if somebody waits for it; otherwise it stays, and the member before is told.
    pub(super) fn pass_token(&mut self, now: Time, profile: &Profile, out: &mut VecDeque<Effect>) {
        let Engine::Token(token) = &mut self.engine else {
            return;
        };
        if let Some(passed) = token.pass(&self.logs) {
            self.send_token(passed, out);
            self.token_at = Some(now + profile.retransmit * 2);
        } else if let Some(hop) = token.word_owed() {
            self.tell_token_held(hop, out);
        }
    }

    /// Nothing was heard of the token since it was passed on.
    pub(super) fn pass_token_again(&mut self, now: Time, profile: &Profile, out: &mut VecDeque<Effect>) {
        if let Engine::Token(token) = &self.engine
            && let Some(passed) = token.unheard().cloned()
        {
            self.send_token(passed, out);
            self.token_at = Some(now + profile.retransmit * 4);
        }
    }

    fn send_token(&self, passed: Passed, out: &mut VecDeque<Effect>) {
        let next = (self.me + 1) % self.members.len();
        let Passed { hop, first, runs } = passed;
        let (group, view) = (self.group, self.id);
        let token = GroupData::Token {
            group,
            view,
            hop,
            first,
            runs,
        };
        self.send_to(next, Class::Control, token, out);
    }

    fn tell_token_held(&self, hop: u64, out: &mut VecDeque<Effect>) {
        let before = (self.me + self.members.len() - 1) % self.members.len();
        let (group, view) = (self.group, self.id);
        let held = GroupData::TokenHeld { group, view, hop };
        self.send_to(before, Class::Control, held, out);
    }
}
