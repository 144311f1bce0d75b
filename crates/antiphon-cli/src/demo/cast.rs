//! What the acts are made of: who is there, what is done to them, and what is waited for.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::json;

use super::load::{self, Actor};
use super::screen::Tone;
use super::story::{Figures, PATIENCE, Story};
use crate::exit::Failed;
use crate::fleet::{GROUP, GroupView, Node, Stamped, View};
use crate::judge::{self, Sheet};
use antiphon_api::{Command, Event, Payload, command};

impl Story<'_> {
    /// The sheet over the whole story, and the figures. The last node leaves in order.
    pub(super) fn verdict(&mut self) -> (Sheet, Figures) {
        self.load.stop();
        let sheet = self.judge();
        for actor in self.alive() {
            actor.retire();
            if actor.node.ask(&Command::Leave(command::Leave {})) {
                let status = actor.node.wait_for_exit(PATIENCE);
                if !status.is_some_and(|status| status.success()) {
                    self.screen.tell(
                        Tone::Bad,
                        "left",
                        &format!("{} did not leave in order", actor.node.name),
                        json!({}),
                    );
                }
            }
            actor.node.kill();
        }
        let sheet = match self.checkpoint.take() {
            Some(checkpoint) => sheet.worst(checkpoint),
            None => sheet,
        };
        (sheet, std::mem::take(&mut self.figures))
    }

    /// After a failure: the last words of everyone.
    pub(super) fn autopsy(&self) {
        const LAST_WORDS: usize = 6;
        for actor in &self.actors {
            let mut words: Vec<String> = actor
                .node
                .lines()
                .iter()
                .rev()
                .filter(|stamped| {
                    !matches!(
                        stamped.line,
                        Event::Message { .. } | Event::Error { .. } | Event::Refused { request: Some(_), .. }
                    )
                })
                .take(LAST_WORDS)
                .map(|stamped| stamped.line.to_json())
                .collect();
            words.reverse();
            let complaints = actor.node.complaints();
            words.extend(
                complaints[complaints.len().saturating_sub(LAST_WORDS)..]
                    .iter()
                    .cloned(),
            );
            words.extend(
                actor
                    .node
                    .garbage()
                    .into_iter()
                    .map(|text| format!("no line of a node: {text}")),
            );
            let state = if actor.is_gone() { ", killed" } else { "" };
            self.note("autopsy", &format!("{}{state}:", actor.node.name));
            for word in words {
                self.note("autopsy", &format!("  {word}"));
            }
        }
    }

    /// Writes what every process printed, if it was asked for.
    pub(super) fn leave_logs(&self) -> Result<(), Failed> {
        let Some(folder) = &self.logs else { return Ok(()) };
        let begun = self
            .actors
            .iter()
            .map(|actor| actor.node.started)
            .min()
            .unwrap_or_else(Instant::now);
        let write = |actor: &Actor| -> std::io::Result<()> {
            let file = folder.join(format!("{:02}-{}", actor.run(), actor.node.name));
            let lines = actor.node.lines();
            let shown = |stamped: &Stamped| {
                format!(
                    "{:>8} {}\n",
                    ms(stamped.at.saturating_duration_since(begun)),
                    stamped.line.to_json()
                )
            };
            std::fs::write(
                file.with_extension("lines"),
                lines.iter().map(shown).collect::<String>(),
            )?;
            std::fs::write(file.with_extension("log"), actor.node.complaints().join("\n"))
        };
        std::fs::create_dir_all(folder)
            .and_then(|()| self.actors.iter().try_for_each(|actor| write(actor)))
            .map_err(|error| Failed::run(format!("cannot write logs to {}: {error}", folder.display())))
    }

    pub(super) fn judge(&self) -> Sheet {
        let records: Vec<_> = self
            .actors
            .iter()
            .map(|actor| actor.record(!actor.is_gone()))
            .collect();
        judge::judge(&records, GROUP, true)
    }

    /// Waits until every node that is there has delivered, or told the fate of, whatever it was asked to send, and all
    /// have delivered as much of it.
    pub(super) fn settle(&self) -> Result<(), Failed> {
        let all = self.alive();
        // Each says one thing more; when everyone has delivered all of these, what went before is there, too.
        let last: Vec<String> = all.iter().map(|actor| actor.say()).collect();
        self.expect("everyone to deliver everyone's last message", || {
            all.iter()
                .all(|actor| last.iter().all(|payload| delivers(actor, payload).is_some()))
                .then_some(())
        })
    }

    pub(super) fn start(&mut self, name: &str, addr: SocketAddr) -> Result<(), Failed> {
        let node = Node::start(&self.plan, name, addr, &self.arrivals)?;
        let actor = Arc::new(Actor::new(node, self.actors.len() + 1));
        self.load.add(actor.clone());
        self.actors.push(actor);
        Ok(())
    }

    /// Kills a node and waits for the survivors' next views; says when it was killed.
    pub(super) fn kill(&self, victim: &Arc<Actor>) -> Result<(Instant, Vec<Views>), Failed> {
        victim.retire();
        let killed = Instant::now();
        victim.node.kill();
        let survivors = self.alive();
        let names = self.names();
        let views = self.together(
            &format!("all others to go on without {}", victim.node.name),
            &survivors,
            &names,
        )?;
        Ok((killed, views))
    }

    pub(super) fn fault(&self, actor: &Actor, block: Vec<String>) {
        actor.node.ask(&Command::Fault(command::Fault { block }));
    }

    /// Who said what about a node that was removed.
    pub(super) fn note_evidence(&self, name: &str) {
        let crash = |line: &Event| match line {
            Event::NodeView { crashed, .. } => crashed
                .iter()
                .find(|crash| crash.member.name == *name)
                .map(ToString::to_string),
            _ => None,
        };
        for actor in self.alive() {
            if let Some(text) = actor.node.oldest(0, |stamped| crash(&stamped.line)) {
                return self.note("evidence", &text);
            }
        }
    }

    pub(super) fn alive(&self) -> Vec<Arc<Actor>> {
        self.actors
            .iter()
            .filter(|actor| !actor.is_gone())
            .cloned()
            .collect()
    }

    pub(super) fn names(&self) -> Vec<&str> {
        self.actors
            .iter()
            .filter(|actor| !actor.is_gone())
            .map(|actor| actor.node.name.as_str())
            .collect()
    }

    pub(super) fn actor(&self, name: &str) -> Result<Arc<Actor>, Failed> {
        let found = self.alive().into_iter().find(|actor| actor.node.name == name);
        found.ok_or_else(|| Failed::run(format!("the view has a member {name:?} that was not started")))
    }

    /// The newest primary view that anyone is in.
    pub(super) fn view(&self) -> Result<View, Failed> {
        let views = self
            .alive()
            .into_iter()
            .filter_map(|actor| actor.node.node_view())
            .filter(|view| view.primary);
        views
            .max_by_key(|view| view.number)
            .ok_or_else(|| Failed::run("no node is in a primary view"))
    }

    /// The most senior node of the cluster.
    pub(super) fn elder(&self) -> Result<Arc<Actor>, Failed> {
        let view = self.view()?;
        self.actor(&view.members[0].name)
    }

    /// The most junior member of the group: not the one that sequences its messages.
    pub(super) fn youngest_in_group(&self) -> Result<Arc<Actor>, Failed> {
        let group = self.elder()?.node.group_view();
        let youngest = group.and_then(|group| group.members.last().cloned());
        self.actor(&youngest.ok_or_else(|| Failed::run("the elder is not in the group"))?)
    }

    pub(super) fn marks(&self, actors: &[Arc<Actor>]) -> Vec<usize> {
        actors.iter().map(|actor| actor.node.mark()).collect()
    }

    /// Waits until all these nodes, and no others, are in one primary cluster view and one view of the group.
    pub(super) fn together(
        &self,
        what: &str,
        actors: &[Arc<Actor>],
        names: &[&str],
    ) -> Result<Vec<Views>, Failed> {
        self.expect(what, || {
            actors.iter().map(|actor| Views::of(actor, names)).collect()
        })
    }

    pub(super) fn expect<T>(&self, what: &str, look: impl FnMut() -> Option<T>) -> Result<T, Failed> {
        self.arrivals.wait(PATIENCE, look).ok_or_else(|| {
            Failed::run(format!(
                "waited {} s in vain for {what}; the last words of each node follow",
                PATIENCE.as_secs()
            ))
        })
    }

    pub(super) fn act(&self, step: &str, text: &str) {
        self.screen.tell(Tone::Act, step, text, json!({}));
    }

    pub(super) fn good(&self, step: &str, text: &str, facts: serde_json::Value) {
        self.screen.tell(Tone::Good, step, text, facts);
    }

    pub(super) fn note(&self, step: &str, text: &str) {
        self.screen.tell(Tone::Note, step, text, json!({}));
    }
}

/// A node's primary cluster view and its view of the group.
pub(super) struct Views {
    pub(super) cluster: View,
    pub(super) group: GroupView,
}

impl Views {
    /// Of a node, if both have exactly these members.
    fn of(actor: &Actor, names: &[&str]) -> Option<Self> {
        let cluster = actor
            .node
            .node_view()
            .filter(|view| view.primary && view.members.len() == names.len())?;
        let group = actor
            .node
            .group_view()
            .filter(|group| group.members.len() == names.len())?;
        let same = |name: &&str| cluster.contains(name) && group.members.iter().any(|member| member == name);
        names.iter().all(same).then_some(Self { cluster, group })
    }
}

/// When the last of them had both its views.
pub(super) fn last_arrival(views: &[Views]) -> Instant {
    views
        .iter()
        .map(|views| views.cluster.at.max(views.group.at))
        .max()
        .unwrap_or_else(Instant::now)
}

pub(super) fn is_message_of(line: &Event, name: &str) -> bool {
    matches!(line, Event::Message { sender, .. } if sender == name)
}

pub(super) fn messages(actor: &Actor) -> Vec<Instant> {
    let lines = actor.node.lines();
    lines
        .iter()
        .filter(|stamped| matches!(stamped.line, Event::Message { .. }))
        .map(|stamped| stamped.at)
        .collect()
}

pub(super) fn messages_since(actor: &Actor, mark: usize) -> usize {
    actor.node.lines()[mark..]
        .iter()
        .filter(|stamped| matches!(stamped.line, Event::Message { .. }))
        .count()
}

/// Whether a node has delivered this.
pub(super) fn delivers(actor: &Arc<Actor>, wanted: &str) -> Option<()> {
    let is_it =
        |line: &Event| matches!(line, Event::Message { payload: Payload::Text(text), .. } if text == wanted);
    actor.node.oldest(0, |stamped| is_it(&stamped.line).then_some(()))
}

pub(super) fn refusal(line: &Event) -> Option<String> {
    match line {
        Event::Refused {
            reason,
            request: Some(_),
            ..
        } => Some(reason.clone()),
        _ => None,
    }
}

/// The longest time between two deliveries at a node that ended after `since`.
pub(super) fn longest_gap(actor: &Arc<Actor>, since: Instant) -> Duration {
    let messages = messages(actor);
    let gaps = messages
        .windows(2)
        .filter(|pair| pair[1] > since)
        .map(|pair| pair[1].duration_since(pair[0]));
    gaps.max().unwrap_or_default()
}

pub(super) fn seniority(view: &View) -> String {
    match view.names().as_slice() {
        [elder] => format!("{elder} (elder) alone"),
        [elder, others @ ..] => format!("{elder} (elder) {}", others.join(" ")),
        [] => "nobody".to_owned(),
    }
}

pub(super) fn per_second() -> u128 {
    1000 / load::EVERY.as_millis()
}

pub(super) fn ms(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
