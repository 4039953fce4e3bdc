//! Compares intervals, trees and findings of random Samples and schedules with simple references. One program runs all tests in
//! parallel.

mod answers;
mod any;
mod any_samples;
mod between;
mod idle;
mod moves;
mod shares;
mod tree;
