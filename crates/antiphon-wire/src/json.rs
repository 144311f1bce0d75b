//! How values are written in JSON and the like, and read again (feature `serde`).
//!
//! - An identity is its text, as it is shown and parsed; an enumeration of names is the name.
//! - A time is a number of milliseconds, in a field whose name ends in `_ms`.
//! - The cause why a member is gone, and the evidence for it, are sentences for people, as in `antiphon-api`:
//!   written, and not read.
//! - A view is what `antiphon-api` calls `node_view`: the same fields, with names where it has names, and in
//!   addition the fields that only this type has. The types of that crate read it.

use serde::ser::{Serialize, Serializer};

use crate::{
    Accusation, Cause, Evidence, GroupViewId, Incarnation, Lineage, Member, NodeView, NodeViewId, Subview,
    ViewId, ViewStamp,
};

crate::as_text!(Incarnation, Lineage, ViewId, ViewStamp);
crate::written_as_text!(GroupViewId, NodeViewId, Evidence, Cause);

/// A time in whole milliseconds.
pub mod millis {
    use std::time::Duration;

    use serde::{Deserialize, Deserializer, Serializer};

    /// Writes it.
    pub fn serialize<S: Serializer>(time: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u64(u64::try_from(time.as_millis()).unwrap_or(u64::MAX))
    }

    /// Reads it.
    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
        u64::deserialize(deserializer).map(Duration::from_millis)
    }
}

/// A time in whole milliseconds, or none.
pub mod millis_if_any {
    use std::time::Duration;

    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    /// Writes it.
    pub fn serialize<S: Serializer>(time: &Option<Duration>, serializer: S) -> Result<S::Ok, S::Error> {
        let ms = time.map(|time| u64::try_from(time.as_millis()).unwrap_or(u64::MAX));
        ms.serialize(serializer)
    }

    /// Reads it.
    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Duration>, D::Error> {
        let ms = Option::<u64>::deserialize(deserializer)?;
        Ok(ms.map(Duration::from_millis))
    }
}

/// A node view, or what is kept of one, as it is written.
#[derive(Debug, serde::Serialize)]
pub struct Written<M> {
    id: ViewName,
    number: u32,
    primary: bool,
    members: Vec<M>,
    #[serde(skip_serializing_if = "Option::is_none")]
    size: Option<usize>,
    joined: Vec<String>,
    left: Vec<M>,
    crashed: Vec<Removed<M>>,
}

#[derive(Debug, serde::Serialize)]
#[serde(untagged)]
enum ViewName {
    Primary(u32),
    NonPrimary(String),
}

#[derive(Debug, serde::Serialize)]
struct Removed<M> {
    #[serde(flatten)]
    member: M,
    cause: String,
    accusers: Vec<String>,
    evidence: String,
    before_ms: u32,
}

impl<M> Written<M> {
    /// A view of these members, without any that departed. `size` is said where the members are not known.
    pub fn new(
        id: NodeViewId,
        number: u32,
        members: Vec<M>,
        size: Option<usize>,
        joined: Vec<String>,
    ) -> Self {
        let (primary, id) = match id {
            NodeViewId::Primary { .. } => (true, ViewName::Primary(number)),
            NodeViewId::NonPrimary {
                attempt, proposer, ..
            } => {
                let name = format!("{number}-{attempt}@{}", proposer.short());
                (false, ViewName::NonPrimary(name))
            }
        };
        Self {
            id,
            number,
            primary,
            members,
            size,
            joined,
            left: Vec::new(),
            crashed: Vec::new(),
        }
    }

    /// And a member that is gone.
    pub fn depart(
        &mut self,
        member: M,
        cause: &Cause,
        accusers: &[Accusation],
        name: &dyn Fn(Incarnation) -> String,
    ) {
        if *cause == Cause::Left {
            return self.left.push(member);
        }
        let said = accusers.iter().map(|said| said.with_names(name));
        self.crashed.push(Removed {
            member,
            cause: cause.with_names(name),
            accusers: accusers.iter().map(|said| name(said.accuser)).collect(),
            evidence: said.collect::<Vec<_>>().join("; "),
            before_ms: accusers.iter().map(|said| said.before_ms).max().unwrap_or(0),
        });
    }
}

impl Serialize for NodeView {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(serde::Serialize)]
        struct Whole<'a> {
            #[serde(flatten)]
            written: Written<&'a Member>,
            lineage: Lineage,
            #[serde(skip_serializing_if = "<[_]>::is_empty")]
            merged: &'a [Subview],
            wire_level: u8,
        }
        let name = |incarnation| self.name_of(incarnation);
        let joined = self.joined.iter().map(|joined| name(*joined)).collect();
        let mut written = Written::new(self.id, self.number, self.members.iter().collect(), None, joined);
        for gone in &self.departed {
            written.depart(&gone.member, &gone.cause, &gone.accusers, &name);
        }
        let whole = Whole {
            written,
            lineage: self.lineage,
            merged: &self.merged,
            wire_level: self.wire_level,
        };
        whole.serialize(serializer)
    }
}
