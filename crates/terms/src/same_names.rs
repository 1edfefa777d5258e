//! Conversions between enums that have the same variants: one of the command line, the API, the node or the
//! store each.

/// Defines functions that return the variant of the same name. The compiler checks that none is missing.
#[macro_export]
macro_rules! same_names {
    ($($(#[$doc:meta])* $vis:vis fn $name:ident($from:ty) -> $to:ty { $($variant:ident),+ })+) => { $(
        $(#[$doc])*
        $vis fn $name(variant: $from) -> $to {
            type From = $from;
            type To = $to;
            match variant {
                $(From::$variant => To::$variant,)+
            }
        }
    )+ };
}

pub use same_names;
