//! A cluster that has more members than its membership engine is meant for: the operator is told, and what to
//! do.

use antiphon_core::EngineKind;

/// What was said of the size of this node's views.
#[derive(Debug)]
pub(super) struct Outgrown {
    engine: EngineKind,
    told: bool,
}

impl Outgrown {
    pub(super) fn new(engine: EngineKind) -> Self {
        Self { engine, told: false }
    }

    /// The advice to the operator about a view of so many members: once, until views are clearly smaller
    /// again.
    pub(super) fn advice(&mut self, members: usize) -> Option<String> {
        let meant_for = self.engine.meant_for();
        if members <= meant_for {
            self.told &= members * 10 > meant_for * 9;
            return None;
        }
        if std::mem::replace(&mut self.told, true) {
            return None;
        }
        let engine = self.engine.name();
        Some(format!(
            "this view has {members} members; the {engine} engine is meant for up to {meant_for}, since all of its members speak \
             to all others: use membership = {} at all nodes",
            EngineKind::Cut.name()
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cluster_that_outgrows_its_engine_is_told_so_once_and_again_after_it_has_shrunk() {
        let mut outgrown = Outgrown::new(EngineKind::Coordinator);
        let mut is_told = |members| outgrown.advice(members).is_some();
        assert!(!is_told(50));
        assert!(is_told(51));
        assert!(!is_told(60), "it was told");
        assert!(!is_told(49) && !is_told(51), "one comes and goes");
        assert!(!is_told(45) && is_told(64));
    }

    #[test]
    fn the_advice_has_the_figures_and_what_to_do() {
        let advice = Outgrown::new(EngineKind::Coordinator).advice(64).unwrap();
        for part in ["64 members", "coordinator engine", "up to 50", "membership = cut"] {
            assert!(advice.contains(part), "{advice}");
        }
        assert_eq!(Outgrown::new(EngineKind::Cut).advice(4096), None);
    }
}
