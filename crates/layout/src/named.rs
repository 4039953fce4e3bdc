//! Enums with names.

/// Declares an enum whose variants have a name in every output: with `ALL`, in the order of the discriminants, and `name`.
#[macro_export]
macro_rules! named_enum {
    ($(#[$of:meta])* $type:ident { $($(#[$doc:meta])* $variant:ident = $name:literal,)* }) => {
        $(#[$of])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u32)]
        pub enum $type { $($(#[$doc])* $variant,)* }

        impl $type {
            /// All of them, in the order of their discriminants.
            pub const ALL: [Self; [$($name,)*].len()] = [$(Self::$variant,)*];

            /// The name in every output.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)* }
            }
        }
    };
}
