//! The story, act by act. Each act says what it does, waits for what must come of it, and measures.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::json;

use super::cast::{
    delivers, is_message_of, last_arrival, longest_gap, messages, messages_since, ms, per_second, refusal,
    seniority,
};
use super::load::{Actor, Load};
use super::screen::{Screen, Tone};
use crate::exit::Failed;
use crate::fleet::{Arrivals, Plan, free_addrs};
use crate::judge::Sheet;
use antiphon_api::Event;

/// Everything in the story takes a second or two; this long, and something is wrong.
pub(super) const PATIENCE: Duration = Duration::from_secs(10);
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
    pub(super) screen: &'a Screen,
    pub(super) plan: Plan,
    pub(super) addrs: Vec<SocketAddr>,
    pub(super) arrivals: Arc<Arrivals>,
    /// Every process there was.
    pub(super) actors: Vec<Arc<Actor>>,
    pub(super) load: Load,
    pub(super) figures: Figures,
    /// The audit while all were there and all was quiet.
    pub(super) checkpoint: Option<Sheet>,
    /// Where to leave what the nodes printed.
    pub(super) logs: Option<PathBuf>,
}

impl<'a> Story<'a> {
    pub(crate) fn new(nodes: usize, logs: Option<PathBuf>, screen: &'a Screen) -> Result<Self, Failed> {
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
            logs,
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
        let views = self.together(
            "all nodes to be in one cluster view and one group view",
            &all,
            names,
        )?;
        let formed = last_arrival(&views).duration_since(begun);
        self.figures.formed_ms = Some(ms(formed));
        let view = &views[0].cluster;
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
                let is_it = |line: &Event| is_message_of(line, &sender.node.name).then_some(());
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
        let paused = self.youngest_in_group()?;
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
        self.expect(&format!("{name} to catch up"), || {
            all.iter()
                .all(|actor| delivers(actor, &own).is_some())
                .then_some(())
        })?;
        self.together("all nodes to be in one view", &all, &names)?;
        let changes: usize = all
            .iter()
            .zip(&marks)
            .map(|(actor, mark)| {
                let lines = actor.node.lines();
                lines[*mark..]
                    .iter()
                    .filter(|stamped| matches!(stamped.line, Event::NodeView { .. }))
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
        let elder = self.elder()?;
        let name = elder.node.name.clone();
        let leads = elder
            .node
            .group_view()
            .is_some_and(|group| group.members.first() == Some(&name));
        let also = if leads {
            " and the one that orders the group's messages"
        } else {
            ""
        };
        self.act("kill", &format!("kill -9 {name}, the elder{also}"));
        let (killed, views) = self.kill(&elder)?;
        // The load goes on for a while, so that the gap has an end at every survivor.
        std::thread::sleep(Duration::from_millis(300));
        let detected = views
            .iter()
            .map(|views| views.cluster.at)
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
        let view = &views[0].cluster;
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
        let views = self.together(&format!("{name} to be back"), &all, &names)?;
        let back = last_arrival(&views).duration_since(begun);
        self.figures.rejoined_ms = Some(ms(back));
        self.good(
            "restarted",
            &format!(
                "back after {} ms, as the youngest: {}",
                ms(back),
                seniority(&views[0].cluster)
            ),
            json!({"node": name, "ms": ms(back), "members": views[0].cluster.names()}),
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
        let side: Vec<Arc<Actor>> = all
            .iter()
            .filter(|actor| majority.contains(&actor.node.name))
            .cloned()
            .collect();
        let views = self.together("the majority to go on by itself", &side, &majority_names)?;
        let went_on = last_arrival(&views).duration_since(begun);
        self.figures.partition_ms = Some(ms(went_on));
        self.good(
            "majority",
            &format!(
                "the majority goes on after {} ms: view {}, {}",
                ms(went_on),
                views[0].cluster.number,
                seniority(&views[0].cluster)
            ),
            json!({"ms": ms(went_on), "view": views[0].cluster.number, "members": views[0].cluster.names()}),
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
        let views = self.together("one cluster again", &all, &names)?;
        let healed = last_arrival(&views).duration_since(begun);
        self.figures.healed_ms = Some(ms(healed));
        self.good(
            "healed",
            &format!(
                "one cluster again after {} ms: view {}, {}",
                ms(healed),
                views[0].cluster.number,
                seniority(&views[0].cluster)
            ),
            json!({"ms": ms(healed), "view": views[0].cluster.number, "members": views[0].cluster.names()}),
        );
        for (actor, mark) in all
            .iter()
            .zip(&marks)
            .filter(|(actor, _)| minority.contains(&actor.node.name))
        {
            let resync = |line: &Event| match line {
                Event::Resync { cause, .. } => Some(cause.clone()),
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
            let elder = self.elder()?;
            let (killed, views) = self.kill(&elder)?;
            let everywhere = last_arrival(&views).duration_since(killed);
            let view = &views[0].cluster;
            self.good(
                "killed",
                &format!("{} is dead; primary view {} after {} ms: {}", elder.node.name, view.number, ms(everywhere), seniority(view)),
                json!({"node": elder.node.name, "ms": ms(everywhere), "view": view.number, "members": view.names()}),
            );
        }
        self.load.stop();
        let last = self.elder()?;
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
}
