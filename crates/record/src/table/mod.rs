//! A table of a Sample: rows with the same columns, of which only what changed is written.
//!
//! In ascending order of their place: the rows that went (places of before), those that are new, those that changed (places of
//! now). Then column by column the change of each row that is new or changed, as far as the column has any.

mod bytes;
mod decode;
mod encode;

pub(crate) use bytes::Bytes;
pub(crate) use decode::{Decoder, Unknown};
pub(crate) use encode::Encoder;

use serde::{Deserialize, Serialize};

use crate::cells::{Column, Columns, Field};

/// What the header says of a table.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Table {
    /// Its name: the member of a Sample, or `whole` for what a Sample has but once.
    pub name: String,
    /// Its columns in the order of the file.
    pub columns: Vec<Column>,
}

impl Table {
    /// The table of these rows as this version writes it.
    pub(crate) fn of<T: Field>(name: &str) -> Self {
        let mut columns = Columns::default();
        T::columns(&mut columns);
        Self { name: name.into(), columns: columns.columns }
    }
}

/// The column has no change.
const SAME: u8 = 0;
/// The changes of all rows that are new or changed follow.
const CHANGED: u8 = 1;
