//! Reading and writing values: one trait, one error, every length checked before anything is allocated.
//!
//! Integers wider than a byte are LEB128 variable-length; fixed-width values (identities, checksums) are
//! little-endian. A list is its count and its elements. A decoder never allocates more than a small multiple
//! of the bytes that are really there: a count larger than the bytes left is refused before the first
//! element.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use bytes::{Buf, Bytes};

/// The most elements a list on the wire may have.
pub const MAX_LIST: usize = 4096;

/// Why bytes could not be read as the value that was expected there. The frame is dropped; nothing changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum DecodeError {
    /// The bytes ended before the value did.
    UnexpectedEnd,
    /// A count or length is larger than its limit or than the bytes that follow.
    TooLong,
    /// A tag or flag has a value this version does not know.
    UnknownTag(u64),
    /// The bytes are no valid value of the type (text that is not UTF-8, a varint wider than its type…).
    Invalid,
    /// Bytes were left over after the last value.
    TrailingBytes,
}

impl std::fmt::Display for DecodeError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            DecodeError::UnexpectedEnd => f.write_str("the bytes ended before the value did"),
            DecodeError::TooLong => f.write_str("a length is over its limit or over the bytes that follow"),
            DecodeError::UnknownTag(tag) => write!(f, "unknown tag {tag}"),
            DecodeError::Invalid => f.write_str("not a valid value"),
            DecodeError::TrailingBytes => f.write_str("bytes left over after the last value"),
        }
    }
}

impl std::error::Error for DecodeError {}

/// A value with one encoding on the wire.
pub trait Wire: Sized {
    /// Appends the value's encoding.
    fn encode(&self, out: &mut Vec<u8>);
    /// Reads one value, leaving the reader right behind it.
    fn decode(input: &mut Reader) -> Result<Self, DecodeError>;
}

/// Encodes one value into fresh bytes.
pub fn encode_to_vec<T: Wire>(value: &T) -> Vec<u8> {
    let mut out = Vec::new();
    value.encode(&mut out);
    out
}

/// Decodes exactly one value from `bytes`; bytes left over are an error.
pub fn decode_all<T: Wire>(bytes: Bytes) -> Result<T, DecodeError> {
    let mut reader = Reader::new(bytes);
    let value = T::decode(&mut reader)?;
    reader.finish()?;
    Ok(value)
}

/// A cursor over received bytes. Slices taken from it share the receive buffer.
#[derive(Debug, Clone)]
pub struct Reader {
    bytes: Bytes,
}

impl Reader {
    /// Starts at the front of `bytes`.
    pub fn new(bytes: Bytes) -> Self {
        Self { bytes }
    }

    /// How many bytes are left.
    pub fn remaining(&self) -> usize {
        self.bytes.len()
    }

    /// Whether nothing is left.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Refuses bytes left over.
    pub fn finish(&self) -> Result<(), DecodeError> {
        if self.bytes.is_empty() {
            Ok(())
        } else {
            Err(DecodeError::TrailingBytes)
        }
    }

    /// Reads one byte.
    pub fn u8(&mut self) -> Result<u8, DecodeError> {
        if self.bytes.is_empty() {
            return Err(DecodeError::UnexpectedEnd);
        }
        Ok(self.bytes.get_u8())
    }

    /// Takes the next `length` bytes as a slice of the same buffer.
    pub fn take(&mut self, length: usize) -> Result<Bytes, DecodeError> {
        if length > self.bytes.len() {
            return Err(DecodeError::UnexpectedEnd);
        }
        Ok(self.bytes.split_to(length))
    }

    /// Takes the next `N` bytes as an array.
    pub fn array<const N: usize>(&mut self) -> Result<[u8; N], DecodeError> {
        if self.bytes.len() < N {
            return Err(DecodeError::UnexpectedEnd);
        }
        let mut out = [0; N];
        self.bytes.copy_to_slice(&mut out);
        Ok(out)
    }

    /// Reads a variable-length integer of at most 64 bits. Only the shortest encoding is accepted.
    pub fn varint(&mut self) -> Result<u64, DecodeError> {
        let mut value = 0u64;
        for shift in (0..64).step_by(7) {
            let byte = self.u8()?;
            let low = u64::from(byte & 0x7f);
            if shift == 63 && low > 1 {
                return Err(DecodeError::Invalid);
            }
            value |= low << shift;
            if byte & 0x80 == 0 {
                if byte == 0 && shift != 0 {
                    return Err(DecodeError::Invalid);
                }
                return Ok(value);
            }
        }
        Err(DecodeError::Invalid)
    }

    /// Reads a length or count: at most `limit`, and at most the bytes left.
    pub fn length(&mut self, limit: usize) -> Result<usize, DecodeError> {
        let length = usize::try_from(self.varint()?).map_err(|_| DecodeError::TooLong)?;
        if length > limit || length > self.remaining() {
            return Err(DecodeError::TooLong);
        }
        Ok(length)
    }
}

/// Appends a variable-length integer.
pub fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push((value as u8) | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// How many bytes [`put_varint`] writes for `value`.
pub const fn varint_len(value: u64) -> usize {
    let bits = 64 - (value | 1).leading_zeros() as usize;
    bits.div_ceil(7)
}

macro_rules! varint_wire {
    ($($type:ty),*) => {$(
        impl Wire for $type {
            fn encode(&self, out: &mut Vec<u8>) {
                put_varint(out, u64::from(*self));
            }
            fn decode(input: &mut Reader) -> Result<Self, DecodeError> {
                <$type>::try_from(input.varint()?).map_err(|_| DecodeError::Invalid)
            }
        }
    )*};
}
varint_wire!(u16, u32, u64);

impl Wire for u8 {
    fn encode(&self, out: &mut Vec<u8>) {
        out.push(*self);
    }
    fn decode(input: &mut Reader) -> Result<Self, DecodeError> {
        input.u8()
    }
}

impl Wire for bool {
    fn encode(&self, out: &mut Vec<u8>) {
        out.push(u8::from(*self));
    }
    fn decode(input: &mut Reader) -> Result<Self, DecodeError> {
        match input.u8()? {
            0 => Ok(false),
            1 => Ok(true),
            tag => Err(DecodeError::UnknownTag(tag.into())),
        }
    }
}

impl Wire for u128 {
    fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.to_le_bytes());
    }
    fn decode(input: &mut Reader) -> Result<Self, DecodeError> {
        Ok(u128::from_le_bytes(input.array()?))
    }
}

impl Wire for String {
    fn encode(&self, out: &mut Vec<u8>) {
        put_varint(out, self.len() as u64);
        out.extend_from_slice(self.as_bytes());
    }
    fn decode(input: &mut Reader) -> Result<Self, DecodeError> {
        let length = input.length(usize::MAX)?;
        let bytes = input.take(length)?;
        std::str::from_utf8(&bytes)
            .map(str::to_owned)
            .map_err(|_| DecodeError::Invalid)
    }
}

impl Wire for Bytes {
    fn encode(&self, out: &mut Vec<u8>) {
        put_varint(out, self.len() as u64);
        out.extend_from_slice(self);
    }
    fn decode(input: &mut Reader) -> Result<Self, DecodeError> {
        let length = input.length(usize::MAX)?;
        input.take(length)
    }
}

impl<T: Wire> Wire for Option<T> {
    fn encode(&self, out: &mut Vec<u8>) {
        match self {
            None => out.push(0),
            Some(value) => {
                out.push(1);
                value.encode(out);
            }
        }
    }
    fn decode(input: &mut Reader) -> Result<Self, DecodeError> {
        Ok(if bool::decode(input)? {
            Some(T::decode(input)?)
        } else {
            None
        })
    }
}

impl<T: Wire> Wire for Box<T> {
    fn encode(&self, out: &mut Vec<u8>) {
        (**self).encode(out);
    }
    fn decode(input: &mut Reader) -> Result<Self, DecodeError> {
        Ok(Box::new(T::decode(input)?))
    }
}

impl<T: Wire> Wire for Vec<T> {
    fn encode(&self, out: &mut Vec<u8>) {
        put_varint(out, self.len() as u64);
        for item in self {
            item.encode(out);
        }
    }
    fn decode(input: &mut Reader) -> Result<Self, DecodeError> {
        let count = input.length(MAX_LIST)?;
        // Every element takes at least a byte, so the count is backed by bytes; still, grow as they prove
        // real.
        let mut items = Vec::with_capacity(count.min(64));
        for _ in 0..count {
            items.push(T::decode(input)?);
        }
        Ok(items)
    }
}

impl<K: Wire + Ord, V: Wire> Wire for BTreeMap<K, V> {
    fn encode(&self, out: &mut Vec<u8>) {
        put_varint(out, self.len() as u64);
        for (key, value) in self {
            key.encode(out);
            value.encode(out);
        }
    }
    fn decode(input: &mut Reader) -> Result<Self, DecodeError> {
        let count = input.length(MAX_LIST)?;
        let mut map = BTreeMap::new();
        for _ in 0..count {
            let key = K::decode(input)?;
            // One encoding per value: keys strictly ascending.
            if map.last_key_value().is_some_and(|(last, _)| *last >= key) {
                return Err(DecodeError::Invalid);
            }
            map.insert(key, V::decode(input)?);
        }
        Ok(map)
    }
}

impl<A: Wire, B: Wire> Wire for (A, B) {
    fn encode(&self, out: &mut Vec<u8>) {
        self.0.encode(out);
        self.1.encode(out);
    }
    fn decode(input: &mut Reader) -> Result<Self, DecodeError> {
        Ok((A::decode(input)?, B::decode(input)?))
    }
}

impl Wire for SocketAddr {
    fn encode(&self, out: &mut Vec<u8>) {
        match self.ip() {
            IpAddr::V4(ip) => {
                out.push(4);
                out.extend_from_slice(&ip.octets());
            }
            IpAddr::V6(ip) => {
                out.push(6);
                out.extend_from_slice(&ip.octets());
            }
        }
        self.port().encode(out);
    }
    fn decode(input: &mut Reader) -> Result<Self, DecodeError> {
        let ip = match input.u8()? {
            4 => IpAddr::V4(Ipv4Addr::from(input.array::<4>()?)),
            6 => IpAddr::V6(Ipv6Addr::from(input.array::<16>()?)),
            tag => return Err(DecodeError::UnknownTag(tag.into())),
        };
        Ok(SocketAddr::new(ip, u16::decode(input)?))
    }
}

/// Declares a struct and its encoding: the fields in order.
#[macro_export]
macro_rules! wire_struct {
    ($(#[$meta:meta])* pub struct $name:ident { $($(#[$fmeta:meta])* pub $field:ident : $type:ty),* $(,)? }) => {
        $(#[$meta])*
        pub struct $name { $($(#[$fmeta])* pub $field: $type),* }
        impl $crate::codec::Wire for $name {
            fn encode(&self, out: &mut Vec<u8>) {
                $($crate::codec::Wire::encode(&self.$field, out);)*
                let _ = out;
            }
            fn decode(input: &mut $crate::codec::Reader) -> Result<Self, $crate::codec::DecodeError> {
                $(let $field = $crate::codec::Wire::decode(input)?;)*
                let _ = input;
                Ok(Self { $($field),* })
            }
        }
    };
}

/// Declares an enum and its encoding: a tag byte, then the variant's fields in order.
/// Variants are written `Name = tag`, `Name = tag { field: Type, … }` or `Name = tag (Type)`.
#[macro_export]
macro_rules! wire_enum {
    ($(#[$meta:meta])* pub enum $name:ident {
        $($(#[$vmeta:meta])* $variant:ident = $tag:literal
            $({ $($(#[$fmeta:meta])* $field:ident : $type:ty),* $(,)? })?
            $(( $inner:ty ))?
        ),* $(,)?
    }) => {
        $(#[$meta])*
        pub enum $name {
            $($(#[$vmeta])* $variant $({ $($(#[$fmeta])* $field: $type),* })? $(( $inner ))?),*
        }
        impl $crate::codec::Wire for $name {
            fn encode(&self, out: &mut Vec<u8>) {
                match self {
                    $($crate::wire_enum!(@pattern value $name $variant $({ $($field),* })? $(( $inner ))?) => {
                        out.push($tag);
                        $($($crate::codec::Wire::encode($field, out);)*)?
                        $({ let inner: &$inner = value; $crate::codec::Wire::encode(inner, out); })?
                    })*
                }
            }
            fn decode(input: &mut $crate::codec::Reader) -> Result<Self, $crate::codec::DecodeError> {
                match input.u8()? {
                    $($tag => Ok($crate::wire_enum!(@build input $name $variant $({ $($field),* })? $(( $inner ))?)),)*
                    tag => Err($crate::codec::DecodeError::UnknownTag(tag.into())),
                }
            }
        }
    };
    (@pattern $value:ident $name:ident $variant:ident) => { $name::$variant };
    (@pattern $value:ident $name:ident $variant:ident { $($field:ident),* }) => { $name::$variant { $($field),* } };
    (@pattern $value:ident $name:ident $variant:ident ( $inner:ty )) => { $name::$variant($value) };
    (@build $input:ident $name:ident $variant:ident) => { $name::$variant };
    (@build $input:ident $name:ident $variant:ident { $($field:ident),* }) => {
        $name::$variant { $($field: $crate::codec::Wire::decode($input)?),* }
    };
    (@build $input:ident $name:ident $variant:ident ( $inner:ty )) => {
        $name::$variant($crate::codec::Wire::decode($input)?)
    };
}
