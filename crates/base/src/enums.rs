//! Enums that know their variants.

/// Defines enums whose variants have numbers, and `from_number`, which finds the variant with a number.
#[macro_export]
macro_rules! numbered {
    ($(
        $(#[$attribute:meta])*
        $vis:vis enum $name:ident: $repr:ident {
            $($(#[$doc:meta])* $variant:ident = $number:literal),+ $(,)?
        }
    )+) => { $(
        $(#[$attribute])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr($repr)]
        $vis enum $name {
            $($(#[$doc])* $variant = $number,)+
        }

        impl $name {
            /// The variant with this number, if there is one.
            $vis const fn from_number(number: $repr) -> Option<$name> {
                match number {
                    $($number => Some($name::$variant),)+
                    _ => None,
                }
            }
        }
    )+ };
}

/// Defines an enum whose variants have no data, and `ALL`, which has all of them in their order.
#[macro_export]
macro_rules! listed {
    (
        $(#[$attribute:meta])*
        $vis:vis enum $name:ident { $($(#[$doc:meta])* $variant:ident $(= $number:literal)?),+ $(,)? }
    ) => {
        $(#[$attribute])*
        $vis enum $name {
            $($(#[$doc])* $variant $(= $number)?,)+
        }

        impl $name {
            /// All variants, in their order.
            $vis const ALL: [$name; [$($name::$variant),+].len()] = [$($name::$variant),+];
        }
    };
}
