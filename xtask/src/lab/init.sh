#!/usr/bin/busybox sh
# Init (process 1) of a virtual machine of `cargo xtask lab`.
export PATH=/usr/bin
/usr/bin/busybox --install -s /usr/bin
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
ip link set lo up
mkdir -p /dev/pts /dev/shm /tmp
mount -t devpts devpts /dev/pts
mount -t tmpfs shm /dev/shm
mount -t bpf bpf /sys/fs/bpf
mount -t tracefs tracefs /sys/kernel/tracing
mount -t debugfs debugfs /sys/kernel/debug
mount -t cgroup2 -o nsdelegate cgroup2 /sys/fs/cgroup
echo "+cpu +cpuset +memory" > /sys/fs/cgroup/cgroup.subtree_control
. /lab/run
