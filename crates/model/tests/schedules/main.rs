//! Intervals, trees and findings of random Samples and schedules, against plain references. One program runs all tests in
//! parallel.

mod any;
mod any_samples;
mod between;
mod idle;
mod moves;
mod shares;
mod tree;
