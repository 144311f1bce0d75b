//! Which members own a key: rendezvous hashing over the members of a view.
//!
//! ```text
//!   score(member, key) = XXH3-64(key, seed = XXH3-64(member's name))
//!   owners(key, n)     = the n members with the highest scores, the highest one first
//! ```
//! Every member computes the same owners from the same view, without a message and without a table. With `m`
//! members and `n` owners for each key:
//!
//! - each member owns about `n/m` of the keys;
//! - when a member departs, only the keys that it owned get another owner, and each of these one: the former
//!   owners move up. When a member joins, it takes about `n/(m+1)` of the keys, in equal shares from all;
//! - a member that restarts under its name owns the same keys again.
//!
//! The scores go by the UTF-8 bytes of names and by nothing else, so that a program in another language can
//! compute them; two equal scores go by the name. Computing the owners of a key costs a hash of it for each
//! member.
//!
//! Two components of a partition compute different owners, and a member that is cut off goes by its last view
//! until it learns it. Only a node with the lease ([`ClusterEvent::Lease`](crate::ClusterEvent::Lease)) may
//! act as an owner.
//!
//! Source: D. Thaler and C. Ravishankar, "Using name-based mappings to increase hit rates", IEEE/ACM
//! Transactions on Networking 6(1), 1998.

use std::borrow::Borrow;
use std::cmp::Reverse;
use std::sync::Arc;

use antiphon_core::wire::Member;
use twox_hash::XxHash3_64;

use crate::View;

/// The owners of a key among these members, the one with the highest score first: `count` of them, or all if
/// there are fewer. Also for [`NodeView::members`](crate::NodeView).
pub fn owners<M: Borrow<Member>>(members: &[M], key: impl AsRef<[u8]>, count: usize) -> Vec<&M> {
    let key = key.as_ref();
    let mut scored: Vec<(u64, &M)> = members
        .iter()
        .map(|member| (score(member, key), member))
        .collect();
    scored.sort_by_key(|(score, member)| (Reverse(*score), name(*member)));
    scored.truncate(count);
    scored.into_iter().map(|(_, member)| member).collect()
}

fn name<M: Borrow<Member>>(member: &M) -> &str {
    &member.borrow().name
}

fn score<M: Borrow<Member>>(member: &M, key: &[u8]) -> u64 {
    XxHash3_64::oneshot_with_seed(XxHash3_64::oneshot(name(member).as_bytes()), key)
}

/// How the owners of a key changed from one view to another.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Moved {
    /// Owners that were none before: they need what the key stands for.
    pub gained: Vec<Arc<Member>>,
    /// Former owners, whether or not they are members still.
    pub lost: Vec<Arc<Member>>,
}

impl Moved {
    /// The owners are the same incarnations: a member that was restarted is another owner.
    pub fn is_empty(&self) -> bool {
        self.gained.is_empty() && self.lost.is_empty()
    }
}

impl View {
    /// The owners of a key among the members, the one with the highest score first: `count` of them, or all
    /// if there are fewer. See [`owners`](crate::owners) for what moves when the view changes.
    pub fn owners(&self, key: impl AsRef<[u8]>, count: usize) -> Vec<Arc<Member>> {
        owners(&self.members, key, count).into_iter().cloned().collect()
    }

    /// Whether this node is one of `count` owners of a key.
    pub fn owns(&self, key: impl AsRef<[u8]>, count: usize) -> bool {
        let owners = owners(&self.members, key, count);
        owners.iter().any(|owner| owner.incarnation == self.me)
    }

    /// How the `count` owners of a key changed since another view. A member that restarted under its name in
    /// between counts as a new owner: it begins without what it had.
    pub fn moved_since(&self, before: &View, key: impl AsRef<[u8]>, count: usize) -> Moved {
        let (was, is) = (before.owners(&key, count), self.owners(&key, count));
        let without = |list: &[Arc<Member>], others: &[Arc<Member>]| {
            let is_other =
                |member: &&Arc<Member>| others.iter().all(|other| other.incarnation != member.incarnation);
            list.iter().filter(is_other).cloned().collect()
        };
        Moved {
            gained: without(&is, &was),
            lost: without(&was, &is),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use antiphon_core::wire::{GroupViewId, Incarnation, ViewId};

    use super::*;
    use crate::Order;

    const KEYS: u64 = 20_000;

    fn member(number: usize) -> Arc<Member> {
        Arc::new(Member {
            incarnation: Incarnation(number as u128 + 1),
            name: format!("node-{number}"),
            addr: ([127, 0, 0, 1], 7400).into(),
            further: Vec::new(),
            metadata: BTreeMap::new(),
            weight: 1,
        })
    }

    fn view(members: impl IntoIterator<Item = usize>) -> View {
        let members: Vec<_> = members.into_iter().map(member).collect();
        View {
            id: GroupViewId {
                node: ViewId { epoch: 1, counter: 1 },
                number: 1,
                k: 1,
            },
            group: "g".into(),
            order: Order::Total,
            me: members[0].incarnation,
            members,
            joined: Vec::new(),
            left: Vec::new(),
            crashed: Vec::new(),
            causes: Vec::new(),
            transitional: Vec::new(),
            synced: None,
        }
    }

    fn names(members: &[Arc<Member>]) -> Vec<&str> {
        members.iter().map(|member| member.name.as_str()).collect()
    }

    #[test]
    fn the_owners_of_known_keys_are_those_that_every_other_version_computes() {
        let view = view(0..5);
        // Computed with another implementation of XXH3.
        let empty = ["node-1", "node-0", "node-4", "node-3", "node-2"];
        assert_eq!(names(&view.owners("", 5)), empty);
        assert_eq!(names(&view.owners("user:17", 3)), ["node-4", "node-1", "node-2"]);
        assert_eq!(names(&view.owners([0xff, 0x00], 2)), ["node-4", "node-2"]);
    }

    #[test]
    fn the_order_of_the_members_changes_nothing_and_there_are_never_more_owners_than_members() {
        let (some, reversed) = (view(0..7), view((0..7).rev()));
        for key in 0..500_u64 {
            let key = key.to_le_bytes();
            assert_eq!(some.owners(key, 3), reversed.owners(key, 3));
            assert_eq!(some.owners(key, 99).len(), 7);
            assert!(some.owners(key, 0).is_empty());
            let owners: BTreeSet<_> = names(&some.owners(key, 3))
                .into_iter()
                .map(str::to_owned)
                .collect();
            assert_eq!(owners.len(), 3);
        }
    }

    #[test]
    fn each_member_owns_its_share_of_the_keys() {
        let view = view(0..10);
        let mut owned: BTreeMap<String, u64> = BTreeMap::new();
        for key in 0..KEYS {
            for owner in view.owners(key.to_le_bytes(), 2) {
                *owned.entry(owner.name.clone()).or_default() += 1;
            }
        }
        let share = KEYS * 2 / 10;
        assert!(
            owned.values().all(|owned| owned.abs_diff(share) < share / 10),
            "{owned:?}"
        );
        let mine = (0..KEYS).filter(|key| view.owns(key.to_le_bytes(), 2)).count() as u64;
        assert_eq!(mine, owned["node-0"]);
    }

    #[test]
    fn only_the_keys_of_a_departed_member_move_and_each_gets_one_other_owner() {
        let (before, after) = (view(0..10), view((0..10).filter(|number| *number != 4)));
        let mut moved_keys = 0;
        for key in 0..KEYS {
            let key = key.to_le_bytes();
            let moved = after.moved_since(&before, key, 3);
            let had = names(&before.owners(key, 3)).contains(&"node-4");
            assert_eq!(!moved.is_empty(), had);
            if had {
                moved_keys += 1;
                assert_eq!(names(&moved.lost), ["node-4"]);
                assert_eq!(moved.gained.len(), 1);
                // The others keep their places among each other.
                let mut stayed = before.owners(key, 3);
                stayed.retain(|owner| owner.name != "node-4");
                assert_eq!(stayed[..], after.owners(key, 3)[..2]);
            }
        }
        let share = KEYS * 3 / 10;
        assert!(share.abs_diff(moved_keys) < share / 10, "{moved_keys}");
    }

    #[test]
    fn a_joiner_takes_from_all_and_a_restarted_member_owns_what_it_did_and_has_to_be_given_it() {
        let (before, after) = (view(0..9), view(0..10));
        let mut losers: BTreeMap<String, u64> = BTreeMap::new();
        for key in 0..KEYS {
            let moved = after.moved_since(&before, key.to_le_bytes(), 1);
            if !moved.is_empty() {
                assert_eq!(names(&moved.gained), ["node-9"]);
                *losers.entry(moved.lost[0].name.clone()).or_default() += 1;
            }
        }
        let each = KEYS / 10 / 9;
        assert_eq!(losers.len(), 9);
        assert!(
            losers.values().all(|lost| lost.abs_diff(each) < each / 3),
            "{losers:?}"
        );

        let mut restarted = view(0..9);
        let mut again = (*restarted.members[3]).clone();
        again.incarnation = Incarnation(99);
        restarted.members[3] = Arc::new(again);
        for key in 0..500_u64 {
            let key = key.to_le_bytes();
            assert_eq!(names(&restarted.owners(key, 2)), names(&before.owners(key, 2)));
            let moved = restarted.moved_since(&before, key, 2);
            let is_its = names(&before.owners(key, 2)).contains(&"node-3");
            assert_eq!(
                names(&moved.gained),
                if is_its { vec!["node-3"] } else { Vec::new() }
            );
        }
    }
}
