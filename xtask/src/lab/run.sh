# Runs the script /lab/job in a virtual machine of `cargo xtask lab`, and ends the machine.
export HOME=/root LANG=C.UTF-8 TERM=linux TMPDIR=/tmp RUST_BACKTRACE=0
# Emulation is slow: with this variable, tests do a tenth of the work and skip assertions about times.
export CGSCOPE_TEST_EMULATED=1 CGSCOPE_BIN=/usr/bin/cgscope
# /tmp is not a mount of its own: links to the binaries have the same paths as on the host, which may be below /tmp.
chmod 1777 /tmp
# Results use a second serial port: on the console, kernel messages would break the lines of the tests.
exec > /dev/ttyS1 2>&1 < /dev/null
stty -F /dev/ttyS1 raw -echo
# `uname -r` is the same for all updates of a Debian kernel; `uname -v` has the version: "... Debian 6.1.176-1 (2026-07-02)".
version=$(uname -v | sed -n 's/.* Debian \([^ ]*\).*/\1/p')
echo "lab: kernel ${version:-$(uname -r)}"
. /lab/job
poweroff -ff
