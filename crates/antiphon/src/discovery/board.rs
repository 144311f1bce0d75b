//! What the sources of a node have found, put together.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

use antiphon_core::text::shortened;
use antiphon_core::{Hints, MAX_HINTS, MAX_LOCATORS, Sources, is_link_local, link_local};
use tokio::sync::watch;

use super::source::{canonical, is_of_a_host};
use crate::ClusterEvent;
use crate::cluster::ClusterShared;

/// Characters of what is wrong with a source.
const MOST_OF_A_PROBLEM: usize = 1000;

/// Which nodes a source finds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Finds {
    Nodes,
    Locators,
}

impl Finds {
    /// So many are used of all sources together.
    fn most(self) -> usize {
        match self {
            Finds::Nodes => MAX_HINTS,
            Finds::Locators => MAX_LOCATORS,
        }
    }
}

#[derive(Debug)]
struct Entry {
    name: String,
    finds: Finds,
    found: Vec<SocketAddr>,
    problem: Option<String>,
    /// How many of its addresses are not used, since there are too many of all sources together.
    left_out: usize,
    said: Said,
}

impl Entry {
    /// What is to be said of it.
    fn trouble(&self) -> Option<String> {
        let (left_out, most) = (self.left_out, self.finds.most());
        let crowded = || {
            format!(
                "{left_out} of these addresses are left out: {most} are used of all sources together, by turns"
            )
        };
        self.problem.clone().or_else(|| (left_out > 0).then(crowded))
    }
}

/// Whether anything was said of a source yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Said {
    Nothing,
    /// It is an address that is written out, and no source of others.
    Once,
    Something,
}

/// The latest of each source.
#[derive(Debug)]
pub(crate) struct Board {
    entries: Mutex<Vec<Entry>>,
    hints: watch::Sender<Hints>,
    shared: Arc<ClusterShared>,
    /// Only addresses of this host may be asked: there is no key.
    confined: bool,
}

impl Board {
    pub(crate) fn new(shared: Arc<ClusterShared>, confined: bool) -> Arc<Self> {
        Arc::new(Self {
            entries: Mutex::default(),
            hints: watch::Sender::new(Hints::default()),
            shared,
            confined,
        })
    }

    /// All that is found, whenever it changes.
    pub(crate) fn hints(&self) -> watch::Receiver<Hints> {
        self.hints.subscribe()
    }

    /// A place for one source.
    pub(crate) fn place(self: &Arc<Self>, name: String, finds: Finds) -> Place {
        let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        entries.push(Entry {
            name,
            finds,
            found: Vec::new(),
            problem: None,
            left_out: 0,
            said: Said::Nothing,
        });
        let sources = sources_of(&entries);
        self.hints.send_modify(|hints| hints.sources = sources);
        Place {
            board: self.clone(),
            index: entries.len() - 1,
        }
    }

    fn update(&self, index: usize, said: Said, found: Option<Vec<SocketAddr>>, problem: Option<String>) {
        let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        // A file, a name server or the application may have given it.
        let mut problem = problem.map(|problem| shortened(&problem, MOST_OF_A_PROBLEM).into_owned());
        let found = found.map(|found| admit(self.confined, found, &mut problem));
        let changed = found.as_ref().is_some_and(|found| *found != entries[index].found);
        if let Some(found) = found.filter(|_| changed) {
            entries[index].found = found;
        }
        let first = entries[index].said == Said::Nothing;
        entries[index].said = said;
        let of = |finds: Finds| {
            let entries = entries.iter().filter(|entry| entry.finds == finds);
            by_turns(
                &entries.map(|entry| &entry.found[..]).collect::<Vec<_>>(),
                finds.most(),
            )
        };
        let hints = Hints {
            nodes: of(Finds::Nodes),
            locators: of(Finds::Locators),
            sources: sources_of(&entries),
        };
        let finds = entries[index].finds;
        let used: BTreeSet<&SocketAddr> = match finds {
            Finds::Nodes => hints.nodes.iter().collect(),
            Finds::Locators => hints.locators.iter().collect(),
        };
        // What one source finds may push out addresses of others.
        for (at, entry) in entries.iter_mut().enumerate() {
            if entry.finds != finds {
                continue;
            }
            let before = entry.trouble();
            entry.left_out = entry.found.iter().filter(|addr| !used.contains(addr)).count();
            let mut news = false;
            if at == index {
                entry.problem = problem.take();
                news = changed || first;
            }
            if news || entry.trouble() != before {
                self.tell(entry);
            }
        }
        self.hints.send_if_modified(|known| {
            let news = *known != hints;
            *known = hints;
            news
        });
    }

    fn tell(&self, entry: &Entry) {
        let (node, source, found) = (&self.shared.settings.name, &entry.name, &entry.found);
        let problem = entry.trouble();
        match &problem {
            Some(problem) => {
                tracing::warn!(target: "antiphon::discovery", %node, %source, %problem, in_use = ?found, "cannot find all nodes");
            }
            None => tracing::info!(target: "antiphon::discovery", %node, %source, ?found, "found"),
        }
        self.shared.hub().publish(ClusterEvent::Discovery {
            source: source.clone(),
            found: found.clone(),
            problem,
        });
    }
}

/// Whether any of these sources can name other nodes, and whether each of those has been read.
fn sources_of(entries: &[Entry]) -> Sources {
    let of = |said: Said| entries.iter().any(|entry| entry.said == said);
    match (of(Said::Nothing), of(Said::Something)) {
        (true, _) => Sources::Silent,
        (false, true) => Sources::Heard,
        (false, false) => Sources::None,
    }
}

/// Of what a source found, what may be used; what is wrong with the rest is a problem of the source. Without
/// a key a node is `confined` to loopback addresses.
pub(super) fn admit(confined: bool, found: Vec<SocketAddr>, problem: &mut Option<String>) -> Vec<SocketAddr> {
    let (found, of_nobody): (Vec<SocketAddr>, Vec<SocketAddr>) = found
        .into_iter()
        .map(canonical)
        .partition(|addr| addr.port() != 0 && is_of_a_host(addr.ip()));
    if let Some(first) = of_nobody.first() {
        problem.get_or_insert_with(|| format!("{first} is left out: no host is reached there"));
    }
    let (of_links, found): (BTreeSet<SocketAddr>, BTreeSet<SocketAddr>) =
        found.into_iter().partition(|addr| is_link_local(addr.ip()));
    if let Some(first) = of_links.first() {
        problem.get_or_insert_with(|| format!("left out: {}", link_local(*first)));
    }
    let (usable, dropped): (BTreeSet<SocketAddr>, BTreeSet<SocketAddr>) = found
        .into_iter()
        .partition(|addr| !confined || addr.ip().to_canonical().is_loopback());
    let first = dropped.iter().next();
    if let Some(first) = first {
        problem.get_or_insert_with(|| {
            format!(
                "{first} and others are left out: they are not loopback addresses, and there is no key. Give a key \
                 (--key-file FILE), or say that the network is trusted (--insecure)"
            )
        });
    }
    if usable.len() > MAX_HINTS {
        problem.get_or_insert_with(|| format!("{} addresses; the first {MAX_HINTS} are used", usable.len()));
    }
    usable.into_iter().take(MAX_HINTS).collect()
}

/// One entry of each list, then the next of each, until there are so many: a list that is long or wrong does
/// not hide the others.
fn by_turns(lists: &[&[SocketAddr]], most: usize) -> Vec<SocketAddr> {
    let longest = lists.iter().map(|list| list.len()).max().unwrap_or(0);
    let (mut chosen, mut known) = (Vec::new(), BTreeSet::new());
    for turn in 0..longest {
        for addr in lists.iter().filter_map(|list| list.get(turn)) {
            if chosen.len() < most && known.insert(*addr) {
                chosen.push(*addr);
            }
        }
    }
    chosen
}

/// Where one source says what it has found.
#[derive(Debug)]
pub(crate) struct Place {
    board: Arc<Board>,
    index: usize,
}

impl Place {
    /// The source is this address, which is written out: it will never find another.
    pub(crate) fn is(self, addr: SocketAddr) {
        self.board.update(self.index, Said::Once, Some(vec![addr]), None);
    }

    /// These, instead of those before.
    pub(crate) fn found(&self, found: Vec<SocketAddr>) {
        self.board.update(self.index, Said::Something, Some(found), None);
    }

    /// These, as far as it could be found out.
    pub(crate) fn partly(&self, found: Vec<SocketAddr>, problem: String) {
        self.board
            .update(self.index, Said::Something, Some(found), Some(problem));
    }

    /// Nothing new; what was found last stays.
    pub(crate) fn failed(&self, problem: String) {
        self.board
            .update(self.index, Said::Something, None, Some(problem));
    }
}

#[cfg(test)]
mod tests {
    use antiphon_core::wire::Incarnation;
    use tokio::sync::mpsc;

    use super::*;
    use crate::ClusterEvents;

    fn addr(text: &str) -> SocketAddr {
        text.parse().unwrap()
    }

    fn board(confined: bool) -> Arc<Board> {
        let (commands, _) = mpsc::channel(1);
        let config = antiphon_core::Config::new("c", "n", addr("127.0.0.1:1"));
        let settings = crate::Settings::of(&config, Default::default());
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let _runtime = runtime.enter();
        let shared = ClusterShared::new(vec![addr("127.0.0.1:1")], settings, commands, Default::default());
        Board::new(Arc::new(shared), confined)
    }

    /// What the board tells from now on, the node having begun.
    fn told_by(board: &Board) -> ClusterEvents {
        board
            .shared
            .hub()
            .publish(ClusterEvent::Incarnation(Incarnation(1)));
        let mut events = board.shared.hub().subscribe();
        assert!(matches!(events.try_next(), Some(ClusterEvent::Incarnation(_))));
        events
    }

    #[test]
    fn what_all_sources_found_is_put_together_and_failures_keep_what_was_found() {
        let board = board(false);
        let (one, other) = (
            board.place("one".into(), Finds::Nodes),
            board.place("other".into(), Finds::Nodes),
        );
        let locators = board.place("l".into(), Finds::Locators);
        let mut events = told_by(&board);
        one.found(vec![addr("10.0.0.2:1"), addr("10.0.0.1:1")]);
        other.found(vec![addr("10.0.0.2:1"), addr("0.0.0.0:1"), addr("10.0.0.3:0")]);
        locators.found(vec![addr("10.0.0.9:1")]);
        one.failed("no answer".into());
        let hints = board.hints().borrow().clone();
        assert_eq!(hints.nodes, [addr("10.0.0.1:1"), addr("10.0.0.2:1")]);
        assert_eq!(hints.locators, [addr("10.0.0.9:1")]);
        let mut told = Vec::new();
        while let Some(ClusterEvent::Discovery {
            source,
            found,
            problem,
        }) = events.try_next()
        {
            told.push((source, found.len(), problem));
        }
        let failed = Some("no answer".to_owned());
        let of_nobody = Some("0.0.0.0:1 is left out: no host is reached there".to_owned());
        assert_eq!(
            told,
            [
                ("one".into(), 2, None),
                ("other".into(), 1, of_nobody),
                ("l".into(), 1, None),
                ("one".into(), 2, failed)
            ]
        );
        one.failed("no answer".into());
        assert!(events.try_next().is_none(), "the same trouble is said once");
        one.found(vec![addr("10.0.0.2:1"), addr("10.0.0.1:1")]);
        assert!(
            matches!(
                events.try_next(),
                Some(ClusterEvent::Discovery { problem: None, .. })
            ),
            "and when it is over"
        );
    }

    /// A locator answers by its IPv4 address alone: the other form of it would count as silent.
    #[test]
    fn an_ipv4_address_in_its_ipv6_form_is_the_same_locator() {
        let board = board(false);
        board
            .place("written".into(), Finds::Locators)
            .is(addr("10.0.0.9:7410"));
        let named = board.place("named".into(), Finds::Locators);
        named.found(vec![addr("[::ffff:10.0.0.9]:7410"), addr("[fd00::9]:7410")]);
        let hints = board.hints().borrow().clone();
        assert_eq!(hints.locators, [addr("10.0.0.9:7410"), addr("[fd00::9]:7410")]);
    }

    #[test]
    fn it_is_told_whether_every_source_was_looked_at_and_whether_there_is_any() {
        let board = board(false);
        let sources = || board.hints().borrow().sources;
        assert_eq!(sources(), Sources::None);
        board
            .place("written".into(), Finds::Locators)
            .is(addr("10.0.0.9:1"));
        assert_eq!(sources(), Sources::None);
        let (one, other) = (
            board.place("one".into(), Finds::Nodes),
            board.place("named".into(), Finds::Locators),
        );
        let mut hints = board.hints();
        assert_eq!(sources(), Sources::Silent);
        one.found(Vec::new());
        assert_eq!(sources(), Sources::Silent);
        hints.mark_unchanged();
        other.failed("no answer".into());
        assert_eq!(sources(), Sources::Heard, "that it failed is an answer");
        assert!(hints.has_changed().unwrap(), "whoever waits for it is told");
        hints.mark_unchanged();
        one.found(Vec::new());
        assert!(!hints.has_changed().unwrap(), "and not of nothing");
    }

    #[test]
    fn without_a_key_only_this_host_is_asked_and_that_is_said() {
        let board = board(true);
        let mut events = told_by(&board);
        board
            .place("one".into(), Finds::Nodes)
            .found(vec![addr("10.0.0.2:1"), addr("127.0.0.9:1")]);
        assert_eq!(board.hints().borrow().nodes, [addr("127.0.0.9:1")]);
        let Some(ClusterEvent::Discovery {
            problem: Some(problem),
            ..
        }) = events.try_next()
        else {
            panic!("nothing was said");
        };
        assert!(
            problem.contains("10.0.0.2") && problem.contains("--key-file"),
            "{problem}"
        );
    }

    #[test]
    fn addresses_of_a_link_are_left_out_and_that_is_said() {
        let mut problem = None;
        let found = vec![addr("[fe80::1]:1"), addr("[fd00::1]:1"), addr("169.254.0.1:1")];
        let usable = admit(false, found, &mut problem);
        assert_eq!(usable, [addr("169.254.0.1:1"), addr("[fd00::1]:1")]);
        let problem = problem.expect("it is said");
        assert!(
            problem.contains("[fe80::1]:1") && problem.contains("unique local"),
            "{problem}"
        );
    }

    #[test]
    fn a_source_with_too_many_addresses_does_not_hide_the_others_and_says_what_it_lost() {
        let board = board(false);
        let (crowd, few) = (
            board.place("crowd".into(), Finds::Nodes),
            board.place("few".into(), Finds::Nodes),
        );
        let mut events = told_by(&board);
        let three: Vec<SocketAddr> = (1..4)
            .map(|port| SocketAddr::from(([10, 1, 0, 1], port)))
            .collect();
        few.found(three.clone());
        crowd.found(
            (1..257)
                .map(|port| SocketAddr::from(([10, 0, 0, 1], port)))
                .collect(),
        );
        let nodes = board.hints().borrow().nodes.clone();
        assert_eq!(nodes.len(), MAX_HINTS);
        assert!(three.iter().all(|addr| nodes.contains(addr)));
        let problem = std::iter::from_fn(|| events.try_next()).find_map(|event| match event {
            ClusterEvent::Discovery { source, problem, .. } if source == "crowd" => problem,
            _ => None,
        });
        assert!(
            problem
                .expect("it is said")
                .starts_with("3 of these addresses are left out")
        );
    }

    #[test]
    fn a_source_whose_addresses_others_push_out_says_so_and_when_it_is_over() {
        let board = board(false);
        let (one, other) = (
            board.place("one".into(), Finds::Nodes),
            board.place("other".into(), Finds::Nodes),
        );
        let crowd = |host: u8| -> Vec<SocketAddr> {
            (1..257)
                .map(|port| SocketAddr::from(([10, 0, 0, host], port)))
                .collect()
        };
        let mut events = told_by(&board);
        let mut told_of_one = || {
            std::iter::from_fn(|| events.try_next()).find_map(|event| match event {
                ClusterEvent::Discovery { source, problem, .. } if source == "one" => Some(problem),
                _ => None,
            })
        };
        one.found(crowd(1));
        assert_eq!(told_of_one(), Some(None));
        other.found(crowd(2));
        let problem = told_of_one().expect("it is said").expect("it lost some");
        assert!(
            problem.starts_with("128 of these addresses are left out"),
            "{problem}"
        );
        other.found(Vec::new());
        assert_eq!(told_of_one(), Some(None));
    }

    #[test]
    fn what_is_wrong_is_told_in_bounds_whoever_says_it() {
        let board = board(false);
        let one = board.place("one".into(), Finds::Nodes);
        let mut events = told_by(&board);
        one.partly(vec![addr("10.0.0.1:1")], "x".repeat(1_000_000));
        one.failed("y".repeat(1_000_000));
        for _ in 0..2 {
            let Some(ClusterEvent::Discovery { problem, .. }) = events.try_next() else {
                panic!("nothing was said");
            };
            assert!(problem.unwrap().chars().count() < 2 * MOST_OF_A_PROBLEM);
        }
    }

    #[test]
    fn addresses_are_bounded() {
        let board = board(false);
        let many = (1..1000)
            .map(|port| SocketAddr::from(([10, 0, 0, 1], port)))
            .collect();
        board.place("one".into(), Finds::Nodes).found(many);
        assert_eq!(board.hints().borrow().nodes.len(), MAX_HINTS);
    }
}
