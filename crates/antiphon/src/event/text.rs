//! Events for people: a line each.

use std::fmt::{Display, Formatter, Result};
use std::net::SocketAddr;
use std::sync::Arc;

use antiphon_core::wire::Member;
use antiphon_net::tcp::{GIVE_THE_NODES_PORT, IS_AN_AGENTS_PORT};

use super::{ClusterEvent, Event, Message, Messages, Part};

impl Display for ClusterEvent {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        match self {
            ClusterEvent::Incarnation(incarnation) => {
                write!(f, "goes by incarnation {}", incarnation.short())
            }
            ClusterEvent::Forming {
                missing,
                rejecting,
                agents,
                awaits,
            } => {
                write!(f, "forming: {awaits}")?;
                if !missing.is_empty() {
                    write!(f, "; no answer yet from {}", listed(missing))?;
                }
                match rejection(rejecting, agents) {
                    Some(reason) => write!(f, "; {reason}"),
                    None => Ok(()),
                }
            }
            ClusterEvent::Alone { reason } => write!(f, "founds a cluster alone: {reason}"),
            ClusterEvent::Discovery {
                source,
                found,
                problem,
            } => {
                write!(f, "{source} finds {}", listed(found))?;
                match problem {
                    Some(problem) => write!(f, ", and has a problem: {problem}"),
                    None => Ok(()),
                }
            }
            ClusterEvent::Merge { parts } => write!(f, "merge: {}", listed(parts)),
            ClusterEvent::View(view) => view.fmt(f),
            ClusterEvent::PastView(view) => view.fmt(f),
            ClusterEvent::Refused { reason, fatal } => {
                let tries = if *fatal { "" } else { "; trying again" };
                write!(f, "refused: {reason}{tries}")
            }
            ClusterEvent::Expelled { cause } => write!(f, "expelled though alive: {cause}"),
            ClusterEvent::Link {
                peer,
                links,
                number,
                cause,
            } => write!(f, "link {number} to {peer}: {cause} ({links})"),
            ClusterEvent::Starved { missed, within } => {
                write!(f, "this node did not run for {missed:?} of the last {within:?}")
            }
            ClusterEvent::Lease { held: true } => f.write_str("a majority answers this node"),
            ClusterEvent::Lease { held: false } => f.write_str("no majority answers this node"),
            ClusterEvent::Path { peer, through, .. } => match through {
                Some(through) => write!(f, "no direct path to {peer}: it goes through {through}"),
                None => write!(f, "{peer} is sent to directly again"),
            },
            ClusterEvent::Multicast { peer, hears } => {
                let not = if *hears { "hears" } else { "does not hear" };
                write!(f, "{peer} {not} this node's multicast")
            }
            ClusterEvent::Left => f.write_str("left in order"),
            ClusterEvent::Overrun => f.write_str("the reader was too slow: the stream of events ends here"),
        }
    }
}

impl Display for Event {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        match self {
            Event::View(view) => view.fmt(f),
            Event::Message(message) => message.fmt(f),
            Event::Told(message) => write!(f, "told by {message}"),
            Event::Transitional { members } => {
                write!(f, "until the next view complete among {}", names(members))
            }
            Event::Suspended => f.write_str("suspended: no majority"),
            Event::Resync { cause } => write!(f, "starts over: {cause}"),
            Event::Refused { reason } => write!(f, "refused: {reason}"),
            Event::Left => f.write_str("left in order"),
        }
    }
}

/// `a 7: hello`: the sender, its number, and what it says, or how long that is if it is no text.
impl Display for Message {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        write!(f, "{} {}: ", self.sender, self.seq)?;
        match std::str::from_utf8(&self.payload) {
            Ok(text) => f.write_str(&antiphon_core::text::on_one_line(text)),
            Err(_) => write!(f, "({} bytes)", self.payload.len()),
        }
    }
}

/// `3 messages of a from 7`.
impl Display for Messages {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        write!(
            f,
            "{} messages of {} from {}",
            self.len(),
            self.sender(),
            self.first_seq()
        )
    }
}

/// `a b of view 1:4`.
impl Display for Part {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        write!(f, "{} of view {}", names(&self.members), self.view)
    }
}

fn names(members: &[Arc<Member>]) -> String {
    let names: Vec<&str> = members.iter().map(|member| member.name.as_str()).collect();
    names.join(" ")
}

fn listed(given: &[impl ToString]) -> String {
    match given {
        [] => "nobody".to_owned(),
        given => given
            .iter()
            .map(ToString::to_string)
            .collect::<Vec<_>>()
            .join(", "),
    }
}

/// What to tell the operator of a node if these addresses do not accept its frames. At some of them agents
/// serve programs.
#[doc(hidden)]
pub fn rejection(by: &[SocketAddr], agents: &[SocketAddr]) -> Option<String> {
    let (agents, nodes): (Vec<SocketAddr>, Vec<SocketAddr>) =
        by.iter().copied().partition(|addr| agents.contains(addr));
    let misled = (!agents.is_empty()).then(|| {
        let agents = listed(&agents);
        format!("{agents} {IS_AN_AGENTS_PORT}: {GIVE_THE_NODES_PORT}")
    });
    let rejected = (!nodes.is_empty()).then(|| {
        format!(
            "{} closed each connection after this node's first frame: check that --key-file and --cluster are the \
             same here and there (the log there says which differs)",
            listed(&nodes)
        )
    });
    match (misled, rejected) {
        (Some(misled), Some(rejected)) => Some(format!("{misled}; {rejected}")),
        (misled, rejected) => misled.or(rejected),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_agents_port_is_told_apart_from_a_node_that_ends_connections() {
        let [node, agent] = [7400, 7480].map(|port| SocketAddr::from(([127, 0, 0, 1], port)));
        assert_eq!(rejection(&[], &[agent]), None);
        let told = rejection(&[agent], &[agent]).unwrap();
        assert!(told.contains("127.0.0.1:7480 is the port of an agent") && !told.contains("--key-file"));
        let told = rejection(&[node], &[agent]).unwrap();
        assert!(told.contains("--key-file") && !told.contains("agent"), "{told}");
        let told = rejection(&[node, agent], &[agent]).unwrap();
        assert!(
            told.contains("7480 is the port") && told.contains("7400 closed each"),
            "{told}"
        );
    }
}
