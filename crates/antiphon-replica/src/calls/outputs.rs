//! What goes out: asked for when the layer below may have room.
//!
//! Queues hold numbers, not bytes: a message is made at the moment it can be sent, so the time that is left
//! and the load are those of that moment, and what has ended meanwhile is not sent at all.

use std::collections::VecDeque;
use std::time::Duration;

use antiphon_core::Time;
use antiphon_core::wire::Incarnation;
use bytes::Bytes;

use super::format::{self, Answer, Request, ToAll, Told};
use super::{CallId, Calls, Failure, Output};

/// What one member is to be told, in this order, after the verbs.
#[derive(Default)]
pub(super) struct Line {
    pub(super) announce: bool,
    pub(super) words: VecDeque<Word>,
    /// Among `words`.
    replies: usize,
    reply_bytes: usize,
}

pub(super) enum Word {
    /// Of this call.
    Request(u64),
    Cancel {
        number: u64,
        all: bool,
    },
    Reply {
        number: u64,
        took: Duration,
        result: Result<Bytes, Failure>,
    },
}

impl Line {
    pub(super) fn new(announce: bool) -> Self {
        Self {
            announce,
            ..Self::default()
        }
    }

    pub(super) fn replies(&self) -> usize {
        self.replies
    }

    pub(super) fn reply(
        &mut self,
        number: u64,
        took: Duration,
        result: Result<Bytes, Failure>,
        max_bytes: usize,
    ) {
        let result = if self.reply_bytes + bytes_of(&result) > max_bytes {
            Err(Failure::ReplyLost)
        } else {
            result
        };
        self.replies += 1;
        self.reply_bytes += bytes_of(&result);
        self.words.push_back(Word::Reply { number, took, result });
    }

    /// The request of this call is not sent.
    pub(super) fn forget(&mut self, number: u64) {
        self.words
            .retain(|word| !matches!(word, Word::Request(other) if *other == number));
    }

    /// The layer below took the first word.
    fn sent(&mut self) {
        if let Some(Word::Reply { result, .. }) = self.words.pop_front() {
            self.replies -= 1;
            self.reply_bytes -= bytes_of(&result);
        }
    }
}

fn bytes_of(result: &Result<Bytes, Failure>) -> usize {
    match result {
        Ok(payload) | Err(Failure::Error(payload)) => payload.len(),
        Err(_) => 0,
    }
}

impl Calls {
    /// Hands all that is to be sent to `port`, which says whether the layer below took it. What it refuses is
    /// offered again by the next call; nothing more for the same receiver is offered in this one. If the
    /// layer below has no such member any more, it refuses: the view that follows decides.
    pub fn outputs(&mut self, now: Time, mut port: impl FnMut(Output) -> bool) {
        self.handle_timeout(now);
        self.send_to_all(now, &mut port);
        let busy = |line: &Line| line.announce || !line.words.is_empty();
        let lines = self.lines.iter().filter(|(_, line)| busy(line));
        for to in lines.map(|(to, _)| *to).collect::<Vec<_>>() {
            while self.tell(now, to, &mut port) {}
        }
    }

    fn send_to_all(&mut self, now: Time, port: &mut impl FnMut(Output) -> bool) {
        while let Some(number) = self.to_all.front().copied() {
            if let Some(request) = self.request_bytes(now, number, |request| {
                format::encode_about(request.payload.len(), &ToAll::Request(request))
            }) {
                let output = Output::Send {
                    call: CallId(number),
                    payload: request.into(),
                };
                let again = planted!(SendCallsTwice).then(|| output.clone());
                if !port(output) {
                    return;
                }
                again.map(&mut *port);
                self.caller.sent(now, number, None);
            }
            self.to_all.pop_front();
        }
    }

    /// Tells a member the next thing; false if there is nothing, or no room.
    fn tell(&mut self, now: Time, to: Incarnation, port: &mut impl FnMut(Output) -> bool) -> bool {
        let Some(line) = self.lines.get(&to) else {
            return false;
        };
        if line.announce {
            let verbs = self.server.verbs().iter().map(String::as_str).collect();
            let load = self.server.load();
            let payload = format::encode(&Told::Serving { load, verbs }).into();
            let taken = port(Output::Tell {
                to,
                payload,
                receipt: None,
            });
            if let Some(line) = self.lines.get_mut(&to).filter(|_| taken) {
                line.announce = false;
            }
            return taken;
        }
        let (payload, request) = match line.words.front() {
            None => return false,
            Some(Word::Request(number)) => {
                let number = *number;
                let payload = self.request_bytes(now, number, |request| {
                    format::encode_about(request.payload.len(), &Told::Request(request))
                });
                (payload, Some(number))
            }
            Some(Word::Cancel { number, all }) => {
                let (number, all) = (*number, *all);
                (Some(format::encode(&Told::Cancel { number, all })), None)
            }
            Some(Word::Reply { number, took, result }) => {
                let reply = Told::Reply {
                    number: *number,
                    load: self.server.load(),
                    micros: u64::try_from(took.as_micros()).unwrap_or(u64::MAX),
                    answer: answer(result),
                };
                (Some(format::encode_about(bytes_of(result), &reply)), None)
            }
        };
        if let Some(payload) = payload {
            let output = Output::Tell {
                to,
                payload: payload.into(),
                receipt: request.map(CallId),
            };
            if !port(output) {
                return false;
            }
            if let Some(number) = request {
                self.caller.sent(now, number, Some(to));
            }
        }
        if let Some(line) = self.lines.get_mut(&to) {
            line.sent();
        }
        true
    }

    fn request_bytes(
        &self,
        now: Time,
        number: u64,
        encode: impl FnOnce(Request<'_>) -> Vec<u8>,
    ) -> Option<Vec<u8>> {
        let call = self.caller.unsent(number)?;
        // Never less than what is left: the server is not to end before the caller.
        let unit = if planted!(HalfTheTime) { 2_000 } else { 1_000 };
        let millis = call.deadline.since(now).as_micros().div_ceil(unit);
        Some(encode(Request {
            number,
            depth: call.depth,
            millis: u64::try_from(millis).unwrap_or(u64::MAX),
            verb: call.verb,
            payload: call.payload,
        }))
    }
}

fn answer(result: &Result<Bytes, Failure>) -> Answer<'_> {
    match result {
        Ok(payload) => Answer::Reply(payload),
        Err(Failure::Error(payload)) => Answer::Error(payload),
        Err(Failure::Busy) => Answer::Busy,
        Err(Failure::NoSuchVerb) => Answer::NoSuchVerb,
        Err(Failure::TooDeep) => Answer::TooDeep,
        Err(Failure::ReplyLost) => Answer::Lost,
        Err(Failure::GivenUp { may_have_run }) => Answer::GivenUp {
            may_have_run: *may_have_run,
        },
        Err(other) => unreachable!("no server answers {other:?}"),
    }
}
