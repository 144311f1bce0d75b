//! Enumerations whose values people write by name: in configuration, flags and messages.

use std::fmt;

/// A text that is no name of what was wanted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NameError {
    what: &'static str,
    given: String,
    names: &'static [&'static str],
}

impl NameError {
    /// It is none of these names.
    #[doc(hidden)]
    pub fn new(what: &'static str, given: &str, names: &'static [&'static str]) -> Self {
        let given = given.chars().take(80).collect();
        Self { what, given, names }
    }

    /// What would have been accepted.
    pub fn names(&self) -> &'static [&'static str] {
        self.names
    }
}

impl fmt::Display for NameError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<String> = self.names.iter().map(|name| format!("`{name}`")).collect();
        write!(
            f,
            "{:?} is no {}, expected one of {}",
            self.given,
            self.what,
            names.join(", ")
        )
    }
}

impl std::error::Error for NameError {}

/// Gives the values of an enumeration names: a list of all, each one's name, shown and parsed, and written so
/// by serde.
#[doc(hidden)]
#[macro_export]
macro_rules! named {
    ($type:ident, $what:literal: $($variant:ident = $name:literal),+ $(,)?) => {
        impl $type {
            /// All of them.
            pub const ALL: [$type; [$($name),+].len()] = [$($type::$variant),+];
            /// Their names.
            pub const NAMES: &[&str] = &[$($name),+];

            /// Its name in configuration, flags and messages.
            pub const fn name(self) -> &'static str {
                match self {
                    $($type::$variant => $name),+
                }
            }
        }

        impl std::fmt::Display for $type {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.pad(self.name())
            }
        }

        impl std::str::FromStr for $type {
            type Err = $crate::NameError;

            fn from_str(text: &str) -> Result<Self, $crate::NameError> {
                let named = Self::ALL.into_iter().find(|value| value.name() == text);
                named.ok_or_else(|| $crate::NameError::new($what, text, Self::NAMES))
            }
        }

        $crate::wire::as_text!($type);
    };
}
