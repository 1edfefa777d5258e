//! Texts of types.

/// Implements `Display` or `Debug` by one format: `shows!(Display for Lba, |it| "LBA {}", it.0);`
#[macro_export]
macro_rules! shows {
    ($trait:ident for $type:ty, $text:literal) => {
        impl ::std::fmt::$trait for $type {
            fn fmt(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                f.write_str($text)
            }
        }
    };
    ($trait:ident for $type:ty, |$it:ident| $($format:tt)+) => {
        impl ::std::fmt::$trait for $type {
            fn fmt(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                let $it = self;
                ::std::write!(f, $($format)+)
            }
        }
    };
}
