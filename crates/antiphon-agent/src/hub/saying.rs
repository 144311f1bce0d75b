//! What a session says to its groups, alone or in bundles.

use std::pin::Pin;
use std::time::Duration;

use antiphon::clients::{ClientSendError, ClientSender, Refusal};
use antiphon::{Outcome, Receipt, SafeReceipt};
use antiphon_api::blocks::{Code, Failure, Ran, Reply};
use antiphon_api::{Command, Event, Payload, Payloads, command};
use bytes::Bytes;

use super::{Session, not_joined, refused, unavailable};
use crate::blocks::{Operation, not_done};

/// What is said right behind a join waits for the first view, for so long from the join on.
const FIRST_VIEW_WITHIN: Duration = Duration::from_secs(2);

impl Session {
    pub(super) async fn send(&self, send: command::Send, operation: Option<Operation>) {
        let payload = send.payload.into_bytes();
        let payload = payload.map_err(refused);
        let said = payload.as_ref().cloned().unwrap_or_default();
        let sent = match payload {
            Ok(payload) => {
                self.say(send.group.as_deref(), Said::One(payload), send.safe)
                    .await
            }
            Err(failure) => Err(failure),
        };
        let request = |group| {
            Command::Send(command::Send {
                group,
                payload: Payload::from_bytes(&said),
                safe: send.safe,
                scope: None,
                id: None,
            })
        };
        self.conclude(sent, operation, send.group, request).await;
    }

    pub(super) async fn send_bundle(&self, send: command::SendBundle, operation: Option<Operation>) {
        let said = Said::Bundle(&send.payloads);
        let sent = self.say(send.group.as_deref(), said, send.safe).await;
        let group = send.group.clone();
        self.conclude(sent, operation, group, |_| Command::SendBundle(send))
            .await;
    }

    /// When the node has left: waits until the session is told what became of its messages, and what its
    /// groups told last.
    pub(crate) async fn finish(&self) {
        let (mut awaited, followed) = {
            let mut inside = self.inside();
            (
                std::mem::take(&mut inside.awaited),
                std::mem::take(&mut inside.followed),
            )
        };
        while awaited.join_next().await.is_some() {}
        for follower in followed.into_values() {
            // It fails only if it panicked.
            let _ = follower.await;
        }
    }

    async fn say(&self, group: Option<&str>, said: Said<'_>, safe: bool) -> Result<Fate, Failure> {
        let sender = {
            let inside = self.inside();
            let joined = match group {
                Some(group) => inside.joined.get(group),
                None => inside.joined.values().next(),
            };
            joined.map(|joined| (joined.sender.clone(), joined.since))
        };
        let Some((sender, since)) = sender else {
            return Err(not_joined(group.unwrap_or("any group")));
        };
        // Without a majority that may take for ever, and what the session says next waits behind it.
        match tokio::time::timeout_at(since + FIRST_VIEW_WITHIN, sender.came_in()).await {
            Ok(()) => say(&sender, said, safe).await,
            Err(_) => Err(self.not_in_yet()),
        }
    }

    /// Its view did not come in time.
    fn not_in_yet(&self) -> Failure {
        match self.readiness().why_not() {
            Some(why) => unavailable(&format!("this client is not in the group yet: {why}")),
            None => not_in(),
        }
    }

    /// Tells what became of a message, when that is known. A message without an id is told only if it was
    /// refused, with `request` for its group.
    async fn conclude(
        &self,
        sent: Result<Fate, Failure>,
        operation: Option<Operation>,
        group: Option<String>,
        request: impl FnOnce(Option<String>) -> Command,
    ) {
        if sent.is_ok() {
            self.hub.meters().said();
        }
        match (sent, operation) {
            (Ok(fate), Some(mut operation)) => {
                let awaited = &mut self.inside().awaited;
                while awaited.try_join_next().is_some() {}
                awaited.spawn(async move {
                    let fate = operation.wait(Ran::Maybe, fate).await;
                    let reply = fate.map_or_else(not_done, told_fate);
                    operation.reply(reply).await;
                });
            }
            (Ok(_), None) => {}
            (Err(failure), Some(operation)) => drop(operation.reply(not_done(failure)).await),
            (Err(failure), None) => {
                let refused = Event::Refused {
                    group: group.clone(),
                    reason: failure.reason,
                    fatal: false,
                    request: Some(request(group).echo()),
                };
                self.desk.print(refused).await;
            }
        }
    }
}

fn not_in() -> Failure {
    unavailable("this client is not in the group now: wait for its view")
}

/// Tells what becomes of a message.
type Fate = Pin<Box<dyn Future<Output = Outcome> + Send>>;

/// The reply to a message, when its fate is known.
fn told_fate(fate: Outcome) -> Reply {
    match fate {
        Outcome::Delivered => Reply::default(),
        Outcome::NotDelivered => not_done(unavailable(
            "the majority was lost before it was delivered, and it is not: send it again",
        )),
        Outcome::Unknown => not_done(Failure {
            ran: Ran::Maybe,
            ..Failure::nothing_done(
                Code::Unknown,
                "this node was removed before it knew whether it was delivered",
            )
        }),
    }
}

/// What a session says.
enum Said<'a> {
    One(Bytes),
    Bundle(&'a Payloads),
}

/// Says something, and gives what tells its fate.
async fn say(sender: &ClientSender, said: Said<'_>, safe: bool) -> Result<Fate, Failure> {
    let delivered = |receipt: Receipt| -> Fate { Box::pin(receipt.delivered()) };
    let held = |receipt: SafeReceipt| -> Fate { Box::pin(receipt.safe()) };
    let sent = match (said, safe) {
        (Said::One(payload), false) => sender.send(payload).await.map(delivered),
        (Said::One(payload), true) => sender.send_safe(payload).await.map(held),
        (Said::Bundle(all), false) => sender.send_bundle(all.iter()).await.map(delivered),
        (Said::Bundle(all), true) => sender.send_bundle_safe(all.iter()).await.map(held),
    };
    sent.map_err(|error| match error {
        ClientSendError::Group(antiphon::SendError::TooLarge { limit }) => {
            refused(format!(
                "a payload, or a bundle with 1 to 3 bytes more for each payload, has at most {limit} bytes: send it in parts"
            ))
        }
        error @ ClientSendError::NoBundle => refused(error.to_string()),
        ClientSendError::Refused(Refusal::NotIn) => not_in(),
        other => unavailable(&other.to_string()),
    })
}

#[cfg(test)]
mod tests {
    use antiphon::Cluster;
    use antiphon::memory::Weather;
    use antiphon_api::blocks::Id;
    use tokio::time::timeout;

    use super::*;
    use crate::Hub;
    use crate::hub::Events;
    use crate::testing::{SOON, cluster, until};

    /// Reads until it is told such a thing.
    async fn hears<T>(told: &mut Events, of: impl Fn(Event) -> Option<T>) -> T {
        let hears = async {
            loop {
                if let Some(heard) = of(told.next().await.expect("the session goes on")) {
                    break heard;
                }
            }
        };
        timeout(SOON, hears).await.expect("it is told")
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_message_whose_fate_is_waited_for_can_be_cancelled() {
        let weather = Weather::new(1);
        let air = weather.clone();
        tokio::spawn(async move { air.carry().await });
        let hub = Hub::new(cluster(weather.network(), 1, true).await);
        let other = Hub::new(cluster(weather.network(), 2, false).await);
        let third = cluster(weather.network(), 3, false).await;
        until(|| {
            let view = hub.cluster().view();
            view.is_some_and(|view| view.members.len() == 3)
        })
        .await;
        let (session, mut told) = hub.session().unwrap();
        let (hearer, _heard) = other.session().unwrap();
        for session in [&session, &hearer] {
            let join = r#"{"join":{"group":"g"}}"#;
            session.obey(Command::parse(join).unwrap()).await;
        }
        hears(&mut told, |event| match event {
            Event::View(view) if view.members.len() == 2 => Some(()),
            _ => None,
        })
        .await;
        let here = hub.cluster().addr();
        for there in [other.cluster(), &third].map(Cluster::addr) {
            weather.change(here, there, |path| path.cut = true);
            weather.change(there, here, |path| path.cut = true);
        }
        for line in [
            r#"{"send":{"group":"g","payload":"x","safe":true,"id":1}}"#,
            r#"{"cancel":{"of":1,"id":2}}"#,
        ] {
            session.obey(Command::parse(line).unwrap()).await;
        }
        let failure = hears(&mut told, |event| match event {
            Event::Reply(reply) if reply.id == Some(Id::Number(1)) => Some(reply.error),
            _ => None,
        })
        .await
        .unwrap();
        assert_eq!((failure.code, failure.ran), (Code::Cancelled, Ran::Maybe));
    }
}
