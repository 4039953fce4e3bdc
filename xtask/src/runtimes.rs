//! Downloads the container runtimes that tests start, and unpacks them into the user's cache. They are not installed: their
//! packages would start services.
use std::fs;
use std::path::PathBuf;

use crate::failure::Failure;
use crate::readers::installed;
use crate::{lab, setup};

/// The variable that passes the directory of the runtimes to the tests.
const VARIABLE: &str = "CGSCOPE_RUNTIMES";
/// The Debian release. The tests know the options of these versions.
const SUITE: &str = "bookworm";
/// The runtimes and what they start, and libraries that a machine may lack.
const PACKAGES: [&str; 12] = [
    "containerd",
    "runc",
    "docker.io",
    "podman",
    "conmon",
    "catatonit",
    "uidmap",
    "libassuan0",
    "libdevmapper1.02.1",
    "libgpgme11",
    "libseccomp2",
    "libsubid4",
];

/// The environment variable for the tests. Downloads the runtimes if they are missing.
pub(crate) fn for_tests() -> Result<(&'static str, PathBuf), Failure> {
    let place = setup::cache("runtimes", "container runtimes")?.join("root");
    installed(&place, &format!("{} of {SUITE}", PACKAGES.join(" ")), || {
        let _ = fs::remove_dir_all(&place);
        let apt = lab::archive()?;
        PACKAGES.iter().try_for_each(|name| apt.unpack(&format!("{name}/{SUITE}"), &place))
    })?;
    Ok((VARIABLE, place))
}
