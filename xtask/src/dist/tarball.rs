//! The tarball: `tar -C /usr/local --strip-components=1 -xf` installs it, a look into it needs nothing but tar.
use std::path::PathBuf;
use std::process::Command;

use super::tree::Tree;
use super::{Made, said};
use crate::failure::Failure;
use crate::steps;

/// Makes it, and says where it is.
pub(super) fn make(made: &Made) -> Result<PathBuf, Failure> {
    let name = format!("cgscope-{}-{}-linux", made.version, std::env::consts::ARCH);
    let tree = Tree::new(made.place.join("tarball").join(&name))?;
    made.put_common(&tree, "", "/usr/local")?;
    let zsh = made.pages.join("completions/_cgscope");
    tree.copy(&zsh, "share/zsh/site-functions/_cgscope", 0o644)?;
    for page in made.manual()? {
        let file = page.file_name().unwrap_or_default().to_string_lossy();
        tree.copy(&page, &format!("share/man/man1/{file}"), 0o644)?;
    }
    let workspace = steps::workspace();
    for file in ["README.md", "LICENSE-MIT", "LICENSE-APACHE"] {
        tree.copy(&workspace.join(file), &format!("share/doc/cgscope/{file}"), 0o644)?;
    }
    tree.put("share/doc/cgscope/THIRD-PARTY", made.third_party.as_bytes(), 0o644)?;
    tree.copy(&workspace.join("deploy/cgscope.toml"), "share/doc/cgscope/examples/cgscope.toml", 0o644)?;
    let archive = made.place.join(format!("{name}.tar.gz"));
    let mut tar = Command::new("tar");
    tar.arg("-C").arg(made.place.join("tarball"));
    tar.args(["--sort=name", "--owner=0", "--group=0", "--numeric-owner", "--format=ustar"]);
    tar.arg(format!("--mtime=@{}", made.epoch));
    tar.args(["--use-compress-program=gzip -9n", "-cf"]).arg(&archive).arg(&name);
    said(&mut tar)?;
    Ok(archive)
}
