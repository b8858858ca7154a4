//! The measure: load generation and reports.
