//! Clients of agents that die in the middle of what they do.
//!
//! [`STEPS`] lists what the client does, [`Death`] how it dies. Each pair is a [`Scene`] of three clients at
//! three agents: Ann dies, Bob and Cy live on. Whatever Ann does when she dies,
//! - Bob and Cy are told one same view without her, with the cause;
//! - what she held goes to the client that waits for it, and what she waited for goes past her;
//! - a call that she served ends, and says whether it ran;
//! - the group of Bob and Cy goes on, and tells both of them the same.

use std::collections::BTreeMap;

use antiphon_api::Payload;
use antiphon_api::blocks::{Code, Id, Ran, Reply};

use super::agents::{Program, agent, agents};
use super::*;
use crate::{Cluster, Event, View};

pub(super) const STORIES: &[Story] = &[story!(
    whatever_a_client_does_when_it_dies_others_lose_it_with_a_cause_and_go_on
)];

/// For each wait. What is waited for takes a second at most on a machine that does nothing else.
const BOUND: Duration = Duration::from_secs(30);

/// What Ann does when she dies: the function begins it, has her die, and checks what must come of it.
type Step = fn(&mut Scene<'_>);

const STEPS: [(&str, Step); 8] = [
    ("join", join),
    ("safe_send", safe_send),
    ("call_made", call_made),
    ("call_served", call_served),
    ("lock_awaited", lock_awaited),
    ("lock_held", lock_held),
    ("lead_held", lead_held),
    ("watch", watch),
];

/// How a client dies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Death {
    /// Its agent is killed.
    Agent,
    /// Its connection ends, and its agent goes on.
    Connection,
}

impl Death {
    fn name(self) -> &'static str {
        match self {
            Death::Agent => "agent",
            Death::Connection => "connection",
        }
    }

    /// What the others are told.
    fn cause(self) -> &'static str {
        match self {
            Death::Agent => "its node crashed or was cut off",
            Death::Connection => "its connection ended",
        }
    }
}

fn whatever_a_client_does_when_it_dies_others_lose_it_with_a_cause_and_go_on(engine: Engine) {
    let mut cluster = agents(3, engine);
    // Membership has no part in the end of a connection.
    for death in some_on_cut(engine, &[Death::Agent, Death::Connection]) {
        for (step, dies) in STEPS {
            let mut scene = Scene::open(&cluster, death, step);
            dies(&mut scene);
            scene.close();
            if death == Death::Agent {
                let command = agent(&cluster, "n1");
                cluster.start_command("n1", command);
                cluster.until("the killed agent is back", BOUND, |trace| {
                    trace.together(&["n1", "n2", "n3"])
                });
            }
        }
    }
    cluster.finish();
}

/// Three clients in a group. Ann is at `n1`, Bob at `n2`, Cy at `n3`.
struct Scene<'a> {
    cluster: &'a Cluster,
    death: Death,
    /// What the group, the locks, the map and the calls of this scene are called. No other scene uses them.
    name: String,
    /// The first view of all three: Bob, Cy, Ann.
    view: View,
    ann: Program,
    bob: Program,
    cy: Program,
}

impl<'a> Scene<'a> {
    fn open(cluster: &'a Cluster, death: Death, step: &str) -> Self {
        let name = format!("{step}-{}", death.name());
        let connect =
            |agent: &str, client: &str| Program::connect(cluster, agent, &format!("{client}-{name}"));
        let (mut bob, mut cy, mut ann) = (connect("n2", "bob"), connect("n3", "cy"), connect("n1", "ann"));
        let members = ["n2/bob", "n3/cy", "n1/ann"].map(|member| format!("{member}-{name}"));
        for (before, program) in [&mut bob, &mut cy, &mut ann].into_iter().enumerate() {
            join_group(program, &name);
            until_together(program, &name, &members[..=before]);
        }
        let view = until_together(&bob, &name, &members);
        assert_eq!(until_together(&cy, &name, &members), view);
        Self {
            cluster,
            death,
            name,
            view,
            ann,
            bob,
            cy,
        }
    }

    /// Ann dies. Waits until Bob and Cy are told.
    fn ann_dies(&self) {
        match self.death {
            Death::Agent => self.cluster.process("n1").kill(),
            Death::Connection => self.ann.end(),
        }
        let [told_bob, told_cy] = [&self.bob, &self.cy].map(|program| {
            program.until(BOUND, |told| {
                views(told, &self.name)
                    .find(|view| view.crashed == [self.member_ann()])
                    .cloned()
            })
        });
        assert_eq!(told_bob, told_cy);
        assert_eq!(told_bob.members, self.view.members[..2]);
        let cause = (self.member_ann().to_owned(), self.death.cause().to_owned());
        assert_eq!(told_bob.causes, BTreeMap::from([cause]));
    }

    /// What Ann is called in the group.
    fn member_ann(&self) -> &str {
        &self.view.members[2]
    }

    /// Bob and Cy go on, and were told the same.
    fn close(mut self) {
        let send = format!(
            r#""send":{{"group":"{}","payload":"last","safe":true,"#,
            self.name
        );
        assert_eq!(asked(&mut self.bob, &send).error, None);
        let last = Payload::Text("last".to_owned());
        for program in [&self.bob, &self.cy] {
            program.until(BOUND, |told| {
                said(told, &self.view.members[0])
                    .any(|payload| *payload == last)
                    .then_some(())
            });
        }
        assert_eq!(self.bob.since(&self.view), self.cy.since(&self.view));
        self.bob.end();
        self.cy.end();
    }
}

/// Ann joins a second group. She has the reply, which says that the join has begun, and perhaps not yet her
/// first view. So the others see her come and go, or never see her.
fn join(scene: &mut Scene<'_>) {
    let second = format!("{}-second", scene.name);
    for program in [&mut scene.bob, &mut scene.cy] {
        join_group(program, &second);
        program.until(BOUND, |told| views(told, &second).next().map(|_| ()));
    }
    join_group(&mut scene.ann, &second);
    scene.ann_dies();
    // What Ann's agent still had to say of her comes before the join of another client there. After the
    // agent's death nothing more comes.
    let agent = match scene.death {
        Death::Agent => "n3",
        Death::Connection => "n1",
    };
    let eve = format!("eve-{}", scene.name);
    let members = [&scene.view.members[..2], &[format!("{agent}/{eve}")]].concat();
    let mut eve = Program::connect(scene.cluster, agent, &eve);
    join_group(&mut eve, &second);
    for program in [&scene.bob, &scene.cy] {
        until_together(program, &second, &members);
        let (told, ann) = (program.told(), scene.member_ann());
        let came = views(&told, &second).filter(|view| view.joined.iter().any(|member| member == ann));
        let went = views(&told, &second).filter_map(|view| view.causes.get(ann));
        let causes: Vec<&str> = went.map(String::as_str).collect();
        assert_eq!(causes, vec![scene.death.cause(); came.count()]);
    }
    eve.end();
}

/// Ann has sent many safe messages, of which she knows that the first was delivered. The others hear the
/// first ones of them, up to some point, and all that she had a reply to.
fn safe_send(scene: &mut Scene<'_>) {
    const SENT: usize = 300;
    let Scene { name, ann, .. } = &mut *scene;
    let send = |number: usize| format!(r#""send":{{"group":"{name}","payload":"{number}","safe":true,"#);
    assert_eq!(asked(ann, &send(0)).error, None);
    let sent: Vec<u64> = (1..SENT).map(|number| ann.begin(&send(number))).collect();
    scene.ann_dies();
    let (told, ann) = (scene.bob.told(), scene.member_ann());
    let gone = |event: &Event| matches!(event, Event::View(view) if view.crashed == [ann]);
    let gone = told.iter().position(gone).expect("Bob was told of it");
    assert_eq!(said(&told[gone..], ann).count(), 0, "the dead say nothing");
    let heard: Vec<Payload> = said(&told, ann).cloned().collect();
    assert_eq!(heard, numbered(heard.len()));
    let told = scene.ann.told();
    for (number, id) in (1..).zip(sent) {
        let delivered = told.iter().any(|event| {
            matches!(event, Event::Reply(reply) if reply.id == Some(Id::Number(id)) && reply.error.is_none())
        });
        assert!(
            number < heard.len() || !delivered,
            "Ann was told that {number} is delivered, and the others heard {} of her messages",
            heard.len()
        );
    }
}

/// Ann calls Cy. Cy has the request and has not answered when she dies. Nobody waits for the answer any more,
/// and Cy serves on.
fn call_made(scene: &mut Scene<'_>) {
    serve(&mut scene.cy, &scene.name);
    scene.ann.begin(&call(&scene.name, "n3"));
    let request = handed(&scene.cy, 0);
    scene.ann_dies();
    // The group of calls may be told of Ann's death a moment after the group of clients.
    let late = answer(&mut scene.cy, request).error;
    assert!(
        late.as_ref().is_none_or(|error| error.code == Code::NotHeld),
        "{late:?}"
    );
    cy_serves_bob(scene, 1);
}

/// Ann serves a call of Bob. The call ends with an error, which says that it may have run; the next one
/// certainly did not.
fn call_served(scene: &mut Scene<'_>) {
    for program in [&mut scene.ann, &mut scene.cy] {
        serve(program, &scene.name);
    }
    let call = call(&scene.name, "n1");
    let id = scene.bob.begin(&call);
    handed(&scene.ann, 0);
    scene.ann_dies();
    let code = match scene.death {
        Death::Agent => Code::Lost,
        Death::Connection => Code::Failed,
    };
    let reply = scene.bob.reply(id, BOUND);
    let failure = &reply.failures["n1"];
    assert_eq!((failure.code, failure.ran), (code, Ran::Maybe), "{reply:?}");
    assert_eq!(reply.error.map(|error| error.ran), Some(Ran::Maybe));
    let next = asked(&mut scene.bob, &call);
    assert_eq!(next.error.map(|error| error.ran), Some(Ran::No));
    cy_serves_bob(scene, 0);
}

/// Ann waits for a lock that Bob holds, and Cy waits behind her. When Bob gives it back, Cy has it.
fn lock_awaited(scene: &mut Scene<'_>) {
    let lock = format!(r#""lock":{{"name":"{}","#, scene.name);
    let first = asked(&mut scene.bob, &lock).token.expect("it is free");
    begin_to_wait(&mut scene.ann, &lock, &format!("{}-ann", scene.name));
    let next = begin_to_wait(&mut scene.cy, &lock, &format!("{}-cy", scene.name));
    scene.ann_dies();
    let unlock = format!(r#""unlock":{{"name":"{}","token":{first},"#, scene.name);
    assert_eq!(asked(&mut scene.bob, &unlock).error, None);
    let second = scene.cy.reply(next, BOUND).token.expect("its turn");
    assert!(second > first);
}

/// Ann holds a lock that Bob waits for.
fn lock_held(scene: &mut Scene<'_>) {
    passes_to_bob(scene, "lock");
}

/// Ann leads a job that Bob wants to lead.
fn lead_held(scene: &mut Scene<'_>) {
    passes_to_bob(scene, "lead");
}

fn passes_to_bob(scene: &mut Scene<'_>, what: &str) {
    let wanted = format!(r#""{what}":{{"name":"{}","#, scene.name);
    let first = asked(&mut scene.ann, &wanted).token.expect("it is free");
    let next = begin_to_wait(&mut scene.bob, &wanted, &format!("{}-bob", scene.name));
    scene.ann_dies();
    let second = scene.bob.reply(next, BOUND).token.expect("its turn");
    assert!(second > first);
}

/// Ann and Cy watch a map that Bob writes to. All writes happen, and Cy is told each of them.
fn watch(scene: &mut Scene<'_>) {
    const WRITES: usize = 100;
    let watch = format!(r#""watch":{{"map":"{}","#, scene.name);
    for program in [&mut scene.ann, &mut scene.cy] {
        assert_eq!(asked(program, &watch).error, None);
    }
    let Scene { name, ann, bob, .. } = &mut *scene;
    let put = |number: usize| format!(r#""put":{{"map":"{name}","key":"k","value":"{number}","#);
    assert_eq!(asked(bob, &put(0)).error, None);
    ann.until(BOUND, |told| changes(told).next().map(|_| ()));
    let writes: Vec<u64> = (1..WRITES).map(|number| bob.begin(&put(number))).collect();
    scene.ann_dies();
    for id in writes {
        assert_eq!(scene.bob.reply(id, BOUND).error, None);
    }
    scene
        .cy
        .until(BOUND, |told| (changes(told).count() >= WRITES).then_some(()));
    let told_cy: Vec<Payload> = changes(&scene.cy.told()).cloned().collect();
    assert_eq!(told_cy, numbered(WRITES));
    let told_ann: Vec<Payload> = changes(&scene.ann.told()).cloned().collect();
    assert!(told_cy.starts_with(&told_ann), "{told_ann:?}");
}

/// Asks for something, and gives the reply.
#[track_caller]
fn asked(program: &mut Program, what: &str) -> Reply {
    let id = program.begin(what);
    program.reply(id, BOUND)
}

#[track_caller]
fn join_group(program: &mut Program, group: &str) {
    let reply = asked(program, &format!(r#""join":{{"group":"{group}","#));
    assert_eq!(reply.error, None);
}

/// Asks for what another client holds. When this returns, the claim is in its queue: the other lock, which
/// nobody else wants, comes behind it in the order of all locks.
#[track_caller]
fn begin_to_wait(program: &mut Program, what: &str, other: &str) -> u64 {
    let id = program.begin(what);
    let behind = asked(program, &format!(r#""lock":{{"name":"{other}","#));
    assert_eq!(behind.error, None);
    id
}

#[track_caller]
fn serve(program: &mut Program, group: &str) {
    let reply = asked(program, &format!(r#""serve":{{"group":"{group}","verb":"v","#));
    assert_eq!(reply.error, None);
}

/// A call that its deadline does not end before the test gives up.
fn call(group: &str, node: &str) -> String {
    format!(r#""call":{{"group":"{group}","verb":"v","to":["{node}"],"within":"60s","#)
}

/// The request that a server was handed after so many others, as soon as it is.
#[track_caller]
fn handed(program: &Program, others: usize) -> u64 {
    program.until(BOUND, |told| {
        let mut requests = told.iter().filter_map(|event| match event {
            Event::Request(request) => Some(request.request),
            _ => None,
        });
        requests.nth(others)
    })
}

#[track_caller]
fn answer(program: &mut Program, request: u64) -> Reply {
    asked(
        program,
        &format!(r#""answer":{{"request":{request},"payload":"yes","#),
    )
}

/// Bob calls Cy, and has the answer. Cy was handed so many requests before.
#[track_caller]
fn cy_serves_bob(scene: &mut Scene<'_>, others: usize) {
    let id = scene.bob.begin(&call(&scene.name, "n3"));
    let request = handed(&scene.cy, others);
    assert_eq!(answer(&mut scene.cy, request).error, None);
    let reply = scene.bob.reply(id, BOUND);
    let yes = ("n3".to_owned(), Payload::Text("yes".to_owned()));
    assert_eq!(reply.replies, Some(BTreeMap::from([yes])));
}

/// The latest view of a group, as soon as these and nobody else are its members.
#[track_caller]
fn until_together(program: &Program, group: &str, members: &[String]) -> View {
    program.until(BOUND, |told| {
        let last = views(told, group).next_back();
        last.filter(|view| view.members == members).cloned()
    })
}

/// The views of a group that a client was told.
fn views<'a>(told: &'a [Event], group: &'a str) -> impl DoubleEndedIterator<Item = &'a View> {
    told.iter().filter_map(move |event| match event {
        Event::View(view) if view.group == group => Some(view),
        _ => None,
    })
}

/// What a client was told that this member said.
fn said<'a>(told: &'a [Event], sender: &'a str) -> impl Iterator<Item = &'a Payload> {
    told.iter().filter_map(move |event| match event {
        Event::Message(message) if message.sender == sender => Some(&message.payload),
        _ => None,
    })
}

/// The values that a client was told by its watch.
fn changes(told: &[Event]) -> impl Iterator<Item = &Payload> {
    told.iter().filter_map(|event| match event {
        Event::Changed(changed) => changed.value.as_ref(),
        _ => None,
    })
}

/// The first so many payloads of a client that counts.
fn numbered(count: usize) -> Vec<Payload> {
    (0..count)
        .map(|number| Payload::Text(number.to_string()))
        .collect()
}
