//! Enums whose variants have a name in every output.

/// Declares an enum with `ALL` and `name`; with `by_name` it is serialized as its name.
macro_rules! named {
    ($(#[$about:meta])* $type:ident by_name: $($variants:tt)*) => {
        $crate::named::named! { $(#[$about])* $type: $($variants)* }

        impl serde::Serialize for $type {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(self.name())
            }
        }
    };
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
    };
}

pub(crate) use named;
