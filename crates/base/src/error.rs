//! Errors as text.

use std::error::Error;

/// The error followed by its causes, separated by colons.
///
/// An error that repeats the text of its cause (a transparent one) appears only once.
pub fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let more = error.to_string();
        if !text.ends_with(&more) {
            text = format!("{text}: {more}");
        }
        cause = error.source();
    }
    text
}
