//! Which views are believed, and the last ones.
//!
//! - [`check`]: which views, records and votes of peers are believed; how one view follows another;
//! - [`history`]: the last primary views, for members that are behind and for people who ask why.
//!
//! This room knows no member, no message, and no time but that of an install. All other rooms may call it.

pub(crate) mod check;
pub(crate) mod history;
