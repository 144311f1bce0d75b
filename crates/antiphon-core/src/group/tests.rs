//! Stories of groups, told by several [`Groups`](super::Groups) connected directly under virtual time.
