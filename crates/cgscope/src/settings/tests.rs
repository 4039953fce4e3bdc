use std::{
    os::unix::fs::symlink,
    sync::atomic::{AtomicBool, AtomicU32, Ordering},
    thread,
};

use cgscope_view::{app::View, settings::Span};
use rustix::fs::{CWD, FileType, Mode, mknodat};

use super::*;

struct Home(PathBuf);

impl Home {
    fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let name =
            format!("cgscope-settings-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let path = env::temp_dir().join(name);
        fs::create_dir(&path).unwrap();
        Self(path)
    }

    fn with(text: &str) -> Self {
        let home = Self::new();
        fs::create_dir_all(home.file().parent().unwrap()).unwrap();
        fs::write(home.file(), text).unwrap();
        home
    }

    fn place(&self) -> Option<Place> {
        Place::of_environment(|name| (name == "HOME").then(|| self.0.clone().into_os_string()))
    }

    fn file(&self) -> PathBuf {
        self.0.join(".config/cgscope/settings.toml")
    }

    fn text(&self) -> String {
        fs::read_to_string(self.file()).unwrap()
    }

    fn open(&self) -> (Store, Settings, Vec<String>) {
        open_at(self.place(), me())
    }

    fn names(&self) -> Vec<OsString> {
        let entries = fs::read_dir(self.file().parent().unwrap()).unwrap();
        entries.map(|entry| entry.unwrap().file_name()).collect()
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn open_at(place: Option<Place>, user: u32) -> (Store, Settings, Vec<String>) {
    let (store, settings) = Store::at(place, user);
    let warnings = store.warnings.clone();
    (store, settings, warnings)
}

fn me() -> u32 {
    rustix::process::geteuid().as_raw()
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o7777
}

fn heatmap(settings: &Settings) -> Settings {
    Settings { view: View::Heatmap, ..settings.clone() }
}

#[test]
fn the_path_follows_the_xdg_specification() {
    let file = |set: &[(&str, &str)]| {
        let place = Place::of_environment(|name| {
            set.iter().find(|(known, _)| *known == name).map(|(_, value)| OsString::from(value))
        });
        place.map(|place| place.file.display().to_string())
    };
    let at_home = Some("/root/.config/cgscope/settings.toml".to_owned());
    assert_eq!(file(&[("HOME", "/root")]), at_home);
    assert_eq!(
        file(&[("HOME", "/root"), ("XDG_CONFIG_HOME", "/etc/x")]).as_deref(),
        Some("/etc/x/cgscope/settings.toml")
    );
    assert_eq!(file(&[("HOME", "/root"), ("XDG_CONFIG_HOME", "x")]), at_home);
    assert_eq!(file(&[("HOME", "/root"), ("XDG_CONFIG_HOME", "")]), at_home);
    for none in [&[][..], &[("HOME", "")], &[("HOME", "root")]] {
        assert_eq!(file(none), None);
    }
}

#[test]
fn without_a_home_the_defaults_are_used_and_nothing_is_saved() {
    let (store, settings, warnings) = open_at(None, me());
    assert_eq!((&settings, warnings.len()), (&Settings::default(), 0));
    assert_eq!(store.save(&heatmap(&settings)), Ok(()));
    for home in ["/nonexistent", "/dev/null"] {
        let place = Place::of_environment(|name| (name == "HOME").then(|| home.into()));
        let (store, settings, warnings) = open_at(place, me());
        assert!(warnings.is_empty(), "{warnings:?}");
        assert_eq!(store.save(&heatmap(&settings)), Ok(()), "{home}");
    }
    assert!(!Path::new("/nonexistent").exists());
}

#[test]
fn changed_settings_are_read_at_the_next_start() {
    let home = Home::new();
    let (store, settings, warnings) = home.open();
    assert!(warnings.is_empty());
    store.save(&settings).unwrap();
    assert!(!home.0.join(".config").exists(), "nothing has changed");
    store.save(&heatmap(&settings)).unwrap();
    assert_eq!(home.open().1, heatmap(&settings));
    assert_eq!((mode(home.file().parent().unwrap()), mode(&home.file())), (0o700, 0o600));
    assert_eq!(home.names(), [NAME]);
}

#[test]
fn a_directory_named_by_the_environment_is_created() {
    let home = Home::new();
    let base = home.0.join("a/b");
    let place =
        Place::of_environment(|name| (name == "XDG_CONFIG_HOME").then(|| base.clone().into_os_string()));
    let (store, settings, _) = open_at(place.clone(), me());
    store.save(&heatmap(&settings)).unwrap();
    assert_eq!(open_at(place, me()).1.view, View::Heatmap);
}

#[test]
fn a_setting_that_no_key_changed_is_not_rewritten() {
    let home = Home::with("interval = \"2s\" # mine\n");
    let (store, settings, _) = home.open();
    let other = Settings { interval: std::time::Duration::from_secs(5), ..settings };
    store.save(&other).unwrap();
    assert_eq!(home.text(), "interval = \"2s\" # mine\n");
    store.save(&heatmap(&other)).unwrap();
    assert_eq!(home.text(), "interval = \"2s\" # mine\nview = \"heatmap\"\n");
}

#[test]
fn an_invalid_file_is_reported_and_not_changed() {
    for bytes in [&b"view = overview\n"[..], b"\xff\xfe\n"] {
        let home = Home::with("");
        fs::write(home.file(), bytes).unwrap();
        let (store, settings, warnings) = home.open();
        assert_eq!(settings, Settings::default());
        let [warning] = warnings.as_slice() else { panic!("{warnings:?}") };
        assert!(warning.contains("settings.toml") && warning.contains("nothing is saved until"), "{warning}");
        let error = store.save(&heatmap(&settings)).unwrap_err();
        assert!(error.starts_with("the settings are not saved: /"), "{error}");
        assert_eq!(fs::read(home.file()).unwrap(), bytes);
        assert_eq!(store.save(&settings), Ok(()), "nothing has changed");
    }
}

#[test]
fn a_file_that_was_corrected_since_the_start_is_written() {
    let home = Home::with("view = overview\n");
    let (store, settings, _) = home.open();
    fs::write(home.file(), "tree = false\n").unwrap();
    store.save(&heatmap(&settings)).unwrap();
    assert_eq!(home.text(), "tree = false\nview = \"heatmap\"\n");
}

#[test]
fn an_invalid_value_is_reported_with_its_line() {
    let (_, _, warnings) = Home::with("\ntree = 3\n").open();
    assert!(
        warnings[0].starts_with("settings.toml, line 2: tree: invalid type: integer `3`"),
        "{warnings:?}"
    );
}

#[test]
fn the_mode_of_the_file_is_kept() {
    let home = Home::with("tree = false\n");
    fs::set_permissions(home.file(), fs::Permissions::from_mode(0o644)).unwrap();
    let (store, settings, _) = home.open();
    store.save(&heatmap(&settings)).unwrap();
    assert_eq!((mode(&home.file()), home.open().1), (0o644, heatmap(&settings)));
}

#[test]
fn links_stay_links() {
    let home = Home::with("");
    let kept = home.0.join("dotfiles.toml");
    fs::rename(home.file(), &kept).unwrap();
    symlink("../../dotfiles.toml", home.file()).unwrap();
    let (store, settings, _) = home.open();
    store.save(&heatmap(&settings)).unwrap();
    assert!(fs::symlink_metadata(home.file()).unwrap().is_symlink());
    assert!(fs::read_to_string(&kept).unwrap().contains("heatmap"));
    fs::remove_file(&kept).unwrap();
    let error = store.save(&heatmap(&settings)).unwrap_err();
    assert!(error.contains("a link to a file that does not exist"), "{error}");
    assert!(!kept.exists());
}

#[test]
fn a_failed_write_is_reported() {
    // Not even root can create a directory in `/proc/self`.
    let proc = Place::of_environment(|name| (name == "HOME").then(|| "/proc/self".into()));
    let (store, settings, warnings) = open_at(proc, me());
    assert!(warnings.is_empty(), "{warnings:?}");
    let error = store.save(&heatmap(&settings)).unwrap_err();
    assert!(error.contains("/proc/self/.config/cgscope/settings.toml: "), "{error}");

    let home = Home::new();
    fs::write(home.0.join(".config"), "a file").unwrap();
    let (store, settings, _) = home.open();
    assert!(store.save(&heatmap(&settings)).is_err());
    assert_eq!(fs::read_to_string(home.0.join(".config")).unwrap(), "a file");
}

#[test]
fn a_fifo_or_directory_does_not_block() {
    let home = Home::with("");
    fs::remove_file(home.file()).unwrap();
    mknodat(CWD, home.file(), FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
    let (store, settings, warnings) = home.open();
    assert!(warnings[0].contains("cannot be read (it is not a regular file)"), "{warnings:?}");
    assert!(store.save(&heatmap(&settings)).is_err());
    fs::remove_file(home.file()).unwrap();
    fs::create_dir(home.file()).unwrap();
    assert!(home.open().2[0].contains("it is not a regular file"));
    fs::remove_dir(home.file()).unwrap();
    fs::write(home.file(), vec![b'#'; 2 << 20]).unwrap();
    assert!(home.open().2[0].contains("longer than a mebibyte"));
}

#[test]
fn no_file_is_created_in_the_home_of_another_user_and_an_existing_one_keeps_its_owner() {
    let home = Home::new();
    let other = me() + 1;
    let (store, settings, _) = open_at(home.place(), other);
    assert_eq!(store.save(&heatmap(&settings)), Ok(()));
    assert!(!home.0.join(".config").exists());

    let home = Home::with("tree = false\n");
    let (store, settings, _) = open_at(home.place(), other);
    store.save(&heatmap(&settings)).unwrap();
    assert!(home.text().contains("heatmap"));
    assert_eq!(fs::metadata(home.file()).unwrap().uid(), me());
}

#[test]
fn root_keeps_the_owner_of_a_file_that_it_replaces() {
    let home = Home::with("tree = false\n");
    let alice = 12_345;
    let given = [&home.0, &home.file()]
        .into_iter()
        .all(|path| std::os::unix::fs::chown(path, Some(alice), None).is_ok());
    let (store, settings, _) = home.open();
    store.save(&heatmap(&settings)).unwrap();
    // Without privileges, `chown` fails, and the file stays ours.
    let owner = if given { alice } else { me() };
    assert_eq!(fs::metadata(home.file()).unwrap().uid(), owner);
}

#[test]
fn the_owners_decide_whether_the_file_is_written() {
    let (root, alice, bob) = (0, 1_000, 1_001);
    for (user, home, file, expected) in [
        (alice, Some(alice), alice, false),
        (root, Some(alice), alice, false),
        (root, Some(alice), root, true),
        (root, Some(alice), bob, true),
        (root, None, root, false),
    ] {
        assert_eq!(is_foreign(user, home, file), expected, "{user} {home:?} {file}");
    }
}

#[test]
fn two_screens_keep_the_settings_of_each_other() {
    let home = Home::new();
    let (one, settings, _) = home.open();
    let (other, _, _) = home.open();
    one.save(&heatmap(&settings)).unwrap();
    other.save(&Settings { span: Span::Start, ..settings.clone() }).unwrap();
    assert_eq!(home.open().1, Settings { span: Span::Start, ..heatmap(&settings) });
}

#[test]
fn a_reader_during_writes_gets_a_complete_file() {
    let home = Home::with("# a comment that stays\n");
    let over = AtomicBool::new(false);
    let write = |view: View, tree: bool| {
        for round in 0..50 {
            let (store, settings, _) = home.open();
            let (view, tree) = if round % 2 == 0 { (view, tree) } else { (View::Overview, !tree) };
            store.save(&Settings { view, tree, ..settings }).unwrap();
        }
    };
    thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let mut reads = 0;
            while !over.load(Ordering::Relaxed) || reads == 0 {
                assert!(home.text().starts_with("# a comment that stays\n"));
                assert_eq!(home.open().2, Vec::<String>::new());
                reads += 1;
            }
        });
        let writers = [scope.spawn(|| write(View::Heatmap, true)), scope.spawn(|| write(View::Numa, false))];
        let done = writers.map(|writer| writer.join());
        over.store(true, Ordering::Relaxed);
        done.into_iter().for_each(|done| done.unwrap());
        reader.join().unwrap();
    });
    assert_eq!(home.names(), [NAME]);
}
