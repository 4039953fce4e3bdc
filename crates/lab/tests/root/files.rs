use std::{
    ffi::{CString, OsStr},
    fs,
    path::{Path, PathBuf},
    process::Command,
    sync::atomic::{AtomicU32, Ordering},
};

pub(crate) struct Dir {
    path: PathBuf,
    mounted: bool,
}

impl Dir {
    pub(crate) fn new(name: &str) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("cgscope-test-{}-{number}-{name}", std::process::id()));
        fs::create_dir(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        Self { path, mounted: false }
    }

    /// Makes a directory on a file system of its own with room for `kib` KiB.
    pub(crate) fn small(name: &str, kib: u32) -> Self {
        let mut dir = Self::new(name);
        let size = format!("size={kib}k");
        let status = Command::new("mount").args(["-t", "tmpfs", "-o", &size, "none"]).arg(&dir.path).status();
        assert!(status.expect("mount runs").success());
        dir.mounted = true;
        dir
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn file(&self, name: &str) -> String {
        self.path.join(name).display().to_string()
    }

    pub(crate) fn fifo(&self, name: &str) -> String {
        let path = self.file(name);
        let at = CString::new(path.clone()).expect("a path without a zero byte");
        // SAFETY: `at` ends with NUL.
        let made = unsafe { libc::mkfifo(at.as_ptr(), 0o600) };
        assert_eq!(made, 0, "{path}: {}", std::io::Error::last_os_error());
        path
    }
}

impl Drop for Dir {
    fn drop(&mut self) {
        if self.mounted {
            // A lazy unmount detaches the mount at once, even if a process still has a file open there.
            let _ = Command::new("umount").arg("-l").arg(&self.path).status();
        }
        let _ = fs::remove_dir_all(&self.path);
    }
}

/// Copies a program, so that the copy can be executed at once. The command `cp` writes the copy. If this process wrote the copy,
/// a child of another test could still have it open for writing, and exec would fail (ETXTBSY).
pub(crate) fn copy_program(from: impl AsRef<OsStr>, to: &Path) {
    let copied = Command::new("cp").arg(from.as_ref()).arg(to).status().expect("cp");
    assert!(copied.success(), "{copied}");
}
