//! A macro for enums whose variants have a name and other constants.

/// Declares an enum, its `ALL`, and a `const fn` for each column of its table. The parentheses repeat the column names.
#[macro_export]
macro_rules! named {
    // The short form: the only column is the name.
    ($(#[$about:meta])* $enum:ident { $($(#[$doc:meta])* $variant:ident = $name:literal,)+ }) => {
        $crate::named! {
            $(#[$about])*
            #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
            #[repr(u32)]
            pub enum $enum (name,) {
                /// The name in every output.
                name: &'static str,
            }
            $($(#[$doc])* $variant = $name;)+
        }
    };
    (
        $(#[$about:meta])* pub enum $enum:ident $columns:tt {
            $($(#[$column_doc:meta])* $column:ident: $type:ty,)+
        }
        $($(#[$doc:meta])* $variant:ident = $($cell:expr),+;)+
    ) => {
        $(#[$about])*
        pub enum $enum { $($(#[$doc])* $variant,)+ }

        impl $enum {
            /// All variants, in order.
            pub const ALL: [Self; [$(stringify!($variant)),+].len()] = [$(Self::$variant,)+];

            const fn row(self) -> ($($type,)+) {
                match self { $(Self::$variant => ($($cell,)+),)+ }
            }

            $(
                $(#[$column_doc])*
                #[allow(unused_variables)]
                pub const fn $column(self) -> $type {
                    let $columns = self.row();
                    $column
                }
            )+
        }
    };
}
