//! Enums whose variants have a name in every output.

/// Declares an enum with `ALL`, `name` and a `Serialize` that gives the name.
macro_rules! named {
    ($(#[$about:meta])* $type:ident: $($(#[$doc:meta])* $variant:ident = $name:literal,)*) => {
        $(#[$about])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum $type { $($(#[$doc])* $variant,)* }

        impl $type {
            /// All of them.
            pub const ALL: [Self; [$($name,)*].len()] = [$(Self::$variant,)*];

            /// The name in every output.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)* }
            }
        }

        impl serde::Serialize for $type {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(self.name())
            }
        }
    };
}

pub(crate) use named;
