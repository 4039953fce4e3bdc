//! Finds the compiler and linker for the BPF side and runs them: used by build scripts and by xtask.
