//! The result of asking one address, step by step: whether a node is there, whether it is of this cluster,
//! and what it says.

use antiphon_core::wire::enquiry::{Answer, KnownThere, Notice, Verdict};
use antiphon_core::wire::frame::WIRE_VERSION;
use antiphon_core::wire::membership::WIRE_LEVEL;
use antiphon_core::{EngineKind, Policy};
use antiphon_net::Lack;
use antiphon_net::tcp::{GIVE_THE_NODES_PORT, IS_AN_AGENTS_PORT, Reached, is_of_an_agent};

use super::report::{Report, Step};
use super::seeds::{Asked, Enquiries};

impl Enquiries {
    pub(super) fn tell(&self, report: &mut Report, asked: &Asked) {
        let Some(reached) = &asked.reached else {
            return;
        };
        let notice = match self.reach(asked, reached) {
            Ok((step, notice)) => {
                report.add(step);
                notice
            }
            Err(step) => return report.add(step),
        };
        if let Some(step) = self.identity(asked, notice) {
            return report.add(step);
        }
        if asked.mistaken {
            return report.add(mistaken(asked, &self.cluster));
        }
        // A node and a locator take the question in the same way: the answer tells which of the two is there.
        let what = match (&asked.answer, &asked.known) {
            (None, None) => "node or locator",
            (None, Some(_)) => "locator",
            (Some(_), _) => "node",
        };
        report.add(Step::ok(
            "identity",
            asked.addr,
            format!(
                "a {what} of cluster {}, same key, frame version {}, wire level {}",
                self.cluster, notice.version, notice.wire_level
            ),
        ));
        if asked.locator {
            return report.add(match &asked.known {
                Some(known) => known_there(asked, known),
                None => self.no_answer(asked),
            });
        }
        let Some(answer) = &asked.answer else {
            return report.add(self.no_answer(asked));
        };
        self.told(report, asked, answer);
    }

    /// Whether a node is there at all.
    fn reach<'a>(&self, asked: &Asked, reached: &'a Reached) -> Result<(Step, &'a Notice), Step> {
        let within = self.within.as_secs_f32();
        let start = match asked.locator {
            true => {
                "start that locator; if it runs, compare its --bind with this address, and look for a firewall that rejects"
            }
            false => {
                "start that node; if it runs, compare its --bind with this address, and look for a firewall that rejects"
            }
        };
        let (code, cause, remedy) = match reached {
            Reached::Node { notice, connected } => {
                let text = format!("connected in {:.1} ms", connected.as_secs_f64() * 1000.0);
                return Ok((Step::ok("reach", asked.addr, text), notice));
            }
            Reached::Refused => (
                "nobody-listens",
                "nobody listens there: the host refuses the connection".to_owned(),
                start,
            ),
            Reached::TimedOut => (
                "timeout",
                format!("no answer to the connection within {within} s"),
                "packets are dropped on the way: a firewall (here, there or between), a wrong address, or the host is down",
            ),
            Reached::Unreachable(error) => (
                "unreachable",
                format!("the system cannot send there: {error}"),
                Lack::of(error).map_or(
                    "mend the address, the route or the interface of this host",
                    Lack::remedy,
                ),
            ),
            Reached::Silent => (
                "silent",
                format!("it takes the connection, and says nothing for {within} s"),
                "a node whose process is stopped or starved does this, and so does something that is no node: look which process has that port",
            ),
            Reached::Closed => (
                "closed",
                "it takes the connection and ends it without a word".to_owned(),
                "a node at its limit of connections does this, an overloaded proxy, or something that is no node: look which process has that port, and into its log",
            ),
            Reached::Stranger(bytes) if is_of_an_agent(bytes) => (
                "agent-port",
                format!("this {IS_AN_AGENTS_PORT}"),
                GIVE_THE_NODES_PORT,
            ),
            Reached::Stranger(bytes) => (
                "stranger",
                format!(
                    "something else than Antiphon answers: it begins with {}",
                    shown(bytes)
                ),
                "mend the address or port in the seed list, or stop what has taken the node's port",
            ),
            _ => (
                "reach",
                "it is not understood what is there".to_owned(),
                "use a newer `antiphon`",
            ),
        };
        Err(Step::failed("reach", code, asked.addr, cause, remedy))
    }

    /// Whether the node there is one of this cluster that can be talked to.
    fn identity(&self, asked: &Asked, notice: &Notice) -> Option<Step> {
        let older = |theirs: u8, ours: u8| match theirs < ours {
            true => "upgrade that node",
            false => "upgrade this one",
        };
        let (code, cause, remedy) = match notice.verdict {
            Verdict::Taken => {
                let apart = notice.wire_level.abs_diff(WIRE_LEVEL);
                if apart <= 1 && notice.wire_level > 0 {
                    return None;
                }
                (
                    "wire-level",
                    format!(
                        "it speaks wire level {} and this build {WIRE_LEVEL}: a build supports its own and the one before",
                        notice.wire_level
                    ),
                    older(notice.wire_level, WIRE_LEVEL).to_owned(),
                )
            }
            Verdict::Version => (
                "wire-version",
                format!(
                    "it speaks frame version {} and this build {WIRE_VERSION}",
                    notice.version
                ),
                older(notice.version, WIRE_VERSION).to_owned(),
            ),
            Verdict::OtherCluster => (
                "other-cluster",
                format!(
                    "the node there belongs to a cluster of another name than {:?}",
                    self.cluster
                ),
                "give both the same --cluster, or mend the address in the seed list".to_owned(),
            ),
            Verdict::Key => (
                "wrong-key",
                format!(
                    "the node there has another cluster key, or only one side has one: this side has {}",
                    self.key
                ),
                "give both the same --key-file; `antiphon doctor` on that host shows the id of its key"
                    .to_owned(),
            ),
            Verdict::BadTag => (
                "bad-tag",
                "the frame did not open there: it was damaged on the way, or sealed with another key"
                    .to_owned(),
                "compare the key files; look for a middle box that changes what passes".to_owned(),
            ),
            Verdict::NotAFrame | Verdict::Other(_) | _ => (
                "not-taken",
                "the node there refused the frame for another reason".to_owned(),
                "its log says why".to_owned(),
            ),
        };
        Some(Step::failed("identity", code, asked.addr, cause, remedy))
    }

    fn no_answer(&self, asked: &Asked) -> Step {
        let at: Vec<String> = self.port.reached_at.iter().map(ToString::to_string).collect();
        let at = at.join(", ");
        let cause = format!(
            "it took the question, and its answer did not come to {at}: the way there is open, the way back is not"
        );
        let step = Step::failed(
            "answer",
            "no-answer",
            asked.addr,
            cause,
            "it must reach this node at that address: mend --advertise, or open the port in the firewall of this host",
        );
        match self.port.is_the_nodes {
            true => step,
            // A firewall may well pass the node's own port only.
            false => step.but_harmless(),
        }
    }

    /// What an answer says.
    fn told(&self, report: &mut Report, asked: &Asked, answer: &Answer) {
        let missed: Vec<String> = self
            .port
            .reached_at
            .iter()
            .filter(|addr| !asked.arrived.contains(addr))
            .map(ToString::to_string)
            .collect();
        let node = &answer.node;
        let text = format!("{} answers, and reaches this node", node.name);
        report.add(match missed.as_slice() {
            [] => Step::ok("answer", asked.addr, text),
            missed => Step::failed(
                "answer",
                "no-answer",
                asked.addr,
                format!(
                    "{} answers, but what it sends to {} does not arrive",
                    node.name,
                    missed.join(", ")
                ),
                "open that port in the firewall of this host, or mend --advertise",
            )
            .but_harmless(),
        });
        if node.addr != asked.addr && !node.further.contains(&asked.addr) {
            report.add(Step::warning(
                "answer",
                asked.addr,
                format!(
                    "{} calls itself {}: seed lists must name it by that address, or it is taken for another founder",
                    node.name, node.addr
                ),
            ));
        }
        self.compare(report, asked, answer);
        if let Some(objection) = &answer.objection {
            report.add(Step::failed(
                "verdict",
                "refused",
                asked.addr,
                format!("{} would refuse this node: {}", node.name, objection.reason),
                if objection.fatal {
                    "a node with these settings is told so and ends"
                } else {
                    "a node with these settings is told so and goes on trying"
                },
            ));
        } else {
            report.add(Step::ok("verdict", asked.addr, standing(answer)));
        }
        for (group, reason) in &answer.groups {
            report.add(Step::failed(
                "group",
                "group-options",
                format!("{group} at {}", asked.addr),
                reason.clone(),
                "give all members of the group the same options",
            ));
        }
    }

    /// What both sides must have alike.
    fn compare(&self, report: &mut Report, asked: &Asked, answer: &Answer) {
        let own = self.enquirer.node();
        let node = &answer.node;
        if (node.engine, node.policy) != (own.engine, own.policy) {
            report.add(Step::failed(
                "engine",
                "engine",
                asked.addr,
                format!(
                    "{} runs the membership engine `{}` (policy `{}`), and this node would run `{}` (policy `{}`)",
                    node.name,
                    EngineKind::named(node.engine),
                    Policy::named(node.policy),
                    EngineKind::named(own.engine),
                    Policy::named(own.policy)
                ),
                "give all nodes of the cluster the same --membership and --policy",
            ));
        } else {
            report.add(Step::ok(
                "engine",
                asked.addr,
                "the same membership engine and policy",
            ));
        }
        let both_found = self.founder && answer.standing.is_none() && asked.seed.is_some();
        if both_found && answer.seeds != self.seeds && answer.objection.is_none() {
            report.add(Step::failed(
                "seeds",
                "seed-list",
                asked.addr,
                format!("{} has another seed list, or another --expect", node.name),
                "give all founding nodes the same",
            ));
        }
    }
}

/// Where a node stands that would have this one.
fn standing(answer: &Answer) -> String {
    let name = &answer.node.name;
    match &answer.standing {
        None if answer.missing.is_empty() => format!("{name} is in no cluster yet, and misses nobody"),
        None => {
            let missing: Vec<String> = answer.missing.iter().map(ToString::to_string).collect();
            format!(
                "{name} is in no cluster yet; it has no answer from {}",
                missing.join(", ")
            )
        }
        Some(standing) => {
            let admits = answer.coordinator.as_ref().map_or(String::new(), |(admits, _)| {
                format!(", where {admits} admits nodes")
            });
            let majority = match standing.primary {
                true => "",
                false => " WITHOUT a majority",
            };
            let present = match answer.present {
                true => "; this node is a member already",
                false => "",
            };
            format!(
                "{name} is in view {}{majority} of {} members{admits}{present}",
                standing.number, answer.members
            )
        }
    }
}

/// A node where a locator is expected, or the other way round. A running node asks it in vain for as long as
/// it runs.
fn mistaken(asked: &Asked, cluster: &str) -> Step {
    let (code, there, list, other) = match asked.locator {
        true => ("is-a-node", "a node", "--locators", "--seeds"),
        false => ("is-a-locator", "a locator", "--seeds", "--locators"),
    };
    Step::failed(
        "identity",
        code,
        asked.addr,
        format!("{there} of cluster {cluster} is there, and {list} names it"),
        format!("take this address out of {list}, and give it with {other}"),
    )
}

/// The nodes that a locator knows.
fn known_there(asked: &Asked, known: &KnownThere) -> Step {
    let members = known.nodes.iter().filter(|node| node.member).count();
    let others = known.nodes.len() - members;
    let up = antiphon_api::ago(known.up_ms.into());
    let text = format!("runs for {up}, and knows {members} members and {others} other nodes");
    match known.nodes.is_empty() {
        false => Step::ok("locator", asked.addr, text),
        true => Step::warning(
            "locator",
            asked.addr,
            format!("{text}: nodes that are to be found by it need this address among their --locators"),
        ),
    }
}

/// What something that is no node said, as far as it can be printed.
fn shown(bytes: &[u8]) -> String {
    format!("\"{}\"", bytes.escape_ascii())
}
