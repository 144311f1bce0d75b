//! All that a view says of its members, for people.

use std::fmt::Write as _;

use antiphon::NodeView;

const INDENT: &str = "              ";

/// A view with everything it says of its members, by seniority.
pub(crate) fn of(view: &NodeView) -> String {
    let kind = if view.is_primary() {
        ""
    } else {
        ", without a majority"
    };
    let mut text = format!("{INDENT}cluster view {}{kind}:", view.number);
    for (rank, member) in view.members.iter().enumerate() {
        let metadata: String = member
            .metadata
            .iter()
            .map(|(key, value)| format!("  {key}={value}"))
            .collect();
        let weight = if member.weight == 1 {
            String::new()
        } else {
            format!("  weight {}", member.weight)
        };
        let elder = if rank == 0 { "  elder" } else { "" };
        let incarnation = member.incarnation.short();
        let addrs = std::iter::once(&member.addr)
            .chain(&member.further)
            .map(ToString::to_string);
        let addrs: Vec<String> = addrs.collect();
        // Writing to a string cannot fail.
        let _ = write!(
            text,
            "\n{INDENT}  {:<12}  {}  {incarnation}{elder}{weight}{metadata}",
            member.name,
            addrs.join(", ")
        );
    }
    text
}
