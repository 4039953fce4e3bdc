#!/usr/bin/busybox sh
# Init (process 1) of a virtual machine of `cargo xtask lab`. It runs the script /lab/job.
export PATH=/usr/bin HOME=/root LANG=C.UTF-8 TERM=linux TMPDIR=/tmp RUST_BACKTRACE=0
# Emulation is slow: with this variable, tests do a tenth of the work and skip assertions about times.
export CGSCOPE_TEST_EMULATED=1 CGSCOPE_BIN=/usr/bin/cgscope
/usr/bin/busybox --install -s /usr/bin
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
ip link set lo up
mkdir -p /dev/pts /dev/shm /tmp
mount -t devpts devpts /dev/pts
mount -t tmpfs shm /dev/shm
# /tmp is not a mount of its own: the test binaries have the same paths as on the host, which may be below /tmp.
chmod 1777 /tmp
mount -t bpf bpf /sys/fs/bpf
mount -t tracefs tracefs /sys/kernel/tracing
mount -t debugfs debugfs /sys/kernel/debug
mount -t cgroup2 -o nsdelegate cgroup2 /sys/fs/cgroup
echo "+cpu +cpuset +memory" > /sys/fs/cgroup/cgroup.subtree_control
# Results use a second serial port: on the console, kernel messages would break the lines of the tests.
exec > /dev/ttyS1 2>&1 < /dev/null
stty -F /dev/ttyS1 raw -echo
# `uname -r` is the same for all updates of a Debian kernel; `uname -v` has the version: "... Debian 6.1.176-1 (2026-07-02)".
version=$(uname -v | sed -n 's/.* Debian \([^ ]*\).*/\1/p')
echo "lab: kernel ${version:-$(uname -r)}"
. /lab/job
poweroff -f
