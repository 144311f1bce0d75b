//! The workers of a benchmark, one on each host of the lab: started, told what to do, heard.

use std::process::Stdio;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use antiphon_lab::{Child, Heard};

use super::Figures;
use super::worker::words::{Ask, Open, Say, Time};
use crate::lab::Lab;
use crate::{Common, Failure};

const PORT: u16 = 7400;
/// For nodes to find each other, and for a block to be open at all of them.
const OPEN_WITHIN: Duration = Duration::from_secs(60);

impl Common {
    /// How long a load of ours runs.
    pub(crate) fn time(&self) -> Time {
        match self.smoke {
            true => Time {
                warmup_ms: 200,
                measured_ms: 500,
            },
            false => Time {
                warmup_ms: 500,
                measured_ms: 1000 * u64::from(self.seconds()),
            },
        }
    }
}

/// The workers. They end with the value.
pub(super) struct Crew<'a> {
    lab: &'a Lab,
    cluster: String,
    members: usize,
    workers: Vec<Option<(usize, Child)>>,
    saying: Sender<Line>,
    said: Receiver<Line>,
    /// How many workers were started: a line of one that was replaced is not its successor's.
    starts: usize,
}

/// What a worker said; nothing if it has ended.
struct Line {
    node: usize,
    start: usize,
    say: Option<Say>,
}

impl<'a> Crew<'a> {
    /// Starts a worker on each of the first hosts, and waits until they are one cluster.
    pub(super) fn muster(lab: &'a Lab, members: usize) -> Result<Self, Failure> {
        let (saying, said) = channel();
        let mut crew = Self {
            lab,
            cluster: format!("bench-{}", std::process::id()),
            members,
            workers: (0..members).map(|_| None).collect(),
            saying,
            said,
            starts: 0,
        };
        for node in 1..=members {
            crew.start(node)?;
        }
        let all: Vec<usize> = (1..=members).collect();
        crew.hear(&all, OPEN_WITHIN, "the workers to be here", |say| {
            matches!(say, Say::Here).then_some(())
        })?;
        Ok(crew)
    }

    /// Starts the worker of this host, from 1.
    fn start(&mut self, node: usize) -> Result<(), Failure> {
        let program =
            std::env::current_exe().map_err(|error| format!("cannot find this program: {error}"))?;
        let addr = |node: usize| format!("{}:{PORT}", self.lab.ip(node));
        let seeds: Vec<String> = (1..=self.members).map(addr).collect();
        let mut command = self.lab.command(node, &program);
        command
            .args([
                "worker",
                "--cluster",
                &self.cluster,
                "--name",
                &format!("n{node}"),
            ])
            .args(["--bind", &addr(node), "--seeds", &seeds.join(",")])
            .args(["--members", &self.members.to_string()])
            .stderr(Stdio::inherit());
        let saying = self.saying.clone();
        self.starts += 1;
        let start = self.starts;
        let child = Child::start(command, move |heard| {
            let say = match heard {
                Heard::Line(line) => match serde_json::from_str(&line) {
                    Ok(say) => Some(say),
                    Err(_) => return,
                },
                Heard::Log(_) => return,
                Heard::End => None,
            };
            // Nobody listens any more once the crew is gone.
            let _ = saying.send(Line { node, start, say });
        })
        .map_err(|error| error.to_string())?;
        self.workers[node - 1] = Some((start, child));
        Ok(())
    }

    /// Kills the worker of this host as `kill -9` does.
    pub(super) fn kill(&mut self, node: usize) {
        if let Some((_, worker)) = self.workers[node - 1].take() {
            worker.kill();
        }
    }

    /// Starts another in its place.
    pub(super) fn start_again(&mut self, node: usize) -> Result<(), Failure> {
        self.start(node)?;
        let is_here = |say: &Say| matches!(say, Say::Here).then_some(());
        self.hear(&[node], OPEN_WITHIN, "a worker to be here", is_here)?;
        Ok(())
    }

    /// Starts another in its place, and opens a block there.
    pub(super) fn replace(&mut self, node: usize, open: Open) -> Result<(), Failure> {
        self.start_again(node)?;
        self.ask(&[node], &Ask::Open { open })?;
        let is_open = |say: &Say| matches!(say, Say::Open).then_some(());
        self.hear(&[node], OPEN_WITHIN, "the block to be open", is_open)?;
        Ok(())
    }

    /// Opens a block at all.
    pub(super) fn open(&mut self, open: Open) -> Result<(), Failure> {
        let all: Vec<usize> = (1..=self.members).collect();
        self.ask(&all, &Ask::Open { open })?;
        let is_open = |say: &Say| matches!(say, Say::Open).then_some(());
        self.hear(&all, OPEN_WITHIN, "the block to be open", is_open)?;
        Ok(())
    }

    /// Has these workers do something that ends by itself, and gives what came of it, in their order.
    pub(super) fn done(
        &mut self,
        nodes: &[usize],
        ask: &Ask,
        within: Duration,
    ) -> Result<Vec<Figures>, Failure> {
        self.ask(nodes, ask)?;
        self.figures(nodes, within)
    }

    /// What came of what each of these was asked.
    pub(super) fn figures(&mut self, nodes: &[usize], within: Duration) -> Result<Vec<Figures>, Failure> {
        self.hear(nodes, within, "a load to end", |say| match say {
            Say::Done { figures } => Some(figures.clone()),
            _ => None,
        })
    }

    /// Asks these workers.
    pub(super) fn ask(&self, nodes: &[usize], ask: &Ask) -> Result<(), Failure> {
        let line = serde_json::to_string(ask).map_err(|error| error.to_string())?;
        for node in nodes {
            let worker = self.workers[node - 1].as_ref();
            if !worker.is_some_and(|(_, worker)| worker.say(line.clone())) {
                return Err(format!("worker {node} reads no more"));
            }
        }
        Ok(())
    }

    /// Waits until one of these has said what answers the question; which, and the answer.
    pub(super) fn hear_one<T>(
        &mut self,
        nodes: &[usize],
        within: Duration,
        what: &str,
        question: impl Fn(&Say) -> Option<T>,
    ) -> Result<(usize, T), Failure> {
        let deadline = Instant::now() + within;
        loop {
            let (node, say) = self.next(nodes, deadline, what)?;
            if let Some(answer) = question(&say) {
                return Ok((node, answer));
            }
        }
    }

    /// Waits until each of these has said what answers the question; the answers in their order.
    pub(super) fn hear<T>(
        &mut self,
        nodes: &[usize],
        within: Duration,
        what: &str,
        question: impl Fn(&Say) -> Option<T>,
    ) -> Result<Vec<T>, Failure> {
        let deadline = Instant::now() + within;
        let mut answers: Vec<Option<T>> = nodes.iter().map(|_| None).collect();
        while answers.iter().any(Option::is_none) {
            let (node, say) = self.next(nodes, deadline, what)?;
            let place = nodes.iter().position(|asked| *asked == node);
            if let (Some(place), Some(answer)) = (place, question(&say)) {
                answers[place] = Some(answer);
            }
        }
        Ok(answers.into_iter().flatten().collect())
    }

    /// What one of these says next.
    fn next(&mut self, nodes: &[usize], deadline: Instant, what: &str) -> Result<(usize, Say), Failure> {
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let Line { node, start, say } = self.said.recv_timeout(left).map_err(|error| match error {
                RecvTimeoutError::Timeout => format!("waited in vain for {what}"),
                RecvTimeoutError::Disconnected => "all workers have ended".to_owned(),
            })?;
            let is_now = |(now, _): &(usize, Child)| *now == start;
            if !nodes.contains(&node) || !self.workers[node - 1].as_ref().is_some_and(is_now) {
                continue;
            }
            return match say {
                Some(Say::Failed { reason }) => Err(format!("worker {node}: {reason}")),
                None => Err(format!("worker {node} has ended")),
                Some(say) => Ok((node, say)),
            };
        }
    }
}
