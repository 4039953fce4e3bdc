//! Writes a container image that contains only the static binary. The image is an archive that container tools can load (an OCI
//! image layout). The format is too simple to need an image builder.
use std::path::{Path, PathBuf};
use std::{fs, process::Command};

use super::{Contents, architecture};
use crate::dist::Tree;
use crate::steps::{self, Failure, output};

/// The user is 0, because only this user has the container's capabilities. The user is given as a number, because the image has
/// no list of users.
const CONFIG: &str = include_str!("image/config.json");
const MANIFEST: &str = include_str!("image/manifest.json");
/// podman and containerd read the name from the first annotation.
const INDEX: &str = include_str!("image/index.json");
/// A second index, for `docker load`: Docker can read an OCI layout only since version 25.
const FOR_DOCKER: &str = include_str!("image/docker.json");

/// A file in the archive. Other files refer to it by its digest, or by a descriptor with its digest and size.
struct Blob {
    sha256: String,
    descriptor: String,
}

pub(super) fn make(contents: &Contents) -> Result<PathBuf, Failure> {
    let archive = contents.place.join(format!("cgscope-{}-oci.tar", contents.version));
    let root = root(contents)?;
    let layout = Tree::new(contents.place.join("image/layout"))?;
    let (layer, diff) = layer(contents, &root, &layout)?;
    let mut date = Command::new("date");
    let created =
        output(date.args(["--utc", "--date", &format!("@{}", contents.epoch), "+%Y-%m-%dT%H:%M:%SZ"]))?;
    let fill = |template: &str, values: &[(&str, &str)]| {
        let common = [
            ("@VERSION@", contents.version.as_str()),
            ("@ARCHITECTURE@", architecture()),
            ("@CREATED@", created.trim()),
        ];
        let values = common.iter().chain(values);
        values.fold(template.to_owned(), |text, (name, value)| text.replace(name, value))
    };
    let config = put_text(&layout, &fill(CONFIG, &[("@DIFF@", &diff)]))?;
    let descriptors = [("@CONFIG@", &*config.descriptor), ("@LAYER@", &layer.descriptor)];
    let manifest = put_text(&layout, &fill(MANIFEST, &descriptors))?;
    for (file, text) in [
        ("oci-layout", "{\"imageLayoutVersion\": \"1.0.0\"}\n".to_owned()),
        ("index.json", fill(INDEX, &[("@MANIFEST@", &manifest.descriptor)])),
        ("manifest.json", fill(FOR_DOCKER, &[("@CONFIG@", &config.sha256), ("@LAYER@", &layer.sha256)])),
    ] {
        layout.put(file, text.as_bytes(), 0o644)?;
    }
    let mut tar = super::tar(&layout.root, &contents.epoch);
    output(tar.arg("-cf").arg(&archive).args(["oci-layout", "index.json", "manifest.json", "blobs"]))?;
    Ok(archive)
}

fn root(contents: &Contents) -> Result<Tree, Failure> {
    let root = Tree::new(contents.place.join("image/root"))?;
    root.copy(&contents.binary, "usr/bin/cgscope", 0o755)?;
    root.strip("usr/bin/cgscope")?;
    for licence in ["LICENSE-MIT", "LICENSE-APACHE"] {
        root.copy(&steps::workspace().join(licence), &format!("usr/share/doc/cgscope/{licence}"), 0o644)?;
    }
    root.put("usr/share/doc/cgscope/THIRD-PARTY", contents.third_party.as_bytes(), 0o644)?;
    Ok(root)
}

/// Writes the image's only layer into the layout. Also returns the digest of the uncompressed layer, because the configuration
/// needs it.
fn layer(contents: &Contents, root: &Tree, layout: &Tree) -> Result<(Blob, String), Failure> {
    let file = contents.place.join("image/layer.tar");
    output(super::tar(&root.root, &contents.epoch).arg("-cf").arg(&file).arg("usr"))?;
    let diff = sha256(&file)?;
    output(Command::new("gzip").args(["-9n", "--force"]).arg(&file))?;
    Ok((put_blob(layout, &file.with_extension("tar.gz"))?, diff))
}

fn put_text(layout: &Tree, text: &str) -> Result<Blob, Failure> {
    let file = layout.root.with_extension("json");
    steps::write(&file, text)?;
    put_blob(layout, &file)
}

fn put_blob(layout: &Tree, file: &Path) -> Result<Blob, Failure> {
    let bytes = fs::metadata(file).map_err(|why| steps::cannot("read", file, &why))?.len();
    let sha256 = sha256(file)?;
    layout.copy(file, &format!("blobs/sha256/{sha256}"), 0o644)?;
    let descriptor = format!(r#""digest": "sha256:{sha256}", "size": {bytes}"#);
    Ok(Blob { sha256, descriptor })
}

fn sha256(file: &Path) -> Result<String, Failure> {
    let sum = output(Command::new("sha256sum").arg(file))?;
    Ok(sum.split_whitespace().next().unwrap_or_default().to_owned())
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;
    use std::path::Path;

    use super::{Contents, make};

    fn image(place: &Path) -> Vec<u8> {
        let _ = fs::remove_dir_all(place);
        fs::create_dir_all(place).expect("a directory of ours");
        // This is a program of this machine. Its permissions differ from those in the image.
        let binary = place.join("program");
        fs::copy("/bin/true", &binary).expect("a program");
        fs::set_permissions(&binary, fs::Permissions::from_mode(0o700)).expect("a file of ours");
        let contents = Contents {
            place: place.to_owned(),
            binary,
            version: "1.2.3".to_owned(),
            pages: place.to_owned(),
            third_party: "licences".to_owned(),
            epoch: "1700000000".to_owned(),
        };
        let archive = make(&contents).expect("an image");
        assert_eq!(archive.file_name().and_then(|name| name.to_str()), Some("cgscope-1.2.3-oci.tar"));
        let image = fs::read(archive).expect("an image");
        let _ = fs::remove_dir_all(place);
        image
    }

    #[test]
    fn the_same_binary_gives_the_same_image() {
        let place = std::env::temp_dir().join(format!("xtask-image-{}", std::process::id()));
        let first = image(&place);
        std::thread::sleep(std::time::Duration::from_millis(1100));
        assert!(first == image(&place.with_extension("elsewhere")));
    }
}
