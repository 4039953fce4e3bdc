//! The build script of the crate that embeds the BPF objects.

use std::{
    env, fs, io,
    path::{Path, PathBuf},
    process,
};

use object::{
    build::elf::{Builder, SectionData},
    elf::SHT_STRTAB,
};

use crate::Toolchain;

/// The objects in `ebpf/`. For each object, the environment variable that contains its path (`env!`).
const OBJECTS: [(&str, &str); 4] = [
    ("cgscope-bpf", "CGSCOPE_BPF_OBJECT"),
    ("empty-hook-bpf", "CGSCOPE_EMPTY_HOOK_OBJECT"),
    ("yardstick-bpf", "CGSCOPE_YARDSTICK_OBJECT"),
    ("sample-bpf", "CGSCOPE_SAMPLE_OBJECT"),
];

/// The sources of the objects, relative to the top of the repository.
const SOURCES: [&str; 5] =
    ["ebpf/Cargo.lock", "ebpf/Cargo.toml", "ebpf/src", "crates/ledger/Cargo.toml", "crates/ledger/src"];

/// Compiles `ebpf/` and copies the [`OBJECTS`] to `OUT_DIR`, without debug information. If this fails, the build ends with a
/// cargo error.
pub fn for_build_script() {
    if let Err(failure) = embed() {
        println!("cargo::error={failure}");
        process::exit(1);
    }
}

fn embed() -> Result<(), String> {
    let root = variable("CARGO_MANIFEST_DIR")?.join("../..");
    let out = variable("OUT_DIR")?;
    for source in SOURCES {
        // The paths are relative to the package. If clones share a target directory, cargo would otherwise watch files of the
        // clone that built last.
        println!("cargo::rerun-if-changed=../../{source}");
    }
    let shared = shared_dir(&out, &variable("TARGET")?);
    let release = Toolchain::find()?.compile(&root.join("ebpf"), &shared)?;
    for (object, variable) in OBJECTS {
        // The object is copied, because a build of another branch may overwrite the shared directory.
        let (path, copy) = (release.join(object), out.join(object));
        let compiled = fs::read(&path).map_err(cannot_access(&path))?;
        let stripped = strip(&compiled).unwrap_or_else(|why| {
            println!("cargo::warning={object} keeps its debug information, because its format is not known ({why}); cgscope works, but is larger");
            compiled
        });
        fs::write(&copy, stripped).map_err(cannot_access(&copy))?;
        println!("cargo::rustc-env={variable}={}", copy.display());
    }
    Ok(())
}

fn variable(name: &str) -> Result<PathBuf, String> {
    env::var_os(name)
        .map(PathBuf::from)
        .ok_or_else(|| format!("{name} is not set; call this from a build script"))
}

fn cannot_access(path: &Path) -> impl Fn(io::Error) -> String {
    move |why| {
        format!(
            "cannot access {} ({why}), so the compiled kernel side cannot be copied; check that it exists and belongs to you",
            path.display()
        )
    }
}

/// Returns a directory that debug, release and clippy builds share, so that they compile the BPF programs only once. The outer
/// cargo has locked its own directory, so this is a different directory. `out` is `<target
/// directory>[/<machine>]/<profile>/build/<package>/out`. In another layout, each `out` gets its own directory.
fn shared_dir(out: &Path, machine: &Path) -> PathBuf {
    let build = out.ancestors().find(|dir| dir.ends_with("build"));
    let above = build.and_then(|build| build.parent()?.parent());
    let target = above.and_then(|dir| if dir.ends_with(machine) { dir.parent() } else { Some(dir) });
    target.unwrap_or(out).join("bpf")
}

/// Returns the object without DWARF sections, source lines and their relocations. The linker needs debug information to write the
/// kernel's types (`.BTF`). In the binary, debug information would be three quarters of the bytes that cgscope embeds and reads.
fn strip(object: &[u8]) -> Result<Vec<u8>, object::build::Error> {
    let mut builder = Builder::read(object)?;
    for section in &mut builder.sections {
        let name = section.name.as_slice();
        section.delete =
            name.starts_with(b".debug_") || name.starts_with(b".rel.debug_") || name == b".rel.BTF.ext";
        if let (b".BTF.ext", SectionData::Data(bytes)) = (name, &mut section.data) {
            // The length of the table of source lines (`struct btf_ext_header`). The loader would copy the table for each program.
            bytes.to_mut().iter_mut().skip(20).take(4).for_each(|byte| *byte = 0);
        }
    }
    builder.delete_orphans();
    // LLVM writes a single table for all names. The builder needs one table for symbols and one for sections.
    if !builder.sections.iter().any(|section| matches!(section.data, SectionData::SectionString)) {
        let names = builder.sections.add();
        (names.name, names.sh_type, names.data) =
            (b".shstrtab"[..].into(), SHT_STRTAB, SectionData::SectionString);
    }
    let mut stripped = Vec::new();
    builder.write(&mut stripped)?;
    Ok(stripped)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::{SOURCES, shared_dir};

    #[test]
    fn all_profiles_and_machines_share_one_directory() {
        let machine = Path::new("x86_64-unknown-linux-gnu");
        for out in [
            "/build/cgscope/target/debug/build/cgscope-collect-0123/out",
            "/build/cgscope/target/release/build/cgscope-collect-0123/out",
            "/build/cgscope/target/x86_64-unknown-linux-gnu/debug/build/cgscope-collect-0123/out",
        ] {
            assert_eq!(shared_dir(Path::new(out), machine), Path::new("/build/cgscope/target/bpf"));
        }
    }

    #[test]
    fn an_unknown_layout_has_no_shared_directory() {
        let out = Path::new("/elsewhere/out");
        assert_eq!(shared_dir(out, Path::new("x86_64-unknown-linux-gnu")), out.join("bpf"));
    }

    /// A path with a typing error would make cargo repeat every build.
    #[test]
    fn every_source_exists() {
        for source in SOURCES {
            assert!(Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(source).exists(), "{source}");
        }
    }
}

#[cfg(test)]
mod strip_tests {
    use object::{
        Architecture, BinaryFormat, Endianness, Object, ObjectSection, RelocationFlags, SectionKind, read,
        write,
    };

    use super::strip;

    /// Returns an object with a map, types and debug information. The types and the debug information contain references to the
    /// map.
    fn compiled() -> Vec<u8> {
        let mut object = write::Object::new(BinaryFormat::Elf, Architecture::Bpf, Endianness::Little);
        let mut add = |name: &str, bytes: &[u8]| {
            let section = object.add_section(Vec::new(), name.into(), SectionKind::Other);
            object.append_section_data(section, bytes, 8);
            section
        };
        let (map, types, debug) =
            (add(".maps", b"map"), add(".BTF", b"the types"), add(".debug_info", b"its source"));
        add(".BTF.ext", b"header of 20 bytes: 1234 and the rest");
        let symbol = object.section_symbol(map);
        for section in [types, debug] {
            let flags = RelocationFlags::Elf { r_type: object::elf::R_BPF_64_32 };
            object
                .add_relocation(section, write::Relocation { offset: 0, symbol, addend: 0, flags })
                .expect("it fits");
        }
        object.write().expect("an object")
    }

    #[test]
    fn debug_information_goes_and_the_rest_stays() {
        let compiled = compiled();
        let stripped = strip(&compiled).expect("an object");
        let (before, after) =
            (read::File::parse(&*compiled).expect("ELF"), read::File::parse(&*stripped).expect("ELF"));
        assert!(before.section_by_name(".debug_info").is_some());
        let lines = after.section_by_name(".BTF.ext").and_then(|section| section.data().ok());
        assert_eq!(lines, Some(&b"header of 20 bytes: \0\0\0\0 and the rest"[..]));
        let debug = |name: Result<&str, _>| name.expect("UTF-8").contains("debug");
        assert!(!after.sections().any(|section| debug(section.name())));
        for name in [".maps", ".BTF"] {
            let of = |file: &read::File<'_>| {
                let section = file.section_by_name(name).expect("it stays");
                (section.data().expect("its bytes").to_vec(), section.relocations().count())
            };
            assert_eq!(of(&after), of(&before), "{name}");
        }
    }

    #[test]
    fn what_is_not_an_object_is_refused() {
        assert!(strip(b"not an object").is_err());
    }
}
