//! Protocol Buffers messages, for crates that depend on prost.

/// Declares messages. A field is `"TAG" NAME: TYPE, [HOW prost ENCODES IT];`.
#[macro_export]
macro_rules! messages {
    ($($message:ident { $($tag:tt $field:ident: $type:ty, [$($how:tt)*];)* })*) => {$(
        #[derive(Clone, PartialEq, ::prost::Message)]
        pub struct $message {
            $(#[prost($($how)*, tag = $tag)] pub $field: $type,)*
        }
    )*};
}
