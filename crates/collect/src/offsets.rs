//! Where the kernel's fields lie, from the running kernel's BTF.

use std::path::Path;

use btf_rs::{Backend, Btf, Type};
use cgscope_layout::{ABSENT, FIELD_COUNT, Field, KERNEL_FIELDS, Offsets};

use crate::Failure;

/// Where the kernel publishes its types (CONFIG_DEBUG_INFO_BTF).
pub const VMLINUX_BTF: &str = "/sys/kernel/btf/vmlinux";

/// What BTF says of the fields that cgscope reads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resolved {
    /// For the BPF side.
    pub offsets: Offsets,
    /// Fields that this kernel does not have.
    pub missing: Vec<Field>,
}

impl Resolved {
    /// The fields without which nothing can be measured, as `struct.path`.
    pub fn missing_required(&self) -> Vec<String> {
        let required = self.missing.iter().filter(|field| field.required);
        required.map(|field| format!("{}.{}", field.structure, field.path)).collect()
    }
}

/// Looks up every field in the BTF file at `path`.
pub fn resolve(path: &Path) -> Result<Resolved, Failure> {
    let btf = read(path).map_err(|error| {
        Failure::of_host(
            format!("the kernel's type information at {} cannot be read ({error})", path.display()),
            "cgscope cannot tell where the scheduler keeps its figures",
            "use a kernel built with CONFIG_DEBUG_INFO_BTF=y, as those of the distributions are",
        )
    })?;
    let mut offsets = [ABSENT; FIELD_COUNT];
    let mut missing = Vec::new();
    for (offset, field) in offsets.iter_mut().zip(KERNEL_FIELDS) {
        match find(&btf, field) {
            Some(found) => *offset = found,
            None => missing.push(*field),
        }
    }
    Ok(Resolved { offsets: Offsets::from_array(offsets), missing })
}

fn read(path: &Path) -> Result<Btf, Box<dyn std::error::Error>> {
    // Mapping reads only what is looked at, where the kernel can map this file; parsing all of it costs 30 MiB and 100 ms.
    match Btf::from_file_with_backend(path, Backend::Mmap) {
        Ok(btf) => Ok(btf),
        Err(_) => Ok(Btf::from_file(path)?),
    }
}

fn find(btf: &Btf, field: &Field) -> Option<u32> {
    let types = btf.resolve_types_by_name(field.structure).ok()?;
    let structure = types.into_iter().find_map(|ty| match ty {
        Type::Struct(structure) => Some(structure),
        _ => None,
    })?;
    field
        .path
        .split('|')
        .find_map(|path| {
            let mut names = path.split('.');
            bit_offset(btf, &structure, names.next()?, &mut names)
        })
        .and_then(|bits| (bits % 8 == 0).then_some(bits / 8))
}

/// The offset in bits of member `name` and of the members named after it. Members without a name (anonymous structs and
/// unions) are searched as if theirs were the parent's.
fn bit_offset<'a>(
    btf: &Btf,
    structure: &btf_rs::Struct,
    name: &str,
    rest: &mut (impl Iterator<Item = &'a str> + Clone),
) -> Option<u32> {
    for member in &structure.members {
        let member_name = btf.resolve_name(member).unwrap_or_default();
        if member_name.is_empty() {
            let inner = aggregate(btf, member)?;
            if let Some(bits) = bit_offset(btf, &inner, name, &mut rest.clone()) {
                return Some(member.bit_offset() + bits);
            }
        } else if member_name == name {
            return match rest.next() {
                None => Some(member.bit_offset()),
                Some(next) => {
                    Some(member.bit_offset() + bit_offset(btf, &aggregate(btf, member)?, next, rest)?)
                }
            };
        }
    }
    None
}

/// The struct or union that a member is of, behind typedefs and qualifiers.
fn aggregate(btf: &Btf, member: &btf_rs::Member) -> Option<btf_rs::Struct> {
    let mut ty = btf.resolve_chained_type(member).ok()?;
    loop {
        ty = match ty {
            Type::Struct(inner) | Type::Union(inner) => return Some(inner),
            Type::Typedef(inner) => btf.resolve_chained_type(&inner).ok()?,
            Type::Const(inner) | Type::Volatile(inner) | Type::Restrict(inner) => {
                btf.resolve_chained_type(&inner).ok()?
            }
            _ => return None,
        };
    }
}
