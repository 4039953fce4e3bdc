//! Intervals, trees and findings of random Samples and schedules, against plain references. One program, so that its tests run side by
//! side.

mod any;
mod any_samples;
mod between;
mod idle;
mod moves;
mod shares;
mod tree;
