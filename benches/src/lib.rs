//! What cgscope costs: `benches/pure.rs` without root, `src/bin/overhead` side by side with its peers.
