//! Requests of this member until they are answered, and who has applied whose commands.
//!
//! A write with [`Ack::All`] waits, from its delivery on, for the members that have the state at that point.
//! Each of them tells the writer the number of its last command that it has applied: one direct message after
//! a batch of inputs, not one a command. That word may arrive before the command itself is delivered here.
//! The writes of a member are complete in their order: a member that a later write does not wait for is gone,
//! or diverged, and no earlier one waits for it either.

use std::collections::{BTreeMap, BTreeSet};

use super::event::{Ack, Failure, RequestId};
use super::format::Member;
use crate::At;

pub(super) struct Requests<R> {
    last: u64,
    pending: BTreeMap<u64, Pending<R>>,
    /// Of each member, the last of our commands that it has applied, as far as it told.
    applied: BTreeMap<Member, u64>,
    /// Of each writer, the last of its commands that is applied here, if it is to be told.
    due: BTreeMap<Member, u64>,
}

struct Pending<R> {
    sent: bool,
    what: What<R>,
}

enum What<R> {
    Read,
    Write(Ack),
    /// Applied here; the members that were not heard of.
    Applied(At, R, BTreeSet<Member>),
}

/// What became of a request.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Answer<R> {
    Read(RequestId, Result<(), Failure>),
    Write(RequestId, Result<(At, R), Failure>),
}

impl<R> Requests<R> {
    pub(super) fn new() -> Self {
        Self {
            last: 0,
            pending: BTreeMap::new(),
            applied: BTreeMap::new(),
            due: BTreeMap::new(),
        }
    }

    pub(super) fn len(&self) -> usize {
        self.pending.len()
    }

    /// The number of the last request.
    pub(super) fn last(&self) -> u64 {
        self.last
    }

    pub(super) fn write(&mut self, ack: Ack) -> u64 {
        self.add(What::Write(ack))
    }

    pub(super) fn read(&mut self) -> u64 {
        self.add(What::Read)
    }

    fn add(&mut self, what: What<R>) -> u64 {
        self.last += 1;
        self.pending.insert(self.last, Pending { sent: false, what });
        self.last
    }

    /// This write was handed to the layer below.
    pub(super) fn sent_write(&mut self, request: u64) {
        if let Some(pending) = self.pending.get_mut(&request) {
            pending.sent = true;
        }
    }

    /// A command of this member was applied here, where these others have the state. The answer, if it waits
    /// for none of them.
    pub(super) fn delivered(
        &mut self,
        request: u64,
        at: At,
        reply: R,
        others: impl Iterator<Item = Member>,
    ) -> Option<Answer<R>> {
        let pending = self.pending.get_mut(&request)?;
        match pending.what {
            What::Write(Ack::Here) => {
                self.pending.remove(&request);
                Some(Answer::Write(RequestId(request), Ok((at, reply))))
            }
            What::Write(Ack::All) => {
                let applied = &self.applied;
                let waits = others.filter(|member| applied.get(member).is_none_or(|upto| *upto < request));
                pending.what = What::Applied(at, reply, waits.collect());
                None
            }
            What::Read | What::Applied(..) => None,
        }
    }

    /// A member told that it has applied our commands up to this one. False if we gave no such number.
    pub(super) fn applied(&mut self, member: Member, upto: u64) -> bool {
        if upto > self.last {
            return false;
        }
        let known = self.applied.entry(member).or_default();
        *known = upto.max(*known);
        for (_, pending) in self.pending.range_mut(..=upto) {
            if let What::Applied(_, _, waits) = &mut pending.what {
                waits.remove(&member);
            }
        }
        true
    }

    /// Nothing more is to be heard of this member, nor has it to be told anything.
    pub(super) fn forget(&mut self, member: Member) {
        self.applied.remove(&member);
        self.due.remove(&member);
        self.wait_no_more(member);
    }

    /// This member's state differs: no write waits for it.
    pub(super) fn wait_no_more(&mut self, member: Member) {
        for pending in self.pending.values_mut() {
            if let What::Applied(_, _, waits) = &mut pending.what {
                waits.remove(&member);
            }
        }
    }

    /// Takes out the next write that all have applied.
    pub(super) fn written(&mut self) -> Option<Answer<R>> {
        let (request, pending) = self
            .pending
            .iter()
            .find(|(_, pending)| !matches!(pending.what, What::Read))?;
        let request = *request;
        if !matches!(&pending.what, What::Applied(_, _, waits) if waits.is_empty()) {
            return None;
        }
        match self.pending.remove(&request)?.what {
            What::Applied(at, reply, _) => Some(Answer::Write(RequestId(request), Ok((at, reply)))),
            What::Read | What::Write(_) => None,
        }
    }

    /// A barrier was delivered: takes out the reads that were asked for before it was sent.
    pub(super) fn barrier(&mut self, upto: u64) -> Vec<Answer<R>> {
        let reads = self.pending.range(..=upto);
        let reads: Vec<u64> = reads
            .filter(|(_, pending)| matches!(pending.what, What::Read))
            .map(|(request, _)| *request)
            .collect();
        for request in &reads {
            self.pending.remove(request);
        }
        reads
            .into_iter()
            .map(|request| Answer::Read(RequestId(request), Ok(())))
            .collect()
    }

    /// A write has no answer.
    pub(super) fn fail(&mut self, request: u64, failure: Failure) -> Option<Answer<R>> {
        let pending = self.pending.remove(&request)?;
        Some(pending.fail(request, failure))
    }

    /// No request gets its answer. A read is not sent as far as its caller is concerned: it changed nothing.
    pub(super) fn fail_all(&mut self) -> Vec<Answer<R>> {
        let pending = std::mem::take(&mut self.pending);
        let fail = |(request, pending): (u64, Pending<R>)| {
            let failure = if pending.sent {
                Failure::Unknown
            } else {
                Failure::NotSent
            };
            pending.fail(request, failure)
        };
        pending.into_iter().map(fail).collect()
    }

    /// A command of another member was applied here, and it wants to know.
    pub(super) fn owe(&mut self, writer: Member, request: u64) {
        self.due.insert(writer, request);
    }

    /// The writers to tell, and what.
    pub(super) fn due(&self) -> Vec<(Member, u64)> {
        self.due.iter().map(|(writer, upto)| (*writer, *upto)).collect()
    }

    pub(super) fn told(&mut self, writer: Member) {
        self.due.remove(&writer);
    }

    /// This member is no member any more: numbers go on, what others said is void.
    pub(super) fn reset(&mut self) {
        self.applied.clear();
        self.due.clear();
    }
}

impl<R> Pending<R> {
    fn fail(self, request: u64, failure: Failure) -> Answer<R> {
        match self.what {
            What::Read => Answer::Read(RequestId(request), Err(failure)),
            // It was applied here; whether all have applied it is not known.
            What::Write(_) | What::Applied(..) => Answer::Write(RequestId(request), Err(failure)),
        }
    }
}
