//! Checks that `docs/stat.md` has the columns of the program. `UPDATE_DOCS=1 cargo test -p cgscope-view --test docs_stat`
//! rewrites the table.

use std::{env, fs, path::PathBuf};

use cgscope_view::stat::Column;

const BEGIN: &str = "<!-- table: columns -->\n";
const END: &str = "<!-- end -->";

#[test]
fn the_columns_match_the_program() {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs/stat.md");
    let text = fs::read_to_string(&path).unwrap();
    let rows = Column::all().map(|column| format!("| `{}` | {} |\n", column.title(), column.meaning()));
    let table = format!("| heading | means |\n|---|---|\n{}", rows.collect::<String>());
    let (before, rest) = text.split_once(BEGIN).expect("the document has the table");
    let (is, after) = rest.split_once(END).expect("the table has an end");
    if env::var_os("UPDATE_DOCS").is_some() {
        return fs::write(&path, format!("{before}{BEGIN}{table}{END}{after}")).unwrap();
    }
    assert_eq!(is, table, "run this test with UPDATE_DOCS=1 to rewrite the table");
}
