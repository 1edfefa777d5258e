//! Making a change durable.
