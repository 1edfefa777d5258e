//! The log, on standard error.

use std::io::IsTerminal;

use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::ParseError;

use super::given::LogFormat;

/// Parses a log filter.
pub fn filter(text: &str) -> Result<EnvFilter, ParseError> {
    EnvFilter::builder().parse(text)
}

/// Starts the log with what `filter` admits.
pub fn start(filter: EnvFilter, format: LogFormat) {
    // Lines that cannot be written are lost. An error message about that would also fail, and panic the
    // thread: the log's reader may have ended.
    let log = tracing_subscriber::fmt().log_internal_errors(false);
    let log = log.with_env_filter(filter).with_writer(std::io::stderr);
    match format {
        LogFormat::Text => log.with_ansi(std::io::stderr().is_terminal()).with_target(false).init(),
        LogFormat::Json => log.json().flatten_event(true).init(),
    }
}
