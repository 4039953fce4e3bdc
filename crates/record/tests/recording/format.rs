use cgscope_record::VERSION;

use crate::support::{file, header, sample};

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// postcard names no fields: a member added to `Sample` or to anything in it makes every older file unreadable.
/// Does this fail after such a change? Then raise `VERSION` if a release has written the present one, and put the new
/// bytes here.
#[test]
fn the_bytes_of_this_version_are_pinned() {
    let sample = hex(&postcard::to_stdvec(&sample(2)).unwrap());
    assert_eq!((VERSION, sample.as_str()), (2, SAMPLE));
    assert_eq!(hex(&postcard::to_stdvec(&header()).unwrap()), HEADER);
}

#[test]
fn a_file_begins_with_magic_and_version() {
    assert_eq!(hex(&file(&[]).0[..12]), "8b6367730d0a1a0a02000000");
}

const SAMPLE: &str = "\
    8280a8b1e39fe7cb1780a8d6b907000207070706776f726b6572052a010000010c030c0000000000010102010100a01f0001\
    03302d3301022f6103302d33f0a20402d8aa040000000000000000000000000002080138010009090906776f726b6572052a\
    010000010c030c0000000000010102010100a01f000103302d3301022f6103302d33b81702f02e0000000000000000000000\
    000001140200012a02a846010000000000000000000000000000012101011640012a2b000503686f6702012a01d0860301a0\
    8d060000000103302d33020002080200000000000000000000000201012f2a042f612f620200010001020001020000000200\
    0001000101034001010203010001020001020000000200000100010103400101020100018080808004000107020002010201\
    0662696e643a3102011172656164696e675f6375745f73686f7274020102010000000000c04b4000018020";
const HEADER: &str = "\
    05302e312e3004686f737406362e31322e31067838365f36340200010001000101e7240000000000010205736c6565700131\
    8094ebdc038080a8b1e39fe7cb17";
