use super::*;

#[test]
fn paths_are_relative_to_the_mount_and_outlive_their_cgroup() {
    let mount = std::env::temp_dir().join(format!("cgscope-tree-{}", std::process::id()));
    fs::create_dir_all(mount.join("a/b")).unwrap();
    let inode = |path: &str| fs::metadata(mount.join(path)).unwrap().ino();
    let (root, b) = (inode(""), inode("a/b"));
    let mut tree = CgroupTree::new(&mount);
    let start = Instant::now();
    tree.learn([b], start);
    assert_eq!(tree.path(b).map(|p| &**p), Some("/a/b"));
    assert_eq!(tree.path(root).map(|p| &**p), Some("/"));
    assert_eq!(tree.ancestors(b).collect::<Vec<_>>(), [root, inode("a")]);
    assert_eq!(tree.ancestors(root).count(), 0);
    assert!(tree.exists("/a/b") && tree.exists("a") && !tree.exists("/c"));

    // Create `c` before removing `a/b`: unlike cgroupfs, a disk file system reuses a free inode number for the next new
    // directory.
    fs::create_dir(mount.join("c")).unwrap();
    let c = inode("c");
    fs::remove_dir(mount.join("a/b")).unwrap();
    tree.learn([c], start);
    assert_eq!(tree.path(c), None, "the next walk is not due");
    tree.learn([c], start + WALK_EVERY);
    assert_eq!(tree.path(c).map(|p| &**p), Some("/c"));
    fs::remove_dir_all(&mount).unwrap();
    assert_eq!(tree.path(b).map(|p| &**p), Some("/a/b"));

    assert!(tree.is_removed(b) && !tree.is_removed(c) && !tree.is_removed(root));
    tree.drop_entries(|id| id == b, start + 2 * (WALK_EVERY + LINGERS));
    assert!(tree.path(b).is_some(), "figures still refer to the cgroup");
    tree.drop_entries(|_| false, start + 2 * (WALK_EVERY + LINGERS));
    assert_eq!((tree.path(b), tree.len()), (None, 3));
}

fn made(id: u64, path: &str) -> TreeEvent {
    TreeEvent::Made(id, Some(path.into()))
}

#[test]
fn a_reported_cgroup_needs_no_walk_and_is_dropped_when_unused() {
    let mut tree = CgroupTree::new("/nowhere");
    tree.shows_all = true;
    let start = Instant::now();
    tree.receive(made(7, "/a"), start);
    tree.receive(made(8, "/a/b"), start);
    tree.receive(TreeEvent::Removed(8), start);
    tree.learn([7, 8], start);
    assert!(tree.walked.is_none());
    assert_eq!(tree.path(8).map(|p| &**p), Some("/a/b"));
    assert_eq!(tree.ancestors(8).collect::<Vec<_>>(), [7]);
    assert!(tree.is_removed(8) && !tree.is_removed(7));
    assert!(!tree.was_removed_long_ago(8, start) && tree.was_removed_long_ago(8, start + LINGERS));

    // Another cgroup with the same name is created before the tree drops the first cgroup.
    tree.receive(made(9, "/a/b"), start);
    tree.drop_entries(|_| false, start);
    assert!(tree.path(8).is_some(), "figures that refer to the cgroup may not have been read yet");
    tree.drop_entries(|_| false, start + LINGERS);
    assert_eq!((tree.path(8), tree.len()), (None, 2));
    assert_eq!(tree.ids.get("/a/b"), Some(&9));
}

#[test]
fn a_cgroup_was_created_after_earlier_events() {
    let mut tree = CgroupTree::new("/nowhere");
    let start = Instant::now();
    tree.receive(made(7, "/a"), start);
    tree.receive_since(made(8, "/a/b"), 100, start);
    tree.receive_since(TreeEvent::Removed(8), 200, start);
    assert_eq!((tree.made.get(&7), tree.made.get(&8)), (None, Some(&100)));
    assert_eq!(tree.living().map(|(id, _)| id).collect::<Vec<_>>(), [7]);
    tree.drop_entries(|_| false, start + LINGERS);
    assert_eq!(tree.made.get(&8), None);
}

#[test]
fn a_rename_or_lost_events_cause_a_walk() {
    let mount = std::env::temp_dir().join(format!("cgscope-renamed-{}", std::process::id()));
    fs::create_dir_all(mount.join("a/b")).unwrap();
    let b = fs::metadata(mount.join("a/b")).unwrap().ino();
    let mut tree = CgroupTree::new(&mount);
    let start = Instant::now();
    tree.learn([b], start);
    fs::rename(mount.join("a"), mount.join("z")).unwrap();
    tree.learn([b], start);
    assert_eq!(tree.path(b).map(|p| &**p), Some("/a/b"), "no event was reported");
    tree.receive(TreeEvent::Renamed, start);
    // Simulate that walks have used all their credit, and more.
    tree.walk_debt = WALK_CREDIT + WALK_EVERY;
    tree.learn([b], start + WALK_EVERY / 2);
    assert_eq!(tree.path(b).map(|p| &**p), Some("/a/b"), "walks have used their share of the time");
    tree.walk_debt = WALK_CREDIT;
    tree.learn([b], start + WALK_EVERY / 2);
    assert_eq!(tree.path(b).map(|p| &**p), Some("/z/b"), "a rename causes a walk at once");
    assert!(tree.walk_debt > WALK_CREDIT - WALK_EVERY, "{:?} of credit are used", tree.walk_debt);
    assert!(tree.ids.contains_key("/z") && !tree.ids.contains_key("/a"));

    tree.suspect(b);
    tree.learn([], start + 2 * WALK_EVERY);
    assert!(!tree.is_removed(b));
    tree.suspect(b);
    assert!(tree.suspects.is_empty(), "the cgroup exists: it causes no more walks");

    // Create this directory before the removal. Otherwise it could get the inode number of a removed directory.
    let anew = mount.with_extension("anew");
    fs::create_dir(&anew).unwrap();
    fs::remove_dir_all(&mount).unwrap();
    tree.has_missed = true;
    tree.learn([], start + 2 * WALK_EVERY);
    tree.learn([], start + 3 * WALK_EVERY);
    assert!(!tree.is_removed(b), "the hierarchy is no longer mounted");
    fs::rename(&anew, &mount).unwrap();
    tree.learn([], start + 3 * WALK_EVERY);
    assert!(!tree.is_removed(b), "the next walk is not due");
    tree.learn([], start + 4 * WALK_EVERY);
    fs::remove_dir(&mount).unwrap();
    assert!(tree.is_removed(b));
}

#[test]
fn in_a_partial_mount_a_missing_cgroup_may_still_exist() {
    let mount = std::env::temp_dir().join(format!("cgscope-part-{}", std::process::id()));
    fs::create_dir(&mount).unwrap();
    let mut tree = CgroupTree::new(&mount);
    tree.learn([5], Instant::now());
    fs::remove_dir(&mount).unwrap();
    assert!(!tree.is_removed(5));
    tree.shows_all = true;
    assert!(tree.is_removed(5));
}

#[test]
fn an_event_is_read_as_the_kernel_side_writes_it() {
    let event = |kind: u32, is_cut: u32, path: &[u8]| {
        let head = [kind.to_ne_bytes(), is_cut.to_ne_bytes()].concat();
        [&head, &77u64.to_ne_bytes()[..], path].concat()
    };
    assert_eq!(TreeEvent::parse(&event(1, 0, b"/a/b\0\0\0")), Some(made(77, "/a/b")));
    assert_eq!(TreeEvent::parse(&event(1, 0, b"/\x1b[2J\xff\0")), Some(made(77, "/\u{fffd}[2J\u{fffd}")));
    assert_eq!(TreeEvent::parse(&event(1, 1, b"/a/b\0")), Some(TreeEvent::Made(77, None)));
    assert_eq!(TreeEvent::parse(&event(1, 0, b"")), Some(TreeEvent::Made(77, None)));
    assert_eq!(TreeEvent::parse(&event(2, 0, b"")), Some(TreeEvent::Removed(77)));
    assert_eq!(TreeEvent::parse(&event(3, 0, b"")), Some(TreeEvent::Renamed));
    assert_eq!(TreeEvent::parse(&event(4, 0, b"")), None);
    assert_eq!(TreeEvent::parse(&event(1, 0, b"")[..15]), None);
}

#[test]
fn the_hierarchy_number_is_that_of_the_cpu_controller() {
    let text = "12:cpuset:/x\n4:cpu,cpuacct:/a:b\n1:name=systemd:/\n0::/\n";
    assert_eq!(hierarchy(text, false), Some(4));
    assert_eq!(hierarchy(text, true), Some(0));
    assert_eq!(hierarchy("2:cpuacct:/\n0::/\n", false), None);
}

/// Drops this thread's privilege to read directories that other users have made unreadable.
fn be_nobody_special() {
    use rustix::thread::{CapabilitySet, capabilities, set_capabilities};
    let mut sets = capabilities(None).unwrap();
    sets.effective &= !(CapabilitySet::DAC_OVERRIDE | CapabilitySet::DAC_READ_SEARCH);
    set_capabilities(None, sets).unwrap();
}

#[test]
fn an_unreadable_cgroup_does_not_keep_others_from_being_freed() {
    use std::os::unix::fs::PermissionsExt;
    let mount = std::env::temp_dir().join(format!("cgscope-closed-{}", std::process::id()));
    fs::create_dir_all(mount.join("theirs/inside/below")).unwrap();
    fs::create_dir(mount.join("theirs-too")).unwrap();
    let inode = |path: &str| fs::metadata(mount.join(path)).unwrap().ino();
    let [theirs, inside, below, other] =
        ["theirs", "theirs/inside", "theirs/inside/below", "theirs-too"].map(inode);
    let mut tree = CgroupTree::new(&mount);
    tree.shows_all = true;
    let start = Instant::now();
    tree.learn([inside, other], start);
    let close = |mode| fs::set_permissions(mount.join("theirs"), fs::Permissions::from_mode(mode)).unwrap();
    close(0);
    be_nobody_special();

    fs::remove_dir(mount.join("theirs-too")).unwrap();
    let nobody_knows = 1 << 50;
    tree.suspect(inside);
    tree.learn([nobody_knows], start + WALK_EVERY);
    let walked = tree.walked.map(|(at, _)| at);
    assert!(tree.is_removed(other), "the others are released");
    assert!(!tree.is_removed(theirs) && tree.path(theirs).is_some(), "its parent shows it");
    assert!(!tree.is_removed(inside) && !tree.is_removed(below), "they may still exist");
    tree.suspect(inside);
    tree.learn([nobody_knows, inside], start + 2 * WALK_EVERY);
    assert_eq!(tree.walked.map(|(at, _)| at), walked, "another walk would find nothing new");

    tree.receive(TreeEvent::Removed(below), start);
    tree.drop_entries(|_| false, start + LINGERS);
    assert_eq!(tree.path(below), None, "its removal was reported");
    tree.has_missed = true;
    tree.learn([], start + 3 * WALK_EVERY);
    tree.drop_entries(|_| false, start + 3 * WALK_EVERY + LINGERS);
    assert_eq!(tree.path(inside), None, "its removal may have been missed");
    assert_eq!(tree.len(), 2);
    close(0o700);
    tree.has_missed = true;
    tree.learn([], start + 5 * WALK_EVERY);
    assert_eq!(tree.path(inside).map(|path| &**path), Some("/theirs/inside"), "it still exists");
    fs::remove_dir_all(&mount).unwrap();
}

/// Creates nested directories, one for each level, whose path is longer than the kernel accepts.
fn make_deep(mount: &Path, name: &str, levels: usize) -> u64 {
    use rustix::fs::{CWD, Mode, OFlags, fstat, mkdirat, openat};
    let flags = OFlags::RDONLY | OFlags::DIRECTORY;
    let mut at = openat(CWD, mount, flags, Mode::empty()).unwrap();
    for _ in 0..levels {
        mkdirat(&at, name, Mode::RWXU).unwrap();
        at = openat(&at, name, flags, Mode::empty()).unwrap();
    }
    fstat(&at).unwrap().st_ino
}

#[test]
fn a_tree_deeper_than_any_path_does_not_keep_others_from_being_freed() {
    for (name, levels) in [("n".repeat(250), 40), ("n".into(), 400)] {
        let mount = std::env::temp_dir().join(format!("cgscope-deep-{levels}-{}", std::process::id()));
        fs::create_dir_all(mount.join("other")).unwrap();
        let other = fs::metadata(mount.join("other")).unwrap().ino();
        let deepest = make_deep(&mount, &name, levels);
        let mut tree = CgroupTree::new(&mount);
        tree.shows_all = true;
        let start = Instant::now();
        tree.receive(made(deepest, &format!("/{name}").repeat(levels)), start);
        tree.learn([other], start);
        assert!(tree.len() > 15, "{} found", tree.len());
        fs::remove_dir(mount.join("other")).unwrap();
        tree.learn([1 << 50], start + WALK_EVERY);
        assert!(tree.is_removed(other) && !tree.is_removed(deepest));
        fs::remove_dir_all(&mount).unwrap();
    }
}

#[test]
fn one_users_cgroups_beyond_the_bound_count_for_those_above_them() {
    let mount = std::env::temp_dir().join(format!("cgscope-many-{}", std::process::id()));
    let inode = |path: &str| fs::metadata(mount.join(path)).unwrap().ino();
    let hostile: Vec<String> = (0..60).map(|at| format!("user/hostile/{}/{at}", at % 6)).collect();
    let others: Vec<String> = (0..8).map(|at| format!("pods/pod{at}/main")).collect();
    for path in hostile.iter().chain(&others) {
        fs::create_dir_all(mount.join(path)).unwrap();
    }
    let ids: Vec<u64> = hostile.iter().map(|path| inode(path)).collect();
    let mut tree = CgroupTree::new(&mount);
    (tree.shows_all, tree.bound.cgroups) = (true, 50);
    let start = Instant::now();
    tree.learn(ids.iter().copied(), start);
    assert_eq!(tree.paths.len(), 50);
    assert!(others.iter().all(|path| tree.paths.contains_key(&inode(path))), "{:?}", tree.paths);
    let merged: Vec<_> = ids.iter().filter(|id| tree.merged.contains_key(id)).collect();
    assert_eq!((merged.len(), tree.merged.len()), (86 - 50, 86 - 50), "{:?}", tree.merged);
    assert_eq!([tree.count_merged(), tree.count_merged()], [36, 72], "each sample has the loss");
    for (path, id) in hostile.iter().zip(&ids).filter(|(_, id)| tree.merged.contains_key(id)) {
        let above = format!("/{}", path.rsplit_once('/').unwrap().0);
        assert_eq!(tree.path(*id).map(|path| &**path), Some(&*above));
        assert_eq!(tree.ancestors(*id).last(), Some(inode(above.trim_start_matches('/'))));
        assert!(!tree.is_removed(*id));
    }
    assert!(tree.living().all(|(id, _)| !tree.merged.contains_key(&id)));

    // The tree does not keep a cgroup that is created later either. If a figure refers to such a cgroup, the cgroup gets the path
    // of an ancestor.
    tree.receive(made(1 << 50, "/user/hostile/3/late"), start);
    tree.receive(made(1 << 51, "/user/hostile/3/late/below"), start);
    for late in [1 << 50, 1 << 51] {
        assert_eq!(tree.path(late).map(|path| &**path), Some("/user/hostile/3"));
    }
    tree.learn([1 << 50, 1 << 52], start);
    assert_eq!(tree.path(1 << 52).map(|path| &**path), Some("/"), "it may be anywhere");
    tree.drop_entries(|id| id == 1 << 50, start);
    assert_eq!(tree.merged.len(), 1);

    // When the tree has free places again, each cgroup gets its own path.
    fs::create_dir_all(mount.join("pods/late/main")).unwrap();
    let late = inode("pods/late/main");
    for path in &hostile[20..] {
        fs::remove_dir(mount.join(path)).unwrap();
    }
    let later = start + WALK_EVERY + tree.walk_debt;
    tree.learn(ids[..20].iter().copied().chain([late]), later);
    assert!(!tree.is_full && tree.path(late).is_some_and(|path| **path == *"/pods/late/main"));
    assert!(ids[..20].iter().all(|id| !tree.merged.contains_key(id) && tree.path(*id).is_some()));
    assert_eq!(tree.bytes, tree.paths.values().map(|path| path.len()).sum::<usize>());
    fs::remove_dir_all(&mount).unwrap();
}

#[test]
fn long_paths_take_a_bounded_number_of_bytes() {
    let mut tree = CgroupTree::new("/nowhere");
    tree.shows_all = true;
    tree.bound.bytes = 10_000;
    let start = Instant::now();
    for id in 1..1_000 {
        tree.receive(made(id, &format!("/{}{id:03}", "n".repeat(200))), start);
    }
    assert!(tree.bytes <= 10_000 && tree.paths.len() == 49, "{} {}", tree.bytes, tree.paths.len());
    (1..1_000).for_each(|id| tree.receive(TreeEvent::Removed(id), start));
    tree.drop_entries(|_| false, start + LINGERS);
    assert_eq!((tree.bytes, tree.paths.len(), tree.merged.len(), tree.made.len()), (0, 0, 0, 0));
}
