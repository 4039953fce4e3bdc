//! Writes the offsets of kernel fields and the settings into the instructions of an object: see [`cgscope_ledger::fields`].

use cgscope_ledger::{
    ABSENT, Offsets,
    fields::{FIRST_FIELD, FIRST_PRESENCE, FIRST_SETTING},
    wire::Config,
};

use crate::bpf_calls::Raw;

/// Length of an instruction, bytes: operation, registers, a two-byte offset, a four-byte constant.
const INSTRUCTION: usize = 8;
/// `BPF_LDX | BPF_MEM` with a size of one, four and eight bytes.
const LOADS: [u8; 3] = [0x71, 0x61, 0x79];
/// `BPF_ALU64 | BPF_MOV | BPF_K`.
const SET: u8 = 0xb7;

/// Returns the object for a kernel with these fields. If the kernel lacks a field, its loads are replaced by the constant 0.
///
/// Scans the whole file in steps of one instruction, because the file aligns sections with instructions to 8 bytes. No data in
/// the file looks like one of these instructions, because such data would be numbers or addresses above 2^31.
pub fn patched(object: &[u8], offsets: &Offsets, config: &Config) -> Result<Vec<u8>, String> {
    let (offsets, config) = (Raw(*offsets), Raw(*config));
    let offsets: Vec<u32> = words(offsets.bytes()).map(u32::from_le_bytes).collect();
    let config: Vec<u64> = words(config.bytes()).map(u64::from_le_bytes).collect();
    let mut object = object.to_vec();
    for instruction in object.chunks_exact_mut(INSTRUCTION) {
        let [operation, registers, low, high, constant @ ..] = instruction else { continue };
        let value = i32::from_le_bytes([constant[0], constant[1], constant[2], constant[3]]);
        let offset = i16::from_le_bytes([*low, *high]);
        if LOADS.contains(operation) && value == 0 {
            let Some(field) = at(&offsets, i32::from(offset) - i32::from(FIRST_FIELD)) else { continue };
            if *field == ABSENT {
                // The lower half holds the destination register.
                (*operation, *registers, *low, *high) = (SET, *registers & 0xf, 0, 0);
            } else {
                let field =
                    i16::try_from(*field).map_err(|_| format!("a kernel field is {field} bytes away"))?;
                [*low, *high] = field.to_le_bytes();
            }
        } else if *operation == SET && offset == 0 {
            let setting = at(&config, value.wrapping_sub(FIRST_SETTING)).copied();
            let presence =
                at(&offsets, value.wrapping_sub(FIRST_PRESENCE)).map(|field| u64::from(*field != ABSENT));
            if let Some(new) = setting.or(presence) {
                let new = i32::try_from(new).map_err(|_| format!("the setting {new} does not fit"))?;
                constant.copy_from_slice(&new.to_le_bytes());
            }
        }
    }
    Ok(object)
}

fn words<const N: usize>(bytes: &[u8]) -> impl Iterator<Item = [u8; N]> {
    bytes.chunks_exact(N).filter_map(|word| word.try_into().ok())
}

fn at<T>(all: &[T], number: i32) -> Option<&T> {
    all.get(usize::try_from(number).ok()?)
}

#[cfg(test)]
mod tests {
    use cgscope_ledger::fields::{field, presence, setting};
    use object::{Object, ObjectSection, SectionKind};

    use super::*;
    use crate::{OBJECT, SAMPLE_OBJECT};

    /// Field `n` has the offset `16 * n`. The kernel has no `task_throttled`.
    fn offsets() -> Offsets {
        let offsets = std::array::from_fn(|field| 16 * field as u32);
        Offsets { task_throttled: ABSENT, ..Offsets::from_array(offsets) }
    }

    fn instruction(operation: u8, registers: u8, offset: i16, constant: i32) -> [u8; 8] {
        let ([a, b], [c, d, e, f]) = (offset.to_le_bytes(), constant.to_le_bytes());
        [operation, registers, a, b, c, d, e, f]
    }

    fn patch(before: [u8; 8]) -> Result<[u8; 8], String> {
        let config = Config { nodes: 3, root_cgroup_id: u64::MAX, ..Config::default() };
        Ok(patched(&before, &offsets(), &config)?.try_into().expect("one instruction"))
    }

    #[test]
    fn a_load_gets_the_offset_of_its_field_or_becomes_0() {
        let tgid = field(std::mem::offset_of!(Offsets, task_tgid)) as i16;
        let throttled = field(std::mem::offset_of!(Offsets, task_throttled)) as i16;
        for load in LOADS {
            assert_eq!(patch(instruction(load, 0x61, tgid, 0)), Ok(instruction(load, 0x61, 16, 0)));
            assert_eq!(patch(instruction(load, 0x61, throttled, 0)), Ok(instruction(SET, 0x1, 0, 0)));
        }
    }

    #[test]
    fn constants_become_settings_and_whether_the_kernel_has_a_field() {
        let (nodes, root) =
            (std::mem::offset_of!(Config, nodes), std::mem::offset_of!(Config, root_cgroup_id));
        assert_eq!(patch(instruction(SET, 2, 0, setting(nodes))), Ok(instruction(SET, 2, 0, 3)));
        assert!(patch(instruction(SET, 2, 0, setting(root))).is_err(), "it has 64 bits");
        for (member, has) in [
            (std::mem::offset_of!(Offsets, task_throttled), 0),
            (std::mem::offset_of!(Offsets, task_tgid), 1),
        ] {
            assert_eq!(patch(instruction(SET, 2, 0, presence(member))), Ok(instruction(SET, 2, 0, has)));
        }
    }

    #[test]
    fn everything_else_stays() {
        let beyond = FIRST_FIELD + cgscope_ledger::FIELD_COUNT as i16;
        for other in [
            instruction(0x79, 0x61, beyond, 0),
            instruction(0x79, 0x61, 24, 0),
            instruction(0x7b, 0x61, FIRST_FIELD, 0),
            instruction(0x79, 0x61, FIRST_FIELD, 1),
            instruction(SET, 1, 0, FIRST_SETTING - 1),
            instruction(0xb4, 1, 0, FIRST_SETTING),
        ] {
            assert_eq!(patch(other), Ok(other));
        }
        let far = Offsets { task_pid: 40_000, ..offsets() };
        assert!(patched(&instruction(0x79, 0, FIRST_FIELD, 0), &far, &Config::default()).is_err());
    }

    #[test]
    fn in_our_objects_only_instructions_are_patched() {
        for (object, least) in [(OBJECT, 300), (SAMPLE_OBJECT, 30)] {
            let after = patched(object, &offsets(), &Config::default()).expect("small offsets");
            let parsed = object::File::parse(object).expect("an ELF file");
            let code: Vec<_> = parsed
                .sections()
                .filter(|section| section.kind() == SectionKind::Text)
                .filter_map(|section| section.file_range())
                .collect();
            let is_code = |at: u64| code.iter().any(|(start, length)| (*start..start + length).contains(&at));
            let changed = (0..object.len()).filter(|at| object[*at] != after[*at]);
            let changed: std::collections::BTreeSet<u64> = changed.map(|at| at as u64 / 8 * 8).collect();
            assert!(changed.iter().all(|at| is_code(*at)), "data looks like an instruction");
            assert!(changed.len() >= least, "{}", changed.len());
            assert_eq!(patched(&after, &offsets(), &Config::default()).expect("small offsets"), after);
        }
    }
}
