#!/usr/bin/busybox sh
# Init (process 1) of the virtual machine `systemd`. runc needs pivot_root, which fails on the kernel's first root. So the root is
# mounted over itself.
busybox mount -o bind / /mnt
cd /mnt
busybox mount -o move . /
exec busybox chroot . /lib/systemd/systemd
