//! Samples, Intervals and what is derived from them: pure, no aya, tokio, file system or clock.
