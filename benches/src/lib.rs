//! Measures the cost of cgscope: `benches/` without root, and `src/bin/overhead` next to other tools.
