//! The verdict of all steps: which cluster the node would join, or with which nodes it would found one.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

use antiphon_core::wire::Lineage;
use antiphon_core::wire::enquiry::{Answer, KnownThere};

use super::report::{Report, Step};
use super::running::{Own, lacks_majority};
use super::seeds::{Asked, Enquiries};
use crate::settings::Settings;

/// What keeps a node from asking any other.
#[derive(Debug)]
pub(super) struct Obstacles {
    /// It runs already, and cannot be asked.
    pub(super) is_silent: bool,
    /// Seeds: the node looks them up once, before anything else.
    pub(super) unresolved: Vec<String>,
    /// What the system refuses it at its start.
    pub(super) cannot: Vec<&'static str>,
}

impl Obstacles {
    /// Tells the verdict, if there are any.
    pub(super) fn tell(&self, report: &mut Report) -> bool {
        let text = match self.unresolved.as_slice() {
            _ if self.is_silent => {
                "the node runs and does not answer: see what is said of it above".to_owned()
            }
            [] if self.cannot.is_empty() => return false,
            [] => format!(
                "a node with these settings ends at once: it cannot {}, as is said above",
                self.cannot.join(", nor ")
            ),
            unresolved => format!(
                "a node with these settings ends at once (exit code 1): of its seeds, {} cannot be resolved; a name that may resolve later is written dns:NAME:PORT, with --expect",
                unresolved.join(", ")
            ),
        };
        report.verdict(false, text);
        true
    }
}

/// Draws the conclusion.
pub(super) fn draw(
    report: &mut Report,
    settings: &Settings,
    enquiries: &Enquiries,
    own: Option<&Own>,
    obstacles: &Obstacles,
) {
    if let Some(status) = own.and_then(|own| own.status.as_ref()) {
        if lacks_majority(status) {
            let silent = match status.silent.as_slice() {
                [] => "the others".to_owned(),
                silent => silent.join(", "),
            };
            let text = format!(
                "the node {} runs and is a member, but hears no majority: mend the way to {silent}, or continue or start what does not run there; if they are lost for good, see `antiphon recover`",
                status.node
            );
            return report.verdict(false, text);
        }
        if status.state == "primary" {
            let text = format!(
                "the node {} runs and is a member of view {}, of {} members",
                status.node,
                status.view.map_or("?".to_owned(), |view| view.to_string()),
                status.members
            );
            return report.verdict(true, text);
        }
    }
    if obstacles.tell(report) {
        return;
    }
    let answers = || answers_of(enquiries);
    if own.is_none()
        && founds_at_once(settings)
        && let Some(member) = answers().find(|answer| answer.standing.is_some())
    {
        report.add(second_cluster(&member.node.name));
        let text = "this node founds a cluster of its own, beside the one that is there";
        return report.verdict(false, text.to_owned());
    }
    let mut primaries: BTreeMap<Lineage, (u32, u16, String)> = BTreeMap::new();
    for answer in answers() {
        if let Some(standing) = answer.standing.filter(|standing| standing.primary) {
            let shown = (standing.number, answer.members, answer.node.name.clone());
            primaries.entry(standing.lineage).or_insert(shown);
        }
    }
    if primaries.len() > 1 {
        let each: Vec<String> = primaries
            .values()
            .map(|(number, members, name)| format!("{name} in view {number} of {members} members"))
            .collect();
        report.add(Step::failed(
            "cluster",
            "two-clusters",
            "",
            format!(
                "the seeds are in {} clusters of this name: {}",
                primaries.len(),
                each.join("; ")
            ),
            how_they_become_one(settings, enquiries),
        ));
    }
    if let Some((number, members, name)) = primaries.values().next() {
        return match (refusal(answers()), closed_coordinator(enquiries)) {
            (None, Some((admits, addr))) => report.verdict(
                false,
                format!("the cluster is there, {name} in view {number} of {members} members, and {admits} at {addr}, which admits nodes, cannot be reached from here, or does not reach this node: mend that first"),
            ),
            (None, None) => report.verdict(
                true,
                format!("the cluster is there, {name} in view {number} of {members} members: this node would join it"),
            ),
            (Some(reason), _) => report.verdict(
                false,
                format!("the cluster is there, in view {number} of {members} members, and would refuse this node: {reason}"),
            ),
        };
    }
    founding(report, settings, enquiries);
}

fn answers_of(enquiries: &Enquiries) -> impl Iterator<Item = &Answer> {
    enquiries.asked.iter().filter_map(|asked| asked.answer.as_ref())
}

fn members_of_primaries<'a>(answers: impl Iterator<Item = &'a Answer>) -> impl Iterator<Item = &'a Answer> {
    answers.filter(|answer| answer.standing.is_some_and(|standing| standing.primary))
}

/// Such a node asks nobody first.
fn founds_at_once(settings: &Settings) -> bool {
    settings.found || settings.expect == Some(1)
}

fn second_cluster(member: &str) -> Step {
    Step::failed(
        "cluster",
        "second-cluster",
        "",
        format!(
            "{member} is a member of a cluster already, and with --found, or --expect 1, this node founds another one at once, without asking; where the two meet, the one with less weight starts over without what it had"
        ),
        "leave --found and --expect 1 out: then this node joins the cluster that is there",
    )
}

/// The member that admits nodes, if this node and that one do not reach each other: then the node asks it in
/// vain. Others that answer only say which member that is. Where they name several, one that is open is
/// enough. An address that was not asked counts as open.
fn closed_coordinator(enquiries: &Enquiries) -> Option<(&str, SocketAddr)> {
    let members = members_of_primaries(answers_of(enquiries));
    let mut admits = members.filter_map(|answer| answer.coordinator.as_ref());
    let is_open = |name: &str, addr: SocketAddr| {
        // Where a firewall passes the node's own port alone, an answer to another port does not come.
        let has_heard = |asked: &Asked| asked.took_it() && !enquiries.port.is_the_nodes;
        let mut there = enquiries.asked.iter().filter(|asked| asked.addr == addr);
        answers_where_it_is_asked(&enquiries.asked, name, addr) || there.all(has_heard)
    };
    let (name, addr) = admits.next()?;
    let all_closed = !is_open(name, *addr) && admits.all(|(name, addr)| !is_open(name, *addr));
    all_closed.then_some((name.as_str(), *addr))
}

/// Whether a coordinator has answered at an address at which a joiner asks to be admitted. That is the one by
/// which members name the coordinator. If a seed lists that address together with further ones of the
/// coordinator, the joiner asks at those, too. At any other address it gets answers alone.
fn answers_where_it_is_asked(all: &[Asked], name: &str, addr: SocketAddr) -> bool {
    let is_listed_beside = |asked: &Asked| {
        let mut there = all.iter().filter(|there| there.addr == addr);
        asked.seed.is_some() && there.any(|there| there.seed == asked.seed)
    };
    all.iter().any(|asked| {
        let answer = asked.answer.as_ref().filter(|answer| answer.node.name == name);
        answer.is_some_and(|answer| {
            asked.addr == addr || (answer.node.further.contains(&asked.addr) && is_listed_beside(asked))
        })
    })
}

/// A node with this seed list looks at all seeds that are asked here, so at the other cluster's, too.
fn how_they_become_one(settings: &Settings, enquiries: &Enquiries) -> String {
    let of_the_list = enquiries.asked.iter().filter(|asked| asked.seed.is_some());
    let in_primaries = of_the_list.filter_map(|asked| {
        let answer = asked.answer.as_ref()?;
        answer.standing.filter(|standing| standing.primary)?;
        Some(answer)
    });
    // If a number of nodes is expected, nodes compare that number, and not the list.
    let mut alike =
        in_primaries.filter(|answer| settings.expect.is_none() && answer.seeds == enquiries.seeds);
    match alike.next() {
        Some(answer) => format!(
            "{} has this very seed list, so it finds the others: they become one within seconds, unless it cannot reach them, which the doctor says on its host",
            answer.node.name
        ),
        None => "as far as is seen none of them has this seed list: give the nodes of one cluster the addresses of the other as --seeds, or both the same --locators; a node started with --found alone looks for nobody".to_owned(),
    }
}

/// No node that answered is in a primary view.
fn founding(report: &mut Report, settings: &Settings, enquiries: &Enquiries) {
    let answers = || answers_of(enquiries);
    if answers().any(|answer| answer.standing.is_some()) {
        return report.verdict(
            false,
            "members answer, but without a majority: they wait for the others, and admit nobody until then"
                .to_owned(),
        );
    }
    let others = enquiries.others;
    let finds_others = !settings.looks_for_nobody();
    if founds_at_once(settings) || (others == 0 && settings.expect.is_none() && !finds_others) {
        return report.verdict(true, "this node founds a cluster by itself, at once".to_owned());
    }
    let unseen = enquiries.unseen.join(", ");
    let unseen = (!unseen.is_empty()).then(|| {
        format!("the nodes that {unseen} leads to are not seen here: start this node and read its `discovery` lines")
    });
    if others == 0 && settings.expect.is_none() {
        let text = "this node founds no cluster without --expect or --found: it waits for one that its sources or locators lead to";
        return match unseen {
            Some(unseen) => report.unknown(format!("{text}; {unseen}")),
            None => report.verdict(false, text.to_owned()),
        };
    }
    let of_founders = enquiries.asked.iter().filter(|asked| asked.seed.is_some());
    let alike = of_founders
        .filter_map(|asked| asked.answer.as_ref())
        .filter(|answer| answer.objection.is_none() && answer.seeds == enquiries.seeds);
    let has_vote =
        (enquiries.founder && settings.weight > 0) || alike.clone().any(|answer| answer.node.weight > 0);
    let others_ready = different(alike, &settings.name, &enquiries.own);
    let ready = others_ready + usize::from(enquiries.founder);
    let (needed, of) = match settings.expect {
        Some(expect) => (usize::from(expect), format!("the {expect} expected")),
        None => {
            // The node counts addresses: a seed that is listed twice is one.
            let seeds: BTreeSet<_> = settings.seeds.iter().map(|seed| seed.0.first()).collect();
            (seeds.len() / 2 + 1, format!("{} seeds", seeds.len()))
        }
    };
    let here = match enquiries.founder {
        true => ", this one included",
        false => "; this one is not among them, and only joins",
    };
    let so_far = match answers().next() {
        Some(_) => "no cluster yet",
        None if nobody_is_known(enquiries.asked.iter().filter_map(|asked| asked.known.as_ref())) => {
            "the locators know nobody yet"
        }
        None => "no other node could be asked",
    };
    match ready >= needed {
        true if !has_vote => report.verdict(
            false,
            format!("{so_far}; {ready} of {of} are ready{here}, but none of them has a vote (--weight 0), and without one nothing is founded: start one with a weight above 0"),
        ),
        true => report.verdict(
            true,
            format!("{so_far}; {ready} of {of} are ready{here}: enough to found it"),
        ),
        false => {
            let text = format!("{so_far}; {ready} of {of} are ready{here}; {needed} are needed to found it");
            match (shared_name(answers(), &settings.name, &enquiries.own), unseen) {
                (Some(name), _) => report.verdict(
                    false,
                    format!("{text}, and those that are called {name} count as one: give them different names"),
                ),
                (None, Some(unseen)) => report.unknown(format!("{text}; {unseen}")),
                (None, None) => report.verdict(
                    false,
                    format!("{text}: start the others, or mend what is said of them above"),
                ),
            }
        }
    }
}

/// Why the cluster would not take this node: one of its members says so. What others object to concerns a
/// founding with them.
fn refusal<'a>(answers: impl Iterator<Item = &'a Answer>) -> Option<&'a str> {
    members_of_primaries(answers).find_map(|answer| Some(answer.objection.as_ref()?.reason.as_str()))
}

/// How many nodes other than this one these answers are of: one may be asked at several of its addresses, and
/// two of one name count as one.
fn different<'a>(
    answers: impl Iterator<Item = &'a Answer>,
    own_name: &str,
    own: &BTreeSet<SocketAddr>,
) -> usize {
    let (mut addrs, mut names) = (BTreeSet::new(), BTreeSet::new());
    for answer in answers.filter(|answer| answer.node.name != own_name && !own.contains(&answer.node.addr)) {
        addrs.insert(answer.node.addr);
        names.insert(answer.node.name.as_str());
    }
    addrs.len().min(names.len())
}

/// A name that several nodes have, this one among them: nodes of one name found no cluster together.
fn shared_name<'a>(
    answers: impl Iterator<Item = &'a Answer>,
    own_name: &str,
    own: &BTreeSet<SocketAddr>,
) -> Option<&'a str> {
    let mut known: BTreeMap<&str, SocketAddr> = BTreeMap::new();
    let mut nodes = answers
        .map(|answer| &answer.node)
        .filter(|node| !own.contains(&node.addr));
    let shared = nodes.find(|node| {
        let before = known.insert(&node.name, node.addr);
        node.name == own_name || before.is_some_and(|before| before != node.addr)
    });
    shared.map(|node| node.name.as_str())
}

/// Whether locators have answered, and none of them knows a node.
fn nobody_is_known<'a>(mut known: impl Iterator<Item = &'a KnownThere>) -> bool {
    let Some(first) = known.next() else {
        return false;
    };
    first.nodes.is_empty() && known.all(|known| known.nodes.is_empty())
}

#[cfg(test)]
mod tests {
    use antiphon_core::wire::ViewId;
    use antiphon_core::wire::enquiry::Objection;
    use antiphon_core::wire::membership::{KnownNode, NodeRecord, Standing};

    use super::*;

    fn addr(port: u16) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], port))
    }

    fn answer(name: &str, port: u16, primary: Option<bool>, objects: bool) -> Answer {
        Answer {
            nonce: 0,
            to: addr(9),
            node: NodeRecord {
                name: name.to_owned(),
                addr: addr(port),
                further: Vec::new(),
                metadata: Default::default(),
                weight: 1,
                wire_level: 1,
                engine: 0,
                policy: 0,
            },
            seeds: 0,
            standing: primary.map(|primary| Standing {
                lineage: Lineage(1),
                view: ViewId { epoch: 1, counter: 1 },
                number: 1,
                weight: 1,
                primary,
                engine: 0,
                policy: 0,
                overrides: None,
            }),
            members: 1,
            coordinator: None,
            present: false,
            missing: Vec::new(),
            objection: objects.then(|| Objection {
                reason: format!("{name} objects"),
                fatal: false,
            }),
            groups: Vec::new(),
        }
    }

    #[test]
    fn a_node_that_is_asked_at_two_addresses_is_one_and_this_node_is_none_of_the_others() {
        let own = BTreeSet::from([addr(1)]);
        let count = |answers: &[Answer]| different(answers.iter(), "new", &own);
        let (a, b) = (answer("a", 2, None, false), answer("b", 3, None, false));
        assert_eq!(count(&[a.clone(), a.clone()]), 1);
        assert_eq!(count(&[a.clone(), b.clone()]), 2);
        assert_eq!(count(&[a.clone(), answer("a", 4, None, false)]), 1, "of one name");
        assert_eq!(count(&[answer("c", 1, None, false)]), 0, "at this node's address");
        assert_eq!(
            count(&[answer("new", 5, None, false), b]),
            1,
            "of this node's name"
        );
        assert_eq!(count(&[]), 0);
    }

    #[test]
    fn a_name_is_shared_by_nodes_at_different_addresses_this_one_included() {
        let own = BTreeSet::from([addr(1)]);
        let shared = |answers: &[Answer]| {
            let name = shared_name(answers.iter(), "new", &own);
            name.map(str::to_owned)
        };
        let (a, b) = (answer("a", 2, None, false), answer("b", 3, None, false));
        assert_eq!(shared(&[a.clone(), b.clone(), a.clone()]), None);
        assert_eq!(
            shared(&[a, b.clone(), answer("a", 4, None, true)]).as_deref(),
            Some("a")
        );
        assert_eq!(
            shared(&[b, answer("new", 5, None, false)]).as_deref(),
            Some("new")
        );
        assert_eq!(
            shared(&[answer("new", 1, None, false)]),
            None,
            "this node itself, which runs"
        );
    }

    #[test]
    fn only_members_of_the_cluster_say_that_it_would_refuse_a_node() {
        let waits = answer("w", 1, None, true);
        let lost = answer("l", 2, Some(false), true);
        let member = answer("m", 3, Some(true), false);
        let all = [waits, lost, member];
        assert_eq!(refusal(all.iter()), None);
        let objects = [answer("w", 1, None, true), answer("n", 4, Some(true), true)];
        assert_eq!(refusal(objects.iter()), Some("n objects"));
    }

    #[test]
    fn a_coordinator_that_answers_elsewhere_than_where_a_joiner_asks_it_does_not_count() {
        let asked = |port: u16, seed: Option<usize>, answer: Option<Answer>| Asked {
            addr: addr(port),
            seed,
            locator: false,
            reached: None,
            answer,
            known: None,
            mistaken: false,
            arrived: BTreeSet::new(),
        };
        let a = answer("a", 1, Some(true), false);
        let mut a_of_two = a.clone();
        a_of_two.node.further = vec![addr(2)];
        let is_open = |all: &[Asked]| answers_where_it_is_asked(all, "a", addr(1));
        let closed = |seed| asked(1, seed, None);
        assert!(is_open(&[asked(1, None, Some(a.clone()))]));
        assert!(!is_open(&[asked(1, None, Some(answer("b", 1, None, false)))]));
        // By way of a proxy.
        assert!(!is_open(&[asked(2, Some(0), Some(a.clone())), closed(None)]));
        assert!(!is_open(&[closed(Some(0)), asked(2, Some(0), Some(a))]));
        // At its own further address: the joiner asks there only if the seed says that both are of one node.
        let further = |seed| asked(2, seed, Some(a_of_two.clone()));
        assert!(is_open(&[closed(Some(0)), further(Some(0))]));
        assert!(!is_open(&[closed(Some(0)), further(Some(1))]));
        assert!(!is_open(&[closed(None), further(None)]));
    }

    #[test]
    fn locators_know_nobody_if_none_of_those_that_answer_does() {
        let known = |nodes: usize| KnownThere {
            nonce: 0,
            to: addr(9),
            up_ms: 1,
            nodes: vec![
                KnownNode {
                    addr: addr(1),
                    member: true,
                    age_s: 0,
                };
                nodes
            ],
        };
        assert!(!nobody_is_known([].iter()));
        assert!(nobody_is_known([known(0), known(0)].iter()));
        assert!(!nobody_is_known([known(0), known(1)].iter()));
        assert!(!nobody_is_known([known(1), known(0)].iter()));
    }
}
