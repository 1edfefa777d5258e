//! Canaries: bugs that the code has on purpose, to prove that a test or a simulation detects them.

/// Defines `make` and `makes` for an enumeration of bugs: `make` selects the bug that this thread has,
/// `makes` checks whether it has a given one.
///
/// In the product (a release build) no thread has one: the check is a constant.
#[macro_export]
macro_rules! canary_switch {
    ($canary:ty) => {
        #[cfg(any(test, debug_assertions))]
        ::std::thread_local! {
            static MADE: ::std::cell::Cell<Option<$canary>> = const { ::std::cell::Cell::new(None) };
        }

        /// Makes this thread have the bug from now on; `None`: no bug.
        #[cfg(any(test, debug_assertions))]
        pub fn make(canary: Option<$canary>) {
            MADE.set(canary);
        }

        /// Whether this thread has the bug.
        #[cfg(any(test, debug_assertions))]
        pub(crate) fn makes(canary: $canary) -> bool {
            MADE.get() == Some(canary)
        }

        /// Whether this thread has the bug: never in a release build.
        #[cfg(not(any(test, debug_assertions)))]
        pub(crate) const fn makes(_: $canary) -> bool {
            false
        }
    };
}
