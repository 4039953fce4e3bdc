use std::{
    io::Write,
    os::{
        fd::AsRawFd,
        unix::fs::{MetadataExt, PermissionsExt, chown, lchown, symlink},
    },
};

use super::*;

struct Dir(PathBuf);

impl Dir {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("cgscope-{}-place-{name}", std::process::id()));
        fs::create_dir(&path).unwrap();
        Self(fs::canonicalize(path).unwrap())
    }

    fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(&self.0).unwrap();
        let mut names: Vec<_> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }
}

impl Drop for Dir {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn write(path: &Path, text: &str) {
    let (mut file, beside) = Place::of(path).unwrap().create().unwrap();
    file.write_all(text.as_bytes()).unwrap();
    beside.keep().unwrap();
}

#[test]
fn a_link_is_followed_and_kept_even_if_its_target_does_not_exist() {
    let dir = Dir::new("links");
    let (file, link, far) = (dir.0.join("file"), dir.0.join("link"), dir.0.join("far"));
    symlink("file", &link).unwrap();
    symlink(&link, &far).unwrap();
    for text in ["nothing was there", "it is replaced"] {
        write(&far, text);
        assert_eq!(fs::read_to_string(&file).unwrap(), text);
        assert!(far.is_symlink() && link.is_symlink() && !file.is_symlink());
    }
    assert_eq!(dir.names(), ["far", "file", "link"]);
    symlink("round", dir.0.join("round")).unwrap();
    assert!(Place::of(&dir.0.join("round")).is_err());
}

#[test]
fn a_temporary_file_never_uses_an_existing_file_or_link() {
    let dir = Dir::new("beside");
    let (file, foreign) = (dir.0.join("a.rec"), dir.0.join("foreign"));
    fs::write(dir.0.join("a.rec.new"), "mine").unwrap();
    fs::write(&foreign, "theirs").unwrap();
    // Create links under many of the next names. The next name is unknown, because other tests may have used some names.
    for number in 0..50 {
        symlink(&foreign, dir.0.join(format!("a.rec.{}-{number}.new", std::process::id()))).unwrap();
    }
    write(&file, "ours");
    assert_eq!(fs::read_to_string(&file).unwrap(), "ours");
    assert!(!file.is_symlink());
    assert_eq!(fs::read_to_string(&foreign).unwrap(), "theirs");
    assert_eq!(fs::read_to_string(dir.0.join("a.rec.new")).unwrap(), "mine");
}

#[test]
fn what_a_killed_cgscope_left_over_is_removed() {
    let dir = Dir::new("left-over");
    let file = dir.0.join("a.rec");
    let old = std::time::SystemTime::now() - std::time::Duration::from_secs(600);
    let make = |name: &str| {
        let file = File::create(dir.0.join(name)).unwrap();
        file.set_modified(old).unwrap();
        file
    };
    make("a.rec.7-0.new");
    let open = make("a.rec.8-0.new");
    flock(&open, FlockOperation::LockShared).unwrap();
    make("a.rec.x-0.new");
    make("a.rec.9-0-1.new");
    make("other.rec.7-0.new");
    symlink("other.rec.7-0.new", dir.0.join("a.rec.7-1.new")).unwrap();
    File::create(dir.0.join("a.rec.7-2.new")).unwrap();
    let theirs = make("a.rec.7-3.new");
    if geteuid().is_root() {
        rustix::fs::fchown(&theirs, Some(Uid::from_raw(65_534)), None).unwrap();
    } else {
        fs::remove_file(dir.0.join("a.rec.7-3.new")).unwrap();
        File::create(dir.0.join("a.rec.7-3.new")).unwrap();
    }
    write(&file, "ours");
    let kept = ["a.rec", "a.rec.7-1.new", "a.rec.7-2.new", "a.rec.7-3.new", "a.rec.8-0.new"];
    assert_eq!(dir.names(), [&kept[..], &["a.rec.9-0-1.new", "a.rec.x-0.new", "other.rec.7-0.new"]].concat());
    // A file that is still being written is not removed by the next writer.
    let (_being_written, beside) = Place::of(&file).unwrap().create().unwrap();
    let name = dir.names().into_iter().find(|name| name.contains(&std::process::id().to_string())).unwrap();
    let written = File::options().write(true).open(dir.0.join(&name)).unwrap();
    written.set_modified(old).unwrap();
    write(&file, "again");
    assert!(dir.names().contains(&name));
    beside.keep().unwrap();
}

#[test]
fn a_file_that_is_not_kept_changes_nothing() {
    let dir = Dir::new("dropped");
    let file = dir.0.join("file");
    fs::write(&file, "before").unwrap();
    let (mut half, beside) = Place::of(&file).unwrap().create().unwrap();
    half.write_all(b"half").unwrap();
    drop(beside);
    assert_eq!((dir.names(), fs::read_to_string(&file).unwrap()), (vec!["file".into()], "before".into()));
}

#[test]
fn an_open_file_of_a_process_is_written_in_place() {
    let dir = Dir::new("direct");
    let path = dir.0.join("redirected");
    let open = File::create(&path).unwrap();
    let by_number = PathBuf::from(format!("/proc/self/fd/{}", open.as_raw_fd()));
    let link = dir.0.join("link");
    symlink(&by_number, &link).unwrap();
    for through in [&by_number, &link] {
        assert!(Place::of(through).unwrap().is_direct(), "{through:?}");
        write(through, "direct");
        assert_eq!(fs::read_to_string(&path).unwrap(), "direct");
    }
    assert_eq!(dir.names(), ["link", "redirected"]);
    assert!(Place::of(Path::new("/dev/stdout")).unwrap().is_direct());
    let null = Place::of(Path::new("/dev/null")).unwrap();
    assert_eq!((null.is_direct(), &*null.path), (true, Path::new("/dev/null")));
}

#[test]
fn a_directory_is_an_error() {
    let dir = Dir::new("directory");
    for path in [dir.0.clone(), dir.0.join(".."), "/".into(), "..".into()] {
        assert_eq!(Place::of(&path).unwrap_err().kind(), io::ErrorKind::IsADirectory, "{path:?}");
    }
    assert_eq!(Place::of(&dir.0.join("no/file")).unwrap_err().kind(), io::ErrorKind::NotFound);
}

/// Returns the permissions of a file, including setuid, setgid and sticky bits.
fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o7777
}

#[test]
fn a_file_that_is_replaced_keeps_its_permissions() {
    let dir = Dir::new("mode");
    let file = dir.0.join("file");
    for kept in [0o600, 0o400] {
        fs::write(&file, "").unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(kept)).unwrap();
        write(&file, "secret");
        assert_eq!(mode(&file), kept);
        fs::remove_file(&file).unwrap();
    }
}

#[test]
fn a_new_file_never_gets_setuid_or_execute_permission() {
    let dir = Dir::new("planted");
    let (file, link) = (dir.0.join("file"), dir.0.join("link"));
    symlink("file", &link).unwrap();
    for path in [&file, &link] {
        fs::write(&file, "").unwrap();
        if geteuid().is_root() {
            chown(&file, Some(65_534), Some(65_534)).unwrap();
        }
        fs::set_permissions(&file, fs::Permissions::from_mode(0o6777)).unwrap();
        write(path, "ours");
        let allowed = if geteuid().is_root() { 0o600 } else { 0o666 };
        assert_eq!(mode(&file) & !allowed, 0, "{:o}", mode(&file));
        assert_eq!(fs::metadata(&file).unwrap().uid(), geteuid().as_raw());
    }
}

#[test]
fn a_replaced_directory_does_not_redirect_a_write() {
    let dir = Dir::new("swapped");
    let (real, aside, foreign) = (dir.0.join("real"), dir.0.join("aside"), dir.0.join("foreign"));
    fs::create_dir(&real).unwrap();
    fs::create_dir(&foreign).unwrap();
    let place = Place::of(&real.join("file")).unwrap();
    let swap = || {
        fs::rename(&real, &aside).unwrap();
        symlink(&foreign, &real).unwrap();
    };
    swap();
    let (mut file, beside) = place.create().unwrap();
    file.write_all(b"ours").unwrap();
    beside.keep().unwrap();
    assert_eq!(fs::read_dir(&foreign).unwrap().count(), 0);
    assert_eq!(fs::read_to_string(aside.join("file")).unwrap(), "ours");
    assert!(place.holds_something().unwrap());
    // Simulate that a link has replaced the directory after the path was resolved.
    assert!(open_directory(&real).is_err() && open_directory(&real.join("..")).is_err());
}

#[test]
fn a_link_created_after_the_check_is_not_followed() {
    let dir = Dir::new("late");
    let (file, pipe, foreign) = (dir.0.join("file"), dir.0.join("pipe"), dir.0.join("foreign"));
    fs::write(&foreign, "theirs").unwrap();
    rustix::fs::mknodat(CWD, &pipe, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
    let places = [&file, &pipe].map(|path| Place::of(path).unwrap());
    fs::remove_file(&pipe).unwrap();
    for path in [&file, &pipe] {
        symlink(&foreign, path).unwrap();
    }
    let [to_file, to_pipe] = &places;
    assert!(to_pipe.create().is_err());
    for place in &places {
        assert!(place.open().is_err() && !place.holds_something().unwrap());
    }
    let (_file, beside) = to_file.create().unwrap();
    beside.keep().unwrap();
    assert!(!file.is_symlink());
    assert_eq!(fs::read_to_string(&foreign).unwrap(), "theirs");
}

#[test]
fn links_of_other_users_in_a_shared_directory_are_not_followed() {
    let us = geteuid().as_raw();
    let (for_all, owners) = (stat(7, 0o041_777), stat(7, 0o040_755));
    assert!(is_planted(&stat(us + 1, 0o120_777), &for_all));
    assert!(!is_planted(&stat(us, 0o120_777), &for_all) && !is_planted(&stat(7, 0o120_777), &for_all));
    assert!(!is_planted(&stat(us + 1, 0o120_777), &owners));

    if geteuid().is_root() {
        let dir = Dir::new("for-all");
        let (link, target) = (dir.0.join("link"), dir.0.join("target"));
        symlink(&target, &link).unwrap();
        lchown(&link, Some(65_534), None).unwrap();
        assert!(Place::of(&link).is_ok());
        fs::set_permissions(&dir.0, fs::Permissions::from_mode(0o1777)).unwrap();
        assert_eq!(Place::of(&link).unwrap_err().kind(), io::ErrorKind::PermissionDenied);
    }
}

fn stat(uid: u32, mode: u32) -> Stat {
    // SAFETY: all zeros is a valid value.
    let mut stat: Stat = unsafe { std::mem::zeroed() };
    (stat.st_uid, stat.st_mode) = (uid, mode);
    stat
}

#[test]
fn permissions_are_only_ever_removed_and_only_by_a_file_of_the_same_owner() {
    let (root, user) = (Uid::ROOT, Uid::from_raw(1000));
    assert_eq!((new_mode(root, None), new_mode(user, None)), (0o600, 0o666));
    for (owner, theirs) in [(0, 0o4777), (65_534, 0o4777), (65_534, 0), (0, 0o100_644)] {
        assert_eq!(new_mode(root, Some(&stat(owner, theirs))), 0o600, "{owner} {theirs:o}");
    }
    assert_eq!(new_mode(root, Some(&stat(0, 0o400))), 0o400);
    assert_eq!(new_mode(user, Some(&stat(1000, 0o106_640))), 0o640);
    assert_eq!(new_mode(user, Some(&stat(0, 0o600))), 0o666);
}

#[test]
fn only_root_gives_files_to_the_user_who_ran_sudo() {
    let (root, user) = (Uid::ROOT, Uid::from_raw(1000));
    let of = |real, effective, uid: &'static str, gid: &'static str| {
        Invoker::of(real, effective, |name| {
            let value = if name == "SUDO_UID" { uid } else { gid };
            (value != "-").then(|| value.into())
        })
    };
    assert_eq!(of(root, root, "1000", "100"), Some(Invoker { uid: user, gid: Gid::from_raw(100) }));
    assert_eq!(of(user, root, "1000", "100"), None);
    assert_eq!(of(user, user, "1000", "100"), None);
    // The highest id is invalid: it would make `fchown` leave the owner unchanged.
    for (uid, gid) in [("-", "100"), ("1000", "-"), ("0", "0"), ("x", "100"), ("4294967295", "100")] {
        assert_eq!(of(root, root, uid, gid), None, "{uid} {gid}");
    }
}

#[test]
fn the_user_who_ran_sudo_gets_a_file_only_if_they_could_have_created_it() {
    let invoker = Invoker { uid: Uid::from_raw(1000), gid: Gid::from_raw(100) };
    let can = |uid, mode| invoker.can_make_files_in(&stat(uid, mode));
    assert!(can(1000, 0o700) && can(0, 0o1777));
    assert!(!can(0, 0o755) && !can(2000, 0o775) && !can(1000, 0o555));
}
