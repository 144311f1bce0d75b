//! Names: resolved again for ever.
//!
//! An answer replaces the addresses found before. If there is no answer, or an empty one, the old addresses
//! stay: nodes must not forget each other because a DNS server restarts, or because no host of a service is
//! ready. So a node may ask a stale address in vain for a while, which costs a connection attempt. Each name
//! is for itself: none waits for another, and a name that fails keeps its old addresses.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use antiphon_core::MAX_HINTS;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout_at};

use super::board::Place;
use super::resolver::Resolver;
use super::source::{Kind, Source};
use super::tasks::Pace;

/// Resolves one name again and again.
pub(super) async fn run(kind: Kind, resolver: Resolver, place: Place, mut pace: Pace) {
    let mut names = Names::default();
    loop {
        let (found, problem) = names.resolve(std::slice::from_ref(&kind), &resolver).await;
        let failed = problem.is_some();
        tell(&place, found, problem);
        pace.rest(failed).await;
    }
}

/// Says what was found, with what is kept from before, and what is wrong.
pub(super) fn tell(place: &Place, found: Vec<SocketAddr>, problem: Option<String>) {
    match (found.is_empty(), problem) {
        (false, None) => place.found(found),
        (false, Some(problem)) => place.partly(found, problem),
        (true, problem) => place.failed(problem.unwrap_or_else(|| "nothing was found".to_owned())),
    }
}

/// All names of a look are given this long together.
const WITHIN: Duration = Duration::from_secs(6);
/// So many are asked for at the same time.
const AT_ONCE: usize = 32;

/// Names, and what each was resolved to last.
#[derive(Debug, Default)]
pub(super) struct Names {
    /// By how it is written. The hosts of services are names, too.
    known: BTreeMap<String, Vec<SocketAddr>>,
    /// Which of them is asked first. Each look begins elsewhere, so that those behind many names without an
    /// answer have their turn.
    first: usize,
}

/// What a name was resolved to.
struct Answer {
    /// How the name is written.
    name: String,
    addrs: Vec<SocketAddr>,
    trouble: Option<String>,
}

impl Names {
    /// The addresses of these that need no asking: those that are written out, and what the names among them
    /// were resolved to last.
    pub(super) fn known_of(&self, kinds: &[Kind]) -> Vec<SocketAddr> {
        let known = |kind: &Kind| match kind.fixed() {
            Some(addr) => vec![addr],
            None => {
                let shown = Source(kind.clone()).to_string();
                self.known.get(&shown).cloned().unwrap_or_default()
            }
        };
        kinds.iter().flat_map(known).collect()
    }

    /// The addresses of these, and what is wrong with the first of them that was not resolved wholly.
    pub(super) async fn resolve(
        &mut self,
        kinds: &[Kind],
        resolver: &Resolver,
    ) -> (Vec<SocketAddr>, Option<String>) {
        let until = Instant::now() + WITHIN;
        let turns = Arc::new(Semaphore::new(AT_ONCE));
        let mut tasks = JoinSet::new();
        for place in 0..kinds.len() {
            let index = (self.first + place) % kinds.len();
            let (kind, resolver, turns) = (kinds[index].clone(), resolver.clone(), turns.clone());
            tasks.spawn(async move {
                // The semaphore is never closed.
                let _turn = turns.acquire().await;
                (index, addresses_of(&kind, &resolver).await)
            });
        }
        self.first = (self.first + AT_ONCE) % kinds.len().max(1);
        let mut answers = BTreeMap::new();
        while let Ok(Some(answer)) = timeout_at(until, tasks.join_next()).await {
            answers.extend(answer);
        }
        let before = std::mem::take(&mut self.known);
        let (mut found, mut problem) = (Vec::new(), None);
        for (index, kind) in kinds.iter().enumerate() {
            let shown = Source(kind.clone()).to_string();
            let late = || {
                let trouble = format!("{shown} has no answer within {} s", WITHIN.as_secs());
                vec![Answer::failed(shown.clone(), trouble)]
            };
            let answers = answers.remove(&index).unwrap_or_else(late);
            let (addrs, trouble) = self.keep(&before, shown, answers);
            found.extend(addrs);
            problem = problem.or(trouble);
        }
        (found, problem)
    }

    /// Keeps the answers to a name, and returns their addresses. One with trouble has what it had before.
    fn keep(
        &mut self,
        before: &BTreeMap<String, Vec<SocketAddr>>,
        shown: String,
        answers: Vec<Answer>,
    ) -> (Vec<SocketAddr>, Option<String>) {
        let (mut addrs, mut problem) = (Vec::new(), None);
        for mut answer in answers {
            if answer.trouble.is_some() {
                let kept = before.get(&answer.name).into_iter().flatten();
                answer.addrs.extend(kept);
            }
            addrs.extend(&answer.addrs);
            problem = problem.or(answer.trouble);
            self.known.insert(answer.name, answer.addrs);
        }
        addrs.sort_unstable();
        addrs.dedup();
        addrs.truncate(MAX_HINTS);
        self.known.insert(shown, addrs.clone());
        (addrs, problem)
    }
}

impl Answer {
    fn failed(name: String, trouble: String) -> Self {
        Self {
            name,
            addrs: Vec::new(),
            trouble: Some(trouble),
        }
    }

    async fn of(resolver: &Resolver, name: String, port: u16) -> Self {
        let shown = Source(Kind::Dns {
            name: name.clone(),
            port,
        });
        match resolver.addresses(&name).await {
            Ok(found) => Self {
                name: shown.to_string(),
                addrs: found.into_iter().map(|ip| SocketAddr::new(ip, port)).collect(),
                trouble: None,
            },
            Err(trouble) => Self::failed(shown.to_string(), trouble),
        }
    }
}

/// The addresses of one of these: of a service, those of each of its hosts.
async fn addresses_of(kind: &Kind, resolver: &Resolver) -> Vec<Answer> {
    match kind {
        Kind::Fixed(addr) => vec![Answer {
            name: Source(kind.clone()).to_string(),
            addrs: vec![*addr],
            trouble: None,
        }],
        Kind::Dns { name, port } => vec![Answer::of(resolver, name.clone(), *port).await],
        Kind::Srv { name } => {
            let services = match resolver.services(name).await {
                Ok(services) => services,
                Err(problem) => return vec![Answer::failed(Source(kind.clone()).to_string(), problem)],
            };
            // As many as one answer has, which is bounded.
            let mut hosts = JoinSet::new();
            for (host, port) in services {
                let resolver = resolver.clone();
                hosts.spawn(async move { Answer::of(&resolver, host, port).await });
            }
            let mut answers = Vec::new();
            while let Some(Ok(answer)) = hosts.join_next().await {
                answers.push(answer);
            }
            answers
        }
        Kind::File { .. } | Kind::Multicast { .. } | Kind::Own { .. } => Vec::new(),
    }
}

#[cfg(all(test, feature = "dns"))]
mod tests {
    use std::net::UdpSocket;

    use super::*;

    /// What a server does that is asked for IPv6 addresses.
    #[derive(Debug, Clone, Copy)]
    enum OnIpv6 {
        Fails,
        IsSilent,
    }

    /// A server, for as long as the tests run, that has 10.0.0.1 for each name.
    fn server(on_ipv6: OnIpv6) -> SocketAddr {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let addr = socket.local_addr().unwrap();
        std::thread::spawn(move || {
            let mut question = [0; 1500];
            while let Ok((length, from)) = socket.recv_from(&mut question) {
                if let Some(answer) = answer(&question[..length], on_ipv6) {
                    // A resolver that is gone asks nobody any more.
                    let _ = socket.send_to(&answer, from);
                }
            }
        });
        addr
    }

    fn answer(question: &[u8], on_ipv6: OnIpv6) -> Option<Vec<u8>> {
        const SERVER_FAILURE: u8 = 2;
        // The name ends with an empty label; type and class follow.
        let end = 12 + question[12..].iter().position(|byte| *byte == 0)? + 5;
        let kind = [question[end - 4], question[end - 3]];
        let (code, bytes) = match (u16::from_be_bytes(kind), on_ipv6) {
            (1, _) => (0, vec![10, 0, 0, 1]),
            (28, OnIpv6::Fails) => (SERVER_FAILURE, vec![]),
            (28, OnIpv6::IsSilent) => return None,
            _ => (0, vec![]),
        };
        let answers = u8::from(!bytes.is_empty());
        let mut out = question[..2].to_vec();
        out.extend([0x84 | (question[2] & 1), 0x80 | code]);
        out.extend([0, 1, 0, answers, 0, 0, 0, 0]);
        out.extend(&question[12..end]);
        if answers > 0 {
            // The name of the question, at offset 12; the class, 5 s, and how many bytes.
            out.extend([0xc0, 12, kind[0], kind[1], 0, 1, 0, 0, 0, 5, 0, bytes.len() as u8]);
            out.extend(bytes);
        }
        Some(out)
    }

    #[tokio::test]
    async fn a_name_has_its_ipv4_addresses_though_nothing_comes_of_the_question_for_ipv6() {
        let nodes = Kind::Dns {
            name: "nodes.example".to_owned(),
            port: 7400,
        };
        for on_ipv6 in [OnIpv6::Fails, OnIpv6::IsSilent] {
            let resolver = Resolver::new(&[server(on_ipv6)]).unwrap();
            let (found, problem) = Names::default()
                .resolve(std::slice::from_ref(&nodes), &resolver)
                .await;
            assert_eq!(
                found,
                ["10.0.0.1:7400".parse().unwrap()],
                "{on_ipv6:?}: {problem:?}"
            );
        }
    }

    #[test]
    fn a_host_of_a_service_that_does_not_resolve_keeps_no_former_addresses_of_the_others() {
        let addr = |number: u8| SocketAddr::from(([10, 0, 0, number], 7400));
        let mut names = Names::default();
        let mut look = |of_a, trouble: Option<&str>| {
            let answer = |name: &str, addrs, trouble: Option<&str>| Answer {
                name: name.to_owned(),
                addrs,
                trouble: trouble.map(str::to_owned),
            };
            let of_b = if trouble.is_none() { vec![addr(9)] } else { vec![] };
            let answers = vec![answer("a", vec![addr(of_a)], None), answer("b", of_b, trouble)];
            let before = std::mem::take(&mut names.known);
            names.keep(&before, "srv".to_owned(), answers)
        };
        assert_eq!(look(1, None), (vec![addr(1), addr(9)], None));
        for of_a in 2..5 {
            let kept = (vec![addr(of_a), addr(9)], Some("no such name".to_owned()));
            assert_eq!(look(of_a, Some("no such name")), kept);
        }
    }

    #[tokio::test]
    async fn names_whose_server_is_silent_hold_up_nobody_and_keep_what_they_had() {
        let silent = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        let resolver = Resolver::new(&[silent.local_addr().unwrap()]).unwrap();
        let (fixed, before): (SocketAddr, SocketAddr) =
            ("10.0.0.1:1".parse().unwrap(), "10.0.0.9:7400".parse().unwrap());
        let named = |number| Kind::Dns {
            name: format!("n{number}.example"),
            port: 7400,
        };
        let kinds: Vec<Kind> = (0..20).map(named).chain([Kind::Fixed(fixed)]).collect();
        let mut names = Names::default();
        names.known.insert("dns:n7.example:7400".to_owned(), vec![before]);
        let began = Instant::now();
        let (found, problem) = names.resolve(&kinds, &resolver).await;
        assert_eq!(found, [before, fixed]);
        assert!(problem.unwrap().contains("n0.example"));
        assert!(
            began.elapsed() < WITHIN * 2,
            "all at the same time: {:?}",
            began.elapsed()
        );
        assert_eq!(names.known.len(), kinds.len());
    }

    #[tokio::test(start_paused = true)]
    async fn many_names_without_an_answer_do_not_hide_those_behind_them_for_ever() {
        let silent = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        let resolver = Resolver::new(&[silent.local_addr().unwrap()]).unwrap();
        let named = |name: String| Kind::Dns { name, port: 7400 };
        let dead = (0..2 * AT_ONCE).map(|number| named(format!("n{number}.example")));
        let kinds: Vec<Kind> = dead.chain([named("10.0.0.9".to_owned())]).collect();
        let mut names = Names::default();
        names.resolve(&kinds, &resolver).await;
        let (found, _) = names.resolve(&kinds, &resolver).await;
        assert_eq!(found, ["10.0.0.9:7400".parse().unwrap()]);
    }
}
