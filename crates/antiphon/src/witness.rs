//! Witnessing the death of a node of one's own: what `antiphon node --witness` does, for supervisors of your
//! own (Linux).
//!
//! A process that has started another one sees its end without any network, however the end comes. It makes a
//! [`Keeper`] and starts the node's process, which leaves its votes there
//! ([`Builder::last_vote`](crate::Builder::last_vote)). It *waits* for that process, and then tells the
//! members of its death:
//!
//! ```no_run
//! # #[cfg(target_os = "linux")]
//! # async fn supervise(key: antiphon::ClusterKey, addr: std::net::SocketAddr) -> Result<(), Box<dyn std::error::Error>> {
//! use antiphon::witness::{Death, Keeper, fresh_incarnation, tell};
//!
//! let keeper = Keeper::new()?;
//! let mut child = std::process::Command::new("my-node")
//!     .arg(keeper.path())
//!     .spawn()?;
//! let status = child.wait()?;
//! let death = Death::of("shop", &key, keeper.read()?, fresh_incarnation()?)?;
//! let handed = tell(death, addr, std::time::Duration::from_secs(40)).await;
//! eprintln!("{status}; {} members know it", handed.taken);
//! # Ok(())
//! # }
//! ```
//! Only the parent can do this, and only once it has waited for the child. Reading fails as long as some
//! process may still write there, so that the end of a wrapper is not taken for that of the node.
//! [`Death::of`] itself believes its caller that the process is gone. If the caller tells the death of a
//! process that lives, two halves of a cluster may go on apart.
//!
//! The node's process must not go on in another one: no fork without exec, no checkpoint that is restored
//! elsewhere.

pub use antiphon_core::witness::{Death, Unproven};
#[cfg(target_os = "linux")]
pub use antiphon_net::witness::Keeper;
pub use antiphon_net::witness::{Handed, tell};

use crate::{Error, Incarnation};

/// An incarnation for a witness, which seals its messages with it.
///
/// # Errors
/// [`Error::Entropy`].
pub fn fresh_incarnation() -> Result<Incarnation, Error> {
    let word = || getrandom::u64().map(u128::from).map_err(|_| Error::Entropy);
    Ok(Incarnation((word()? << 64) | word()?))
}
