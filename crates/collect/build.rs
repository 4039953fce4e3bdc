fn main() {
    bpf_build::for_build_script();
}
