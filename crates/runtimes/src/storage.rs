//! The list of containers that Podman and CRI-O store as a file: Podman runs no daemon that could be asked.

use std::{collections::HashMap, fs::File, io::Read, path::Path};

use serde::Deserialize;

use crate::{
    call::Failure,
    names::{REPLY_BYTES, RuntimeNames},
};

#[derive(Deserialize)]
struct Stored {
    id: String,
    #[serde(default)]
    names: Vec<String>,
}

pub(crate) fn list(path: &Path) -> Result<RuntimeNames, Failure> {
    let mut text = Vec::new();
    // A pipe would never be opened.
    if path.metadata().is_ok_and(|found| !found.is_file()) {
        return Err(Failure::Garbage);
    }
    let file = File::open(path).map_err(Failure::Connect)?;
    file.take(REPLY_BYTES as u64 + 1).read_to_end(&mut text).map_err(Failure::Connect)?;
    if text.len() > REPLY_BYTES {
        return Err(Failure::TooLarge(REPLY_BYTES));
    }
    let stored: Vec<Stored> = serde_json::from_slice(&text).map_err(|_| Failure::Garbage)?;
    let mut names = RuntimeNames::default();
    for container in stored {
        names.keep(container.id, container.names.first().map(String::as_str), &HashMap::new());
    }
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Wanted;

    #[test]
    fn a_stored_list_is_read_and_a_damaged_one_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("containers.json");
        std::fs::write(&path, r#"[{"id":"a","names":["web","w"],"layer":"x"},{"id":"b","created":"2026"}]"#)
            .unwrap();
        let names = list(&path).unwrap();
        let name = |id: &str| names.get(&Wanted::Container(id.into())).unwrap().container.clone();
        assert_eq!((name("a").as_deref(), name("b")), (Some("web"), None));
        std::fs::write(&path, "[{").unwrap();
        assert!(matches!(list(&path), Err(Failure::Garbage)));
        std::fs::write(&path, " ".repeat(REPLY_BYTES + 1)).unwrap();
        assert!(matches!(list(&path), Err(Failure::TooLarge(_))));
        assert!(matches!(list(&folder.path().join("none")), Err(Failure::Connect(_))));
        assert!(matches!(list(folder.path()), Err(Failure::Garbage)));
    }
}
