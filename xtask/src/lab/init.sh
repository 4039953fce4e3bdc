#!/usr/bin/busybox sh
# The first process of a virtual machine of `cargo xtask lab`. What it is to do is in /lab/job.
export PATH=/usr/bin HOME=/root LANG=C.UTF-8 TERM=linux TMPDIR=/tmp RUST_BACKTRACE=0
# Each instruction is emulated: the tests count to a tenth, and assert no times.
export CGSCOPE_TEST_EMULATED=1 CGSCOPE_BIN=/usr/bin/cgscope
/usr/bin/busybox --install -s /usr/bin
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
ip link set lo up
mkdir -p /dev/pts /dev/shm /tmp
mount -t devpts devpts /dev/pts
mount -t tmpfs shm /dev/shm
# No mount of its own: the tests' binaries are where they are on the host, which may be below it.
chmod 1777 /tmp
mount -t bpf bpf /sys/fs/bpf
mount -t tracefs tracefs /sys/kernel/tracing
mount -t debugfs debugfs /sys/kernel/debug
mount -t cgroup2 -o nsdelegate cgroup2 /sys/fs/cgroup
echo "+cpu +cpuset +memory" > /sys/fs/cgroup/cgroup.subtree_control
# Console and results are apart: what the kernel says would break the lines of the tests.
exec > /dev/ttyS1 2>&1 < /dev/null
stty -F /dev/ttyS1 raw -echo
# A release of Debian has one name for all of its updates, and the version beside it: "... Debian 6.1.176-1 (2026-07-02)".
version=$(uname -v | sed -n 's/.* Debian \([^ ]*\).*/\1/p')
echo "lab: kernel ${version:-$(uname -r)}"
. /lab/job
poweroff -f
