//! What the members of a group must have alike.

use antiphon_wire::group::GroupTerms;

use crate::{Dissemination, GroupOptions, Order, TotalEngine};

/// What members must agree on, of these options.
pub(crate) fn terms_of(options: &GroupOptions) -> GroupTerms {
    let order = match options.order {
        Order::Fifo => 0,
        Order::Total => 1,
        Order::Unordered => 2,
        Order::Scoped => 3,
    };
    let dissemination = match options.dissemination {
        Dissemination::Direct => 0,
        Dissemination::Chain => 1,
        Dissemination::Multicast => 2,
    };
    let slow_after = options.slow_after.map_or(0, |after| after.as_millis());
    // Of no meaning in any other order, where all members say the same nevertheless.
    let engine = match options.order {
        Order::Total => options.engine.code(),
        Order::Unordered | Order::Scoped | Order::Fifo => 0,
    };
    GroupTerms {
        order,
        window_bytes: options.window_bytes,
        dissemination,
        slow_after_ms: u32::try_from(slow_after).unwrap_or(u32::MAX),
        engine,
        max_object_bytes: options.max_object_bytes,
    }
}

/// Why a group refuses a node with other terms.
pub(crate) fn differ(name: &str, mine: GroupTerms, asked: GroupTerms) -> String {
    format!(
        "the group {name:?} has {}; this node asked for {}",
        describe(mine),
        describe(asked)
    )
}

fn describe(terms: GroupTerms) -> String {
    let order = match terms.order {
        0 => "fifo".to_owned(),
        1 => "total".to_owned(),
        2 => "unordered".to_owned(),
        3 => "scoped".to_owned(),
        other => format!("unknown ({other})"),
    };
    let dissemination = match terms.dissemination {
        0 => "direct".to_owned(),
        1 => "chain".to_owned(),
        2 => "multicast".to_owned(),
        other => format!("unknown ({other})"),
    };
    let slow_after = match terms.slow_after_ms {
        0 => "no limit for slow members".to_owned(),
        after => format!("a limit of {after} ms for slow members"),
    };
    let known = TotalEngine::ALL
        .into_iter()
        .find(|engine| terms.order == 1 && engine.code() == terms.engine);
    let engine = match (known, terms.engine) {
        (Some(engine), _) => format!(" by {}", engine.name()),
        (None, 0) => String::new(),
        (None, other) => format!(" by unknown ({other})"),
    };
    format!(
        "order {order}{engine}, a window of {} bytes, objects of up to {} bytes, {slow_after} and dissemination {dissemination}",
        terms.window_bytes, terms.max_object_bytes
    )
}
