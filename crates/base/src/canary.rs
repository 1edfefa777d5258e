//! Canaries: mistakes that the code makes on purpose, to prove that a test or a simulation notices.

/// Defines, for an enumeration of mistakes, `make` and `makes`: which one the thread makes, and whether it is
/// this one. In the product (a release build) there is none: the check is a constant.
#[macro_export]
macro_rules! canary_switch {
    ($canary:ty) => {
        #[cfg(any(test, debug_assertions))]
        ::std::thread_local! {
            static MADE: ::std::cell::Cell<Option<$canary>> = const { ::std::cell::Cell::new(None) };
        }

        /// Has this thread make the mistake from now on; `None`: none.
        #[cfg(any(test, debug_assertions))]
        pub fn make(canary: Option<$canary>) {
            MADE.set(canary);
        }

        /// Whether this thread makes the mistake.
        #[cfg(any(test, debug_assertions))]
        pub(crate) fn makes(canary: $canary) -> bool {
            MADE.get() == Some(canary)
        }

        /// Whether this thread makes the mistake: never.
        #[cfg(not(any(test, debug_assertions)))]
        pub(crate) const fn makes(_: $canary) -> bool {
            false
        }
    };
}
