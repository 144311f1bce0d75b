//! Stories of groups, told by several [`Groups`](super::Groups) connected directly under virtual time.
//!
//! [`world`] is the harness: reliable ordered control between pairs, lossy data, injected node views, and
//! checkers that read only what the applications saw. [`stories`], [`returns`], [`gone`], [`left_behind`],
//! [`crossed`], [`large`], [`objects`], [`chain`], [`direct`], [`rotation`], [`safe`], [`token`],
//! [`unordered`], [`scoped`], [`slow`], [`repairs`] and [`latency`] are faults with names, made with
//! [`loss`]; [`swarm`] draws faults from a seed, and [`liar`] what a member says.

mod chain;
mod crossed;
mod direct;
mod gone;
mod large;
mod latency;
mod left_behind;
mod liar;
mod loss;
mod objects;
mod repairs;
mod returns;
mod rotation;
mod safe;
mod scoped;
mod slow;
mod stays;
mod stories;
mod swarm;
mod token;
mod unordered;
mod world;
