//! The simulation against a plain one in small steps, against laws, and against closed forms.

mod compare;
mod laws;
mod questions;
mod random;
mod reference;
mod rules;
