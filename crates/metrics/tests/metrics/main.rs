//! The crate from outside: pages, who is on them, and what is told of them.
#![allow(missing_docs, reason = "tests are sentences")]

#[path = "../../../model/tests/any/mod.rs"]
mod any;
mod broken;
mod choice;
mod pages;
mod parsed;
mod quantiles;
mod told;
