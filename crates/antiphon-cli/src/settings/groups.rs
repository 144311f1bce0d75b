//! Which groups a node joins.

use super::checked_name;
use crate::exit::Failed;

/// The group where none is given.
const DEFAULT_GROUP: &str = "main";

/// Groups, and whether there are to be none, as both are written in one place.
type Written = (Option<Vec<String>>, Option<bool>);

/// What is given beside the file counts, be it groups or that there are none.
pub(super) fn merge(given: Written, in_file: Written) -> Result<Vec<String>, Failed> {
    let (mut groups, mut none) = (given.0.unwrap_or_default(), given.1);
    if groups.is_empty() && none != Some(true) {
        groups = in_file.0.unwrap_or_default();
        none = none.or(in_file.1);
    }
    match (groups.is_empty(), none.unwrap_or(false)) {
        (true, true) => return Ok(groups),
        (false, true) => {
            return Err(Failed::usage(format!(
                "no-group and group {} are given: the node joins groups or none; leave one of both out",
                groups.join(", ")
            )));
        }
        (true, false) => groups.push(DEFAULT_GROUP.to_owned()),
        (false, false) => {}
    }
    for (index, group) in groups.iter().enumerate() {
        checked_name("group", group)?;
        if groups[..index].contains(group) {
            return Err(Failed::usage(format!("group {group:?} is given twice")));
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
        let merged = |given, in_file| merge(given, in_file).map_err(|failed| failed.message);
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
