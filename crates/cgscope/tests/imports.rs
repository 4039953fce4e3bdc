//! Checks that the modules of some crates have no circular imports.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
};

/// For each top-level module, the modules that it imports.
type Uses = BTreeMap<String, BTreeSet<String>>;

#[test]
fn imports_between_modules_have_no_cycles() {
    for (name, some, used) in
        [("cgscope", "run", "session"), ("ledger", "waits", "pressure"), ("model", "tree", "table")]
    {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(name).join("src");
        let mut uses = Uses::new();
        read(&folder, None, &mut uses);
        let lib = fs::read_to_string(folder.join("lib.rs")).unwrap_or_default();
        let exported = exported(&lib);
        for (module, used) in &mut uses {
            let home = |name: &String| exported.get(name).unwrap_or(name).clone();
            *used = used.iter().map(home).filter(|name| name != module).collect();
        }
        assert!(uses.len() > 10 && uses[some].contains(used), "{uses:?}");
        check(name, uses);
    }
}

/// Returns the module of each name that lib.rs exports.
fn exported(lib: &str) -> BTreeMap<String, String> {
    let parts = lib.split("pub use ").skip(1).filter_map(|part| part.split_once(';')?.0.split_once("::"));
    let names = parts.flat_map(|(module, names)| {
        let is_name = |name: &&str| !name.is_empty() && !name.ends_with("::");
        let names = names.split_inclusive("::").flat_map(|part| part.split([' ', '\n', ',', '{', '}']));
        names.filter(is_name).map(|name| (name.to_owned(), module.to_owned()))
    });
    names.collect()
}

fn check(name: &str, mut uses: Uses) {
    // Names that main.rs or lib.rs re-export are not modules.
    let modules: BTreeSet<String> = uses.keys().cloned().collect();
    uses.values_mut().for_each(|used| used.retain(|name| modules.contains(name)));
    // A module is in no cycle if it imports no remaining module, or no remaining module imports it.
    let is_outside = |uses: &Uses, module: &&String| {
        uses[*module].is_empty() || !uses.values().any(|used| used.contains(*module))
    };
    while let Some(module) = uses.keys().find(|module| is_outside(&uses, module)).cloned() {
        uses.remove(&module);
        uses.values_mut().for_each(|used| used.retain(|name| *name != module));
    }
    assert!(uses.is_empty(), "these modules of {name} import one another in a cycle: {uses:#?}");
}

/// Collects the imports in a directory. `module` is its top-level module.
fn read(folder: &Path, module: Option<&str>, uses: &mut Uses) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_stem().unwrap().to_str().unwrap();
        let module = module.unwrap_or(name);
        if name == "tests" {
            continue;
        }
        if path.is_dir() {
            read(&path, Some(module), uses);
        } else if name != "main" && name != "lib" {
            let used = uses.entry(module.to_owned()).or_default();
            used.extend(named(&fs::read_to_string(&path).unwrap()).filter(|name| name != module));
        }
    }
}

/// Returns the names after `crate::` outside of tests and comments. Braces may contain several names.
fn named(source: &str) -> impl Iterator<Item = String> {
    let code = source.split("#[cfg(test)]\nmod tests {").next().unwrap();
    let code: String = code.lines().map(|line| line.split("//").next().unwrap().to_owned() + "\n").collect();
    let parts: Vec<String> = code.split("crate::").skip(1).flat_map(first_names).collect();
    parts.into_iter()
}

fn first_names(path: &str) -> Vec<String> {
    let word = |text: &str| text.trim().chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
    let Some(list) = path.strip_prefix('{') else { return vec![word(path)] };
    let mut depth = 0;
    let outer: String = list
        .chars()
        .take_while(|c| {
            depth += i32::from(*c == '{') - i32::from(*c == '}');
            depth >= 0
        })
        .collect();
    let mut depth = 0;
    let is_top = |c: char| {
        depth += i32::from(c == '{') - i32::from(c == '}');
        depth == 0 && c == ','
    };
    outer.split(is_top).map(word).collect()
}

#[test]
fn exported_names_lead_to_their_modules() {
    let names = exported("pub use a::B;\npub use c::d::{E, f};\npub use g::{\n    h::{I, J},\n    k,\n};\n");
    let expected = [("B", "a"), ("E", "c"), ("I", "g"), ("J", "g"), ("f", "c"), ("k", "g")];
    let names: Vec<_> = names.iter().map(|(name, module)| (&**name, &**module)).collect();
    assert_eq!(names, expected);
}

#[test]
fn names_are_found_alone_in_lists_and_in_nested_lists() {
    let source = "use crate::a::B;\nuse crate::{b, c::{d, self}, e::F}; // crate::g\nfn f() { crate::h::i() }\n\
                  #[cfg(test)]\nmod tests {\n    use crate::j;\n}\n";
    assert_eq!(named(source).collect::<Vec<_>>(), ["a", "b", "c", "e", "h"]);
}
