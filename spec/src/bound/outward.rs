//! Upward-rounded evaluation of non-negative expressions.
