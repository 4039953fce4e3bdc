//! Compiles the BPF side and embeds it in the binary.
fn main() {
    bpf_build::for_build_script();
}
