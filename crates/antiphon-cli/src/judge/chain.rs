//! The chain of primary node views.

use std::collections::BTreeMap;

use super::{Record, Sheet, ViewChange};
use antiphon_api::{Event, ViewName};

/// G6: primary views form one chain; one number, one list; and each node sees them in order.
pub(super) fn check(records: &[Record], sheet: &mut Sheet) {
    let mut chain: BTreeMap<u32, (Vec<&str>, ViewChange)> = BTreeMap::new();
    for record in records {
        let mut last = 0;
        for line in &record.lines {
            let Event::NodeView {
                id: ViewName::Primary(number),
                members,
                joined,
                left,
                crashed,
                ..
            } = line
            else {
                continue;
            };
            if *number <= last {
                sheet.find(
                    |sheet| &mut sheet.view_violations,
                    1,
                    || format!("{} installed node view {number} after {last}", record.name),
                );
            }
            last = *number;
            let incarnations: Vec<&str> = members.iter().map(|member| member.incarnation.as_str()).collect();
            match chain.get(number) {
                Some((known, _)) if *known != incarnations => {
                    sheet.find(
                        |sheet| &mut sheet.view_violations,
                        1,
                        || {
                            format!(
                                "two primaries: node view {number} of {} is another list than elsewhere",
                                record.name
                            )
                        },
                    );
                }
                Some(_) => {}
                None => {
                    let change = ViewChange {
                        number: *number,
                        members: members.iter().map(|member| member.name.clone()).collect(),
                        joined: joined.clone(),
                        left: left.iter().map(|member| member.name.clone()).collect(),
                        crashed: crashed.iter().map(ToString::to_string).collect(),
                    };
                    chain.insert(*number, (incarnations, change));
                }
            }
        }
    }
    let mut before: Option<(u32, Vec<&str>)> = None;
    for (number, (incarnations, change)) in chain {
        if let Some((before_number, before)) = &before
            && number == before_number + 1
            && !incarnations
                .iter()
                .any(|incarnation| before.contains(incarnation))
        {
            sheet.find(
                |sheet| &mut sheet.view_violations,
                1,
                || format!("node view {number} has no member of {before_number}: not one chain"),
            );
        }
        before = Some((number, incarnations));
        sheet.view_changes.push(change);
    }
}
