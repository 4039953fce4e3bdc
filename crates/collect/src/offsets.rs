//! Offsets of the kernel's fields, and the kernel's features, from the running kernel's BTF.

use std::{collections::BTreeMap, path::Path};

use btf_rs::{Backend, Btf, BtfType, Type};
use cgscope_layout::{
    ABSENT, FIELD_COUNT, Feature, Field, KERNEL_FIELDS, Offsets, Probe, feature::TASK_BY_ID,
};
use cgscope_model::doctor::FeatureOff;

use crate::Failure;

/// The file with the kernel's types (CONFIG_DEBUG_INFO_BTF).
pub const VMLINUX_BTF: &str = "/sys/kernel/btf/vmlinux";

/// Offsets and missing features.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resolved {
    /// The offsets, for the BPF side.
    pub offsets: Offsets,
    /// The features that this kernel lacks.
    pub off: Vec<FeatureOff>,
    /// The BTF ids of the functions of [`Feature::TaskById`].
    pub task_by_id: Option<[u32; 2]>,
}

impl Resolved {
    /// Whether the kernel has the feature.
    pub fn has(&self, feature: Feature) -> bool {
        self.off.iter().all(|off| off.feature != feature)
    }

    /// Returns the missing ones of the fields and features that every measurement needs.
    pub fn missing_required(&self) -> Vec<&str> {
        let needed = self.off.iter().filter(|off| off.feature.is_needed());
        needed.flat_map(|off| &off.missing).map(String::as_str).collect()
    }
}

/// Looks up every field and every feature in the BTF file at `path`.
pub fn resolve(path: &Path) -> Result<Resolved, Failure> {
    let btf = read(path).map_err(|error| {
        Failure::of_host(
            format!("the kernel's type information at {} cannot be read ({error})", path.display()),
            "cgscope cannot read the scheduler's figures",
            "use a kernel built with CONFIG_DEBUG_INFO_BTF=y, such as your distribution's",
        )
    })?;
    let mut offsets = [ABSENT; FIELD_COUNT];
    let mut missing: BTreeMap<Feature, Vec<String>> = BTreeMap::new();
    for (offset, field) in offsets.iter_mut().zip(KERNEL_FIELDS) {
        match find(&btf, field) {
            Some(found) => *offset = found,
            None => {
                missing.entry(field.feature).or_default().push(format!("{}.{}", field.structure, field.path));
            }
        }
    }
    for feature in Feature::ALL {
        if let Some(absent) = probe(&btf, feature.probe()) {
            missing.entry(feature).or_default().push(absent);
        }
    }
    let off = missing.into_iter().map(|(feature, missing)| FeatureOff { feature, missing });
    let [find, release] = TASK_BY_ID.map(|name| function(&btf, name));
    Ok(Resolved {
        offsets: Offsets::from_array(offsets),
        off: off.collect(),
        task_by_id: find.zip(release).map(<[u32; 2]>::from),
    })
}

fn probe(btf: &Btf, probe: Probe) -> Option<String> {
    match probe {
        Probe::Fields => None,
        Probe::Enumerator(of, name) => (!has_enumerator(btf, of, name)).then(|| name.into()),
        Probe::Arguments(tracepoint, at_least) => {
            let has = arguments(btf, tracepoint).is_some_and(|arguments| arguments >= at_least);
            (!has).then(|| format!("argument {at_least} of the tracepoint {tracepoint}"))
        }
        Probe::Functions(names) => {
            names.iter().find(|name| function(btf, name).is_none()).map(|name| (*name).into())
        }
    }
}

/// Returns the id of a function.
fn function(btf: &Btf, name: &str) -> Option<u32> {
    let ids = btf.resolve_ids_by_name(name).ok()?;
    ids.into_iter().find(|id| matches!(btf.resolve_type_by_id(*id), Ok(Type::Func(_))))
}

fn has_enumerator(btf: &Btf, of: &str, name: &str) -> bool {
    let is_it = |member: &dyn BtfType| btf.resolve_name(member).is_ok_and(|found| found == name);
    let types = btf.resolve_types_by_name(of).unwrap_or_default();
    types.iter().any(|ty| match ty {
        Type::Enum(inner) => inner.members.iter().any(|member| is_it(member)),
        Type::Enum64(inner) => inner.members.iter().any(|member| is_it(member)),
        _ => false,
    })
}

/// Returns the number of arguments of a tracepoint's function, as BPF sees them.
fn arguments(btf: &Btf, tracepoint: &str) -> Option<usize> {
    let types = btf.resolve_types_by_name(&format!("btf_trace_{tracepoint}")).ok()?;
    let typedef = types.into_iter().find_map(|ty| match ty {
        Type::Typedef(typedef) => Some(typedef),
        _ => None,
    })?;
    let Type::Ptr(pointer) = btf.resolve_chained_type(&typedef).ok()? else { return None };
    match btf.resolve_chained_type(&pointer).ok()? {
        Type::FuncProto(prototype) => Some(prototype.parameters.len()),
        _ => None,
    }
}

fn read(path: &Path) -> Result<Btf, Box<dyn std::error::Error>> {
    // If the kernel supports mapping, only the needed parts are read; parsing the whole file costs 30 MiB and 100 ms.
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
        .map(Offsets::bit)
}

/// Returns the offset in bits of member `name`, then of the members in `rest`. Members of anonymous structs and unions count as
/// the parent's.
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
