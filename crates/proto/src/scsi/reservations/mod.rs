//! Reservations: who may use the unit (SPC-4 5.13, SPC-2 5.5).
