//! Members that call each other, and answer.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use antiphon_api::blocks::{self, Answer, Id, Reply, Serve, Span, To, Word};
use antiphon_api::{Command, Event, Payload};

use crate::{Called, Load, Run, Stage, Trace};

/// What members call each other for.
const VERB: &str = "visit";
/// Longer than it takes to notice that a member is cut off: then its callers are told what became of calls to
/// it.
const WITHIN: Span = Span(Duration::from_secs(8));

/// Runs until dropped.
#[derive(Debug)]
pub struct Calls {
    resting: Arc<AtomicBool>,
    _load: Load,
}

impl Calls {
    /// Each tick all members of the group answer what they were asked, and one, by turns, makes a call: to
    /// any member, to one by its name, or to all. The calls have a group of their own with the same name. A
    /// member serves from its first view on, a program that connects again anew. Members that are cut off go
    /// on calling.
    pub fn start(stage: &Arc<Stage>, group: &str, tick: Duration) -> Self {
        let resting = Arc::<AtomicBool>::default();
        let (group, rests) = (group.to_owned(), Arc::clone(&resting));
        let (mut desks, mut next) = (Vec::<Desk>::new(), 0);
        let load = Load::each(stage, tick, move |trace| {
            desks.resize_with(trace.runs.len(), Desk::default);
            for (run, desk) in trace.runs.iter().zip(&mut desks) {
                desk.read(run, &group);
            }
            if rests.load(Ordering::Relaxed) {
                return;
            }
            let mut turns = (0..desks.len()).map(|turn| (next + turn) % desks.len());
            let calls = |run: &usize| desks[*run].serves && call_by_turns(trace, *run, &group);
            next = turns.find(calls).map_or(0, |run| run + 1);
        });
        Self { resting, _load: load }
    }

    /// From now on members only answer; or call again.
    pub fn rest(&self, resting: bool) {
        self.resting.store(resting, Ordering::Relaxed);
    }
}

/// Has a process make its next call. False if it is frozen, or on its way out.
fn call_by_turns(trace: &mut Trace, run: usize, group: &str) -> bool {
    let names: BTreeSet<&str> = trace.runs.iter().map(|run| run.name.as_str()).collect();
    let turn = trace.runs[run].called.len();
    let to = match turn % 3 {
        0 => To::Word(Word::Any),
        1 => {
            let name = names.iter().nth(turn / 3 % names.len());
            To::Names(name.map(|name| (*name).to_owned()).into_iter().collect())
        }
        _ => To::Word(Word::All),
    };
    trace.runs[run].call(group, VERB, to, WITHIN).is_some()
}

/// One process as a server.
#[derive(Debug, Default)]
struct Desk {
    /// How many of its events were looked at.
    read: usize,
    serves: bool,
}

impl Desk {
    /// Looks at what the process has told since, and has it serve and answer.
    fn read(&mut self, run: &Run, group: &str) {
        for (_, event) in &run.events[self.read..] {
            match event {
                Event::View(view) if view.group == group && !self.serves => {
                    self.serves = run.ask(&Command::Serve(Serve {
                        group: group.to_owned(),
                        verb: VERB.to_owned(),
                        id: Some(Id::Text(format!("serve {VERB}"))),
                    }));
                }
                Event::Reply(Reply { welcome: Some(_), .. }) => self.serves = false,
                Event::Request(request) if request.group == group => {
                    run.ask(&Command::Answer(Answer {
                        request: request.request,
                        payload: Some(Payload::Text(run.name.clone())),
                        error: None,
                        id: Some(Id::Text(format!("answer {}", request.request))),
                    }));
                }
                _ => {}
            }
        }
        self.read = run.events.len();
    }
}

impl Run {
    /// Has the node call members, and writes the call in its books. Gives the payload, which is the id of the
    /// reply, too; none if the node is frozen, or on its way out.
    pub fn call(&mut self, group: &str, verb: &str, to: To, within: Span) -> Option<String> {
        // What a frozen node is told would wait in this program.
        if matches!(self.frozen.last(), Some((_, None))) {
            return None;
        }
        let what = format!("{}#{}?{}", self.name, self.start, self.called.len());
        let asked = self.ask(&Command::Call(blocks::Call {
            group: group.to_owned(),
            verb: verb.to_owned(),
            to: to.clone(),
            payload: Some(Payload::Text(what.clone())),
            within: Some(within),
            request: None,
            id: Some(Id::Text(what.clone())),
        }));
        asked.then(|| {
            self.called.push(Called {
                group: group.to_owned(),
                to,
                what: what.clone(),
                heard: self.events.len(),
            });
            what
        })
    }
}
