//! The wire format: one file a PDU family, every field by name, tested with literal bytes.
