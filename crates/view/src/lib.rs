//! What people see: words, columns, tables, and the screen. Pure: Intervals and keys in, text and cells out; no tokio, no file
//! system, no clock.
//!
//! [`app`] is the state of the screen, which only Intervals and input change; [`draw`] makes cells of it and changes nothing.

pub mod app;
pub mod batch;
pub mod causes;
pub mod columns;
pub mod data;
pub mod draw;
pub mod history;
pub mod keys;
pub mod names;
pub mod nodes;
pub mod replay;
pub mod settings;
pub mod snapshot;
pub mod stat;
pub mod stat_command;
pub mod states;
pub mod subject;
pub mod text;
pub mod theme;
pub mod width;
