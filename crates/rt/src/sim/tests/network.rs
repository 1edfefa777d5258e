//! Connections and what can happen to them.
