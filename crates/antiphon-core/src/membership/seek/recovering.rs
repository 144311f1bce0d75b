//! Recovery of a node that was a member and looks for a cluster: an operator has it go on.

use antiphon_wire::{Cause, Departure};

use crate::Time;
use crate::membership::context::{Context, Fate};
use crate::membership::seek::{Seeking, founding};
use crate::recovery::{Abandoned, Recovery, RecoveryError};

impl Seeking {
    /// What an operator would give up, for a node that was a member and looks for a cluster that took its
    /// place.
    pub(crate) fn recovery(&self, cx: &Context, now: Time) -> Result<Recovery, RecoveryError> {
        if self.withdrawal.is_some() {
            return Err(RecoveryError::Leaving);
        }
        let past = cx.past.as_ref().ok_or(RecoveryError::NoView)?;
        let origin = past.origin;
        let view = cx.history.get(origin.lineage, origin.view);
        let view = view.ok_or(RecoveryError::NoView)?;
        let (unanswered, patience) = (self.unanswered_for(now), cx.config.profile.unreachable_after);
        if unanswered < patience {
            let left = patience - unanswered;
            return Err(RecoveryError::Looking { left });
        }
        if cx.config.weight == 0 {
            return Err(RecoveryError::NoVote);
        }
        let others = view.members.iter().filter(|member| member.addr != cx.config.addr);
        // This node hears members no more, and watches none of them. So what became of them is open.
        let others = others.map(|member| Abandoned {
            member: member.clone(),
            heard: unanswered,
            here: false,
            dead: false,
        });
        Ok(Recovery {
            lineage: origin.lineage,
            view: origin.view,
            number: view.number,
            lost: unanswered,
            quorum: false,
            undecided: false,
            replaced: true,
            weight: cx.config.weight,
            others: others.collect(),
        })
    }
}

/// The first view of a lineage that goes on from the last view of an earlier incarnation of this process.
pub(crate) fn recover_anew(cx: &mut Context, now: Time, shown: &Recovery) {
    let Some(past) = cx.past.clone() else { return };
    let Some(last) = cx.history.get(shown.lineage, shown.view) else {
        return;
    };
    // The incarnation that was a member there has departed, too: this one is another. If it was alone, it
    // alone shows that the view was overridden.
    let departed = last.members.iter().map(|member| Departure {
        member: member.clone(),
        cause: Cause::Overridden {
            lineage: shown.lineage,
            view: shown.view,
        },
        accusers: Vec::new(),
    });
    let departed = departed.collect();
    let mut view = founding::go_on_from(cx, now, &past);
    view.departed = departed;
    cx.fate = Some(Fate::Seated(Box::new(view)));
}
