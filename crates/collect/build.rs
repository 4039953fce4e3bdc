//! Compiles the kernel side, so that it is part of the binary.
fn main() {
    bpf_build::for_build_script();
}
