//! Reads the offsets of kernel fields, and the features of the kernel, from the running kernel's BTF.

use std::{
    collections::{BTreeMap, HashMap},
    path::Path,
};

use aya::Endianness;
use cgscope_ledger::{
    ABSENT, FIELD_COUNT, Feature, Field, KERNEL_FIELDS, Offsets, Probe, feature::TASK_BY_ID, wire::names,
};
use cgscope_model::doctor::FeatureOff;

use crate::{
    Failure,
    btf::{self, AttachPoint, Btf, Type, kind},
};

/// The file with the kernel's types (CONFIG_DEBUG_INFO_BTF).
pub const VMLINUX_BTF: &str = "/sys/kernel/btf/vmlinux";

/// The programs, each with the function, tracepoint or iterator to attach to. Those that take long to verify are first.
pub(crate) const PROGRAMS: [(&str, &str); 17] = [
    (names::ON_SWITCH, "sched_switch"),
    (names::READ_CHANGES, "task"),
    (names::READ_TASKS, "task"),
    (names::ON_MOVE, "sched_migrate_task"),
    (names::ON_WAKING, "sched_waking"),
    (names::ON_CGROUP_ATTACH, "cgroup_attach_task"),
    (names::ON_LEAVE_GROUP, "task_change_group_fair"),
    (names::ON_ENTER_GROUP, "task_change_group_fair"),
    (names::ON_CGROUP_MADE, "cgroup_mkdir"),
    (names::ON_CGROUP_REMOVED, "cgroup_rmdir"),
    (names::ON_CGROUP_RENAMED, "cgroup_rename"),
    (names::ON_NEW_TASK, "task_newtask"),
    (names::ON_TASK_FREED, "sched_process_free"),
    (names::ON_RENAME, "task_rename"),
    (names::READ_EXITED, "bpf_map_elem"),
    (names::ON_THROTTLE, "tg_throttle_down"),
    (names::ON_UNTHROTTLE, "tg_unthrottle_up"),
];

/// Offsets and missing features of a kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resolved {
    /// The offsets, for the BPF side.
    pub offsets: Offsets,
    /// The features that this kernel lacks.
    pub off: Vec<FeatureOff>,
    /// The BTF ids of the functions of [`Feature::TaskById`].
    pub task_by_id: Option<[u32; 2]>,
    /// Where the kernel keeps the preempt count, see [`Feature::PreemptCount`].
    pub preempt_count: Option<PreemptCount>,
    /// The bits of the preempt count that count nested interrupts.
    pub interrupt_bits: u32,
    /// Those types of this kernel to which [`PROGRAMS`] attach, ascending by id.
    attach_points: Vec<AttachPoint>,
}

/// Where the kernel keeps the preempt count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PreemptCount {
    /// Among the variables of each CPU, at this distance from its run queue, bytes.
    OfCpu(i64),
    /// In the current task, at this offset, bytes.
    OfTask(u32),
}

impl Resolved {
    /// Whether the kernel has the feature.
    pub fn has(&self, feature: Feature) -> bool {
        self.off.iter().all(|off| off.feature != feature)
    }

    /// Fails if the kernel lacks one of the needed features. `effect` and `remedy` are parts of the failure.
    pub fn check(&self, needs: impl Fn(Feature) -> bool, effect: &str, remedy: &str) -> Result<(), Failure> {
        let needed = self.off.iter().filter(|off| needs(off.feature));
        let missing: Vec<&str> = needed.flat_map(|off| &off.missing).map(String::as_str).collect();
        if missing.is_empty() {
            return Ok(());
        }
        Err(Failure::of_host(format!("this kernel does not have {}", missing.join(", ")), effect, remedy))
    }

    /// Returns the types that aya needs to load the programs.
    pub fn attach_types(&self) -> Result<aya::Btf, aya::BtfError> {
        aya::Btf::parse(&btf::file_of(&self.attach_points), Endianness::default())
    }
}

/// Looks up every field and every feature in the BTF file at `path`.
pub fn resolve(path: &Path) -> Result<Resolved, Failure> {
    let btf = Btf::read(path).map_err(|error| {
        Failure::of_host(
            format!("the kernel's type information at {} cannot be read ({error})", path.display()),
            "cgscope cannot read the scheduler's figures",
            "use a kernel built with CONFIG_DEBUG_INFO_BTF=y, such as your distribution's",
        )
    })?;
    let types = Named(btf.find(&wanted_names()));
    let mut offsets = [ABSENT; FIELD_COUNT];
    let mut missing: BTreeMap<Feature, Vec<String>> = BTreeMap::new();
    for (offset, field) in offsets.iter_mut().zip(KERNEL_FIELDS) {
        match find(&types, field) {
            Some(found) => *offset = found,
            None => {
                missing.entry(field.feature).or_default().push(format!("{}.{}", field.structure, field.path));
            }
        }
    }
    for feature in Feature::ALL {
        if let Some(absent) = probe(&types, feature.probe()) {
            missing.entry(feature).or_default().push(absent);
        }
    }
    let off = missing.into_iter().map(|(feature, missing)| FeatureOff { feature, missing });
    let [find, release] = TASK_BY_ID.map(|name| types.of_kind(name, kind::FUNC).map(Type::id));
    let points = attach_points().filter_map(|(name, kind)| {
        let id = types.of_kind(&name, kind)?.id();
        Some(AttachPoint { id, kind, name })
    });
    let mut attach_points: Vec<_> = points.collect();
    attach_points.sort_unstable_by_key(|point| point.id);
    attach_points.dedup();
    Ok(Resolved {
        offsets: Offsets::from_array(offsets),
        off: off.collect(),
        task_by_id: find.zip(release).map(<[u32; 2]>::from),
        preempt_count: preempt_count(&types),
        interrupt_bits: interrupt_bits(&types),
        attach_points,
    })
}

/// The types that fields and features need, by type name.
struct Named<'b>(HashMap<String, Vec<Type<'b>>>);

impl<'b> Named<'b> {
    fn all(&self, name: &str) -> &[Type<'b>] {
        self.0.get(name).map_or(&[], Vec::as_slice)
    }

    fn of_kind(&self, name: &str, kind: u32) -> Option<Type<'b>> {
        self.all(name).iter().find(|ty| ty.kind() == kind).copied()
    }
}

fn wanted_names() -> Vec<String> {
    let mut names: Vec<String> =
        KERNEL_FIELDS.iter().flat_map(|field| field.structure.split('|').map(String::from)).collect();
    for feature in Feature::ALL {
        match feature.probe() {
            Probe::Fields => {}
            Probe::Enumerator(of, _) => names.push(of.into()),
            Probe::Arguments(tracepoint, _) => names.push(type_of_tracepoint(tracepoint)),
            Probe::PreemptCount => {
                let variables = [CPU_VARIABLES, RUN_QUEUES, PREEMPT_COUNT, PCPU_HOT, INTERRUPT_STATE];
                names.extend(variables.map(String::from));
            }
            Probe::Functions(functions) => names.extend(functions.iter().map(|name| (*name).into())),
        }
    }
    names.extend(attach_points().map(|(name, _)| name));
    names.sort_unstable();
    names.dedup();
    names
}

/// Returns the names and kinds of all types that a program may attach to.
fn attach_points() -> impl Iterator<Item = (String, u32)> {
    PROGRAMS.iter().flat_map(|(_, of)| {
        [
            (type_of_tracepoint(of), kind::TYPEDEF),
            ((*of).to_owned(), kind::FUNC),
            (format!("bpf_iter_{of}"), kind::FUNC),
        ]
    })
}

fn type_of_tracepoint(tracepoint: &str) -> String {
    format!("btf_trace_{tracepoint}")
}

fn probe(types: &Named<'_>, probe: Probe) -> Option<String> {
    match probe {
        Probe::Fields => None,
        Probe::Enumerator(of, name) => {
            let has = types.all(of).iter().any(|ty| ty.has_enumerator(name));
            (!has).then(|| name.into())
        }
        Probe::Arguments(tracepoint, at_least) => {
            let has = arguments(types, tracepoint).is_some_and(|arguments| arguments >= at_least);
            (!has).then(|| format!("argument {at_least} of the tracepoint {tracepoint}"))
        }
        Probe::PreemptCount => preempt_count(types).is_none().then(|| PREEMPT_COUNT.into()),
        Probe::Functions(names) => {
            let has = |name: &str| types.of_kind(name, kind::FUNC).is_some();
            names.iter().find(|name| !has(name)).map(|name| (*name).into())
        }
    }
}

/// The section with the variables of each CPU.
const CPU_VARIABLES: &str = ".data..percpu";
const RUN_QUEUES: &str = "runqueues";
/// The variable with the preempt count, on x86_64.
const PREEMPT_COUNT: &str = "__preempt_count";
/// The variable that contains it on x86_64, Linux 6.2 to 6.14 (commits 64701838bf05 and 46e8fff6d45f).
const PCPU_HOT: &str = "pcpu_hot";
/// Kernels with this variable have another layout: besides interrupts, the count has sections with disabled interrupts.
const INTERRUPT_STATE: &str = "local_interrupt_disable_state";
/// HARDIRQ_MASK and NMI_MASK, in the former layout and in the latter (there, all bits that are certain).
const INTERRUPT_BITS: [u32; 2] = [0x00ff_0000, 0x1f00_0000];

fn preempt_count(types: &Named<'_>) -> Option<PreemptCount> {
    let at = |name| {
        let id = types.of_kind(name, kind::VAR)?.id();
        types
            .of_kind(CPU_VARIABLES, kind::DATASEC)?
            .variables()
            .find(|(variable, _)| *variable == id)
            .map(|(_, at)| i64::from(at))
    };
    let member = |structure, path| find(types, &Field { structure, path, feature: Feature::PreemptCount });
    let of_cpu =
        at(PREEMPT_COUNT).or_else(|| Some(at(PCPU_HOT)? + i64::from(member(PCPU_HOT, "preempt_count")?)));
    let of_cpu = of_cpu.and_then(|count| Some(PreemptCount::OfCpu(count - at(RUN_QUEUES)?)));
    of_cpu.or_else(|| member("task_struct", "thread_info.preempt.count").map(PreemptCount::OfTask))
}

/// Returns the bits of the preempt count that count nested interrupts.
fn interrupt_bits(types: &Named<'_>) -> u32 {
    INTERRUPT_BITS[usize::from(types.of_kind(INTERRUPT_STATE, kind::VAR).is_some())]
}

/// Returns the number of arguments that a BPF program on this tracepoint receives.
fn arguments(types: &Named<'_>, tracepoint: &str) -> Option<usize> {
    let typedef = types.of_kind(&type_of_tracepoint(tracepoint), kind::TYPEDEF)?;
    let pointer = typedef.inner().filter(|ty| ty.kind() == kind::PTR)?;
    pointer.inner().filter(|ty| ty.kind() == kind::FUNC_PROTO).map(Type::len)
}

fn find(types: &Named<'_>, field: &Field) -> Option<u32> {
    let structures = field.structure.split('|').filter_map(|name| types.of_kind(name, kind::STRUCT));
    let in_structure = |structure| {
        let mut paths = field.path.split('|').map(|path| path.split('.'));
        paths.find_map(|mut names| bit_offset(structure, names.next()?, &mut names))
    };
    structures.into_iter().find_map(in_structure).map(Offsets::bit)
}

/// Returns the offset of a nested member, bits: of member `name`, and inside it of the members in `rest`. Members of anonymous
/// structs and unions count as members of the parent.
fn bit_offset<'a>(
    structure: Type<'_>,
    name: &str,
    rest: &mut (impl Iterator<Item = &'a str> + Clone),
) -> Option<u32> {
    for member in structure.members() {
        if member.name.is_empty() {
            let Some(inner) = member.ty().and_then(aggregate) else { continue };
            if let Some(bits) = bit_offset(inner, name, &mut rest.clone()) {
                return member.bits.checked_add(bits);
            }
        } else if member.name == name.as_bytes() {
            return match rest.next() {
                None => Some(member.bits),
                Some(next) => member.bits.checked_add(bit_offset(aggregate(member.ty()?)?, next, rest)?),
            };
        }
    }
    None
}

/// Follows typedefs and qualifiers to a structure or union, and returns it.
fn aggregate(mut ty: Type<'_>) -> Option<Type<'_>> {
    // Limit the number of steps, because typedefs in a damaged file can form a cycle.
    for _ in 0..16 {
        match ty.kind() {
            kind::STRUCT | kind::UNION => return Some(ty),
            kind::TYPEDEF | kind::CONST | kind::VOLATILE | kind::RESTRICT => ty = ty.inner()?,
            _ => return None,
        }
    }
    None
}
