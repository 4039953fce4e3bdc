//! What is noise is not called, and what is no noise is found with its size: on series and recordings made up for it.

mod noise;
mod whole;
