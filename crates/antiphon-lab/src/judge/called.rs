//! Calls in lines of nodes, and of programs of agents, as [`antiphon_judge`] reads them.
//!
//! A request names its caller by the name of the node alone, so two processes of one name are one member
//! here; their payloads tell them apart. For a program of an agent, its node calls and is asked.

use std::collections::BTreeMap;

use antiphon_api::Event;
use antiphon_api::blocks::{Failure, Ran, Reply, To, Word};
use antiphon_judge::Calls;
use antiphon_judge::calls::{Asks, Call, Handed};

use super::micros;
use crate::trace::{Called, Run, Trace, text_of};

/// The calls of each group in which someone called or was asked.
pub(super) fn calls(trace: &Trace) -> Vec<Calls<&str, &str>> {
    let mut groups: BTreeMap<&str, Calls<&str, &str>> = BTreeMap::new();
    for run in &trace.runs {
        let replies: BTreeMap<&str, &Reply> = run.replies_to_calls().collect();
        for called in &run.called {
            let call = call(run, called, replies.get(called.what.as_str()).copied());
            of(&mut groups, &called.group).called.push(call);
        }
        for (at, event) in &run.events {
            if let Event::Request(request) = event {
                of(&mut groups, &request.group).handed.push(Handed {
                    at: micros(*at),
                    name: format!("{}#{}", run.name, run.start),
                    member: &run.name,
                    caller: &request.from,
                    payload: text_of(&request.payload),
                });
            }
        }
    }
    groups.into_values().collect()
}

fn of<'g, 'a>(
    groups: &'g mut BTreeMap<&'a str, Calls<&'a str, &'a str>>,
    name: &'a str,
) -> &'g mut Calls<&'a str, &'a str> {
    groups.entry(name).or_insert_with(|| Calls {
        group: name.to_owned(),
        called: Vec::new(),
        handed: Vec::new(),
    })
}

fn call<'a>(run: &'a Run, called: &'a Called, reply: Option<&'a Reply>) -> Call<&'a str, &'a str> {
    let did_not_run = |failure: &Failure| failure.ran == Ran::No;
    let failures = reply.iter().flat_map(|reply| &reply.failures);
    let not_run = failures.filter(|(_, failure)| did_not_run(failure));
    Call {
        caller: &run.name,
        payload: &called.what,
        asks: match &called.to {
            To::Word(Word::Any) => Asks::Any,
            To::Word(Word::All) => Asks::All,
            To::Names(names) => Asks::These(names.iter().map(String::as_str).collect()),
        },
        ran_nowhere: reply.is_some_and(|reply| reply.error.as_ref().is_some_and(did_not_run)),
        not_run_at: not_run.map(|(member, _)| member.as_str()).collect(),
    }
}
