//! What exists in both worlds.

/// A thing of the world in which the core runs.
pub(crate) enum Of<U, S> {
    Uring(U),
    Sim(S),
}

/// Does the same with a thing of either world.
macro_rules! either {
    ($of:expr, $thing:ident => $done:expr) => {
        match $of {
            $crate::worlds::Of::Uring($thing) => $done,
            $crate::worlds::Of::Sim($thing) => $done,
        }
    };
}

pub(crate) use either;
