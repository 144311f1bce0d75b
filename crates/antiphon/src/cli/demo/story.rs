//! The story, act by act. Each act says what it does, waits for what must come of it, and measures.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::json;

use super::load::{self, Actor, Load};
use super::screen::{Screen, Tone};
use crate::cli::exit::Failed;
use crate::cli::fleet::{Arrivals, GROUP, Node, Plan, View, free_addrs};
use crate::cli::judge::{self, Sheet};
use crate::cli::lines::{FaultRequest, LeaveRequest, Line, Payload, Request};

/// Everything in the story takes a second or two; this long, and something is wrong.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long one node stands still: less than the `lan` profile forgives.
const PAUSE: Duration = Duration::from_secs(1);
const NAMES: [&str; 9] = ["ann", "ben", "cleo", "dan", "eve", "finn", "gina", "hugo", "ida"];

/// What was measured, in milliseconds; `None` for acts that did not take place.
#[derive(Debug, Default)]
pub(crate) struct Figures {
    pub(crate) nodes: usize,
    pub(crate) formed_ms: Option<u64>,
    pub(crate) elder_crash_detected_ms: Option<u64>,
    pub(crate) delivery_gap_ms: Option<u64>,
    pub(crate) rejoined_ms: Option<u64>,
    pub(crate) partition_ms: Option<u64>,
    pub(crate) healed_ms: Option<u64>,
    pub(crate) pause_view_changes: Option<usize>,
}

/// The cast and where the story stands.
pub(crate) struct Story<'a> {
    screen: &'a Screen,
    plan: Plan,
    addrs: Vec<SocketAddr>,
    arrivals: Arc<Arrivals>,
    /// Every process there was.
    actors: Vec<Arc<Actor>>,
    load: Load,
    figures: Figures,
    /// The audit while all were there and all was quiet.
    checkpoint: Option<Sheet>,
}

impl<'a> Story<'a> {
    pub(crate) fn new(nodes: usize, screen: &'a Screen) -> Result<Self, Failed> {
        let addrs = free_addrs(nodes)?;
        Ok(Self {
            screen,
            plan: Plan::new("lan", addrs.clone())?,
            addrs,
            arrivals: Arc::default(),
            actors: Vec::new(),
            load: Load::new(),
            figures: Figures {
                nodes,
                ..Figures::default()
            },
            checkpoint: None,
        })
    }

    /// All acts.
    pub(crate) fn play(&mut self) -> Result<(), Failed> {
        self.form()?;
        self.talk()?;
        self.pause_one()?;
        self.kill_the_elder()?;
        let (minority, majority) = self.partition()?;
        self.heal(&minority, &majority)?;
        self.check_all()?;
        self.kill_all_but_one()
    }

    fn form(&mut self) -> Result<(), Failed> {
        let count = self.figures.nodes;
        let names = &NAMES[..count];
        self.act(
            "form",
            &format!("{count} processes start at the same instant: {}", names.join(" ")),
        );
        let begun = Instant::now();
        for (name, addr) in names.iter().zip(self.addrs.clone()) {
            self.start(name, addr)?;
        }
        let all = self.alive();
        let views = self.expect("all nodes to be in one cluster view and one group view", || {
            all.iter()
                .map(|actor| in_group_of(actor, names))
                .collect::<Option<Vec<View>>>()
        })?;
        let formed = last_arrival(&views).duration_since(begun);
        self.figures.formed_ms = Some(ms(formed));
        let view = &views[0];
        self.good(
            "formed",
            &format!(
                "one cluster after {} ms: view {}, {}",
                ms(formed),
                view.number,
                seniority(view)
            ),
            json!({"ms": ms(formed), "view": view.number, "members": view.names()}),
        );
        Ok(())
    }

    fn talk(&mut self) -> Result<(), Failed> {
        self.act(
            "load",
            &format!(
                "every node sends {} messages a second, in one order for all",
                per_second()
            ),
        );
        self.load.start();
        let all = self.alive();
        std::thread::sleep(Duration::from_millis(1500));
        let marks = self.marks(&all);
        self.expect("every node to deliver messages of every node", || {
            let heard = |actor: &Arc<Actor>, mark: usize, sender: &Arc<Actor>| {
                let is_it = |line: &Line| is_message_of(line, &sender.node.name).then_some(());
                actor.node.oldest(mark, |stamped| is_it(&stamped.line)).is_some()
            };
            let mut pairs = all.iter().zip(&marks);
            pairs
                .all(|(actor, mark)| all.iter().all(|sender| heard(actor, *mark, sender)))
                .then_some(())
        })?;
        let delivered: Vec<usize> = all.iter().map(|actor| messages(actor).len()).collect();
        let shown: Vec<String> = delivered.iter().map(ToString::to_string).collect();
        self.good(
            "load",
            &format!("messages delivered so far, node by node: {}", shown.join(", ")),
            json!({"delivered": delivered}),
        );
        Ok(())
    }

    fn pause_one(&mut self) -> Result<(), Failed> {
        let all = self.alive();
        let names = self.names();
        let paused = self.by_rank(usize::MAX);
        let name = &paused.node.name;
        self.act(
            "pause",
            &format!(
                "{name} stands still for {} ms (SIGSTOP): a pause is no crash",
                PAUSE.as_millis()
            ),
        );
        let marks = self.marks(&all);
        paused.node.pause();
        std::thread::sleep(PAUSE);
        let meanwhile: usize = all
            .iter()
            .zip(&marks)
            .map(|(actor, mark)| messages_since(actor, *mark))
            .max()
            .unwrap_or(0);
        paused.node.resume();
        let own = paused.say();
        self.expect(&format!("{name} to catch up"), || delivers(&paused, &own))?;
        self.expect("all nodes to be in one view", || {
            all.iter()
                .map(|actor| in_group_of(actor, &names))
                .collect::<Option<Vec<View>>>()
        })?;
        let changes: usize = all
            .iter()
            .zip(&marks)
            .map(|(actor, mark)| {
                let lines = actor.node.lines();
                lines[*mark..]
                    .iter()
                    .filter(|stamped| matches!(stamped.line, Line::NodeView { .. }))
                    .count()
            })
            .max()
            .unwrap_or(0);
        self.figures.pause_view_changes = Some(changes);
        let facts = json!({"node": name, "view_changes": changes, "delivered_meanwhile": meanwhile});
        if changes == 0 {
            self.good(
                "paused",
                &format!("nothing happened: no view changed, {meanwhile} messages were delivered meanwhile, {name} has caught up"),
                facts,
            );
        } else {
            // A machine so busy that a second's pause becomes longer: no promise is broken, but it is no quiet pause.
            let text = format!(
                "{name} was taken for dead and came back: this machine is busier than the lan profile expects"
            );
            self.screen.tell(Tone::Bad, "paused", &text, facts);
        }
        Ok(())
    }

    fn kill_the_elder(&mut self) -> Result<(), Failed> {
        let elder = self.by_rank(0);
        let name = elder.node.name.clone();
        self.act("kill", &format!("kill -9 {name}, the elder"));
        let (killed, views) = self.kill(&elder)?;
        // The load goes on for a while, so that the gap has an end at every survivor.
        std::thread::sleep(Duration::from_millis(300));
        let detected = views
            .iter()
            .map(|view| view.at)
            .min()
            .unwrap_or(killed)
            .duration_since(killed);
        let everywhere = last_arrival(&views).duration_since(killed);
        let gap = self
            .alive()
            .iter()
            .map(|actor| longest_gap(actor, killed))
            .max()
            .unwrap_or_default();
        self.figures.elder_crash_detected_ms = Some(ms(detected));
        self.figures.delivery_gap_ms = Some(ms(gap));
        let view = &views[0];
        self.good(
            "elder_crashed",
            &format!(
                "detected after {} ms, new view {} everywhere after {} ms: {}; longest gap in delivery {} ms",
                ms(detected),
                view.number,
                ms(everywhere),
                seniority(view),
                ms(gap)
            ),
            json!({
                "node": name, "detected_ms": ms(detected), "everywhere_ms": ms(everywhere),
                "delivery_gap_ms": ms(gap), "view": view.number, "members": view.names(),
            }),
        );
        self.note_evidence(&name);

        self.act("restart", &format!("start {name} again, at its old address"));
        let begun = Instant::now();
        self.start(&name, elder.node.addr)?;
        let names = self.names();
        let all = self.alive();
        let views = self.expect(&format!("{name} to be back"), || {
            all.iter()
                .map(|actor| in_group_of(actor, &names))
                .collect::<Option<Vec<View>>>()
        })?;
        let back = last_arrival(&views).duration_since(begun);
        self.figures.rejoined_ms = Some(ms(back));
        self.good(
            "restarted",
            &format!(
                "back after {} ms, as the youngest: {}",
                ms(back),
                seniority(&views[0])
            ),
            json!({"node": name, "ms": ms(back), "members": views[0].names()}),
        );
        Ok(())
    }

    /// Cuts the elder and those next to it off, less than half of all; gives the names of both sides.
    fn partition(&mut self) -> Result<(Vec<String>, Vec<String>), Failed> {
        let names = self
            .view()?
            .names()
            .iter()
            .map(ToString::to_string)
            .collect::<Vec<_>>();
        let (minority, majority) = names.split_at((names.len() - 1) / 2);
        let (minority, majority) = (minority.to_vec(), majority.to_vec());
        self.act(
            "partition",
            &format!(
                "the network breaks: {} | {}; the elder is in the minority",
                minority.join(" "),
                majority.join(" ")
            ),
        );
        let all = self.alive();
        let marks = self.marks(&all);
        let begun = Instant::now();
        for actor in &all {
            let other_side = if minority.contains(&actor.node.name) {
                &majority
            } else {
                &minority
            };
            self.fault(actor, other_side.clone());
        }
        let majority_names: Vec<&str> = majority.iter().map(String::as_str).collect();
        let views = self.expect("the majority to go on by itself", || {
            let side = all.iter().filter(|actor| majority.contains(&actor.node.name));
            side.map(|actor| in_group_of(actor, &majority_names))
                .collect::<Option<Vec<View>>>()
        })?;
        let went_on = last_arrival(&views).duration_since(begun);
        self.figures.partition_ms = Some(ms(went_on));
        self.good(
            "majority",
            &format!(
                "the majority goes on after {} ms: view {}, {}",
                ms(went_on),
                views[0].number,
                seniority(&views[0])
            ),
            json!({"ms": ms(went_on), "view": views[0].number, "members": views[0].names()}),
        );
        let minority_names: Vec<&str> = minority.iter().map(String::as_str).collect();
        self.expect("the minority to know that it is one", || {
            let mut side = all.iter().filter(|actor| minority.contains(&actor.node.name));
            side.all(|actor| {
                let view = actor.node.node_view();
                view.is_some_and(|view| {
                    !view.primary && view.names().iter().all(|name| minority_names.contains(name))
                })
            })
            .then_some(())
        })?;
        self.good(
            "minority",
            &format!(
                "{} {} not primary and says so",
                minority.join(" and "),
                if minority.len() == 1 { "is" } else { "are" }
            ),
            json!({"members": minority}),
        );
        let cut_off = self.actor(&minority[0])?;
        let reason = self.expect("a send in the minority to be refused", || {
            let mark = all
                .iter()
                .zip(&marks)
                .find(|(actor, _)| Arc::ptr_eq(actor, &cut_off))
                .map(|(_, mark)| *mark);
            cut_off.node.oldest(mark.unwrap_or(0), |stamped| {
                refusal(&stamped.line).filter(|text| text.contains("primary"))
            })
        })?;
        self.good(
            "refused",
            &format!("{} refuses to send: \"{reason}\"", cut_off.node.name),
            json!({"reason": reason}),
        );
        std::thread::sleep(Duration::from_millis(500));
        Ok((minority, majority))
    }

    fn heal(&mut self, minority: &[String], majority: &[String]) -> Result<(), Failed> {
        self.act("heal", "the network is whole again");
        let all = self.alive();
        let marks = self.marks(&all);
        let begun = Instant::now();
        for actor in &all {
            self.fault(actor, Vec::new());
        }
        let names = self.names();
        let views = self.expect("one cluster again", || {
            all.iter()
                .map(|actor| in_group_of(actor, &names))
                .collect::<Option<Vec<View>>>()
        })?;
        let healed = last_arrival(&views).duration_since(begun);
        self.figures.healed_ms = Some(ms(healed));
        self.good(
            "healed",
            &format!(
                "one cluster again after {} ms: view {}, {}",
                ms(healed),
                views[0].number,
                seniority(&views[0])
            ),
            json!({"ms": ms(healed), "view": views[0].number, "members": views[0].names()}),
        );
        for (actor, mark) in all
            .iter()
            .zip(&marks)
            .filter(|(actor, _)| minority.contains(&actor.node.name))
        {
            let resync = |line: &Line| match line {
                Line::Resync { cause, .. } => Some(cause.clone()),
                _ => None,
            };
            let cause = self.expect(&format!("{} to be told to start over", actor.node.name), || {
                actor.node.oldest(*mark, |stamped| resync(&stamped.line))
            })?;
            self.note(
                "resync",
                &format!(
                    "{} was told to take over the state of the majority: {cause}",
                    actor.node.name
                ),
            );
        }
        self.note("state", &format!("{} went on undisturbed", majority.join(", ")));
        Ok(())
    }

    /// All are there: let them come to rest and audit them.
    fn check_all(&mut self) -> Result<(), Failed> {
        self.act("check", "all stop talking, and what each delivered is compared");
        std::thread::sleep(Duration::from_millis(300));
        self.load.stop();
        self.settle()?;
        let sheet = self.judge();
        let text = format!(
            "{} messages sent: lost {}, duplicated {}, order violations {}",
            sheet.sent, sheet.lost, sheet.duplicated, sheet.order_violations
        );
        let tone = if sheet.holds() { Tone::Good } else { Tone::Bad };
        self.screen.tell(
            tone,
            "checked",
            &text,
            json!({"sent": sheet.sent, "lost": sheet.lost}),
        );
        self.checkpoint = Some(sheet);
        self.load.start();
        Ok(())
    }

    fn kill_all_but_one(&mut self) -> Result<(), Failed> {
        self.act(
            "last_one",
            "kill -9 all but one, always the elder: with proof of each death, even one is a majority",
        );
        while self.alive().len() > 1 {
            // Some load between two deaths.
            std::thread::sleep(Duration::from_millis(200));
            let elder = self.by_rank(0);
            let (killed, views) = self.kill(&elder)?;
            let everywhere = last_arrival(&views).duration_since(killed);
            let view = &views[0];
            self.good(
                "killed",
                &format!("{} is dead; primary view {} after {} ms: {}", elder.node.name, view.number, ms(everywhere), seniority(view)),
                json!({"node": elder.node.name, "ms": ms(everywhere), "view": view.number, "members": view.names()}),
            );
        }
        self.load.stop();
        let last = self.by_rank(0);
        let own = last.say();
        self.expect(&format!("{} to deliver its own message", last.node.name), || {
            delivers(&last, &own)
        })?;
        self.good(
            "alone",
            &format!("{} is alone, primary, and still delivers", last.node.name),
            json!({"node": last.node.name}),
        );
        self.settle()
    }

    /// The sheet over the whole story, and the figures. The last node leaves in order.
    pub(crate) fn verdict(&mut self) -> (Sheet, Figures) {
        self.load.stop();
        let sheet = self.judge();
        for actor in self.alive() {
            actor.retire();
            if actor.node.ask(&Request::Leave(LeaveRequest {})) {
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
    pub(crate) fn autopsy(&self) {
        const LAST_WORDS: usize = 6;
        for actor in &self.actors {
            let mut words: Vec<String> = actor
                .node
                .lines()
                .iter()
                .rev()
                .filter(|stamped| !matches!(stamped.line, Line::Message { .. } | Line::Error { .. }))
                .take(LAST_WORDS)
                .map(|stamped| stamped.line.to_json())
                .collect();
            words.reverse();
            words.extend(actor.node.complaints());
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

    fn judge(&self) -> Sheet {
        let records: Vec<_> = self
            .actors
            .iter()
            .map(|actor| actor.record(!actor.is_gone()))
            .collect();
        judge::judge(&records, GROUP, true)
    }

    /// Waits until every node that is there has delivered, or told the fate of, whatever it was asked to send, and all
    /// have delivered as much of it.
    fn settle(&self) -> Result<(), Failed> {
        let all = self.alive();
        // Each says one thing more; when everyone has delivered all of these, what went before is there, too.
        let last: Vec<String> = all.iter().map(|actor| actor.say()).collect();
        self.expect("everyone to deliver everyone's last message", || {
            all.iter()
                .all(|actor| last.iter().all(|payload| delivers(actor, payload).is_some()))
                .then_some(())
        })
    }

    fn start(&mut self, name: &str, addr: SocketAddr) -> Result<(), Failed> {
        let node = Node::start(&self.plan, name, addr, &self.arrivals)?;
        let actor = Arc::new(Actor::new(node, self.actors.len() + 1));
        self.load.add(actor.clone());
        self.actors.push(actor);
        Ok(())
    }

    /// Kills a node and waits for the survivors' next views; says when it was killed.
    fn kill(&self, victim: &Arc<Actor>) -> Result<(Instant, Vec<View>), Failed> {
        victim.retire();
        let killed = Instant::now();
        victim.node.kill();
        let survivors = self.alive();
        let names = self.names();
        let views = self.expect(
            &format!("all others to go on without {}", victim.node.name),
            || {
                survivors
                    .iter()
                    .map(|actor| in_group_of(actor, &names))
                    .collect::<Option<Vec<View>>>()
            },
        )?;
        Ok((killed, views))
    }

    fn fault(&self, actor: &Actor, block: Vec<String>) {
        actor.node.ask(&Request::Fault(FaultRequest { block }));
    }

    /// Who said what about a node that was removed.
    fn note_evidence(&self, name: &str) {
        let crash = |line: &Line| match line {
            Line::NodeView { crashed, .. } => {
                crashed.iter().find(|crash| crash.name == *name).map(judge::shown)
            }
            _ => None,
        };
        for actor in self.alive() {
            if let Some(text) = actor.node.oldest(0, |stamped| crash(&stamped.line)) {
                return self.note("evidence", &text);
            }
        }
    }

    fn alive(&self) -> Vec<Arc<Actor>> {
        self.actors
            .iter()
            .filter(|actor| !actor.is_gone())
            .cloned()
            .collect()
    }

    fn names(&self) -> Vec<&str> {
        self.actors
            .iter()
            .filter(|actor| !actor.is_gone())
            .map(|actor| actor.node.name.as_str())
            .collect()
    }

    fn actor(&self, name: &str) -> Result<Arc<Actor>, Failed> {
        let found = self.alive().into_iter().find(|actor| actor.node.name == name);
        found.ok_or_else(|| Failed::run(format!("the view has a member {name:?} that was not started")))
    }

    /// The newest primary view that anyone is in.
    fn view(&self) -> Result<View, Failed> {
        let views = self
            .alive()
            .into_iter()
            .filter_map(|actor| actor.node.node_view())
            .filter(|view| view.primary);
        views
            .max_by_key(|view| view.number)
            .ok_or_else(|| Failed::run("no node is in a primary view"))
    }

    /// The node of this rank by seniority, the youngest if there are not so many.
    fn by_rank(&self, rank: usize) -> Arc<Actor> {
        let alive = self.alive();
        let names = self
            .view()
            .map(|view| view.names().iter().map(ToString::to_string).collect::<Vec<_>>());
        let name = names
            .ok()
            .and_then(|names| names.get(rank.min(names.len() - 1)).cloned());
        let found = alive.iter().find(|actor| Some(&actor.node.name) == name.as_ref());
        // The story never goes on with nobody alive.
        found.or(alive.first()).expect("someone is alive").clone()
    }

    fn marks(&self, actors: &[Arc<Actor>]) -> Vec<usize> {
        actors.iter().map(|actor| actor.node.mark()).collect()
    }

    fn expect<T>(&self, what: &str, look: impl FnMut() -> Option<T>) -> Result<T, Failed> {
        self.arrivals.wait(PATIENCE, look).ok_or_else(|| {
            Failed::run(format!(
                "waited {} s in vain for {what}; the last words of each node follow",
                PATIENCE.as_secs()
            ))
        })
    }

    fn act(&self, step: &str, text: &str) {
        self.screen.tell(Tone::Act, step, text, json!({}));
    }

    fn good(&self, step: &str, text: &str, facts: serde_json::Value) {
        self.screen.tell(Tone::Good, step, text, facts);
    }

    fn note(&self, step: &str, text: &str) {
        self.screen.tell(Tone::Note, step, text, json!({}));
    }
}

/// The primary cluster view of a node if that and its group's view have exactly these members.
fn in_group_of(actor: &Arc<Actor>, names: &[&str]) -> Option<View> {
    let view = actor
        .node
        .node_view()
        .filter(|view| view.primary && view.members.len() == names.len())?;
    let group = actor
        .node
        .group_view()
        .filter(|group| group.members.len() == names.len())?;
    let all = names
        .iter()
        .all(|name| view.contains(name) && group.members.iter().any(|member| member == name));
    all.then_some(view)
}

/// When the last of them had its view.
fn last_arrival(views: &[View]) -> Instant {
    views
        .iter()
        .map(|view| view.at)
        .max()
        .unwrap_or_else(Instant::now)
}

fn is_message_of(line: &Line, name: &str) -> bool {
    matches!(line, Line::Message { sender, .. } if sender == name)
}

fn messages(actor: &Actor) -> Vec<Instant> {
    let lines = actor.node.lines();
    lines
        .iter()
        .filter(|stamped| matches!(stamped.line, Line::Message { .. }))
        .map(|stamped| stamped.at)
        .collect()
}

fn messages_since(actor: &Actor, mark: usize) -> usize {
    actor.node.lines()[mark..]
        .iter()
        .filter(|stamped| matches!(stamped.line, Line::Message { .. }))
        .count()
}

/// Whether a node has delivered this.
fn delivers(actor: &Arc<Actor>, wanted: &str) -> Option<()> {
    let is_it =
        |line: &Line| matches!(line, Line::Message { payload: Payload::Text(text), .. } if text == wanted);
    actor.node.oldest(0, |stamped| is_it(&stamped.line).then_some(()))
}

fn refusal(line: &Line) -> Option<String> {
    match line {
        Line::Error { reason, .. } => Some(reason.clone()),
        _ => None,
    }
}

/// The longest time between two deliveries at a node that ended after `since`.
fn longest_gap(actor: &Arc<Actor>, since: Instant) -> Duration {
    let messages = messages(actor);
    let gaps = messages
        .windows(2)
        .filter(|pair| pair[1] > since)
        .map(|pair| pair[1].duration_since(pair[0]));
    gaps.max().unwrap_or_default()
}

fn seniority(view: &View) -> String {
    match view.names().as_slice() {
        [elder] => format!("{elder} (elder) alone"),
        [elder, others @ ..] => format!("{elder} (elder) {}", others.join(" ")),
        [] => "nobody".to_owned(),
    }
}

fn per_second() -> u128 {
    1000 / load::EVERY.as_millis()
}

fn ms(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
