//! The container image: its files, its configuration and its digests.

use std::{fs, path::Path, process::Command};

use serde_json::{Value, json};

use super::{done, package};
use crate::files::Dir;

fn parsed(file: &Path) -> Value {
    let text = fs::read(file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    serde_json::from_slice(&text).unwrap_or_else(|error| panic!("{}: {error}", file.display()))
}

fn sha256(file: &Path) -> String {
    let sum = done(Command::new("sha256sum").arg(file));
    format!("sha256:{}", sum.split_whitespace().next().expect("a sum"))
}

/// Returns the path of the file that a descriptor names. Asserts that the file has the size and the digest that the descriptor
/// states.
fn blob(image: &Dir, descriptor: &Value) -> std::path::PathBuf {
    let digest = descriptor["digest"].as_str().expect("a digest");
    let file = image.path().join("blobs").join(digest.replace(':', "/"));
    assert_eq!(sha256(&file), digest);
    assert_eq!(fs::metadata(&file).expect("a file").len(), descriptor["size"]);
    file
}

#[test]
fn the_image_has_only_the_binary_and_its_licences() {
    let archive = package("-oci.tar");
    let image = Dir::new("image-archive");
    done(Command::new("tar").arg("-C").arg(image.path()).arg("-xf").arg(&archive));
    assert_eq!(parsed(&image.path().join("oci-layout")), json!({"imageLayoutVersion": "1.0.0"}));
    let index = parsed(&image.path().join("index.json"));
    let manifest = parsed(&blob(&image, &index["manifests"][0]));
    let config_file = blob(&image, &manifest["config"]);
    let layer = blob(&image, &manifest["layers"][0]);
    assert_eq!((index["manifests"][1].clone(), manifest["layers"][1].clone()), (Value::Null, Value::Null));
    // `docker load` reads `manifest.json`, a second description of the image, which must name the same files.
    let docker = parsed(&image.path().join("manifest.json"));
    assert_eq!(image.path().join(docker[0]["Config"].as_str().expect("a path")), config_file);
    assert_eq!(image.path().join(docker[0]["Layers"][0].as_str().expect("a path")), layer);

    let root = Dir::new("image-root");
    done(Command::new("tar").arg("-C").arg(root.path()).arg("-xzf").arg(&layer));
    let binary = root.path().join("usr/bin/cgscope");
    // The image has no dynamic linker, so this also checks that the binary is static.
    let version = done(Command::new("chroot").arg(root.path()).args(["/usr/bin/cgscope", "--version"]));
    let version = version.trim().rsplit(' ').next().expect("a version");
    assert!(archive.ends_with(format!("cgscope-{version}-oci.tar")), "{}", archive.display());
    let listed = done(Command::new("tar").args(["--numeric-owner", "-tvzf"]).arg(&layer));
    let files: Vec<_> = listed
        .lines()
        .map(|line| line.split_whitespace().collect::<Vec<_>>())
        .map(|words| (words[0], words[1], words[words.len() - 1]))
        .collect();
    let licence = |name| ("-rw-r--r--", "0/0", name);
    let directory = |name| ("drwxr-xr-x", "0/0", name);
    let expected = [
        directory("usr/"),
        directory("usr/bin/"),
        ("-rwxr-xr-x", "0/0", "usr/bin/cgscope"),
        directory("usr/share/"),
        directory("usr/share/doc/"),
        directory("usr/share/doc/cgscope/"),
        licence("usr/share/doc/cgscope/LICENSE-APACHE"),
        licence("usr/share/doc/cgscope/LICENSE-MIT"),
        licence("usr/share/doc/cgscope/THIRD-PARTY"),
    ];
    assert_eq!(files, expected);
    assert!(fs::metadata(&binary).expect("a file").len() > 1 << 20);

    let config = parsed(&config_file);
    let plain = root.path().join("layer.tar");
    done(Command::new("sh").args(["-c", "gzip -dc \"$1\" > \"$2\"", "sh"]).arg(&layer).arg(&plain));
    assert_eq!(config["rootfs"], json!({"type": "layers", "diff_ids": [sha256(&plain)]}));
    assert_eq!(config["os"], "linux");
    assert_eq!(index["manifests"][0]["platform"]["architecture"], config["architecture"]);
    let run = &config["config"];
    assert_eq!(run["User"], "0:0");
    assert_eq!(run["Entrypoint"], json!(["/usr/bin/cgscope"]));
    assert_eq!((&run["Cmd"], &run["Env"]), (&json!(["serve"]), &json!(["PATH=/usr/bin"])));
    assert_eq!(run["Labels"]["org.opencontainers.image.version"], version);
    let name = &index["manifests"][0]["annotations"]["io.containerd.image.name"];
    assert_eq!((name, &docker[0]["RepoTags"][0]), (&json!(format!("localhost/cgscope:{version}")), name));
}
