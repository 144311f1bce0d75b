//! What handlers do: what the request says, after the time that it says.

use antiphon_replica::calls::{AnswerError, Rule, Target};

use super::callers::{AT_REST, New};
use super::*;

/// A handler that runs.
pub(super) struct Handler {
    pub(super) op: u64,
    /// When it does the next thing.
    pub(super) due: Micros,
    pub(super) does: Does,
    at_rest: bool,
}

/// What a request asks for.
pub(super) struct Asked {
    pub(super) op: u64,
    pub(super) takes: Micros,
    pub(super) does: Does,
    pub(super) at_rest: bool,
}

/// What a handler does when its time has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Does {
    Answers,
    Fails,
    Never,
    /// It ends without an answer, or does not even begin.
    GivesUp {
        begins: bool,
    },
    /// It calls others, whose handlers call others, and so on; and answers when it has its answer.
    Calls {
        levels: u8,
    },
    /// It calls its caller, whose handler does the same.
    CallsBack {
        levels: u8,
    },
}

impl Asked {
    pub(super) fn bytes(&self, padding: &[u8]) -> Bytes {
        let (does, levels) = match self.does {
            Does::Answers => (0, 0),
            Does::Fails => (1, 0),
            Does::Never => (2, 0),
            Does::Calls { levels } => (3, levels),
            Does::CallsBack { levels } => (4, levels),
            Does::GivesUp { begins } => (5, u8::from(begins)),
        };
        let mut bytes = Vec::with_capacity(19 + padding.len());
        bytes.extend_from_slice(&self.op.to_le_bytes());
        bytes.extend_from_slice(&self.takes.to_le_bytes());
        bytes.extend_from_slice(&[does, levels, u8::from(self.at_rest)]);
        bytes.extend_from_slice(padding);
        bytes.into()
    }

    fn of(bytes: &[u8]) -> Option<Self> {
        let (op, rest) = bytes.split_first_chunk::<8>()?;
        let (takes, rest) = rest.split_first_chunk::<8>()?;
        let [does, levels, at_rest, ..] = *rest else {
            return None;
        };
        let does = match does {
            0 => Does::Answers,
            1 => Does::Fails,
            2 => Does::Never,
            3 => Does::Calls { levels },
            4 => Does::CallsBack { levels },
            5 => Does::GivesUp { begins: levels != 0 },
            _ => return None,
        };
        Some(Self {
            op: u64::from_le_bytes(*op),
            takes: Micros::from_le_bytes(*takes),
            does,
            at_rest: at_rest != 0,
        })
    }
}

/// None if it is being stopped.
fn gives_up(it: &mut Calling, now: Time, request: RequestId, op: u64, began: bool) -> Option<CallDeed> {
    let given_up = it.calls.give_up(now, request, began);
    given_up.ok().map(|()| CallDeed::GivesUp { op, began })
}

impl World {
    /// A handler begins.
    pub(super) fn request_begins(
        &mut self,
        it: &mut Calling,
        now: Time,
        request: RequestId,
        verb: String,
        payload: &Bytes,
        within: Micros,
    ) -> CallDeed {
        let Some(asked) = Asked::of(payload) else {
            return CallDeed::Wrong(format!("{request:?} is not what anybody asked"));
        };
        if asked.does == (Does::GivesUp { begins: false })
            && let Some(deed) = gives_up(it, now, request, asked.op, false)
        {
            return deed;
        }
        let due = match asked.does {
            Does::Never => Micros::MAX,
            _ => self.now + asked.takes,
        };
        let handler = Handler {
            op: asked.op,
            due,
            does: asked.does,
            at_rest: asked.at_rest,
        };
        if it.handlers.insert(request, handler).is_some() {
            return CallDeed::Wrong(format!("{request:?} begins, and runs already"));
        }
        CallDeed::Starts {
            op: asked.op,
            caller: request.from,
            verb,
            payload: hash(payload, 0),
            within,
        }
    }

    /// Handlers whose time has come do what is due.
    pub(super) fn let_handlers_act(
        &mut self,
        id: ProcessId,
        plan: &CallingPlan,
        it: &mut Calling,
        now: Time,
    ) -> bool {
        let mut any = false;
        while let Some((request, handler)) = it.handlers.iter_mut().find(|(_, it)| it.due <= self.now) {
            any = true;
            handler.due = Micros::MAX;
            let (request, op, does, at_rest) = (*request, handler.op, handler.does, handler.at_rest);
            match does {
                Does::Never => {}
                Does::GivesUp { .. } => {
                    if let Some(deed) = gives_up(it, now, request, op, true) {
                        it.handlers.remove(&request);
                        self.note(id, Seen::Call(plan.group, deed));
                    }
                }
                Does::Answers => self.answer(id, plan, it, now, request, true),
                Does::Fails => self.answer(id, plan, it, now, request, false),
                Does::Calls { levels } | Does::CallsBack { levels } => {
                    let back = matches!(does, Does::CallsBack { .. });
                    let (target, rule) = match back {
                        true => (Target::Member(request.from), Rule::First),
                        false => self.whom_to_ask(it),
                    };
                    let new = New {
                        target,
                        rule,
                        verb: match at_rest {
                            true => REST.to_owned(),
                            false => verb_of(self.random.below(plan.verbs)),
                        },
                        deadline: plan.deadline.max(AT_REST),
                        does: match levels {
                            0 | 1 => Does::Answers,
                            levels if back => Does::CallsBack { levels: levels - 1 },
                            levels => Does::Calls { levels: levels - 1 },
                        },
                        takes: self.random.below(plan.takes),
                        within: Some((request, op)),
                        at_rest,
                    };
                    if self.make_call(id, plan, it, now, new).is_none() {
                        self.answer(id, plan, it, now, request, false);
                    }
                }
            }
        }
        any
    }

    fn answer(
        &mut self,
        id: ProcessId,
        plan: &CallingPlan,
        it: &mut Calling,
        now: Time,
        request: RequestId,
        well: bool,
    ) {
        let bytes = self.random.index(plan.bytes);
        let payload = self.payload(bytes);
        let hashed = hash(&payload, 0);
        let (answer, hashed) = match well {
            true => (Ok(payload), Ok(hashed)),
            false => (Err(payload), Err(hashed)),
        };
        match it.calls.answer(now, request, answer) {
            Ok(()) => {
                if let Some(handler) = it.handlers.remove(&request) {
                    let deed = CallDeed::Answers {
                        op: handler.op,
                        answer: hashed,
                    };
                    self.note(id, Seen::Call(plan.group, deed));
                }
            }
            // It is being stopped.
            Err(AnswerError::RequestOver) => {}
            Err(AnswerError::TooLarge { limit }) => {
                let what = format!("an answer of {bytes} bytes is too large for {limit}");
                self.note(id, Seen::Call(plan.group, CallDeed::Wrong(what)));
            }
        }
    }
}
