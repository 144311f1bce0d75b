//! Clusters on virtual time, for your tests (feature `testkit`).
//!
//! The nodes are the shipping protocol; network, time and faults are simulated, and one seed decides
//! everything: a test that failed fails again, and minutes of a cluster's life take milliseconds.
//!
//! ```
//! use antiphon::testkit::Sim;
//!
//! let mut sim = Sim::new(3, 1); // three nodes, seed 1
//! sim.start_all();
//! sim.settle();
//! sim.send(0, "hello");
//! assert!(sim.run_until(2_000, |sim| sim.delivered(2) == ["hello"]));
//!
//! sim.partition([2], [0, 1]);
//! assert!(sim.run_until(30_000, |sim| !sim.is_primary(2) && sim.members(0).len() == 2));
//! sim.heal();
//! sim.settle();
//! assert!(sim.had_resync(2));
//! sim.finish(); // panics if a guarantee was broken
//! ```

pub use antiphon_sim::{Action, Plan, Sim, Who};
