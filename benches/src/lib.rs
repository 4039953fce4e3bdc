//! What is measured.
