//! The parts that we use of pprof's `profile.proto` (package `perftools.profiles`).
//!
//! Index 0 of the string table is the empty string. An id of 0 means none.
#![expect(missing_docs, reason = "the names are the published ones, and so are their meanings")]

messages! {
    Profile {
        "1" sample_type: Vec<ValueType>, [message, repeated];
        "2" sample: Vec<Sample>, [message, repeated];
        "4" location: Vec<Location>, [message, repeated];
        "5" function: Vec<Function>, [message, repeated];
        "6" string_table: Vec<String>, [string, repeated];
        "9" time_nanos: i64, [int64];
        "10" duration_nanos: i64, [int64];
        "13" comment: Vec<i64>, [int64, repeated];
        "14" default_sample_type: i64, [int64];
    }
    ValueType {
        "1" r#type: i64, [int64];
        "2" unit: i64, [int64];
    }
    Sample {
        "1" location_id: Vec<u64>, [uint64, repeated];
        "2" value: Vec<i64>, [int64, repeated];
        "3" label: Vec<Label>, [message, repeated];
    }
    Label {
        "1" key: i64, [int64];
        "2" str: i64, [int64];
        "3" num: i64, [int64];
    }
    Location {
        "1" id: u64, [uint64];
        "4" line: Vec<Line>, [message, repeated];
    }
    Line {
        "1" function_id: u64, [uint64];
    }
    Function {
        "1" id: u64, [uint64];
        "2" name: i64, [int64];
        "3" system_name: i64, [int64];
    }
}
