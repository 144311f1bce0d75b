//! Which view may follow which at one node.

use std::sync::Arc;

use antiphon_wire::NodeView;

/// Views are installed in order and none is skipped.
pub(super) fn check_succession(last: Option<&Arc<NodeView>>, view: &NodeView) {
    match last {
        Some(last) if view.is_primary() && view.lineage != last.lineage => {
            let left = view.overrides().or(view.separates());
            assert_eq!(left, Some((last.lineage, last.primary_id())));
            assert_eq!(view.primary_id().epoch, last.primary_id().epoch + 1);
            assert!(view.number > last.number);
        }
        Some(last) if view.is_primary() => {
            assert_eq!(view.lineage, last.lineage);
            assert_eq!(view.primary_id().counter, last.primary_id().counter + 1);
            assert!(view.number > last.number);
        }
        Some(last) => assert_eq!(view.primary_id(), last.primary_id()),
        None => assert!(view.is_primary()),
    }
}
