//! What goes out: asked for when the layer below may have room.
//!
//! Commands, a few words and chunks that were read ahead wait in queues, all bounded. Acknowledgements,
//! offers and counts are made from the state at the moment they can be sent, so what they say is never old,
//! and a refusal undoes nothing.

use antiphon_core::Time;
use bytes::Bytes;

use super::format::{self, Body, Member, Ordered, Told};
use super::source::Part;
use super::{Event, Output, Phase, Replica};
use crate::Machine;

impl<M: Machine> Replica<M> {
    /// Hands all that is to be sent to `port`, which says whether the layer below took it. What it refuses is
    /// offered again by the next call; nothing more for the same receiver is offered in this one. A
    /// [`Output::Leave`] cannot be refused.
    pub fn outputs(&mut self, now: Time, mut port: impl FnMut(Output) -> bool) {
        if !self.suspended {
            self.send(now, &mut port);
            let mut full = Vec::new();
            self.tell_applied(&mut full, &mut port);
            self.tell_received(&mut full, &mut port);
            self.tell_joiners(now, &full, &mut port);
        }
        if let Some(reason) = self.leave_reason.take() {
            port(Output::Leave { reason });
        }
    }

    fn send(&mut self, now: Time, port: &mut impl FnMut(Output) -> bool) {
        while let Some(body) = self.queue.pop_front() {
            let body = match body {
                Body::Barrier { .. } => Body::Barrier {
                    upto: self.requests.last(),
                },
                other => other,
            };
            let message = Ordered {
                stamp: self.clock.map(|clock| clock.read(now)),
                body,
            };
            let about = match &message.body {
                Body::Command { command, .. } => command.len(),
                _ => 0,
            };
            if !port(Output::Send(format::encode_about(about, &message).into())) {
                self.queue.push_front(message.body);
                return;
            }
            match message.body {
                Body::Command { request, command, .. } => {
                    self.queued_bytes -= command.len();
                    self.requests.sent_write(request);
                }
                Body::Barrier { .. } => self.barrier_queued = false,
                _ => {}
            }
        }
    }

    fn tell_applied(&mut self, full: &mut Vec<Member>, port: &mut impl FnMut(Output) -> bool) {
        for (writer, upto) in self.requests.due() {
            if tell(port, writer, format::encode(&Told::Applied { upto }).into()) {
                self.requests.told(writer);
            } else {
                full.push(writer);
            }
        }
    }

    fn tell_received(&mut self, full: &mut Vec<Member>, port: &mut impl FnMut(Output) -> bool) {
        let Phase::Waiting {
            incoming: Some(incoming),
            ..
        } = &mut self.phase
        else {
            return;
        };
        let source = incoming.source;
        if let Some(bytes) = incoming.untold().filter(|_| !full.contains(&source)) {
            let point = incoming.point;
            if tell(
                port,
                source,
                format::encode(&Told::Received { point, bytes }).into(),
            ) {
                incoming.told(bytes);
            } else {
                full.push(source);
            }
        }
    }

    fn tell_joiners(&mut self, now: Time, full: &[Member], port: &mut impl FnMut(Output) -> bool) {
        let time = self.clock.map(|clock| clock.read(now)).unwrap_or_default();
        for joiner in self.sources.joiners() {
            while !full.contains(&joiner)
                && let Some(part) = self.sources.next(joiner, &self.definition, time)
                && tell(port, joiner, part.payload().clone())
            {
                self.sources.sent(now, joiner, &part);
                if let Part::Failed(_, reason) = part {
                    self.events.push_back(Event::SourceFailed {
                        source: self.me.into(),
                        reason,
                    });
                }
            }
        }
    }
}

fn tell(port: &mut impl FnMut(Output) -> bool, to: Member, payload: Bytes) -> bool {
    port(Output::Tell {
        to: to.into(),
        payload,
    })
}
