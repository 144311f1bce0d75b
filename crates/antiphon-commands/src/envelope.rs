//! A command and its reply as signed bytes: `HEX SPACE JSON`, the same by all ways.
//!
//! The signature is HMAC-SHA256 of the JSON's bytes as they came: they are signed before they are read, and
//! nothing that is read is signed anew. A reply has the signature of its command in it. Commands and
//! replies have keys of their own, so that none is taken for the other.

use antiphon::ClusterKey;
use antiphon_api::Payload;
use antiphon_api::blocks::Failure;
pub use antiphon_api::commands::Way;
use bytes::Bytes;
use ring::hmac;
use serde::{Deserialize, Serialize};

use crate::list::{Args, MAX_REPLY_BYTES};

/// The longest command, signed.
pub(crate) const MAX_COMMAND_BYTES: usize = 64 << 10;
/// The longest reply, signed: its payload may be twice as long as JSON, and a third longer as base64.
pub(crate) const MAX_SIGNED_REPLY_BYTES: usize = 2 * MAX_REPLY_BYTES as usize + 4096;
/// Of a signature, and the space.
const HEAD_BYTES: usize = 65;

/// A command as one node sends it to another.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Asked {
    pub(crate) cluster: String,
    /// The sending node, and which start of it: 32 hex digits.
    pub(crate) from: String,
    pub(crate) from_incarnation: String,
    /// The target, and which start of it.
    pub(crate) to: String,
    pub(crate) to_incarnation: String,
    pub(crate) way: Way,
    /// Counts the commands of this start of the sender to this start of the target by this way, from 1.
    pub(crate) number: u64,
    /// By the sender's clock.
    pub(crate) sent_ms: u64,
    /// How much time it has from then on.
    pub(crate) within_ms: u64,
    /// Whether a reply is wanted.
    pub(crate) reply: bool,
    /// The version of the sender's list.
    pub(crate) list: u64,
    pub(crate) verb: String,
    #[serde(default)]
    pub(crate) args: Args,
}

/// What a node answers to a command.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Answered {
    /// The signature of the command, which no other has.
    pub(crate) of: String,
    /// The version of its list.
    pub(crate) list: u64,
    pub(crate) outcome: Outcome,
}

/// What came of a command.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Outcome {
    Done(Payload),
    Failed(Failure),
    /// It was taken, and no reply is wanted.
    Taken,
}

/// What nodes of one cluster sign with.
#[derive(Debug, Clone)]
pub(crate) struct Signer {
    commands: hmac::Key,
    replies: hmac::Key,
}

/// Why signed bytes are no command, or no reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unreadable {
    /// Too long, not of the form, or the signature is another's.
    Forged,
    /// The signature is right, but this build does not understand what was signed.
    Unknown,
}

impl Signer {
    /// Keys made of the cluster's, or of a list's own.
    pub(crate) fn new(key: &ClusterKey) -> Self {
        let of = |what| hmac::Key::new(hmac::HMAC_SHA256, &key.subkey(what));
        Self {
            commands: of("command to a peer"),
            replies: of("reply to a command"),
        }
    }

    pub(crate) fn sign_command(&self, asked: &Asked) -> Bytes {
        sign(&self.commands, asked)
    }

    pub(crate) fn sign_reply(&self, answered: &Answered) -> Bytes {
        sign(&self.replies, answered)
    }

    /// Signs bytes as a command, whatever they are. Only what a fuzz target runs does so.
    pub(crate) fn seal_command(&self, json: &[u8]) -> Bytes {
        seal(&self.commands, json)
    }

    /// The same as a reply.
    pub(crate) fn seal_reply(&self, json: &[u8]) -> Bytes {
        seal(&self.replies, json)
    }

    pub(crate) fn read_command(&self, signed: &[u8]) -> Result<Asked, Unreadable> {
        read(&self.commands, signed, MAX_COMMAND_BYTES)
    }

    pub(crate) fn read_reply(&self, signed: &[u8]) -> Result<Answered, Unreadable> {
        read(&self.replies, signed, MAX_SIGNED_REPLY_BYTES)
    }
}

/// The signature of signed bytes, which stands for them.
pub(crate) fn signature(signed: &[u8]) -> &str {
    let head = signed.get(..HEAD_BYTES - 1).unwrap_or_default();
    std::str::from_utf8(head).unwrap_or_default()
}

/// What is signed.
pub(crate) fn json_of(signed: &[u8]) -> &[u8] {
    signed.get(HEAD_BYTES..).unwrap_or_default()
}

fn sign(key: &hmac::Key, of: &impl Serialize) -> Bytes {
    seal(key, &serde_json::to_vec(of).expect("only string keys"))
}

fn seal(key: &hmac::Key, json: &[u8]) -> Bytes {
    let tag = hmac::sign(key, json);
    let mut signed = Vec::with_capacity(HEAD_BYTES + json.len());
    for byte in tag.as_ref() {
        signed.push(HEX[usize::from(byte >> 4)]);
        signed.push(HEX[usize::from(byte & 15)]);
    }
    signed.push(b' ');
    signed.extend_from_slice(json);
    Bytes::from(signed)
}

fn read<T: for<'de> Deserialize<'de>>(key: &hmac::Key, signed: &[u8], most: usize) -> Result<T, Unreadable> {
    let (head, json) = signed.split_at_checked(HEAD_BYTES).ok_or(Unreadable::Forged)?;
    let tag = tag(head)
        .filter(|_| signed.len() <= most)
        .ok_or(Unreadable::Forged)?;
    hmac::verify(key, json, &tag).map_err(|_| Unreadable::Forged)?;
    serde_json::from_slice(json).map_err(|_| Unreadable::Unknown)
}

const HEX: &[u8; 16] = b"0123456789abcdef";

fn tag(head: &[u8]) -> Option<[u8; 32]> {
    let digit = |byte: u8| HEX.iter().position(|hex| *hex == byte).map(|at| at as u8);
    let mut tag = [0; 32];
    let (digits, space) = head.split_at_checked(64)?;
    for (pair, byte) in digits.chunks_exact(2).zip(&mut tag) {
        *byte = digit(pair[0])? << 4 | digit(pair[1])?;
    }
    (space == b" ").then_some(tag)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn signer(byte: u8) -> Signer {
        Signer::new(&ClusterKey::from_bytes([byte; 32]))
    }

    fn asked() -> Asked {
        Asked {
            cluster: "shop".to_owned(),
            from: "a".to_owned(),
            from_incarnation: "1".repeat(32),
            way: Way::Udp,
            number: 7,
            to: "b".to_owned(),
            to_incarnation: "2".repeat(32),
            sent_ms: 1,
            within_ms: 2000,
            reply: true,
            list: 3,
            verb: "cache.flush".to_owned(),
            args: serde_json::from_str(r#"{"key":"grüße","depth":1,"now":true}"#).unwrap(),
        }
    }

    #[test]
    fn what_was_signed_is_read_and_nothing_else() {
        let (ours, theirs) = (signer(1), signer(2));
        let signed = ours.sign_command(&asked());
        assert_eq!(ours.read_command(&signed), Ok(asked()));
        assert_eq!(theirs.read_command(&signed), Err(Unreadable::Forged));
        // A command is no reply.
        assert_eq!(ours.read_reply(&signed), Err(Unreadable::Forged));
        for at in 0..signed.len() {
            let mut changed = signed.to_vec();
            changed[at] ^= 1;
            assert_eq!(ours.read_command(&changed), Err(Unreadable::Forged), "byte {at}");
            assert_eq!(
                ours.read_command(&signed[..at]),
                Err(Unreadable::Forged),
                "cut at {at}"
            );
        }
        let mut longer = signed.to_vec();
        longer.push(b' ');
        assert_eq!(ours.read_command(&longer), Err(Unreadable::Forged));
    }

    #[test]
    fn a_reply_has_all_that_tells_its_command_from_others() {
        let answered = Answered {
            of: signature(&signer(1).sign_command(&asked())).to_owned(),
            list: 4,
            outcome: Outcome::Done(Payload::from_bytes(&[0xff])),
        };
        let signed = signer(1).sign_reply(&answered);
        assert_eq!(signer(1).read_reply(&signed), Ok(answered));
        assert_eq!(signer(1).read_command(&signed), Err(Unreadable::Forged));
    }

    #[test]
    fn a_longer_command_than_the_bound_is_not_even_verified() {
        let mut long = asked();
        long.verb = "x".repeat(MAX_COMMAND_BYTES);
        assert_eq!(
            signer(1).read_command(&signer(1).sign_command(&long)),
            Err(Unreadable::Forged)
        );
    }
}
