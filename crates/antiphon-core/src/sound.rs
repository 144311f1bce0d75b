//! Which names, metadata and addresses a node may have: what people configure and what peers say alike.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use antiphon_wire::membership::NodeRecord;
use antiphon_wire::{MAX_ADDRESSES, MAX_METADATA_BYTES, MAX_METADATA_ENTRIES, MAX_NAME_BYTES};

pub(crate) fn name_is_sound(name: &str) -> bool {
    (1..=MAX_NAME_BYTES).contains(&name.len()) && !name.chars().any(char::is_control)
}

/// Metadata are shown to people, at terminals: a control character could forge lines there.
pub(crate) fn metadata_is_sound(metadata: &BTreeMap<String, String>) -> bool {
    let bytes: usize = metadata.iter().map(|(key, value)| key.len() + value.len()).sum();
    let mut texts = metadata.keys().chain(metadata.values());
    metadata.len() <= MAX_METADATA_ENTRIES
        && bytes <= MAX_METADATA_BYTES
        && !texts.any(|text| text.chars().any(char::is_control))
}

pub(crate) fn record_is_sound(record: &NodeRecord) -> bool {
    name_is_sound(&record.name)
        && metadata_is_sound(&record.metadata)
        && addresses_are_sound(record.addr, &record.further)
}

/// Whether a node may have these addresses: not too many, and none twice.
pub(crate) fn addresses_are_sound(first: SocketAddr, further: &[SocketAddr]) -> bool {
    let all = || further.iter().chain([&first]);
    let is_new = |(at, addr)| all().take(at).all(|other| other != addr);
    further.len() < MAX_ADDRESSES && all().enumerate().all(is_new)
}
