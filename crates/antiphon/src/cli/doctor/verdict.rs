//! What all steps come to: whom the node would join, or with whom it would found a cluster.

use std::collections::BTreeMap;

use antiphon_core::wire::Lineage;

use super::report::{Report, Step};
use super::running::Own;
use super::seeds::Enquiries;
use crate::cli::settings::Settings;

/// Draws the conclusion.
pub(super) fn draw(report: &mut Report, settings: &Settings, enquiries: &Enquiries, own: Option<&Own>) {
    if let Some(status) = own.and_then(|own| own.status.as_ref())
        && status.state == "primary"
    {
        let text = format!(
            "the node {} runs and is a member of view {}, of {} members",
            status.node,
            status.view.map_or("?".to_owned(), |view| view.to_string()),
            status.members
        );
        return report.verdict(true, text);
    }
    let answers = || enquiries.asked.iter().filter_map(|asked| asked.answer.as_ref());
    let mut primaries: BTreeMap<Lineage, (u32, u16, String)> = BTreeMap::new();
    for answer in answers() {
        if let Some(standing) = answer.standing.filter(|standing| standing.primary) {
            let shown = (standing.number, answer.members, answer.node.name.clone());
            primaries.entry(standing.lineage).or_insert(shown);
        }
    }
    if primaries.len() > 1 {
        let each: Vec<String> = primaries
            .values()
            .map(|(number, members, name)| format!("{name} in view {number} of {members} members"))
            .collect();
        report.add(Step::failed(
            "cluster",
            "two-clusters",
            "",
            format!(
                "the seeds are in {} clusters of this name: {}",
                primaries.len(),
                each.join("; ")
            ),
            how_they_become_one(settings, enquiries),
        ));
    }
    if let Some((number, members, name)) = primaries.values().next() {
        let objections: Vec<&str> = answers()
            .filter_map(|answer| Some(answer.objection.as_ref()?.reason.as_str()))
            .collect();
        return match objections.first() {
            None => report.verdict(
                true,
                format!("the cluster is there, {name} in view {number} of {members} members: this node would join it"),
            ),
            Some(reason) => report.verdict(
                false,
                format!("the cluster is there, in view {number} of {members} members, and would refuse this node: {reason}"),
            ),
        };
    }
    founding(report, settings, enquiries);
}

/// Whoever has this node's seed list looks at all seeds that are asked here, so at the other cluster's, too.
fn how_they_become_one(settings: &Settings, enquiries: &Enquiries) -> String {
    let of_the_list = enquiries.asked.iter().filter(|asked| asked.seed.is_some());
    let in_primaries = of_the_list.filter_map(|asked| {
        let answer = asked.answer.as_ref()?;
        answer.standing.filter(|standing| standing.primary)?;
        Some(answer)
    });
    // Where a number is expected, what is compared is that, and not the list.
    let mut alike =
        in_primaries.filter(|answer| settings.expect.is_none() && answer.seeds == enquiries.seeds);
    match alike.next() {
        Some(answer) => format!(
            "{} has this very seed list, so it finds the others: they become one within seconds, unless it cannot reach them, which the doctor says on its host",
            answer.node.name
        ),
        None => "as far as is seen none of them has this seed list: give the nodes of one cluster the addresses of the other as --seeds, or both the same --locators; a node started with --found alone looks for nobody".to_owned(),
    }
}

/// Nobody is in a primary view.
fn founding(report: &mut Report, settings: &Settings, enquiries: &Enquiries) {
    let answers = || enquiries.asked.iter().filter_map(|asked| asked.answer.as_ref());
    if answers().any(|answer| answer.standing.is_some()) {
        return report.verdict(
            false,
            "members answer, but without a majority: they wait for the others, and admit nobody until then"
                .to_owned(),
        );
    }
    let others = enquiries.others;
    let finds_others = !settings.discovery.is_empty();
    if settings.found
        || settings.expect == Some(1)
        || (others == 0 && settings.expect.is_none() && !finds_others)
    {
        return report.verdict(true, "this node founds a cluster by itself, at once".to_owned());
    }
    if others == 0 && settings.expect.is_none() {
        return report.verdict(
            false,
            "this node founds no cluster without --expect or --found: it waits for one that its sources or locators lead to"
                .to_owned(),
        );
    }
    let mut alike: Vec<usize> = enquiries
        .asked
        .iter()
        .filter(|asked| {
            let answer = asked.answer.as_ref();
            answer.is_some_and(|answer| answer.objection.is_none() && answer.seeds == enquiries.seeds)
        })
        .filter_map(|asked| asked.seed)
        .collect();
    alike.sort_unstable();
    alike.dedup();
    let ready = alike.len() + usize::from(enquiries.founder);
    let (needed, of) = match settings.expect {
        Some(expect) => (usize::from(expect), format!("the {expect} expected")),
        None => (
            settings.seeds.len() / 2 + 1,
            format!("{} seeds", settings.seeds.len()),
        ),
    };
    let here = match enquiries.founder {
        true => ", this one included",
        false => "; this one is not among them, and only joins",
    };
    let nobody_known =
        (enquiries.asked.iter().filter_map(|asked| asked.known.as_ref())).any(|known| known.nodes.is_empty());
    let so_far = match answers().next() {
        Some(_) => "no cluster yet",
        None if nobody_known => "the locators know nobody yet",
        None => "no other node could be asked",
    };
    match ready >= needed {
        true => report.verdict(
            true,
            format!("{so_far}; {ready} of {of} are ready{here}: enough to found it"),
        ),
        false => report.verdict(
            false,
            format!("{so_far}; {ready} of {of} are ready{here}; {needed} are needed to found it: start the others, or mend what is said of them above"),
        ),
    }
}
