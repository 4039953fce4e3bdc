//! Tests that noise is not reported as a change, and that real changes are found with their size. The data is artificial.

mod noise;
mod whole;
