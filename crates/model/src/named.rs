//! Enums that are serialized as the names of their variants.

/// Serializes an enum of [`cgscope_ledger::named`] as its name.
macro_rules! by_name {
    ($type:ident) => {
        impl serde::Serialize for $type {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(self.name())
            }
        }
    };
}

pub(crate) use by_name;
