//! What speaks against joining a group with these options.

use std::collections::BTreeSet;

use antiphon_wire::enquiry::GroupAsked;

use crate::group::terms::differ;
use crate::group::{Groups, Phase};

impl Groups {
    /// The groups that another node would join and this node is a member of: those that would refuse it, and
    /// why.
    pub(crate) fn objections(&self, asked: &[GroupAsked]) -> Vec<(String, String)> {
        let objection = |asked: &GroupAsked| {
            let mut groups = self.groups.values();
            let group =
                groups.find(|group| group.name == asked.name && matches!(group.phase, Phase::Member(_)))?;
            let mine = group.terms();
            (asked.terms != mine).then(|| (asked.name.clone(), differ(&asked.name, mine, asked.terms)))
        };
        let mut seen = BTreeSet::new();
        let once = asked.iter().filter(|asked| seen.insert(&asked.name));
        once.filter_map(objection).collect()
    }
}
