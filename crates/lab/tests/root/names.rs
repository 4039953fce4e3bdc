//! Names of containers on the screen, in JSON and in selections. cgscope reads the names from a file in the format of Podman.

use std::{
    fs,
    sync::atomic::{AtomicU32, Ordering},
};

use serde_json::Value;

use crate::{
    bad_input::assert_one_sentence,
    bench::{cgscope, json_lines, run, stderr, stdout},
    files::Dir,
    load::{Cgroup, Load},
};

/// A loop in the cgroup of a container. The name of the container is `web-PID-NUMBER`.
struct Named {
    /// This field is declared first, so that drop ends the loop before it removes the cgroup.
    _load: Load,
    cgroup: Cgroup,
    _files: Dir,
    list: String,
    name: String,
    id: String,
}

impl Named {
    fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let (pid, number) = (std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        // Tests select containers by the beginning of the id. Each id begins with the process id of its test, because tests run
        // at the same time.
        let id = format!("{pid:08x}{number:08x}{:048x}", 0);
        let (name, files) = (format!("web-{pid}-{number}"), Dir::new("names"));
        let list = files.file("containers.json");
        fs::write(&list, format!(r#"[{{"id":"{id}","names":["{name}"]}}]"#)).expect("a file of ours");
        let cgroup = Cgroup::new(&id);
        let load = Load::busy_loop(Some(&cgroup));
        Self { cgroup, _load: load, _files: files, list, name, id }
    }

    fn run(&self, args: &[&str]) -> std::process::Output {
        run(&[args, &["--runtime", &self.list]].concat())
    }

    fn cgroups(&self, args: &[&str]) -> Vec<Value> {
        let output = self.run(&[&["hist", "0.3", "1", "--by", "cgroup", "--json"], args].concat());
        assert!(output.status.success(), "{}", stderr(&output));
        json_lines(&output)[0]["cgroups"].as_array().expect("cgroups").clone()
    }
}

#[test]
fn a_container_is_shown_and_selected_by_its_name_or_id() {
    let named = Named::new();
    for args in [["--container", &*named.name], ["--container", &named.id[..40]]] {
        let cgroups = named.cgroups(&args);
        let own: Vec<&Value> = cgroups.iter().filter(|one| one["path"] == *named.cgroup.name).collect();
        let [own] = own[..] else { panic!("{cgroups:?}") };
        assert_eq!(own["name"], format!("container {}", named.name));
        assert_eq!(
            (&own["container_name"], &own["container"]),
            (&named.name.clone().into(), &named.id.clone().into())
        );
        assert_eq!(own["threads"], 1);
        let others = cgroups.iter().filter(|one| one["path"] != "/" && one["path"] != *named.cgroup.name);
        assert_eq!(others.count(), 0, "{cgroups:?}");
    }
    let text = |args: &[&str]| stdout(&named.run(&[&["stat", "0.3", "1", "--by", "cgroup"], args].concat()));
    let name = format!("container {}", named.name);
    assert!(text(&[]).contains(&name) && !text(&[]).contains(&named.cgroup.name));
    let paths = text(&["--paths"]);
    assert!(paths.contains(&named.cgroup.name) && !paths.contains(&name), "{paths}");
}

#[test]
fn an_unknown_name_is_refused_with_the_similar_ones() {
    let named = Named::new();
    let wrong = format!("{}x", named.name);
    let similar = format!("similar: {}", named.name);
    for command in [
        &["hist", "0.1", "1"][..],
        &["sample", "-d", "0.1"],
        &["record", "-q", "-d", "0.1", "-o", "/dev/null"],
    ] {
        let refused = named.run(&[command, &["--container", &wrong]].concat());
        assert_one_sentence(&refused, &[&format!("there is no container {wrong} on this host"), &similar]);
    }
    let refused = named.run(&["hist", "0.1", "1", "--pod", "shop/cart"]);
    assert_one_sentence(&refused, &["there is no pod shop/cart on this host"]);
    let nameless = run(&["hist", "0.1", "1", "--pod", "shop/cart", "--runtime", ""]);
    assert_one_sentence(&nameless, &["no container runtime of this host reports names"]);
}

fn completed(shell: &str, word: &str) -> String {
    let mut command = cgscope();
    command
        .env("COMPLETE", shell)
        .env("_CLAP_COMPLETE_INDEX", "3")
        .env("_CLAP_IFS", "\n")
        .args(["--", "cgscope", "top", "--cgroup", word]);
    stdout(&command.output().expect("cgscope starts"))
}

#[test]
fn the_shell_completes_the_names_of_cgroups() {
    let named = Named::new();
    let completed = completed("bash", &named.cgroup.name[..named.cgroup.name.len() - 2]);
    assert!(completed.lines().any(|line| line == named.cgroup.name), "{completed}");
}

/// Bash inserts completions without quoting them.
#[test]
fn no_shell_is_offered_names_that_would_be_commands() {
    let parent = Cgroup::new("complete");
    let plain = parent.child("plain");
    let hostile = [";id", "$(id)", "`id`", "a&id", "a|id", "a b", "'id", "\"id", "\\id", "a>b", "*"];
    let _hostile = hostile.map(|name| parent.child(name));
    for shell in ["bash", "zsh", "fish"] {
        let completed = completed(shell, &format!("{}/", parent.name));
        assert_eq!(completed.trim_end(), plain.name, "{shell}");
    }
}
