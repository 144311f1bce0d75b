//! Which groups a node joins.

use super::{Error, Given, list};

/// The group where none is given.
const DEFAULT_GROUP: &str = "main";

impl Given {
    /// The groups, and whether there are none, of these settings over others. If either is given here, it
    /// replaces both of the others.
    pub(super) fn groups_over(&self, below: &Self) -> (Option<Vec<String>>, Option<bool>) {
        let given = self.group.as_ref().is_some_and(|groups| !groups.is_empty());
        match given || self.no_group == Some(true) {
            true => (self.group.clone(), self.no_group),
            false => (below.group.clone(), self.no_group.or(below.no_group)),
        }
    }
}

/// The groups that are joined.
pub(super) fn joined(groups: Option<Vec<String>>, none: Option<bool>) -> Result<Vec<String>, Error> {
    let mut groups = list("group", groups)?.unwrap_or_default();
    match (groups.is_empty(), none.unwrap_or(false)) {
        (true, true) => return Ok(groups),
        (false, true) => {
            let reason = format!(
                "no-group and group {} are given: the node joins groups or none; leave one of both out",
                groups.join(", ")
            );
            return Err(Error::value("no-group", reason));
        }
        (true, false) => groups.push(DEFAULT_GROUP.to_owned()),
        (false, false) => {}
    }
    for (index, group) in groups.iter().enumerate() {
        super::effective::check_name("group", group)?;
        if groups[..index].contains(group) {
            return Err(Error::value("group", format!("group {group:?} is given twice")));
        }
    }
    Ok(groups)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_may_be_in_no_group_and_what_is_given_undoes_what_the_file_says_of_groups() {
        let g = || Some(vec!["g".to_owned()]);
        let of = |(group, no_group)| Given {
            group,
            no_group,
            ..Given::default()
        };
        let merged = |given, in_file| {
            let merged = of(given).over(of(in_file));
            joined(merged.group, merged.no_group).map_err(|error| error.to_string())
        };
        for (given, in_file, expected) in [
            ((None, None), (None, None), vec!["main"]),
            ((None, Some(true)), (None, None), vec![]),
            ((None, None), (None, Some(true)), vec![]),
            ((None, Some(true)), (g(), None), vec![]),
            ((g(), None), (None, Some(true)), vec!["g"]),
            ((None, Some(false)), (None, Some(true)), vec!["main"]),
            ((None, Some(false)), (g(), Some(true)), vec!["g"]),
        ] {
            assert_eq!(merged(given, in_file).unwrap(), expected);
        }
        for (given, in_file) in [
            ((g(), Some(true)), (None, None)),
            ((None, None), (g(), Some(true))),
        ] {
            let error = merged(given, in_file).unwrap_err();
            assert!(error.contains("no-group and group g"), "{error}");
        }
    }
}
