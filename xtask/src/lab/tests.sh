# Runs the tests in $names in a virtual machine of `cargo xtask lab`. Each failed test runs a second time. This second try counts only
# if the CPUs of the machine waited for CPUs of the host during the first try, see `refuse_repeats`.
run() { { /lab/root --color=never --include-ignored --test-threads=1 --exact $1 2>&1; echo $? > /tmp/code; } | tee /tmp/said; }
run "$names"
failed=$(sed -n '/^failures:$/,$s/^    \([a-z_0-9]*::[a-z_0-9:]*\)$/\1/p' /tmp/said | sort -u | tr '\n' ' ')
if [ -n "$failed" ]; then
    echo 'lab: again'
    run "$failed"
fi
echo "lab: tests $(cat /tmp/code)"
