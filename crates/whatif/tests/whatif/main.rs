//! Checks the simulation with a plain simulation in small steps, with laws, and with closed formulas.

mod compare;
mod laws;
mod questions;
mod random;
mod reference;
mod rules;
