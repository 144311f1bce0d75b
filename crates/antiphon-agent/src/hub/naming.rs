//! What a session is called, and how it is welcomed.

use std::pin::pin;
use std::time::Duration;

use antiphon::clients::MAX_NAME_BYTES;
use antiphon_api::blocks::{Failure, Reply, Span, Welcome};
use antiphon_api::command;
use tokio::time::{Instant, timeout_at};

use super::{Session, refused};
use crate::blocks::not_done;
use crate::socket::MAX_GRACE;

/// How long a name is waited for that another client has. A client whose connection has just ended keeps its
/// name for a moment: over HTTP for a quarter of a second. A page that is loaded anew comes sooner.
const NAME_WITHIN: Duration = Duration::from_secs(1);

impl Session {
    pub(super) async fn hello(&self, hello: command::Hello) -> Reply {
        let comes_back = hello.grace.is_some() || hello.resume.is_some() || hello.lines.is_some();
        if comes_back && self.inside().key.is_none() {
            return not_done(refused(format!(
                "time to come back is asked for by the first line of a connection in JSON lines, or the first message of a WebSocket, as `grace`, up to {}",
                Span(MAX_GRACE)
            )));
        }
        let named = match hello.name {
            Some(name) => self.rename(&name).await,
            None => Ok(()),
        };
        match named {
            Ok(()) => self.welcome(None),
            Err(failure) => not_done(failure),
        }
    }

    /// The answer to `hello`; for a program that came back, with how many of its lines were taken.
    pub(crate) fn welcome(&self, resumed: Option<u64>) -> Reply {
        let cluster = self.hub.cluster();
        let mut inside = self.inside();
        inside.welcomed = true;
        Reply {
            welcome: Some(Box::new(Welcome {
                client: inside.name.clone(),
                node: cluster.name().to_owned(),
                cluster: cluster.observer().settings().cluster.clone(),
                build: env!("CARGO_PKG_VERSION").to_owned(),
                resume: inside.key.clone(),
                resumed,
            })),
            ..Reply::default()
        }
    }

    async fn rename(&self, name: &str) -> Result<(), Failure> {
        let until = Instant::now() + NAME_WITHIN;
        loop {
            let mut freed = pin!(self.hub.0.freed.notified());
            // From here on no end of a client is missed.
            freed.as_mut().enable();
            if self.take_name(name)? {
                return Ok(());
            }
            if timeout_at(until, freed).await.is_err() {
                return Err(refused(format!(
                    "another client of this node is called {name}: take another name, or wait until it has gone"
                )));
            }
        }
    }

    /// Takes a name without waiting for it. False: another client has it.
    pub(crate) fn take_name(&self, name: &str) -> Result<bool, Failure> {
        let mut inside = self.inside();
        if inside.name == name {
            return Ok(true);
        }
        if name.is_empty() || name.len() > MAX_NAME_BYTES || name.chars().any(|c| c.is_control() || c == '/')
        {
            return Err(refused(format!(
                "a client's name has 1 to {MAX_NAME_BYTES} bytes without control characters and slashes: take another"
            )));
        }
        if !inside.joined.is_empty() {
            return Err(refused(
                "others know this client by its name already: say hello before you join".to_owned(),
            ));
        }
        let mut clients = self.hub.clients();
        if clients.contains(name) {
            return Ok(false);
        }
        clients.remove(&inside.name);
        clients.insert(name.to_owned());
        inside.name = name.to_owned();
        self.hub.0.freed.notify_waiters();
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;

    use antiphon_api::{Command, Event};
    use futures_util::FutureExt as _;

    use crate::testing::Agent;

    fn hello(name: &str) -> Command {
        Command::parse(&format!(r#"{{"hello":{{"name":"{name}"}}}}"#)).unwrap()
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_name_is_given_as_soon_as_its_owner_has_gone_and_refused_while_it_stays() {
        let agent = Agent::alone().await;
        let (mut first, _events) = agent.hub.session().unwrap();
        first.obey(hello("ann")).await;
        assert_eq!(first.name(), "ann");
        let (second, mut told) = agent.hub.session().unwrap();
        second.obey(hello("ann")).await;
        let Some(Event::Reply(reply)) = told.next().await else {
            panic!("there is no reply");
        };
        let reason = reply.error.unwrap().reason;
        assert!(reason.contains("is called ann"), "{reason}");
        for ends in [false, true] {
            let (second, _told) = agent.hub.session().unwrap();
            {
                let mut waits = pin!(second.obey(hello("ann")));
                assert!(waits.as_mut().now_or_never().is_none(), "it waits");
                match ends {
                    false => first.obey(hello("bob")).await,
                    true => drop(std::mem::replace(&mut first, agent.hub.session().unwrap().0)),
                };
                waits.await;
            }
            assert_eq!(second.name(), "ann");
            drop(second);
            first.obey(hello("ann")).await;
        }
    }
}
