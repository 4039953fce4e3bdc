//! Removes debug information from a compiled object. The linker needs it for the kernel's types (`.BTF`); at run time, it would
//! be three quarters of what the binary embeds and reads.
use object::{
    build::{
        Error,
        elf::{Builder, SectionData},
    },
    elf::SHT_STRTAB,
};

/// Returns the object without DWARF sections and their relocations.
pub fn strip(object: &[u8]) -> Result<Vec<u8>, Error> {
    let mut builder = Builder::read(object)?;
    for section in &mut builder.sections {
        let name = section.name.as_slice();
        section.delete = name.starts_with(b".debug_") || name.starts_with(b".rel.debug_");
    }
    builder.delete_orphans();
    // LLVM has one table for all names, the builder one for symbols and one for sections.
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
    use object::{
        Architecture, BinaryFormat, Endianness, Object, ObjectSection, RelocationFlags, SectionKind, read,
        write,
    };

    use super::strip;

    /// An object with a map, the kernel's types and debug information, both of which refer to the map.
    fn compiled() -> Vec<u8> {
        let mut object = write::Object::new(BinaryFormat::Elf, Architecture::Bpf, Endianness::Little);
        let mut add = |name: &str, bytes: &[u8]| {
            let section = object.add_section(Vec::new(), name.into(), SectionKind::Other);
            object.append_section_data(section, bytes, 8);
            section
        };
        let (map, types, debug) =
            (add(".maps", b"map"), add(".BTF", b"the types"), add(".debug_info", b"its source"));
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
