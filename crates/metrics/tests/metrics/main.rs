//! Tests of the public interface: the pages, the choice of their cgroups, and their documentation.
#![allow(missing_docs, reason = "tests are sentences")]

#[path = "../../../model/tests/schedules/any/mod.rs"]
mod any;
mod broken;
mod choice;
mod documentation;
mod pages;
mod parsed;
mod quantiles;
