//! Tests `.ci/run`, which must test exactly the commit of a clone. It must also keep the modification times of files that do not
//! change between two clones.

use std::{
    env, fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::{Command, Output},
    time::SystemTime,
};

/// A repository, its clones, and a fake `cargo` that lists the files in its current directory.
struct Place(PathBuf);

impl Place {
    fn new(name: &str) -> Self {
        let place = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        let _ = fs::remove_dir_all(&place);
        let place = Self(place);
        place.write(
            "bin/cargo",
            "#!/bin/sh\nmkdir -p target\ntouch target/result left ignored\nls -d .git .ci *; pwd\n",
        );
        fs::set_permissions(place.0.join("bin/cargo"), fs::Permissions::from_mode(0o755)).expect("a file");
        place.write("origin/.ci/run", include_str!("../../.ci/run"));
        fs::set_permissions(place.0.join("origin/.ci/run"), fs::Permissions::from_mode(0o755))
            .expect("a file");
        place.write("origin/.gitignore", "target\nignored\n");
        place.write("origin/same", "same");
        place.write("origin/removed", "removed");
        place.write("origin/changed", "before");
        place.git("origin", &["init", "--quiet"]);
        place.commit();
        place
    }

    fn write(&self, file: &str, text: &str) {
        let file = self.0.join(file);
        fs::create_dir_all(file.parent().expect("a directory")).expect("a directory");
        fs::write(file, text).expect("a file");
    }

    fn git(&self, dir: &str, words: &[&str]) {
        let mut git = Command::new("git");
        git.current_dir(self.0.join(dir))
            .args(["-c", "user.name=a", "-c", "user.email=a@localhost"])
            .args(words);
        let output = git.output().expect("git");
        assert!(output.status.success(), "{words:?}: {output:?}");
    }

    fn commit(&self) {
        self.git("origin", &["add", "--all"]);
        self.git("origin", &["commit", "--quiet", "--message=a"]);
    }

    fn run(&self, clone: &str, options: &[&str]) -> Output {
        let origin = format!("file://{}", self.0.join("origin").display());
        self.git(".", &[&["clone", "--quiet"], options, &[&origin, clone]].concat());
        self.run_in(clone)
    }

    fn run_in(&self, clone: &str) -> Output {
        let path = format!("{}:{}", self.0.join("bin").display(), env::var("PATH").expect("PATH"));
        let mut run = Command::new(self.0.join(clone).join(".ci/run"));
        run.env("PATH", path).env("XDG_CACHE_HOME", self.0.join("cache")).env_remove("CARGO_TARGET_DIR");
        run.output().expect("bash")
    }

    fn checkout(&self) -> PathBuf {
        self.0.join("cache/cgscope/checkout")
    }

    fn modified(&self, file: &str) -> SystemTime {
        let metadata = fs::metadata(self.checkout().join(file));
        metadata.and_then(|metadata| metadata.modified()).expect("a file")
    }
}

/// Returns the files that the fake `cargo` saw, and the directory where it ran.
fn seen(output: &Output) -> String {
    assert!(output.status.success(), "{output:?}");
    String::from_utf8_lossy(&output.stdout).split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn the_next_clone_changes_only_the_files_that_differ_and_removes_what_is_left() {
    let place = Place::new("ci-clones");
    let expected = |files: &str| format!(".ci .git {files} {}", place.checkout().display());
    assert_eq!(seen(&place.run("first", &[])), expected("changed ignored left removed same target"));
    assert!(place.checkout().join("left").exists(), "the next run removes it");
    let before = ["same", "changed"].map(|file| place.modified(file));

    fs::remove_file(place.0.join("origin/removed")).expect("a file");
    place.write("origin/changed", "after");
    place.write("origin/added", "added");
    place.commit();
    // Simulate a test that changes a file.
    place.write("cache/cgscope/checkout/same", "different");
    place.write("cache/cgscope/checkout/stale/file", "stale");
    place.write("cache/cgscope/checkout/target/result", "kept");
    let output = place.run("second", &["--depth=1"]);
    assert_eq!(seen(&output), expected("added changed ignored left same target"));
    let read = |file: &str| fs::read_to_string(place.checkout().join(file)).expect("a file");
    assert_eq!(
        (read("changed"), read("same"), read("target/result")),
        ("after".into(), "same".into(), "kept".into())
    );
    assert!(place.modified("changed") > before[1]);

    let before = ["same", "changed", "added"].map(|file| place.modified(file));
    seen(&place.run("third", &[]));
    assert_eq!(["same", "changed", "added"].map(|file| place.modified(file)), before);
}

#[test]
fn a_broken_checkout_is_made_anew_and_a_changed_clone_is_refused() {
    let place = Place::new("ci-broken");
    seen(&place.run("first", &[]));
    fs::write(place.checkout().join(".git/HEAD"), "torn").expect("a file");
    // The checkout is now inside another repository, for example that of a home directory.
    place.git("cache", &["init", "--quiet"]);
    place.write("cache/precious", "not part of any commit");
    seen(&place.run("second", &[]));
    assert!(place.0.join("cache/precious").exists());

    place.write("second/untracked", "not part of the commit");
    assert!(!seen(&place.run_in("second")).contains("untracked"));
    place.write("second/changed", "not committed");
    let output = place.run_in("second");
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("these files differ from HEAD") && said.contains("changed | 2 +-"), "{said}");
}
