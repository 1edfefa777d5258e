//! Which paths are good enough: those over which commands are distributed.

use crate::command::AccessState;

/// What is known of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct View {
    /// There is a session, it is not about to end, and it leads to the right unit.
    pub(super) up: bool,
    /// The unit's access state through it.
    pub(super) access: AccessState,
    /// The target was pinged there and has not answered yet.
    pub(super) silent: bool,
}

/// Classes of paths, the worst first.
///
/// A path that may be dead is used only if no other is available: even a detour is preferred to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Class {
    Unusable,
    SilentDetour,
    Silent,
    Detour,
    Best,
}

fn class(view: &View) -> Class {
    if !view.up {
        return Class::Unusable;
    }
    match (view.access, view.silent) {
        (AccessState::ActiveOptimized, false) => Class::Best,
        (AccessState::ActiveOptimized, true) => Class::Silent,
        (AccessState::ActiveNonOptimized | AccessState::LogicalBlockDependent, false) => Class::Detour,
        (AccessState::ActiveNonOptimized | AccessState::LogicalBlockDependent, true) => Class::SilentDetour,
        // These do not admit reads and writes (SPC-4 5.15.2.4).
        (
            AccessState::Standby
            | AccessState::Unavailable
            | AccessState::Offline
            | AccessState::Transitioning,
            _,
        ) => Class::Unusable,
    }
}

/// Which paths commands may use: all of the best class present.
pub(super) fn eligible(views: &[View]) -> Vec<bool> {
    let best = views.iter().map(class).max().unwrap_or(Class::Unusable);
    views.iter().map(|view| best > Class::Unusable && class(view) == best).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use AccessState::{
        ActiveNonOptimized, ActiveOptimized, LogicalBlockDependent, Offline, Standby, Transitioning,
        Unavailable,
    };

    fn of(paths: &[(bool, AccessState, bool)]) -> Vec<bool> {
        let view = |(up, access, silent): &(bool, AccessState, bool)| View {
            up: *up,
            access: *access,
            silent: *silent,
        };
        eligible(&paths.iter().map(view).collect::<Vec<_>>())
    }

    #[test]
    fn optimized_paths_come_before_detours() {
        let paths = [
            (true, ActiveOptimized, false),
            (true, ActiveNonOptimized, false),
            (false, ActiveOptimized, false),
            (true, ActiveOptimized, false),
        ];
        assert_eq!(of(&paths), [true, false, false, true]);
        let paths = [(false, ActiveOptimized, false), (true, ActiveNonOptimized, false)];
        assert_eq!(of(&paths), [false, true]);
        let paths = [(true, LogicalBlockDependent, false), (true, ActiveNonOptimized, false)];
        assert_eq!(of(&paths), [true, true]);
    }

    #[test]
    fn other_states_are_never_used() {
        for access in [Standby, Unavailable, Offline, Transitioning] {
            assert_eq!(of(&[(true, access, false)]), [false]);
        }
        assert_eq!(of(&[]), [] as [bool; 0]);
    }

    #[test]
    fn silent_paths_are_the_last_resort() {
        let paths = [(true, ActiveOptimized, true), (true, ActiveNonOptimized, false)];
        assert_eq!(of(&paths), [false, true]);
        let paths = [(true, ActiveOptimized, true), (true, ActiveNonOptimized, true)];
        assert_eq!(of(&paths), [true, false]);
    }
}
