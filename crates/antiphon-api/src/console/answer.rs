//! What a node answers at its console.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

#[cfg(doc)]
use super::Question;
use crate::Told;

/// What a node answers: one line.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "answer", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Answer {
    /// Which node's console this is. The first line of each connection.
    Hello(Hello),
    /// To [`Question::Status`].
    Status(Box<Status>),
    /// To [`Question::Members`].
    Members(Box<Members>),
    /// To [`Question::Why`].
    Why(Box<Why>),
    /// To [`Question::Views`]: a view or another event, and more to come.
    Happened(Box<Told>),
    /// To [`Question::Views`] with `watch`: all that happened before has been told, and what follows happens
    /// from now on.
    Now {},
    /// To [`Question::Recovery`].
    Recovery(Box<Recovery>),
    /// To [`Question::Recover`]: it is done.
    Recovered(Recovered),
    /// Nothing more comes to this question.
    End {},
    /// The question was not answered.
    Error(Problem),
    /// Of a newer build, and to be passed over by this one.
    #[serde(other)]
    Unknown,
}

/// Why a question was not answered.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Problem {
    /// `malformed`, `version`, `too-long`, `busy`, `too-slow`, `forbidden`, `stopped` or `not-recovered`.
    pub code: String,
    /// Cause and remedy.
    pub reason: String,
}

/// Which node's console this is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    /// The version of questions and answers.
    pub v: u32,
    /// The cluster's name.
    pub cluster: String,
    /// The node's name.
    pub node: String,
    /// Its addresses, the first of which it is known by.
    pub addrs: Vec<String>,
    /// Its process.
    pub pid: u32,
    /// The version of Antiphon that it runs.
    pub build: String,
}

/// What a node is doing.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Status {
    /// Its name.
    pub node: String,
    /// The cluster's.
    pub cluster: String,
    /// `forming`, `primary`, `non-primary` or `leaving`.
    pub state: String,
    /// Its present incarnation.
    pub incarnation: String,
    /// Since its start.
    pub uptime_ms: u64,
    /// The seeds it was given, after their names were resolved.
    pub seeds: Vec<String>,
    /// Whether it has a cluster key.
    pub keyed: bool,
    /// Its timing preset.
    pub profile: String,
    /// The number of its view, if it has one.
    pub view: Option<u32>,
    /// How many members that has.
    pub members: usize,
    /// Its groups and how many members each has; none: not a member yet.
    pub groups: BTreeMap<String, Option<usize>>,
    /// While it has no view: what it looks for.
    pub forming: Option<Forming>,
    /// In a view: whether the members that it hears could decide the next one.
    pub quorum: Option<bool>,
    /// In a view: the members that it does not hear.
    pub silent: Vec<String>,
    /// What it was refused for last: the cluster's words, and how long ago.
    pub refused: Option<Refusal>,
    /// Inbound connections that it refused, for whatever reason.
    pub connections_refused: u64,
    /// What its host refuses it at present, with the remedy.
    #[serde(default)]
    pub lacks: Vec<String>,
}

/// What a node without a view looks for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Forming {
    /// Seeds that have not answered.
    pub missing: Vec<String>,
    /// Those of them that end each connection as soon as this node has spoken.
    pub rejecting: Vec<String>,
    /// Those of them at which an agent serves programs: a node has another port.
    #[serde(default)]
    pub agents: Vec<String>,
    /// Other nodes without a view that have answered: name and address.
    pub candidates: Vec<(String, String)>,
    /// Whether it may found the cluster with them.
    pub founder: bool,
    /// The member that it asks to be admitted by.
    pub asks: Option<String>,
    /// Whether members without a majority have answered, which get time to find it again.
    pub remnant: bool,
    /// What it was refused for last, in the cluster's words.
    #[serde(default)]
    pub refused: Option<Refusal>,
}

/// A refusal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refusal {
    /// Which side must change what.
    pub reason: String,
    /// How long ago.
    pub ago_ms: u64,
}

/// The present view, and what the node knows of each member.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Members {
    /// The node that answers.
    pub node: String,
    /// The cluster's name.
    pub cluster: String,
    /// As in [`Status::state`].
    pub state: String,
    /// The view's number; none while the cluster forms.
    pub view: Option<u32>,
    /// The view's identity.
    pub id: Option<String>,
    /// How often an operator had this cluster go on from one survivor (`antiphon recover`); with the policy
    /// `any` there is no need to.
    #[serde(default)]
    pub recoveries: u32,
    /// The wire level that all speak.
    pub wire_level: Option<u8>,
    /// The member that proposes the next view and admits others, as far as this node can tell.
    pub coordinator: Option<String>,
    /// Whether the members that this node hears could decide the next view.
    pub quorum: Option<bool>,
    /// In a view: whether the node acts as a member of the primary. Without the lease it delivers nothing.
    #[serde(default)]
    pub lease: Option<bool>,
    /// By seniority.
    pub members: Vec<Member>,
    /// Members of the last primary view that this component lacks.
    pub absent: Vec<String>,
    /// Nodes that wait to be admitted by this node.
    pub joining: Vec<Waiting>,
    /// Nodes that this node refused lately.
    pub refused: Vec<RefusedNode>,
    /// The suspicions of now, each of one member by another: the edges of a graph.
    pub suspicions: Vec<Suspicion>,
    /// Ways between two members that are bad, though no member is suspected for it.
    #[serde(default)]
    pub edges: Vec<Edge>,
    /// While the node has no view: what it looks for.
    pub forming: Option<Forming>,
    /// What its host refuses it at present, with the remedy.
    #[serde(default)]
    pub lacks: Vec<String>,
}

/// A member, as the node that answers sees it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Member {
    /// Its place by seniority, from 0.
    pub rank: usize,
    /// Its name.
    pub name: String,
    /// Whether it is the most senior.
    pub elder: bool,
    /// Whether it is the node that answers.
    pub me: bool,
    /// 32 hex digits.
    pub incarnation: String,
    /// Its addresses, best first, and which of them work as far as is known.
    pub links: Vec<Link>,
    /// As configured at that node.
    pub metadata: BTreeMap<String, String>,
    /// Its votes.
    pub weight: u16,
    /// How long ago it was heard; none of the node itself, and of members that it does not observe.
    pub last_heard_ms: Option<u64>,
    /// Whether probes alone show that it lives: nothing else of it came for three heartbeats.
    #[serde(default)]
    pub heard_by_probes: bool,
    /// The member that passes on what the answering node sends to it; none if that goes directly.
    #[serde(default)]
    pub through: Option<String>,
    /// The member that passed on what was heard of it last, if one did lately.
    #[serde(default)]
    pub heard_through: Option<String>,
    /// The round trip to it, as the system measures it on the control connection; none if not known.
    pub rtt_us: Option<u64>,
    /// For how long the network has reported trouble on the way to it, with nothing heard since.
    pub trouble_ms: Option<u64>,
    /// Whether its process is proven to have ended.
    pub dead: bool,
    /// Whether the answering node holds a lifeline of it: the lifeline's end would prove its death. None if
    /// other members hold it, or if it is the answering node itself.
    #[serde(default)]
    pub lifeline: Option<bool>,
    /// The members that suspect it.
    pub suspected_by: Vec<String>,
    /// The groups that it shares with the node that answers.
    pub groups: Vec<String>,
    /// What it said of itself last: the view it has, whether it is primary there, whether it wants to leave.
    pub said: Option<Said>,
}

/// An address of a member.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Link {
    /// The address.
    pub addr: String,
    /// Whether what is sent there arrives; none if the member has no other address, since then nobody looks.
    pub up: Option<bool>,
    /// Whether this one is used.
    pub in_use: bool,
}

/// What a member said of itself in its last heartbeat.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Said {
    /// The last primary view that it had installed.
    pub view: String,
    /// Whether it believed to be in the primary view.
    pub primary: bool,
    /// Whether it wanted to leave.
    pub leaving: bool,
    /// The highest wire level it speaks.
    pub wire_level: u8,
}

/// A node that waits to be admitted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Waiting {
    /// Its name.
    pub name: String,
    /// Its address.
    pub addr: String,
    /// How long ago it asked last.
    pub asked_ms: u64,
    /// How long ago it answered last whether it is ready; it is admitted only if it does.
    pub ready_ms: Option<u64>,
}

/// A node that was refused.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RefusedNode {
    /// Its name.
    pub name: String,
    /// Its address.
    pub addr: String,
    /// Which side must change what.
    pub reason: String,
    /// Whether it was told that trying again is pointless.
    pub fatal: bool,
    /// How often in a row.
    pub times: u32,
    /// How long ago for the last time.
    pub ago_ms: u64,
}

/// One member suspects another.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Suspicion {
    /// The member that suspects.
    pub accuser: String,
    /// The member that it suspects.
    pub accused: String,
    /// Why.
    pub evidence: String,
    /// For how long.
    pub for_ms: u64,
}

/// The way between two members is bad. That alone makes no member suspected. Only the engine `cut` looks for
/// it; there enough bad ways remove a member.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Edge {
    /// The member that sees it.
    pub observer: String,
    /// The other member: too little arrives from it, or it does not hear the observer.
    pub subject: String,
    /// Which of both.
    pub evidence: String,
    /// For how long.
    pub for_ms: u64,
}

/// Why a node is, or is not, a member.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Why {
    /// The node that answers.
    pub asked: String,
    /// The name asked for.
    pub node: String,
    /// `member`, `suspected`, `waiting`, `refused`, `left`, `removed` or `unknown`.
    pub verdict: String,
    /// The verdict in a sentence.
    pub text: String,
    /// What is known, oldest first.
    pub facts: Vec<Fact>,
}

/// One thing that is known of a node.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fact {
    /// `joined`, `departed`, `absent`, `refused`, `joining`, `member`, `said` or `suspected`.
    pub kind: String,
    /// How long ago; none if it is so now.
    pub ago_ms: Option<u64>,
    /// Which incarnation, 32 hex digits.
    pub incarnation: Option<String>,
    /// The number of the view that it came or went with.
    pub view: Option<u32>,
    /// Why it departed.
    pub cause: Option<String>,
    /// The members that said so, or suspect it.
    pub accusers: Vec<Accuser>,
    /// All of it in a sentence.
    pub text: String,
}

/// A member that accused another, and of what.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Accuser {
    /// The accusing member.
    pub name: String,
    /// What it saw.
    pub evidence: String,
    /// How long before the view was proposed, or before now.
    pub before_ms: u32,
}

/// What a recovery from one node would mean.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Recovery {
    /// The node that would go on alone.
    pub node: String,
    /// The cluster's name.
    pub cluster: String,
    /// The lineage that would be left, 32 hex digits.
    pub lineage: String,
    /// The last primary view that the node installed: what it has is as of this one.
    pub view: String,
    /// That view's number.
    pub number: u32,
    /// For how long the node has known that it has no majority.
    pub lost_ms: u64,
    /// Whether the members that it hears are enough to go on by themselves.
    pub quorum: bool,
    /// Whether the members that it does not hear, and that are not proven dead, could have gone on as a
    /// majority.
    pub may_fork: bool,
    /// The other members of that view by seniority: all are left behind.
    pub others: Vec<LeftBehind>,
    /// What is given up, and what must be made sure of before, each in a sentence or two.
    pub warnings: Vec<String>,
}

/// A member that a recovery leaves behind.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeftBehind {
    /// Its name.
    pub name: String,
    /// Its address.
    pub addr: String,
    /// How long ago it was last heard.
    pub heard_ms: u64,
    /// Whether it is heard now: then it joins as a new member, and gives up what it has.
    pub here: bool,
    /// Whether its process is proven to have ended.
    pub dead: bool,
}

/// A node goes on alone, by an operator's word.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Recovered {
    /// The node.
    pub node: String,
    /// The cluster's name.
    pub cluster: String,
    /// The new lineage, 32 hex digits.
    pub lineage: String,
    /// The first view of it.
    pub view: String,
    /// That view's number.
    pub number: u32,
}
