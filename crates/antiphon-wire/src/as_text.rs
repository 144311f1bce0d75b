//! Types that are their texts.

/// With the feature `serde`: writes a type as its text.
#[doc(hidden)]
#[macro_export]
macro_rules! written_as_text {
    ($($type:ty),* $(,)?) => {$(
        #[cfg(feature = "serde")]
        impl serde::Serialize for $type {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }
    )*};
}

/// With the feature `serde`: writes a type as its text, and reads that.
#[doc(hidden)]
#[macro_export]
macro_rules! as_text {
    ($($type:ty),* $(,)?) => {
        $crate::written_as_text!($($type),*);
        $(
            #[cfg(feature = "serde")]
            impl<'de> serde::Deserialize<'de> for $type {
                fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                    let text = <String as serde::Deserialize>::deserialize(deserializer)?;
                    text.parse().map_err(serde::de::Error::custom)
                }
            }
        )*
    };
}
