//! The log, on standard error.

use std::io::IsTerminal;

use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::ParseError;

use super::given::LogFormat;

/// Starts logging what `filter` lets through.
///
/// # Errors
/// If the filter is none.
pub fn start(filter: &str, format: LogFormat) -> Result<(), ParseError> {
    let filter = EnvFilter::builder().parse(filter)?;
    let log = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    match format {
        LogFormat::Text => log.with_ansi(std::io::stderr().is_terminal()).with_target(false).init(),
        LogFormat::Json => log.json().flatten_event(true).init(),
    }
    Ok(())
}
