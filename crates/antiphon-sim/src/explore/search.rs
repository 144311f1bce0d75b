//! The search: every state that a model can reach, each visited once.
//!
//! A 128-bit fingerprint tells states apart, so a run remembers 16 bytes for each state (18 to 55 with the
//! table around them, the most while it grows). Of n states, the odds that some two share a fingerprint are
//! n²/2¹²⁹ at most: below 10⁻²² for ten to the eighth. A limit of states is the limit of memory: a search
//! that meets it says that it is not complete.
//!
//! A search that expects no violation goes depth first, which keeps few states in memory. If a search finds a
//! violation, it is repeated breadth first, with a note of each state's predecessor, so that the printed
//! schedule is a shortest one.

use std::collections::{HashMap, HashSet, VecDeque};
use std::fmt::Display;
use std::hash::{BuildHasherDefault, Hash, Hasher};
use std::time::{Duration, Instant};

use twox_hash::XxHash3_128;

/// Something that takes steps.
pub trait Model {
    /// All there is at one moment.
    type State: Clone + Hash;
    /// One step, as shown in a schedule.
    type Step: Display;

    /// Where it starts.
    fn initial(&self) -> Self::State;
    /// Every step possible here, with where it leads.
    fn successors(&self, state: &Self::State, into: &mut Vec<(Self::Step, Self::State)>);
    /// What is wrong in this state.
    fn violation(&self, state: &Self::State) -> Option<String>;
    /// Whether a step need never be taken, such as a crash: a state with only such steps may last for ever.
    fn resting(&self, _step: &Self::Step) -> bool {
        false
    }
    /// What is wrong in a state that may last for ever.
    fn stuck(&self, _state: &Self::State) -> Option<String> {
        None
    }
}

/// What a search found.
#[derive(Debug, Clone)]
pub struct Outcome {
    /// Different states visited.
    pub states: u64,
    /// Steps taken, including those that led to a state seen before.
    pub steps: u64,
    /// The longest schedule followed (depth first) or the distance of the farthest state (breadth first).
    pub depth: usize,
    /// Whether every reachable state was visited. False if the limit was met or a violation ended the search.
    pub complete: bool,
    /// What went wrong, and a shortest schedule that leads there.
    pub violation: Option<Violation>,
    /// How long it took.
    pub wall: Duration,
}

/// A broken invariant.
#[derive(Debug, Clone)]
pub struct Violation {
    /// Which, and how.
    pub what: String,
    /// The steps that lead there from the start.
    pub schedule: Vec<String>,
}

/// Searches all states, up to `limit` of them.
pub fn search<M: Model>(model: &M, limit: u64) -> Outcome {
    let start = Instant::now();
    let mut outcome = depth_first(model, limit, |_| {});
    if outcome.violation.is_some() {
        let states = outcome.states;
        outcome = breadth_first(model, limit);
        outcome.states = outcome.states.max(states);
    }
    outcome.wall = start.elapsed();
    outcome
}

/// Searches for a shortest schedule to a violation.
pub fn hunt<M: Model>(model: &M, limit: u64) -> Outcome {
    let start = Instant::now();
    let mut outcome = breadth_first(model, limit);
    outcome.wall = start.elapsed();
    outcome
}

/// Shows every state once, up to `limit` of them. False if there are more.
pub fn visit<M: Model>(model: &M, limit: u64, each: impl FnMut(&M::State)) -> bool {
    depth_first(model, limit, each).complete
}

fn depth_first<M: Model>(model: &M, limit: u64, mut each: impl FnMut(&M::State)) -> Outcome {
    let mut seen: HashSet<u128, Identity> = HashSet::default();
    let mut outcome = Outcome::started();
    let initial = model.initial();
    seen.insert(fingerprint(&initial));
    let mut stack = vec![(0, initial)];
    let mut next = Vec::new();
    while let Some((depth, state)) = stack.pop() {
        outcome.depth = outcome.depth.max(depth);
        each(&state);
        model.successors(&state, &mut next);
        let broken = model.violation(&state).or_else(|| {
            if next.iter().all(|(step, _)| model.resting(step)) {
                model.stuck(&state)
            } else {
                None
            }
        });
        if let Some(what) = broken {
            outcome.violation = Some(Violation {
                what,
                schedule: Vec::new(),
            });
            outcome.states = seen.len() as u64;
            return outcome;
        }
        for (_, successor) in next.drain(..) {
            outcome.steps += 1;
            if seen.insert(fingerprint(&successor)) {
                stack.push((depth + 1, successor));
            }
        }
        if seen.len() as u64 > limit {
            outcome.states = seen.len() as u64;
            return outcome;
        }
    }
    outcome.states = seen.len() as u64;
    outcome.complete = true;
    outcome
}

fn breadth_first<M: Model>(model: &M, limit: u64) -> Outcome {
    let mut came_from: HashMap<u128, u128, Identity> = HashMap::default();
    let mut outcome = Outcome::started();
    let initial = model.initial();
    let root = fingerprint(&initial);
    came_from.insert(root, root);
    let mut queue = VecDeque::from([(0, root, initial)]);
    let mut next = Vec::new();
    while let Some((depth, print, state)) = queue.pop_front() {
        outcome.depth = depth;
        model.successors(&state, &mut next);
        let broken = model.violation(&state).or_else(|| {
            if next.iter().all(|(step, _)| model.resting(step)) {
                model.stuck(&state)
            } else {
                None
            }
        });
        if let Some(what) = broken {
            outcome.violation = Some(Violation {
                what,
                schedule: schedule(model, &came_from, root, print),
            });
            outcome.states = came_from.len() as u64;
            return outcome;
        }
        for (_, successor) in next.drain(..) {
            outcome.steps += 1;
            let successor_print = fingerprint(&successor);
            came_from.entry(successor_print).or_insert_with(|| {
                queue.push_back((depth + 1, successor_print, successor));
                print
            });
        }
        if came_from.len() as u64 > limit {
            outcome.states = came_from.len() as u64;
            return outcome;
        }
    }
    outcome.states = came_from.len() as u64;
    outcome.complete = true;
    outcome
}

/// Walks from the start along the fingerprints that lead to `end`, naming the steps.
fn schedule<M: Model>(
    model: &M,
    came_from: &HashMap<u128, u128, Identity>,
    root: u128,
    end: u128,
) -> Vec<String> {
    let mut path = vec![end];
    let mut at = end;
    while at != root {
        at = came_from[&at];
        path.push(at);
    }
    path.pop();
    let mut state = model.initial();
    let mut steps = Vec::new();
    let mut next = Vec::new();
    for print in path.into_iter().rev() {
        model.successors(&state, &mut next);
        let taken = next
            .drain(..)
            .find(|(_, successor)| fingerprint(successor) == print);
        let (step, successor) = taken.expect("the model is deterministic");
        steps.push(step.to_string());
        state = successor;
    }
    steps
}

impl Outcome {
    fn started() -> Self {
        Self {
            states: 0,
            steps: 0,
            depth: 0,
            complete: false,
            violation: None,
            wall: Duration::ZERO,
        }
    }
}

/// A 128-bit hash of all that a state's `Hash` yields.
pub fn fingerprint<T: Hash>(value: &T) -> u128 {
    thread_local! {
        static BUFFER: std::cell::RefCell<Vec<u8>> = const { std::cell::RefCell::new(Vec::new()) };
    }
    struct Collect<'a>(&'a mut Vec<u8>);
    impl Hasher for Collect<'_> {
        fn write(&mut self, bytes: &[u8]) {
            self.0.extend_from_slice(bytes);
        }
        fn finish(&self) -> u64 {
            0
        }
    }
    BUFFER.with_borrow_mut(|buffer| {
        buffer.clear();
        value.hash(&mut Collect(buffer));
        XxHash3_128::oneshot(buffer)
    })
}

type Identity = BuildHasherDefault<Fold>;

/// Fingerprints are hashes already: a table needs no second one.
#[derive(Default)]
struct Fold(u64);

impl Hasher for Fold {
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = self.0.rotate_left(8) ^ u64::from(*byte);
        }
    }
    fn write_u128(&mut self, value: u128) {
        self.0 = value as u64;
    }
    fn finish(&self) -> u64 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two counters that step up to a bound; a sum is forbidden.
    struct Counters {
        bound: u8,
        forbidden: u8,
    }

    impl Model for Counters {
        type State = (u8, u8);
        type Step = &'static str;
        fn initial(&self) -> (u8, u8) {
            (0, 0)
        }
        fn successors(&self, state: &(u8, u8), into: &mut Vec<(&'static str, (u8, u8))>) {
            if state.0 < self.bound {
                into.push(("left", (state.0 + 1, state.1)));
            }
            if state.1 < self.bound {
                into.push(("right", (state.0, state.1 + 1)));
            }
        }
        fn violation(&self, state: &(u8, u8)) -> Option<String> {
            (state.0 + state.1 == self.forbidden).then(|| format!("{state:?}"))
        }
    }

    #[test]
    fn every_state_is_visited_once() {
        let outcome = search(
            &Counters {
                bound: 9,
                forbidden: 99,
            },
            1000,
        );
        assert!(outcome.complete && outcome.violation.is_none());
        assert_eq!(outcome.states, 100);
        assert_eq!(outcome.steps, 180);
    }

    #[test]
    fn a_violation_comes_with_a_shortest_schedule() {
        let outcome = search(
            &Counters {
                bound: 9,
                forbidden: 7,
            },
            1000,
        );
        assert_eq!(outcome.violation.expect("7 is reached").schedule.len(), 7);
    }

    #[test]
    fn a_search_that_met_its_limit_says_that_it_is_not_complete() {
        let outcome = search(
            &Counters {
                bound: 99,
                forbidden: 255,
            },
            500,
        );
        assert!(!outcome.complete && outcome.violation.is_none());
    }
}
