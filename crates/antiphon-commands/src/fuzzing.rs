//! What a fuzz target runs: it takes arbitrary bytes, and panics if what is promised of them does not hold.
//! Nothing else calls it.

use antiphon::ClusterKey;
use bytes::Bytes;
use futures_util::FutureExt as _;

use crate::envelope::{
    Answered, Asked, MAX_COMMAND_BYTES, MAX_SIGNED_REPLY_BYTES, Signer, Unreadable, json_of,
};
use crate::ways::{pending::Pending, resp};

/// Arbitrary bytes as an envelope, as what is in one, as a datagram that replies, and as what a peer says by
/// RESP. Without the key no bytes are an envelope. With a right signature they are a command or a reply that
/// stays the same when it is written again, or they are refused.
pub fn peer(data: &[u8]) {
    let signer = Signer::new(&ClusterKey::from_bytes([7; 32]));
    assert_eq!(signer.read_command(data), Err(Unreadable::Forged));
    assert_eq!(signer.read_reply(data), Err(Unreadable::Forged));

    let command = signer.seal_command(data);
    match signer.read_command(&command) {
        Ok(asked) => assert_eq!(command_in(&signer.sign_command(&asked)), Some(asked)),
        Err(why) => assert_eq!(why == Unreadable::Forged, command.len() > MAX_COMMAND_BYTES),
    }
    let reply = signer.seal_reply(data);
    match signer.read_reply(&reply) {
        Ok(answered) => assert_eq!(reply_in(&signer.sign_reply(&answered)), Some(answered)),
        Err(why) => assert_eq!(why == Unreadable::Forged, reply.len() > MAX_SIGNED_REPLY_BYTES),
    }

    // A command waits for a reply that has its signature, and these bytes cannot have it.
    let pending = Pending::default();
    let _waits = pending.add(&command);
    for datagram in [Bytes::copy_from_slice(data), reply] {
        pending.answer(datagram);
        assert!(
            !pending.is_empty(),
            "it is taken for the reply to another command"
        );
    }

    let mut stream = tokio::io::join(data, tokio::io::sink());
    while let Some(Ok(Some(envelope))) = resp::take(&mut stream).now_or_never() {
        assert!(envelope.len() <= MAX_COMMAND_BYTES);
    }
}

/// What is signed, of any length: written again, it may be longer than it came.
fn command_in(signed: &[u8]) -> Option<Asked> {
    serde_json::from_slice(json_of(signed)).ok()
}

fn reply_in(signed: &[u8]) -> Option<Answered> {
    serde_json::from_slice(json_of(signed)).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a fuzz run begins with.
    fn seed(name: &str) -> Vec<u8> {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/seeds/peer_envelopes");
        std::fs::read(format!("{folder}/{name}")).unwrap()
    }

    #[test]
    fn wherever_what_peers_say_is_cut_or_changed_it_keeps_what_is_promised() {
        let (command, reply, resp) = (seed("command"), seed("reply"), seed("resp"));
        assert!(serde_json::from_slice::<Asked>(&command).is_ok());
        assert!(serde_json::from_slice::<Answered>(&reply).is_ok());
        let mut stream = tokio::io::join(resp.as_slice(), tokio::io::sink());
        let taken = resp::take(&mut stream).now_or_never();
        assert_eq!(taken, Some(Ok(Some(Bytes::from("envelope")))));
        for good in [command, reply, resp] {
            for at in 0..good.len() {
                peer(&good[..at]);
                for bit in 0..8 {
                    let mut changed = good.clone();
                    changed[at] ^= 1 << bit;
                    peer(&changed);
                }
            }
        }
    }
}
