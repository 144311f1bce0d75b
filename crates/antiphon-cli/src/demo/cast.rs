//! The parts of the acts: the nodes and programs, what is done to them, and what is waited for.

use std::sync::Arc;
use std::time::Duration;

use antiphon_api::{Command, Event, NodeView, command};
use antiphon_lab::{Calls, Load, Process, Rules, Run, Signal, Trace};
use serde_json::json;

use super::keep;
use super::screen::Tone;
use super::sheet::Sheet;
use super::story::{Figures, PATIENCE, Story};
use crate::exit::Failed;
use crate::fleet::{self, GROUP};

/// How often each node is asked to send.
const EVERY: Duration = Duration::from_millis(20);
/// How often one of the nodes calls others, and all answer.
const CALL_EVERY: Duration = Duration::from_millis(25);

impl Story<'_> {
    /// From now on every node is told to send a small message every few milliseconds, even a node that can
    /// only refuse it. Only a node that never was a member is left out. All call each other besides.
    pub(super) fn talk_on(&mut self) {
        let member = |run: &Run| run.said(|event| matches!(event, Event::View(_)));
        self.load = Some(Load::by(&self.stage, GROUP, EVERY, member));
        let calls = || Calls::start(&self.stage, GROUP, CALL_EVERY);
        self.calls.get_or_insert_with(calls).rest(false);
    }

    /// The sheet over the whole story, and the figures. The last node leaves in order. After a failure much
    /// may be under way.
    pub(super) fn verdict(&mut self, failed: bool) -> (Sheet, Figures) {
        self.load = None;
        self.calls = None;
        // After a failure some may stand still.
        self.mend();
        let sheet = self.judge(!failed);
        for actor in self.alive() {
            actor.dismiss();
            if !actor.exit(PATIENCE).is_some_and(|status| status.success()) {
                self.figures.left_badly += 1;
                let text = format!("{} did not leave in order", actor.name());
                self.screen.tell(Tone::Bad, "left", &text, json!({}));
            }
            actor.end();
        }
        let sheet = match self.checkpoint.take() {
            Some(checkpoint) => sheet.worst(checkpoint),
            None => sheet,
        };
        let kept = std::mem::take(&mut self.kept);
        let grants = self.look(keep::grants);
        let figures = Figures {
            lock_moved_ms: kept.lock_moved.map(ms),
            map_entries: kept.entries(),
            map_entries_lost: kept.lost,
            lock_grants: grants.len(),
            stale_tokens: keep::stale(&grants),
            ..std::mem::take(&mut self.figures)
        };
        (sheet, figures)
    }

    /// After a failure: the last lines of every process.
    pub(super) fn autopsy(&self) {
        const LAST_WORDS: usize = 6;
        let trace = self.stage.trace();
        for run in &trace.runs {
            let telling = run.events.iter().map(|(_, event)| event).filter(|event| {
                !matches!(
                    event,
                    Event::Message(_) | Event::Error { .. } | Event::Refused { request: Some(_), .. }
                ) && !matches!(event, Event::Reply(reply) if reply.op == "send")
            });
            let telling: Vec<String> = telling.map(Event::to_json).collect();
            let state = if run.stays() { "" } else { ", killed" };
            self.note("autopsy", &format!("{}{state}:", run.name));
            for words in [&telling, &run.log] {
                for word in &words[words.len().saturating_sub(LAST_WORDS)..] {
                    self.note("autopsy", &format!("  {word}"));
                }
            }
            for text in &run.garbage {
                self.note("autopsy", &format!("  no line of a node: {text}"));
            }
        }
    }

    /// Writes what every process printed, if it was asked for.
    pub(super) fn leave_logs(&self) -> Result<(), Failed> {
        let Some(folder) = &self.logs else { return Ok(()) };
        let write = |(number, run): (usize, &Run)| -> std::io::Result<()> {
            let file = folder.join(format!("{:02}-{}", number + 1, run.name));
            let shown = |(at, event): &(Duration, Event)| format!("{:>8} {}\n", ms(*at), event.to_json());
            let lines: String = run.events.iter().map(shown).collect();
            std::fs::write(file.with_extension("lines"), lines)?;
            std::fs::write(file.with_extension("log"), run.log.join("\n"))
        };
        std::fs::create_dir_all(folder)
            .and_then(|()| self.stage.trace().runs.iter().enumerate().try_for_each(write))
            .map_err(|error| Failed::run(format!("cannot write logs to {}: {error}", folder.display())))
    }

    /// The sheet at a moment, at which all is quiet or not.
    pub(super) fn judge(&self, quiet: bool) -> Sheet {
        let rules = Rules {
            quiet,
            ..Rules::default()
        };
        let findings = self.stage.judge(&rules);
        Sheet::of(&self.stage.trace(), GROUP, &findings)
    }

    /// Waits until every node that is there has delivered, or told the fate of, whatever it was asked to
    /// send, and all have delivered as much of it; and until each of its calls has ended.
    pub(super) fn settle(&self) -> Result<(), Failed> {
        if let Some(calls) = &self.calls {
            calls.rest(true);
        }
        // Each node sends one more message. When all nodes have delivered all of these, the messages before
        // them are there, too.
        let last: Vec<String> = self.alive().iter().map(|actor| self.say(actor)).collect();
        let names = self.names();
        self.expect("everyone to deliver everyone's last message", |trace| {
            let has_all = |name: &String| last.iter().all(|payload| delivers(trace.last(name), payload));
            names.iter().all(has_all).then_some(())
        })?;
        self.expect("each call to end", |trace| {
            let ended = |name: &String| trace.last(name).open_calls().next().is_none();
            names.iter().all(ended).then_some(())
        })
    }

    /// Hands a node its next message to send, and returns it.
    pub(super) fn say(&self, actor: &Process) -> String {
        let run = &mut self.stage.trace().runs[actor.run()];
        run.say(GROUP, 1);
        run.sent.last().map(|said| said.what.clone()).unwrap_or_default()
    }

    pub(super) fn start(&mut self, name: &str, addr: &str) -> Result<(), Failed> {
        let actor = self.plan.start(&self.stage, name, addr)?;
        self.actors.push(Arc::new(actor));
        Ok(())
    }

    /// The program of a node that has started connects to it, if it is an agent.
    pub(super) fn come(&self, actor: &Process) -> Result<(), Failed> {
        if !self.plan.has_agents() {
            return Ok(());
        }
        let run = actor.run();
        let serves = |event: &Event| matches!(event, Event::Serving { .. });
        self.expect(&format!("{} to take programs", actor.name()), |trace| {
            trace.runs[run].said(serves).then_some(())
        })?;
        fleet::connect(actor)
    }

    /// Kills a node and waits for the survivors' next views; says when it was killed.
    pub(super) fn kill(&self, victim: &Process) -> Result<(Duration, Views), Failed> {
        let killed = self.stage.now();
        victim.kill();
        let what = format!("all others to go on without {}", victim.name());
        Ok((killed, self.together(&what, &self.names())?))
    }

    /// From now on `these` nodes hear nothing of `those`. The nodes of both sides drop what the other side
    /// sends. Agents take no faults: so `those` agents are stopped, and `these` go on and hear just as
    /// little.
    pub(super) fn part(&self, these: &[String], those: &[String]) -> Result<(), Failed> {
        for (side, other, signal) in [(those, these, Signal::STOP), (these, those, Signal::CONT)] {
            for name in side {
                let actor = self.actor(name)?;
                match self.plan.has_agents() {
                    true => actor.signal(signal),
                    false => self.fault(&actor, other),
                }
            }
        }
        Ok(())
    }

    /// All hear all again.
    pub(super) fn mend(&self) {
        for actor in self.alive() {
            match self.plan.has_agents() {
                true => actor.signal(Signal::CONT),
                false => self.fault(&actor, &[]),
            }
        }
    }

    fn fault(&self, actor: &Process, block: &[String]) {
        let block = block.to_vec();
        actor.ask(&Command::Fault(command::Fault { block }));
    }

    /// Which member said what about a node that was removed.
    pub(super) fn note_evidence(&self, name: &str) {
        let crash = |event: &Event| match event {
            Event::NodeView(view) => {
                let crash = view.crashed.iter().find(|crash| crash.member.name == *name);
                crash.map(ToString::to_string)
            }
            _ => None,
        };
        let told = self.look(|trace| {
            let alive = trace.runs.iter().filter(|run| run.stays());
            alive
                .flat_map(|run| &run.events)
                .find_map(|(_, event)| crash(event))
        });
        if let Some(text) = told {
            self.note("evidence", &text);
        }
    }

    /// Looks at what was said so far.
    pub(super) fn look<T>(&self, at: impl FnOnce(&Trace) -> T) -> T {
        at(&self.stage.trace())
    }

    pub(super) fn alive(&self) -> Vec<Arc<Process>> {
        let alive = self.actors.iter().filter(|actor| actor.look(Run::stays));
        alive.cloned().collect()
    }

    pub(super) fn names(&self) -> Vec<String> {
        self.alive().iter().map(|actor| actor.name().to_owned()).collect()
    }

    pub(super) fn actor(&self, name: &str) -> Result<Arc<Process>, Failed> {
        let found = self.alive().into_iter().find(|actor| actor.name() == name);
        found.ok_or_else(|| Failed::run(format!("the view has a member {name:?} that was not started")))
    }

    /// The newest primary view that anyone is in.
    pub(super) fn view(&self) -> Result<NodeView, Failed> {
        let newest = self.look(|trace| {
            let views = trace
                .runs
                .iter()
                .filter(|run| run.stays())
                .filter_map(Run::node_view);
            views
                .filter(|view| view.primary)
                .max_by_key(|view| view.number)
                .cloned()
        });
        newest.ok_or_else(|| Failed::run("no node is in a primary view"))
    }

    /// The most senior node of the cluster.
    pub(super) fn elder(&self) -> Result<Arc<Process>, Failed> {
        self.actor(&self.view()?.members[0].name)
    }

    /// The members of the group, as a node sees them.
    pub(super) fn group_of(&self, actor: &Process) -> Vec<String> {
        actor.look(|run| {
            run.view(GROUP)
                .map(|view| view.members.clone())
                .unwrap_or_default()
        })
    }

    /// The most junior member of the group: not the sequencer of its messages.
    pub(super) fn youngest_in_group(&self) -> Result<Arc<Process>, Failed> {
        let youngest = self.group_of(&*self.elder()?).pop();
        let youngest = youngest.ok_or_else(|| Failed::run("the elder is not in the group"))?;
        let is_it = |actor: &Arc<Process>| actor.look(|run| run.member() == youngest);
        let found = self.alive().into_iter().find(is_it);
        found.ok_or_else(|| {
            Failed::run(format!(
                "the group has a member {youngest:?} that was not started"
            ))
        })
    }

    /// Waits until all these nodes, and no others, are in one primary cluster view and one view of the group.
    pub(super) fn together(&self, what: &str, names: &[String]) -> Result<Views, Failed> {
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        self.expect(what, |trace| {
            let cluster = trace.together_since(&names)?;
            let group = trace.together_in_since(GROUP, &names)?;
            let first = names
                .iter()
                .filter_map(|name| trace.last(name).node_view_at())
                .min()?;
            Some(Views {
                cluster: trace.last(names[0]).node_view()?.clone(),
                first,
                all: cluster.max(group),
            })
        })
    }

    pub(super) fn expect<T>(&self, what: &str, look: impl Fn(&Trace) -> Option<T>) -> Result<T, Failed> {
        self.stage.wait(PATIENCE, look).ok_or_else(|| {
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

/// A primary cluster view that all are in, with one of the group.
pub(super) struct Views {
    pub(super) cluster: NodeView,
    /// When the first of them had it.
    pub(super) first: Duration,
    /// When the last of them had both.
    pub(super) all: Duration,
}

/// How often something of a kind came from a moment on.
pub(super) fn count(run: &Run, from: Duration, wanted: impl Fn(&Event) -> bool) -> usize {
    let later = run.events.iter().filter(|(at, _)| *at >= from);
    later.filter(|(_, event)| wanted(event)).count()
}

/// Whether a node has delivered this.
pub(super) fn delivers(run: &Run, wanted: &str) -> bool {
    run.delivered(GROUP).iter().rev().any(|payload| payload == wanted)
}

/// The longest time between two deliveries at a node that ended after `since`.
pub(super) fn longest_gap(run: &Run, since: Duration) -> Duration {
    let messages = run
        .events
        .iter()
        .filter(|(_, event)| matches!(event, Event::Message(_)));
    let times: Vec<Duration> = messages.map(|(at, _)| *at).collect();
    let gaps = times.windows(2).filter(|pair| pair[1] > since);
    gaps.map(|pair| pair[1] - pair[0]).max().unwrap_or_default()
}

pub(super) fn seniority(view: &NodeView) -> String {
    match view.names().as_slice() {
        [elder] => format!("{elder} (elder) alone"),
        [elder, others @ ..] => format!("{elder} (elder) {}", others.join(" ")),
        [] => "nobody".to_owned(),
    }
}

pub(super) fn per_second() -> u128 {
    1000 / EVERY.as_millis()
}

pub(super) fn ms(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::super::screen::Screen;
    use super::*;
    use crate::args::DemoArgs;

    #[test]
    fn the_demo_does_not_hold_if_a_node_ends_with_an_error_when_it_is_told_to_leave() {
        let screen = Screen::new(true);
        let args = DemoArgs {
            nodes: 3,
            agents: false,
            json: true,
            logs: None,
        };
        let mut story = Story::new(&args, &screen).unwrap();
        for (name, code) in [("ann", 0), ("ben", 1)] {
            let mut node = std::process::Command::new("sh");
            let ends = format!("while read -r line; do case $line in *leave*) exit {code};; esac; done");
            node.args(["-c", &ends]);
            let actor = Process::start(&story.stage, name, node).unwrap();
            story.actors.push(Arc::new(actor));
        }
        let (_, figures) = story.verdict(false);
        assert_eq!(figures.left_badly, 1, "{figures:?}");
        assert!(!figures.hold());
    }
}
