//! The cluster key, and what is derived from it.

use std::fmt;

use ring::{aead, hkdf};

use super::Kind;
use crate::Incarnation;

/// The cluster's 256-bit secret. Never printed.
#[derive(Clone, PartialEq, Eq)]
pub struct ClusterKey([u8; 32]);

impl ClusterKey {
    /// A key from its bytes, which must be 32 bytes of real entropy.
    pub const fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// A key from 64 hexadecimal digits, as a key file holds them. Surrounding whitespace is ignored, and so
    /// is the byte order mark with which some editors begin a text.
    pub fn parse(text: &str) -> Result<Self, KeyError> {
        let text = text.strip_prefix('\u{feff}').unwrap_or(text).trim();
        let digits = text.chars().count();
        let mut bytes = [0; 32];
        for (at, digit) in text.chars().enumerate() {
            // The error names the place, never the digits: what is in a key file does not belong in a log.
            let value = digit.to_digit(16).ok_or(KeyError::NotHex { at })? as u8;
            if let Some(byte) = bytes.get_mut(at / 2) {
                *byte = *byte << 4 | value;
            }
        }
        if digits == 64 {
            Ok(Self(bytes))
        } else {
            Err(KeyError::Length { digits })
        }
    }
}

impl ClusterKey {
    /// Eight hexadecimal digits by which people can compare keys. They reveal nothing of the key. Each frame
    /// has them.
    pub fn id(&self) -> String {
        let id = Mode::new(Some(self)).key_id();
        id.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// A key for another purpose than frames, made of this one. It reveals nothing of this key, nor of the
    /// keys for other purposes.
    pub fn subkey(&self, purpose: &str) -> [u8; 32] {
        let root = hkdf::Salt::new(hkdf::HKDF_SHA256, b"antiphon subkey 1").extract(&self.0);
        let mut key = [0; 32];
        expand(&root, &[purpose.as_bytes()], &mut key);
        key
    }
}

impl fmt::Debug for ClusterKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ClusterKey(…)")
    }
}

/// Why a text is no cluster key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum KeyError {
    /// A key has 64 digits.
    Length {
        /// How many there are.
        digits: usize,
    },
    /// A character is no hexadecimal digit.
    NotHex {
        /// Which one, from 0, after leading whitespace.
        at: usize,
    },
}

impl fmt::Display for KeyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            KeyError::Length { digits } => {
                write!(f, "a cluster key is 64 hexadecimal digits, this has {digits}")
            }
            KeyError::NotHex { at } => {
                write!(
                    f,
                    "a cluster key is 64 hexadecimal digits, character {} is none",
                    at + 1
                )
            }
        }
    }
}

impl std::error::Error for KeyError {}

/// Whether frames are sealed with a key.
#[derive(Debug, Clone)]
pub(super) enum Mode {
    Plain,
    Keyed(hkdf::Prk),
}

/// What one incarnation's frames of one kind are sealed with.
#[derive(Debug, Clone)]
pub(super) enum SubKey {
    Plain,
    Sealed(Box<aead::LessSafeKey>),
}

impl Mode {
    pub(super) fn new(key: Option<&ClusterKey>) -> Self {
        match key {
            None => Mode::Plain,
            Some(key) => Mode::Keyed(hkdf::Salt::new(hkdf::HKDF_SHA256, &[]).extract(&key.0)),
        }
    }

    /// The header's name for the key: 0 without one. Tells a wrong key from a damaged frame and reveals
    /// nothing of it.
    pub(super) fn key_id(&self) -> [u8; 4] {
        let Mode::Keyed(root) = self else { return [0; 4] };
        let mut id = [0; 4];
        expand(root, &[b"antiphon key id v1"], &mut id);
        // 0 means plain.
        if id == [0; 4] { [1, 0, 0, 0] } else { id }
    }

    // R24: each incarnation seals with its own subkey, so that counters can be nonces.
    pub(super) fn sub_key(&self, sender: Incarnation, kind: Kind) -> SubKey {
        let Mode::Keyed(root) = self else {
            return SubKey::Plain;
        };
        let mut bytes = [0; 32];
        expand(
            root,
            &[b"antiphon frame v1", &sender.0.to_le_bytes(), &[kind.to_byte()]],
            &mut bytes,
        );
        let key = aead::UnboundKey::new(&aead::AES_256_GCM, &bytes).expect("AES-256 keys have 32 bytes");
        SubKey::Sealed(Box::new(aead::LessSafeKey::new(key)))
    }
}

/// HKDF-SHA256 expand of the concatenated `info`.
fn expand(root: &hkdf::Prk, info: &[&[u8]], out: &mut [u8]) {
    struct Length(usize);
    impl hkdf::KeyType for Length {
        fn len(&self) -> usize {
            self.0
        }
    }
    root.expand(info, Length(out.len()))
        .and_then(|key| key.fill(out))
        .expect("HKDF-SHA256 gives up to 8160 bytes, and the length asked for is the buffer's");
}
