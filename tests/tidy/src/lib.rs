//! House rules that a machine can check.
//!
//! Each rule is a function from the source tree to a list of complaints (`file:line: what is wrong`), tested
//! twice: on this repository, where it must have nothing to say, and on a small tree that breaks it, where it
//! must.
//!
//! - [`documents`]: links that lead nowhere; flags, constants, limits and paths that a document names and the
//!   code lacks; long lines;
//! - [`guarantees`]: each offered guarantee is quoted by a checker, each quoted number exists; planted bugs
//!   are described and really planted;
//! - [`prose`]: documents that promise to be short, comments that do not name the actor, or are too wide;
//! - [`source`]: files too long, without a page, with forgotten marks or with paths of somebody's machine;
//!   files that a merge has left;
//! - [`dependence`]: who may depend on whom, what the core must not touch, a reason for each dependency;
//! - [`circles`]: files of the core that import each other.
//!
//! It reads text, not syntax: a rule that needs a parser belongs to clippy.
#![forbid(unsafe_code)]

pub mod circles;
pub mod dependence;
pub mod documents;
pub mod guarantees;
pub mod prose;
pub mod source;
mod tree;

pub use tree::{File, Tree};

#[cfg(test)]
fn nothing_to_say(complaints: Vec<String>) {
    assert!(
        complaints.is_empty(),
        "{} complaints:\n{}\n",
        complaints.len(),
        complaints.join("\n")
    );
}
