# Settings of the Debian root that boots in the machine `systemd`. This text has no single quotes: a hook quotes it.
set -e
useradd --create-home --shell /bin/bash alice
echo systemd > /etc/hostname
# The kernel of the machine has no modules, so it has no overlay file system.
mkdir -p /etc/containers
printf "[storage]\ndriver = \"vfs\"\nrunroot = \"/run/containers\"\ngraphroot = \"/var/lib/containers/storage\"\n" > /etc/containers/storage.conf
printf "[engine]\nevents_logger = \"file\"\n" > /etc/containers/containers.conf
printf "{\"default\": [{\"type\": \"insecureAcceptAnything\"}]}" > /etc/containers/policy.json
# Tests start these.
systemctl --quiet disable containerd.service docker.service docker.socket podman.socket podman.service
# The emulated machine needs none of these, and each takes seconds.
systemctl --quiet mask apt-daily.timer apt-daily-upgrade.timer dpkg-db-backup.timer e2scrub_all.timer e2scrub_reap.service \
    fstrim.timer getty@.service podman-auto-update.service podman-auto-update.timer podman-restart.service serial-getty@.service \
    systemd-pstore.service systemd-timesyncd.service systemd-tmpfiles-clean.timer systemd-udev-trigger.service \
    systemd-udevd.service
