//! `AUTH`. Before it a connection may say only `HELLO`, `QUIT` and `RESET`, and only so many bytes.
//!
//! The user is `default`, the password a token. `RESET` takes back what was shown, as in Redis; of time and
//! of wrong tokens it gives nothing back.

use std::borrow::Cow;

use antiphon::clients::Departure;
use bytes::Bytes;
use tokio::time::{Instant, timeout_at};

use super::table::Verb;
use super::talk::{End, Input, Stop, Talk};
use crate::access::Visitor;
use crate::socket::SPEAK_WITHIN;

/// What a connection that has shown nothing may say: all words of its commands, and the command that is not
/// whole.
const MAX_STRANGER_BYTES: usize = 16 << 10;
/// Wrong tokens of one connection.
const MAX_WRONG: u32 = 3;
const NO_PASSWORD: &str = "ERR AUTH <password> called without any password configured for the default user. Are you sure your configuration is correct?";
const WRONG: &str = "WRONGPASS invalid username-password pair or user is disabled.";
pub(super) const NO_HELLO: &str = "NOAUTH HELLO must be called with the client already authenticated, otherwise the HELLO <proto> AUTH <user> <pass> option can be used to authenticate the client and select the RESP protocol version at the same time";

/// Whether a connection may say what it likes.
pub(super) struct Gate<'a> {
    visitor: &'a Visitor,
    is_open: bool,
    patience: Patience,
}

/// How long a connection may take to show a token, how often it may be wrong, and how much it may say.
#[derive(Debug, Clone, Copy)]
pub(super) struct Patience {
    until: Instant,
    wrong: u32,
    /// Bytes of commands that it has said.
    said: usize,
}

impl Default for Patience {
    fn default() -> Self {
        let until = Instant::now() + SPEAK_WITHIN;
        Self {
            until,
            wrong: 0,
            said: 0,
        }
    }
}

impl<'a> Gate<'a> {
    pub(super) fn new(visitor: &'a Visitor, patience: Patience) -> Self {
        Self {
            visitor,
            is_open: !visitor.needs_token(),
            patience,
        }
    }

    pub(super) fn is_open(&self) -> bool {
        self.is_open
    }

    /// What is left of it when what was shown is taken back.
    pub(super) fn patience_left(&self) -> Patience {
        match self.is_open {
            true => Patience::default(),
            false => self.patience,
        }
    }

    /// Whether this may be said.
    pub(super) fn lets(&self, verb: Option<Verb>) -> Result<(), Cow<'static, str>> {
        if self.is_open || matches!(verb, Some(Verb::Auth | Verb::Hello | Verb::Quit | Verb::Reset)) {
            return Ok(());
        }
        self.visitor.missed();
        Err("NOAUTH Authentication required.".into())
    }
}

impl Talk<'_> {
    /// Reads something, or sees that nothing more comes.
    pub(super) async fn read_on(&self, input: &mut Input) -> Result<(), End> {
        if self.gate.is_open {
            input.read_on().await;
            return Ok(());
        }
        self.bounds(input.decoder.held())?;
        // What it goes on saying does not give it more time.
        let in_time = Instant::now() < self.gate.patience.until;
        match in_time && timeout_at(self.gate.patience.until, input.read()).await.is_ok() {
            true => Ok(()),
            false => self.turn_away("no token was shown in time"),
        }
    }

    /// Counts a command of a connection that has shown nothing.
    pub(super) fn count(&mut self, words: &[Bytes]) -> Result<(), End> {
        if self.gate.is_open {
            return Ok(());
        }
        self.gate.patience.said += words.iter().map(Bytes::len).sum::<usize>();
        self.bounds(0)
    }

    /// Whether a connection that has shown nothing may have said so much more than was counted.
    fn bounds(&self, more: usize) -> Result<(), End> {
        match self.gate.patience.said + more > MAX_STRANGER_BYTES {
            true => self.turn_away(&format!(
                "{MAX_STRANGER_BYTES} bytes at most are taken before AUTH: say it first"
            )),
            false => Ok(()),
        }
    }

    fn turn_away(&self, reason: &str) -> Result<(), End> {
        let text = format!("NOAUTH {reason}");
        self.shared.said().ready(|to| to.error(&text));
        Err(End::Left(Departure::lost("it showed no token")))
    }

    pub(super) async fn auth(&mut self, input: &mut Input, words: &[Bytes]) -> Result<(), Stop> {
        input.patient(self.alone()).await?;
        self.authenticate(input, words).await?;
        self.ready(|to| to.simple("OK"))
    }

    /// Looks at a token, and at the user before it, if there is one.
    pub(super) async fn authenticate(&mut self, input: &mut Input, words: &[Bytes]) -> Result<(), Stop> {
        let token = match words {
            [token] => &token[..],
            [user, token] if user == "default" => &token[..],
            // No token is so.
            [_, _] => b"",
            _ => return Stop::error("ERR syntax error"),
        };
        let visitor = self.gate.visitor;
        if !visitor.knows_tokens() {
            // As a Redis without a password.
            return match words {
                [user, _] if user == "default" => Ok(()),
                [_, _] => Stop::error(WRONG),
                _ => Stop::error(NO_PASSWORD),
            };
        }
        if input.patient(visitor.admit(Some(token))).await?.is_ok() {
            self.gate.is_open = true;
            return Ok(());
        }
        self.gate.patience.wrong += 1;
        if self.gate.patience.wrong < MAX_WRONG {
            return Stop::error(WRONG);
        }
        self.shared.said().ready(|to| to.error(WRONG));
        Err(End::Left(Departure::lost("it showed wrong tokens")).into())
    }
}
