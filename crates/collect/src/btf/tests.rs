use super::*;
use proptest::prelude::*;

/// Builds a BTF file with the strings `\0a\0bc\0` and these types. Each type is a list of 32-bit words, as in the file.
fn file(types: &[&[u32]]) -> Vec<u8> {
    let words: Vec<u32> = types.concat();
    let strings = b"\0a\0bc\0";
    let mut bytes = MAGIC.to_ne_bytes().to_vec();
    bytes.extend([1, 0]);
    let head = [24, 0, 4 * words.len() as u32, 4 * words.len() as u32, strings.len() as u32];
    bytes.extend(head.iter().chain(&words).flat_map(|word| word.to_ne_bytes()));
    bytes.extend(strings);
    bytes
}

fn btf(bytes: Vec<u8>) -> Option<Btf> {
    let (types, strings) = parse(&bytes)?;
    Some(Btf { bytes, types, strings })
}

const A: u32 = 1;
const BC: u32 = 3;

fn info(kind: u32, length: u32) -> u32 {
    kind << 24 | length
}

#[test]
fn types_are_found_by_name_with_their_members() {
    let structure = [BC, info(kind::STRUCT, 2), 8, A, 1, 0, 0, 1, 32];
    let with_bits = [A, info(kind::UNION, 1) | 1 << 31, 8, BC, 1, 3 << 24 | 7];
    let typedef = [BC, info(kind::TYPEDEF, 0), 2];
    let btf = btf(file(&[&[A, info(kind::INT, 0), 4, 32], &structure, &with_bits, &typedef])).unwrap();
    let found = btf.find(&["a".into(), "bc".into(), "c".into()]);
    let kinds = |name: &str| found[name].iter().map(|ty| ty.kind()).collect::<Vec<_>>();
    assert_eq!(kinds("a"), [kind::INT, kind::UNION]);
    assert_eq!(kinds("bc"), [kind::STRUCT, kind::TYPEDEF]);
    assert!(!found.contains_key("c"), "the end of a name is not a name");
    let members =
        |ty: Type<'_>| ty.members().map(|member| (member.name.to_vec(), member.bits)).collect::<Vec<_>>();
    assert_eq!(members(found["bc"][0]), [(b"a".to_vec(), 0), (Vec::new(), 32)]);
    assert_eq!(members(found["a"][1]), [(b"bc".to_vec(), 7)], "without the size of the bit field");
    assert_eq!(found["bc"][1].inner().map(Type::kind), Some(kind::STRUCT));
    assert!(members(found["a"][0]).is_empty());
    assert_eq!(
        found["bc"][0].members().next().and_then(|member| member.ty()).map(Type::kind),
        Some(kind::INT)
    );
}

#[test]
fn enumerators_of_both_kinds_are_found() {
    let (short, long) = ([A, info(kind::ENUM, 2), 4, BC, 0, A, 1], [BC, info(kind::ENUM64, 1), 8, A, 0, 0]);
    let btf = btf(file(&[&short, &long])).unwrap();
    let found = btf.find(&["a".into(), "bc".into()]);
    assert!(found["a"][0].has_enumerator("a") && found["a"][0].has_enumerator("bc"));
    assert!(found["bc"][0].has_enumerator("a") && !found["bc"][0].has_enumerator("bc"));
}

#[test]
fn a_file_of_attach_points_has_only_these_names_under_the_same_ids() {
    let point = |id, kind, name: &str| AttachPoint { id, kind, name: name.into() };
    let points = [point(2, kind::FUNC, "a"), point(3, kind::TYPEDEF, "bc"), point(70, kind::FUNC, "d")];
    let bytes = file_of(&points);
    assert!(aya::Btf::parse(&bytes, aya::Endianness::default()).is_ok());
    let btf = btf(bytes).unwrap();
    let found = btf.find(&["a".into(), "bc".into(), "d".into()]);
    assert_eq!(found.values().map(Vec::len).sum::<usize>(), points.len());
    for AttachPoint { id, kind, name } in &points {
        assert_eq!(found[name].iter().map(|ty| (ty.id(), ty.kind())).collect::<Vec<_>>(), [(*id, *kind)]);
    }
    assert_eq!(btf.types.len(), 70, "nothing after the last one");
}

#[test]
fn files_that_cannot_be_read_are_refused() {
    let whole = file(&[&[A, info(kind::INT, 0), 4, 32]]);
    assert!(btf(whole.clone()).is_some());
    for length in 0..whole.len() {
        assert!(btf(whole[..length].to_vec()).is_none(), "{length} bytes");
    }
    assert!(btf(file(&[&[A, info(kind::LAST + 1, 0), 4]])).is_none(), "a later kind");
    assert!(btf(file(&[&[A, info(0, 0), 4]])).is_none());
    let mut swapped = whole;
    swapped.swap(0, 1);
    assert!(btf(swapped).is_none(), "of another machine");
}

proptest! {
    #[test]
    fn broken_files_do_no_harm(at in 0usize..200, byte: u8, name in 0u32..9, id in 0u32..9) {
        let structure = [BC, info(kind::STRUCT, 2), 8, A, 1, 0, name, id, 32];
        let mut bytes = file(&[&structure, &[A, info(kind::ENUM, 1), 4, name, 0], &[name, info(kind::TYPEDEF, 0), id]]);
        if let Some(changed) = bytes.get_mut(at) {
            *changed = byte;
        }
        if let Some(btf) = btf(bytes) {
            for ty in btf.find(&["a".into(), "bc".into()]).values().flatten() {
                let _ = (ty.has_enumerator("a"), ty.members().filter_map(|member| member.ty()).count());
            }
        }
    }
}
