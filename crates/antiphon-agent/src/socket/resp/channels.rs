//! Groups: as channels, where messages alone are told, and as themselves.

use antiphon_api::{Command, command};
use bytes::Bytes;

use super::encode::Version;
use super::redis::{done, text};
use super::said::{Place, Role};
use super::shape::{Shape, told};
use super::talk::{Input, Stop, Talk};

impl Talk<'_> {
    fn role(&self, group: &str) -> Option<Role> {
        self.shared.said().groups.get(group).map(|place| place.role)
    }

    fn take_part(&self, group: &str, role: Role) {
        let place = Place {
            role,
            entered: false,
            clients: 0,
        };
        self.shared.said().groups.insert(group.to_owned(), place);
    }

    /// Comes into a group, and waits for its first view. If that does not come since the node is not ready,
    /// it is in the group all the same, and tells nothing of it until it is asked for it again.
    async fn enter(&self, input: &mut Input, group: &str, role: Role) -> Result<(), Stop> {
        self.take_part(group, role);
        let (name, joined) = (group.to_owned(), |id| command::Join {
            group: group.to_owned(),
            bundles: false,
            bytes: false,
            id,
        });
        let reply = self
            .ask(input, |id| Command::Join(joined(id)))
            .await
            .and_then(done);
        if let Err(stop) = reply {
            self.shared.said().groups.remove(&name);
            return Err(stop);
        }
        if role == Role::Publisher {
            self.session.hears(group, false);
        }
        self.settle(input, group).await
    }

    /// Waits for the first view of a group that it has joined.
    async fn settle(&self, input: &mut Input, group: &str) -> Result<(), Stop> {
        let settled = self.until(|said| said.groups.get(group).is_none_or(|place| place.entered));
        let settled = input.patient(self.session.readiness().wait(settled)).await?;
        if let Err(failure) = settled
            && self.wait_no_more(group)
        {
            return Stop::error(told(&failure));
        }
        match self.role(group) {
            Some(_) => Ok(()),
            None => Stop::error(format!(
                "LOST this client was removed from {group} at once: try again"
            )),
        }
    }

    /// No confirmation of this group may come later, out of its turn. False if its view has just come, or the
    /// group is gone.
    fn wait_no_more(&self, group: &str) -> bool {
        let mut said = self.shared.said();
        let Some(place) = said.groups.get_mut(group).filter(|place| !place.entered) else {
            return false;
        };
        place.role = Role::Publisher;
        self.session.hears(group, false);
        true
    }

    /// Leaves a group, and waits until nothing more is told of it.
    async fn leave(&self, input: &mut Input, group: &str) -> Result<(), Stop> {
        let leave = command::Leave {
            group: Some(group.to_owned()),
            id: None,
        };
        let leave = |id| Command::Leave(command::Leave { id, ..leave });
        done(self.ask(input, leave).await?)?;
        let left = self.until(|said| !said.groups.contains_key(group));
        Ok(input.patient(left).await?)
    }

    /// A group that it only publishes in, if it is in as many groups as it may be.
    fn to_make_room(&self) -> Option<String> {
        let said = self.shared.said();
        let mut published = said
            .groups
            .iter()
            .filter(|(_, place)| place.role == Role::Publisher);
        let full = said.groups.len() >= crate::hub::MAX_JOINED;
        full.then(|| published.next().map(|(group, _)| group.clone()))
            .flatten()
    }

    pub(super) async fn publish(&self, input: &mut Input, words: &[Bytes]) -> Result<(), Stop> {
        let group = text(&words[0])?;
        if self.role(&group).is_none() {
            input.patient(self.alone()).await?;
            if let Some(other) = self.to_make_room() {
                self.leave(input, &other).await?;
            }
            self.enter(input, &group, Role::Publisher).await?;
        }
        let send = command::Send {
            group: Some(group.clone()),
            payload: antiphon_api::Payload::from_bytes(&words[1]),
            safe: false,
            scope: None,
            id: None,
        };
        let send = |id| Command::Send(command::Send { id, ..send });
        self.begin(input, Shape::Published(group), None, send).await
    }

    pub(super) async fn subscribe(&self, input: &mut Input, words: &[Bytes]) -> Result<(), Stop> {
        input.patient(self.alone()).await?;
        for channel in words {
            match self.subscribe_to(input, channel).await {
                Err(Stop::Error(error)) => self.ready(|to| to.error(&error))?,
                other => other?,
            }
        }
        Ok(())
    }

    async fn subscribe_to(&self, input: &mut Input, channel: &[u8]) -> Result<(), Stop> {
        let channel = text(channel)?;
        match self.role(&channel) {
            // It is confirmed with its first view.
            None => self.enter(input, &channel, Role::Subscriber).await,
            Some(Role::Member) => Stop::error(format!(
                "REFUSED this client has joined {channel} and is told all of it: AP.LEAVE it first"
            )),
            Some(Role::Publisher | Role::Subscriber) => {
                self.session.hears(&channel, true);
                if !self.subscribes(&channel) {
                    // It is confirmed with its first view, as above.
                    return self.settle(input, &channel).await;
                }
                Ok(())
            }
        }
    }

    /// A group that it has joined is a channel from here on. It is confirmed at once if it has its view.
    fn subscribes(&self, channel: &str) -> bool {
        let mut said = self.shared.said();
        let entered = match said.groups.get_mut(channel) {
            Some(place) => {
                place.role = Role::Subscriber;
                place.entered
            }
            None => true,
        };
        if entered {
            said.confirm("subscribe", Some(channel));
        }
        entered
    }

    pub(super) async fn unsubscribe(&self, input: &mut Input, words: &[Bytes]) -> Result<(), Stop> {
        input.patient(self.alone()).await?;
        let mut channels = words
            .iter()
            .map(|word| text(word))
            .collect::<Result<Vec<_>, _>>()?;
        if words.is_empty() {
            let said = self.shared.said();
            let of = said
                .groups
                .iter()
                .filter(|(_, place)| place.role == Role::Subscriber);
            channels = of.map(|(channel, _)| channel.clone()).collect();
        }
        if channels.is_empty() {
            self.shared.said().confirm("unsubscribe", None);
        }
        for channel in channels {
            if self.role(&channel) == Some(Role::Subscriber) {
                match self.leave(input, &channel).await {
                    Err(Stop::End(end)) => return Err(end.into()),
                    // It was lost meanwhile.
                    Err(Stop::Error(_)) => _ = self.shared.said().groups.remove(&channel),
                    Ok(()) => {}
                }
            }
            self.shared.said().confirm("unsubscribe", Some(&channel));
        }
        Ok(())
    }

    pub(super) async fn ap_join(&self, input: &mut Input, words: &[Bytes]) -> Result<(), Stop> {
        self.need_pushes()?;
        input.patient(self.alone()).await?;
        let group = text(&words[0])?;
        match self.role(&group) {
            None => {}
            Some(Role::Publisher) => self.leave(input, &group).await?,
            Some(Role::Subscriber) => {
                return Stop::error(format!(
                    "REFUSED this client is subscribed to {group}: UNSUBSCRIBE first"
                ));
            }
            Some(Role::Member) => {
                return Stop::error(format!("REFUSED this client has joined {group} already"));
            }
        }
        self.take_part(&group, Role::Member);
        let shape = Shape::Joined(group.clone());
        self.begin(input, shape, None, |id| {
            Command::Join(command::Join {
                group,
                bundles: false,
                bytes: false,
                id,
            })
        })
        .await?;
        Ok(input.patient(self.alone()).await?)
    }

    pub(super) async fn ap_leave(&self, input: &mut Input, words: &[Bytes]) -> Result<(), Stop> {
        input.patient(self.alone()).await?;
        let group = text(&words[0])?;
        if self.role(&group) != Some(Role::Member) {
            return Stop::error(format!(
                "NOTHELD this client has not joined {group}: AP.JOIN it first"
            ));
        }
        self.leave(input, &group).await?;
        self.ready(|to| to.simple("OK"))
    }

    /// What is told without having been asked for would be taken for a reply.
    pub(super) fn need_pushes(&self) -> Result<(), Stop> {
        match self.shared.said().version {
            Version::Three => Ok(()),
            Version::Two => {
                Stop::error("REFUSED RESP2 has no pushes, by which this tells what happens: HELLO 3 first")
            }
        }
    }
}
