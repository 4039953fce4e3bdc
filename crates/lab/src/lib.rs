//! Tests on the running kernel live in `tests/root`; the loads that they put on it in `src/bin`.
