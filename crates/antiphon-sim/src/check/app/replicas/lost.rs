//! G28: a state is lost with the last member that has it, and not before.

use std::collections::BTreeMap;
use std::sync::Arc;

use antiphon_core::GroupView;
use antiphon_replica::Standing;

use super::Member;
use crate::agenda::Micros;
use crate::check::Report;
use crate::trace::ProcessId;

/// A member that has the state has it until its membership ends.
pub(super) fn check_kept(at: Micros, process: ProcessId, member: &Member, report: &mut Report) {
    let ends = matches!(
        member.standing,
        Some(Standing::Serving | Standing::Outside | Standing::Gone)
    );
    report.check("G28", at, !member.served || ends, || {
        format!("p{process} has given up the state: it is {:?}", member.standing)
    });
}

/// A state is founded where no member of the view has one. A member that is told of its removal later than
/// others is in another view until then.
pub(super) fn check_founding(
    at: Micros,
    founder: ProcessId,
    state: u64,
    members: &BTreeMap<ProcessId, Member>,
    report: &mut Report,
) {
    let Some((me, view)) = members
        .get(&founder)
        .and_then(|member| Some((member.incarnation?, member.view.as_ref()?)))
    else {
        return;
    };
    let has_another = |member: &Member| {
        member.standing == Some(Standing::Serving)
            && member.tenure.is_some_and(|tenure| tenure.state != state)
    };
    let is_beside = |member: &Member| {
        let in_view = |theirs: &Arc<GroupView>| theirs.id == view.id && theirs.members.contains(&me);
        !member.ended
            && member.view.as_ref().is_some_and(in_view)
            && member.incarnation.is_some_and(|who| view.members.contains(&who))
    };
    let beside = members
        .iter()
        .find(|(process, member)| **process != founder && has_another(member) && is_beside(member));
    report.check("G28", at, beside.is_none(), || {
        let process = beside.map(|(process, _)| process);
        format!("p{founder} founds the state {state}, and p{process:?} of its view has another one")
    });
}
