# Opens a shell in a virtual machine of `cargo xtask lab`.
exec > /dev/ttyS0 2>&1 < /dev/ttyS0
stty -F /dev/ttyS0 sane
echo 'cgscope is on PATH, its tests are /lab/root; Ctrl-D or Ctrl-A X ends the machine.'
setsid -c sh -i
