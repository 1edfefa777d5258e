//! The log, on standard error.

use std::io::IsTerminal;

use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::ParseError;

use super::given::LogFormat;

/// What shall be logged, from its text.
///
/// # Errors
/// If the text is no filter.
pub fn filter(text: &str) -> Result<EnvFilter, ParseError> {
    EnvFilter::builder().parse(text)
}

/// Starts logging what `filter` lets through.
pub fn start(filter: EnvFilter, format: LogFormat) {
    // What cannot be written is lost. To say so there, too, would end the thread that wants to: whoever reads
    // the log may have ended.
    let log = tracing_subscriber::fmt().log_internal_errors(false);
    let log = log.with_env_filter(filter).with_writer(std::io::stderr);
    match format {
        LogFormat::Text => log.with_ansi(std::io::stderr().is_terminal()).with_target(false).init(),
        LogFormat::Json => log.json().flatten_event(true).init(),
    }
}
