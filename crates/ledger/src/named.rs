//! A macro that declares an enum whose variants have a name and other constants.

/// Declares an enum, its list `ALL`, and a `const fn` for each column of the table. The parentheses after the enum's name repeat
/// the names of the columns.
#[macro_export]
macro_rules! named {
    // This short form has only one column: the name.
    ($(#[$about:meta])* $enum:ident { $($(#[$doc:meta])* $variant:ident = $name:literal,)+ }) => {
        $crate::named! {
            $(#[$about])*
            #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
            #[repr(u32)]
            pub enum $enum (name,) {
                /// The name of the variant in every output.
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
            /// All variants, in the order of their declaration.
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
