//! What a connection's reading and its writing share: replies in order, groups, and what is pushed.

use std::collections::{BTreeMap, VecDeque};
use std::pin::Pin;
use std::task::{Context, Poll};

use antiphon_api::blocks::{Id, Kind, Lost, Reply};
use antiphon_api::{Event, View};
use tokio::sync::oneshot;

use super::WRITE_BYTES;
use super::encode::{Encoder, Version};
use super::shape::{Shape, bytes};
use super::window::Window;
use crate::blocks::{Begun, MAX_BYTES, MAX_QUICK};
use crate::metrics::Meters;

/// The first id of operations for which the command itself waits. These ids are above those of the window.
const FIRST_ASKED: u64 = 1 << 62;

/// All of it.
#[derive(Debug, Default)]
pub(super) struct Said {
    pub(super) version: Version,
    /// To be written.
    pub(super) out: Vec<u8>,
    pub(super) window: Window,
    pub(super) groups: BTreeMap<String, Place>,
    /// It serves verbs: requests are pushed.
    pub(super) serves: bool,
    /// The command that asks what is known of a node.
    pub(super) why: Option<u64>,
    asked: Option<(u64, oneshot::Sender<Reply>)>,
    asked_last: u64,
    /// Writes that stand in no queue of a worker, in the order of their commands, each with the id of its
    /// part.
    begun: VecDeque<(u64, Begun)>,
    /// The length of their values.
    begun_bytes: usize,
}

/// A group that the session has joined.
#[derive(Debug, Clone, Copy)]
pub(super) struct Place {
    pub(super) role: Role,
    /// It has a view.
    pub(super) entered: bool,
    /// Of its last view.
    pub(super) clients: usize,
}

/// What a group that was joined is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Role {
    /// To publish in it: nothing is told of it.
    Publisher,
    /// Its messages are told as those of a channel.
    Subscriber,
    /// All is told.
    Member,
}

impl Said {
    /// A reply that is known at once.
    pub(super) fn ready(&mut self, write: impl FnOnce(&mut Encoder<'_>)) {
        self.window.ready(&mut self.out, self.version, write);
    }

    pub(super) fn subscriptions(&self) -> usize {
        let of = self.groups.values();
        of.filter(|place| place.role == Role::Subscriber && place.entered)
            .count()
    }

    /// Whether something may come that only RESP3 can tell.
    pub(super) fn needs_pushes(&self) -> bool {
        self.serves || self.groups.values().any(|place| place.role == Role::Member)
    }

    /// An id, and what its reply comes by.
    pub(super) fn ask(&mut self) -> (u64, oneshot::Receiver<Reply>) {
        let (reply, replied) = oneshot::channel();
        self.asked_last += 1;
        let id = FIRST_ASKED + self.asked_last;
        self.asked = Some((id, reply));
        (id, replied)
    }

    /// Whether another write may begin without a worker.
    pub(super) fn may_begin(&self) -> bool {
        !self.window.has_queued() && self.begun.len() < MAX_QUICK && self.begun_bytes < MAX_BYTES
    }

    /// Whether a write that has begun so is not over.
    pub(super) fn has_begun(&self) -> bool {
        !self.begun.is_empty()
    }

    /// This command may write, and goes to a worker, which bounds what it has and knows of no others.
    pub(super) fn queue(&mut self, id: u64) {
        debug_assert!(!self.has_begun(), "one session fills no replica");
        self.window.queue(id);
    }

    /// This part of a command is a write that has begun.
    pub(super) fn began(&mut self, id: u64, begun: Begun) {
        debug_assert!(self.begun.len() < MAX_QUICK, "one session fills no replica");
        self.begun_bytes += begun.bytes;
        self.begun.push_back((id, begun));
    }

    /// Takes what came of writes that have begun, the oldest first, until one is not over. Pending if none
    /// is.
    pub(super) fn poll_begun(&mut self, cx: &mut Context<'_>, meters: &Meters) -> Poll<()> {
        let mut polled = Poll::Pending;
        while self.out.len() < WRITE_BYTES
            && let Some((id, begun)) = self.begun.front_mut()
            && let Poll::Ready(reply) = Pin::new(&mut *begun).poll(cx)
        {
            meters.replied(begun.op, reply.error.as_ref());
            let (id, bytes) = (*id, begun.bytes);
            self.begun_bytes -= bytes;
            self.begun.pop_front();
            self.window.replied(id, reply, &mut self.out);
            polled = Poll::Ready(());
        }
        polled
    }

    /// A subscription begins or ends.
    pub(super) fn confirm(&mut self, what: &str, channel: Option<&str>) {
        let count = self.subscriptions() as i64;
        self.ready(|to| {
            to.push(3);
            to.bulk(what.as_bytes());
            match channel {
                Some(channel) => to.bulk(channel.as_bytes()),
                None => to.nil(),
            }
            to.number(count);
        });
    }

    /// Takes what the session is told.
    pub(super) fn told(&mut self, event: Event) {
        match event {
            Event::Reply(reply) => {
                if let Some(Id::Number(id)) = reply.id {
                    self.replied(id, reply);
                }
            }
            Event::Why { facts, .. } => {
                if let Some(id) = self.why.take() {
                    let write = |to: &mut Encoder<'_>| to.bulks(&facts);
                    self.window.written(id, &mut self.out, write);
                }
            }
            Event::View(view) => self.viewed(view),
            Event::Message(message) => match self.role(&message.group) {
                Some(Role::Subscriber) => self.push(3, |to| {
                    to.bulk(b"message");
                    to.bulk(message.group.as_bytes());
                    to.bulk(&bytes(message.payload));
                }),
                Some(Role::Member) => self.push(5, |to| {
                    to.bulk(b"ap.message");
                    to.bulk(message.group.as_bytes());
                    to.bulk(message.sender.as_bytes());
                    to.number(i64::try_from(message.seq).unwrap_or(i64::MAX));
                    to.bulk(&bytes(message.payload));
                }),
                _ => {}
            },
            Event::Transitional { group, members } => self.of_member(&group, 3, |to| {
                to.bulk(b"ap.transitional");
                to.bulk(group.as_bytes());
                to.bulks(&members);
            }),
            Event::Suspended { group } => self.of_member(&group, 2, |to| {
                to.bulk(b"ap.suspended");
                to.bulk(group.as_bytes());
            }),
            Event::Resync { group, cause } => self.of_member(&group, 3, |to| {
                to.bulk(b"ap.resync");
                to.bulk(group.as_bytes());
                to.bulk(cause.as_bytes());
            }),
            Event::GroupLeft { group } => {
                self.of_member(&group, 2, |to| {
                    to.bulk(b"ap.left");
                    to.bulk(group.as_bytes());
                });
                self.groups.remove(&group);
            }
            Event::Lost(lost) => self.lost(&lost),
            Event::Request(request) if self.version == Version::Three => self.push(7, |to| {
                to.bulk(b"ap.request");
                to.number(i64::try_from(request.request).unwrap_or(i64::MAX));
                to.bulk(request.group.as_bytes());
                to.bulk(request.verb.as_bytes());
                to.bulk(request.from.as_bytes());
                to.bulk(&bytes(request.payload));
                to.number(i64::try_from(request.within_ms).unwrap_or(i64::MAX));
            }),
            Event::Cancelled { request } if self.version == Version::Three => self.push(2, |to| {
                to.bulk(b"ap.cancelled");
                to.number(i64::try_from(request).unwrap_or(i64::MAX));
            }),
            _ => {}
        }
    }

    fn role(&self, group: &str) -> Option<Role> {
        self.groups.get(group).map(|place| place.role)
    }

    /// Something that is no reply stands before replies that are not known yet.
    fn push(&mut self, length: usize, write: impl FnOnce(&mut Encoder<'_>)) {
        let mut to = Encoder {
            bytes: &mut self.out,
            version: self.version,
        };
        to.push(length);
        write(&mut to);
    }

    fn of_member(&mut self, group: &str, length: usize, write: impl FnOnce(&mut Encoder<'_>)) {
        if self.role(group) == Some(Role::Member) {
            self.push(length, write);
        }
    }

    fn replied(&mut self, id: u64, reply: Reply) {
        if let Some((asked, answer)) = self.asked.take() {
            if asked == id {
                // Fails only if the command waits no more.
                let _ = answer.send(reply);
                return;
            }
            self.asked = Some((asked, answer));
        }
        match self.window.shape(id) {
            Some(Shape::Published(group)) if reply.error.is_none() => {
                let clients = self.groups.get(group).map_or(1, |place| place.clients.max(1));
                let write = |to: &mut Encoder<'_>| to.number(clients as i64);
                self.window.written(id, &mut self.out, write);
            }
            Some(Shape::Joined(group)) if reply.error.is_some() => {
                self.groups.remove(group);
                self.window.replied(id, reply, &mut self.out);
            }
            shape => {
                self.serves |= shape == Some(&Shape::Serving) && reply.error.is_none();
                self.window.replied(id, reply, &mut self.out);
            }
        }
    }

    fn viewed(&mut self, view: View) {
        let Some(place) = self.groups.get_mut(&view.group) else {
            return;
        };
        place.clients = view.members.len();
        let first = !std::mem::replace(&mut place.entered, true);
        match place.role {
            // Before its messages.
            Role::Subscriber if first => self.confirm("subscribe", Some(&view.group)),
            Role::Member => self.push(6, |to| {
                to.bulk(b"ap.view");
                to.bulk(view.group.as_bytes());
                to.bulk(view.id.as_bytes());
                to.bulks(&view.members);
                to.bulks(&view.joined);
                to.array(view.left.len() + view.crashed.len());
                for left in &view.left {
                    to.bulks(&[left.as_str(), "left"]);
                }
                for crashed in &view.crashed {
                    let cause = view.causes.get(crashed).map_or("crashed", String::as_str);
                    to.bulks(&[crashed.as_str(), cause]);
                }
            }),
            _ => {}
        }
    }

    fn lost(&mut self, lost: &Lost) {
        if lost.what == Kind::Group
            && let Some(place) = self.groups.remove(&lost.name)
            && place.role != Role::Member
        {
            // As if it had asked for that.
            if place.role == Role::Subscriber && place.entered {
                let count = self.subscriptions() as i64;
                self.push(3, |to| {
                    to.bulk(b"unsubscribe");
                    to.bulk(lost.name.as_bytes());
                    to.number(count);
                });
            }
            return;
        }
        if self.version == Version::Two {
            return;
        }
        self.push(5, |to| {
            to.bulk(b"ap.lost");
            to.bulk(match lost.what {
                Kind::Lock => b"lock",
                Kind::Lead => b"lead",
                Kind::Watch => b"watch",
                Kind::Group => b"group",
            });
            to.bulk(lost.name.as_bytes());
            match lost.token {
                Some(token) => to.bulk(token.to_string().as_bytes()),
                None => to.nil(),
            }
            to.bulk(lost.cause.as_bytes());
        });
    }
}

#[cfg(test)]
mod tests {
    use antiphon_api::{Message, Payload};

    use super::*;

    fn said(version: Version, role: Role) -> Said {
        let place = Place {
            role,
            entered: false,
            clients: 0,
        };
        Said {
            version,
            groups: [("g".to_owned(), place)].into(),
            ..Said::default()
        }
    }

    fn view() -> Event {
        Event::View(View {
            group: "g".into(),
            id: "1.2".into(),
            members: vec!["a/c1".into(), "b/c1".into()],
            joined: vec!["b/c1".into()],
            left: vec!["a/x".into()],
            crashed: vec!["a/y".into()],
            causes: [("a/y".to_owned(), "slow".to_owned())].into(),
            transitional: vec![],
            primary: true,
            synced: None,
        })
    }

    fn message() -> Event {
        Event::Message(Message {
            group: "g".into(),
            view: "1.2".into(),
            sender: "b/c1".into(),
            seq: 7,
            part: 0,
            payload: Payload::from_bytes(b"\xff"),
            safe: false,
            scope: None,
        })
    }

    fn text(said: &mut Said) -> String {
        String::from_utf8_lossy(&std::mem::take(&mut said.out)).replace("\r\n", " ")
    }

    #[test]
    fn a_member_is_pushed_views_and_messages_in_one_order() {
        let mut said = said(Version::Three, Role::Member);
        said.told(view());
        said.told(message());
        said.told(Event::Suspended { group: "g".into() });
        said.told(Event::GroupLeft { group: "g".into() });
        said.told(message());
        assert_eq!(
            text(&mut said).replace('\u{fffd}', "?"),
            "\
>6 $7 ap.view $1 g $3 1.2 *2 $4 a/c1 $4 b/c1 *1 $4 b/c1 *2 *2 $3 a/x $4 left *2 $3 a/y $4 slow \
>5 $10 ap.message $1 g $4 b/c1 :7 $1 ? >2 $12 ap.suspended $1 g >2 $7 ap.left $1 g "
        );
    }

    #[test]
    fn a_subscriber_is_told_messages_alone_after_the_confirmation() {
        for (version, sign) in [(Version::Two, '*'), (Version::Three, '>')] {
            let mut said = said(version, Role::Subscriber);
            said.told(view());
            said.told(view());
            said.told(message());
            said.told(Event::Suspended { group: "g".into() });
            said.told(Event::Lost(Lost {
                what: Kind::Group,
                name: "g".into(),
                token: None,
                id: None,
                cause: "slow".into(),
            }));
            assert_eq!(
                text(&mut said).replace('\u{fffd}', "?"),
                format!(
                    "{sign}3 $9 subscribe $1 g :1 {sign}3 $7 message $1 g $1 ? {sign}3 $11 unsubscribe $1 g :0 "
                )
            );
        }
    }

    #[test]
    fn what_resp2_cannot_tell_is_not_told() {
        let mut said = said(Version::Two, Role::Publisher);
        said.told(view());
        said.told(message());
        let lost = Event::Lost(Lost {
            what: Kind::Lock,
            name: "x".into(),
            token: Some(antiphon_api::blocks::Serial(u64::MAX)),
            id: None,
            cause: "the lease".into(),
        });
        said.told(lost.clone());
        said.told(Event::Cancelled { request: 3 });
        assert_eq!(text(&mut said), "");
        said.version = Version::Three;
        said.told(lost);
        said.told(Event::Cancelled { request: 3 });
        assert_eq!(
            text(&mut said),
            ">5 $7 ap.lost $4 lock $1 x $20 18446744073709551615 $9 the lease >2 $12 ap.cancelled :3 "
        );
    }
}
