//! Enums of the reasons for which clients are refused.

/// An enum with a list of all its values, and the name of each in answers and metrics: a word in snake case.
macro_rules! reasons {
    ($(#[$of_enum:meta])* $enum:ident: $($(#[$doc:meta])* $name:ident = $text:literal,)*) => {
        $(#[$of_enum])*
        pub enum $enum { $($(#[$doc])* $name,)* }

        impl $enum {
            /// All of them.
            pub const ALL: [Self; [$($text,)*].len()] = [$(Self::$name,)*];

            /// Its name in answers and metrics.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$name => $text,)* }
            }
        }
    };
}
