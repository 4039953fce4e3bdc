# Writes an image of busybox to $1, as `docker save` does. Docker, containerd and Podman can load it.
set -e
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
mkdir -p "$dir/root/bin"
cp "$(command -v busybox)" "$dir/root/bin/busybox"
ln -s busybox "$dir/root/bin/sh"
tar -C "$dir/root" --owner=0 --group=0 -cf "$dir/layer.tar" .
layer=$(sha256sum "$dir/layer.tar" | cut -d ' ' -f 1)
cat > "$dir/config.json" << EOF
{"architecture": "$(dpkg --print-architecture)", "os": "linux", "config": {"Cmd": ["/bin/busybox", "sleep", "3600"]},
 "rootfs": {"type": "layers", "diff_ids": ["sha256:$layer"]}}
EOF
echo '[{"Config": "config.json", "RepoTags": ["localhost/busybox:1"], "Layers": ["layer.tar"]}]' > "$dir/manifest.json"
tar -C "$dir" -cf "$1" manifest.json config.json layer.tar
