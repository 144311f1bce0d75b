//! The story, act by act. Each act says what it does, waits for what must come of it, and measures.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use antiphon_api::{Event, NodeView};
use antiphon_lab::{Calls, Load, Process, Run, Signal, Stage};
use serde_json::json;

use super::cast::{count, delivers, longest_gap, ms, per_second, seniority};
use super::keep::Kept;
use super::screen::{Screen, Tone};
use super::sheet::Sheet;
use crate::args::DemoArgs;
use crate::exit::Failed;
use crate::fleet::{GROUP, Plan, free_addrs};

/// Everything in the story takes a second or two. Nodes that get too little processor wait up to ten seconds
/// before they think each other dead; this long, and something is wrong.
pub(super) const PATIENCE: Duration = Duration::from_secs(30);
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
    /// Longest, from the death of the lock's holder to the next grant.
    pub(crate) lock_moved_ms: Option<u64>,
    pub(crate) map_entries: usize,
    pub(crate) map_entries_lost: u64,
    pub(crate) lock_grants: usize,
    /// Grants with a fencing token that is not above all former tokens.
    pub(crate) stale_tokens: u64,
    /// Nodes that did not leave in order at the end.
    pub(crate) left_badly: u64,
}

impl Figures {
    /// Whether the map and the lock kept what they promise, and the nodes left as they were told.
    pub(crate) fn hold(&self) -> bool {
        self.map_entries_lost + self.stale_tokens + self.left_badly == 0
    }
}

/// The cast and where the story stands.
pub(crate) struct Story<'a> {
    pub(super) screen: &'a Screen,
    pub(super) plan: Plan,
    pub(super) addrs: Vec<SocketAddr>,
    /// What every process printed.
    pub(super) stage: Arc<Stage>,
    /// Every process there was.
    pub(super) actors: Vec<Arc<Process>>,
    /// While everyone talks.
    pub(super) load: Option<Load>,
    /// While everyone calls and answers.
    pub(super) calls: Option<Calls>,
    pub(super) figures: Figures,
    /// What the nodes keep together.
    pub(super) kept: Kept,
    /// The audit while all were there and all was quiet.
    pub(super) checkpoint: Option<Sheet>,
    /// Where to leave what the nodes printed.
    pub(super) logs: Option<PathBuf>,
}

impl<'a> Story<'a> {
    pub(crate) fn new(args: &DemoArgs, screen: &'a Screen) -> Result<Self, Failed> {
        let nodes = usize::from(args.nodes);
        let addrs = free_addrs(nodes)?;
        let mut plan = Plan::new("lan", &addrs)?;
        if args.agents {
            plan = plan.of_agents()?;
        }
        Ok(Self {
            screen,
            plan,
            addrs,
            stage: Stage::new(),
            actors: Vec::new(),
            load: None,
            calls: None,
            figures: Figures {
                nodes,
                ..Figures::default()
            },
            kept: Kept::default(),
            checkpoint: None,
            logs: args.logs.clone(),
        })
    }

    /// All acts.
    pub(crate) fn play(&mut self) -> Result<(), Failed> {
        self.form()?;
        self.talk()?;
        self.keep()?;
        self.pause_one()?;
        self.kill_the_elder()?;
        let (minority, majority) = self.partition()?;
        self.heal(&minority, &majority)?;
        self.hang_up()?;
        self.check_all()?;
        self.kill_all_but_one()
    }

    fn form(&mut self) -> Result<(), Failed> {
        let count = self.figures.nodes;
        let names = &NAMES[..count];
        self.act(
            "form",
            &format!(
                "{count} {} start at the same instant: {}",
                if self.plan.has_agents() {
                    "agents, with a program each,"
                } else {
                    "processes"
                },
                names.join(" ")
            ),
        );
        let begun = self.stage.now();
        for (name, addr) in names.iter().zip(self.addrs.clone()) {
            self.start(name, &addr.to_string())?;
        }
        for actor in self.alive() {
            self.come(&actor)?;
        }
        let what = "all nodes to be in one cluster view and one group view";
        let views = self.together(what, &self.names())?;
        let formed = views.all - begun;
        self.figures.formed_ms = Some(ms(formed));
        let view = &views.cluster;
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
                "every node sends {} messages a second, in one order for all, and now and then calls others",
                per_second()
            ),
        );
        self.talk_on();
        std::thread::sleep(Duration::from_millis(1500));
        let (names, from) = (self.names(), self.stage.now());
        self.expect("every node to deliver messages of every node", |trace| {
            let heard = |run: &Run, from_whom: &String| {
                let sender = trace.last(from_whom).member();
                let is_it = |event: &Event| matches!(event, Event::Message(said) if said.sender == sender);
                run.when(from, is_it).is_some()
            };
            let mut runs = names.iter().map(|name| trace.last(name));
            runs.all(|run| names.iter().all(|sender| heard(run, sender)))
                .then_some(())
        })?;
        let delivered: Vec<usize> = self.look(|trace| {
            let runs = names.iter().map(|name| trace.last(name));
            runs.map(|run| run.delivered(GROUP).len()).collect()
        });
        let shown: Vec<String> = delivered.iter().map(ToString::to_string).collect();
        self.good(
            "load",
            &format!("messages delivered so far, node by node: {}", shown.join(", ")),
            json!({"delivered": delivered}),
        );
        Ok(())
    }

    fn pause_one(&mut self) -> Result<(), Failed> {
        let names = self.names();
        let paused = self.youngest_in_group()?;
        let name = paused.name();
        self.act(
            "pause",
            &format!(
                "{name} stands still for {} ms (SIGSTOP): a pause is no crash",
                PAUSE.as_millis()
            ),
        );
        let from = self.stage.now();
        // The most that any node heard since then.
        let most = |wanted: fn(&Event) -> bool| {
            self.look(|trace| {
                let counts = names.iter().map(|name| count(trace.last(name), from, wanted));
                counts.max().unwrap_or(0)
            })
        };
        paused.signal(Signal::STOP);
        std::thread::sleep(PAUSE);
        let meanwhile = most(|event| matches!(event, Event::Message(_)));
        paused.signal(Signal::CONT);
        let own = self.say(&paused);
        self.expect(&format!("{name} to catch up"), |trace| {
            let caught_up = |name: &String| delivers(trace.last(name), &own);
            names.iter().all(caught_up).then_some(())
        })?;
        self.together("all nodes to be in one view", &names)?;
        let changes = most(|event| matches!(event, Event::NodeView(_)));
        self.figures.pause_view_changes = Some(changes);
        let facts = json!({"node": name, "view_changes": changes, "delivered_meanwhile": meanwhile});
        if changes == 0 {
            self.good(
                "paused",
                &format!("nothing happened: no view changed, {meanwhile} messages were delivered meanwhile, {name} has caught up"),
                facts,
            );
        } else {
            // A machine so busy that a second's pause becomes longer: no promise is broken, but it is no
            // quiet pause.
            let text = format!(
                "{name} was taken for dead and came back: this machine is busier than the lan profile expects"
            );
            self.screen.tell(Tone::Bad, "paused", &text, facts);
        }
        Ok(())
    }

    fn kill_the_elder(&mut self) -> Result<(), Failed> {
        let elder = self.elder()?;
        let name = elder.name().to_owned();
        // Clients have a seniority of their own.
        let leads = !self.plan.has_agents() && self.group_of(&elder).first() == Some(&name);
        let also = if leads {
            " and the one that orders the group's messages"
        } else {
            ""
        };
        self.act("kill", &format!("kill -9 {name}, the elder{also}"));
        let (killed, views) = self.kill(&elder)?;
        // The load goes on for a while, so that the gap has an end at every survivor.
        std::thread::sleep(Duration::from_millis(300));
        let (detected, everywhere) = (
            views.first.saturating_sub(killed),
            views.all.saturating_sub(killed),
        );
        let gap = self.look(|trace| {
            let alive = trace.runs.iter().filter(|run| run.stays());
            alive
                .map(|run| longest_gap(run, killed))
                .max()
                .unwrap_or_default()
        });
        self.figures.elder_crash_detected_ms = Some(ms(detected));
        self.figures.delivery_gap_ms = Some(ms(gap));
        let view = &views.cluster;
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
        self.lock_goes_on(std::slice::from_ref(&name), killed)?;

        self.act("restart", &format!("start {name} again, at its old address"));
        let begun = self.stage.now();
        let addr = elder.look(|run| run.addr().to_owned());
        self.start(&name, &addr)?;
        self.come(&*self.actor(&name)?)?;
        let views = self.together(&format!("{name} to be back"), &self.names())?;
        let back = views.all - begun;
        self.figures.rejoined_ms = Some(ms(back));
        self.good(
            "restarted",
            &format!(
                "back after {} ms, as the youngest: {}",
                ms(back),
                seniority(&views.cluster)
            ),
            json!({"node": name, "ms": ms(back), "members": views.cluster.names()}),
        );
        let back = self.actor(&name)?;
        self.find_all(&back)?;
        self.want_lock(&back);
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
        let how = match self.plan.has_agents() {
            true => "one side stands still (SIGSTOP), then the other, as if the network broke",
            false => "the network breaks",
        };
        self.act(
            "partition",
            &format!(
                "{how}: {} | {}; the elder is in the minority",
                minority.join(" "),
                majority.join(" ")
            ),
        );
        let mut begun = self.stage.now();
        self.part(&minority, &majority)?;
        self.know_and_refuse(&minority, begun)?;
        if self.plan.has_agents() {
            begun = self.stage.now();
            self.part(&majority, &minority)?;
        }
        let views = self.together("the majority to go on by itself", &majority)?;
        let went_on = views.all.saturating_sub(begun);
        self.figures.partition_ms = Some(ms(went_on));
        self.good(
            "majority",
            &format!(
                "the majority goes on after {} ms: view {}, {}",
                ms(went_on),
                views.cluster.number,
                seniority(&views.cluster)
            ),
            json!({"ms": ms(went_on), "view": views.cluster.number, "members": views.cluster.names()}),
        );
        self.lock_goes_on(&minority, begun)?;
        let writer = self.actor(&majority[0])?;
        self.write(&writer, "partition", "written by the majority")?;
        std::thread::sleep(Duration::from_millis(500));
        Ok((minority, majority))
    }

    /// A minority says that it is one, and takes nothing to send.
    fn know_and_refuse(&self, minority: &[String], begun: Duration) -> Result<(), Failed> {
        self.expect("the minority to know that it is one", |trace| {
            let knows = |name: &String| {
                let view = trace.last(name).node_view();
                let within =
                    |view: &NodeView| view.members.iter().all(|member| minority.contains(&member.name));
                view.is_some_and(|view| !view.primary && within(view))
            };
            minority.iter().all(knows).then_some(())
        })?;
        let (are, say) = if minority.len() == 1 {
            ("is", "says")
        } else {
            ("are", "say")
        };
        self.good(
            "minority",
            &format!("{} {are} not primary and {say} so", minority.join(" and ")),
            json!({"members": minority}),
        );
        let cut_off = &minority[0];
        let reason = self.expect("a send in the minority to be refused", |trace| {
            let later = trace.last(cut_off).events.iter().filter(|(at, _)| *at >= begun);
            let mut reasons = later.filter_map(|(_, event)| match event {
                Event::Refused {
                    reason,
                    request: Some(_),
                    ..
                } => Some(reason),
                Event::Reply(reply) if reply.op == "send" => {
                    reply.error.as_ref().map(|failure| &failure.reason)
                }
                _ => None,
            });
            reasons.find(|reason| reason.contains("primary")).cloned()
        })?;
        self.good(
            "refused",
            &format!("{cut_off} refuses to send: \"{reason}\""),
            json!({"reason": reason}),
        );
        Ok(())
    }

    fn heal(&mut self, minority: &[String], majority: &[String]) -> Result<(), Failed> {
        let how = match self.plan.has_agents() {
            true => "all go on (SIGCONT)",
            false => "the network is whole again",
        };
        self.act("heal", how);
        let begun = self.stage.now();
        self.mend();
        let views = self.together("one cluster again", &self.names())?;
        let healed = views.all - begun;
        self.figures.healed_ms = Some(ms(healed));
        self.good(
            "healed",
            &format!(
                "one cluster again after {} ms: view {}, {}",
                ms(healed),
                views.cluster.number,
                seniority(&views.cluster)
            ),
            json!({"ms": ms(healed), "view": views.cluster.number, "members": views.cluster.names()}),
        );
        for name in minority {
            let cause = self.expect(&format!("{name} to be told to start over"), |trace| {
                let later = trace.last(name).events.iter().filter(|(at, _)| *at >= begun);
                later.map(|(_, event)| event).find_map(|event| match event {
                    Event::Resync { cause, .. } => Some(cause.clone()),
                    _ => None,
                })
            })?;
            self.note(
                "resync",
                &format!("{name} was told to take over the state of the majority: {cause}"),
            );
        }
        self.note("state", &format!("{} went on undisturbed", majority.join(", ")));
        for name in minority {
            let back = self.actor(name)?;
            self.find_all(&back)?;
            self.want_lock(&back);
        }
        Ok(())
    }

    /// The program that holds the lock ends its connection, and comes again. A node's own program cannot.
    fn hang_up(&mut self) -> Result<(), Failed> {
        if !self.plan.has_agents() {
            return Ok(());
        }
        self.line_up();
        let name = self.holder()?;
        let actor = self.actor(&name)?;
        let member = actor.look(|run| run.member().to_owned());
        self.act(
            "hang_up",
            &format!("{member}, which holds the lock, ends its connection; its agent goes on"),
        );
        let begun = self.stage.now();
        actor.disconnect();
        let others: Vec<String> = self.names().into_iter().filter(|other| *other != name).collect();
        let names: Vec<&str> = others.iter().map(String::as_str).collect();
        let (gone, cause) =
            self.expect(&format!("the others to be told that {member} is gone"), |trace| {
                let gone = trace.together_in_since(GROUP, &names)?;
                let causes = &trace.last(names[0]).view(GROUP)?.causes;
                Some((gone, causes.get(&member).cloned().unwrap_or_default()))
            })?;
        let took = ms(gone.saturating_sub(begun));
        self.good(
            "hung_up",
            &format!("{member} is gone from the group everywhere after {took} ms: {cause}"),
            json!({"node": name, "ms": took, "cause": cause}),
        );
        self.lock_goes_on(std::slice::from_ref(&name), begun)?;
        let begun = self.stage.now();
        self.come(&actor)?;
        let views = self.together(&format!("{member} to be back"), &self.names())?;
        let back = ms(views.all.saturating_sub(begun));
        self.good(
            "came_again",
            &format!("{member} is back, as another client, after {back} ms"),
            json!({"node": name, "ms": back}),
        );
        self.find_all(&actor)?;
        self.want_lock(&actor);
        Ok(())
    }

    /// All are there: let them come to rest and audit them.
    fn check_all(&mut self) -> Result<(), Failed> {
        self.act("check", "all stop talking, and what each delivered is compared");
        std::thread::sleep(Duration::from_millis(300));
        self.load = None;
        self.settle()?;
        let sheet = self.judge(true);
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
        self.talk_on();
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
            let everywhere = views.all.saturating_sub(killed);
            let view = &views.cluster;
            self.good(
                "killed",
                &format!("{} is dead; primary view {} after {} ms: {}", elder.name(), view.number, ms(everywhere), seniority(view)),
                json!({"node": elder.name(), "ms": ms(everywhere), "view": view.number, "members": view.names()}),
            );
            self.lock_goes_on(&[elder.name().to_owned()], killed)?;
        }
        self.load = None;
        let last = self.elder()?;
        let own = self.say(&last);
        self.expect(&format!("{} to deliver its own message", last.name()), |trace| {
            delivers(&trace.runs[last.run()], &own).then_some(())
        })?;
        self.good(
            "alone",
            &format!("{} is alone, primary, and still delivers", last.name()),
            json!({"node": last.name()}),
        );
        self.find_all(&last)?;
        self.settle()
    }
}
