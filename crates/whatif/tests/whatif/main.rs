//! The simulation against a plain one in small steps, against laws, and against closed forms.

mod compare;
mod random;
mod reference;
