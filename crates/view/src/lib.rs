//! Everything that users see: words, columns, tables and the screen. Input is Intervals and keys; output is text and cells.
//! This crate is pure: no tokio, no file system, no clock.
//!
//! [`app`] holds the state of the screen; only Intervals and input change it. [`draw`] turns that state into cells.

#![allow(missing_docs, reason = "comments say only what names and types do not say")]

pub mod app;
pub mod batch;
pub mod causes;
pub mod columns;
pub mod data;
pub mod draw;
pub mod history;
pub mod keys;
pub mod nodes;
pub mod replay;
pub mod report;
pub mod settings;
pub mod snapshot;
pub mod stat;
pub mod stat_command;
pub mod states;
pub mod text;
pub mod theme;
pub mod width;
