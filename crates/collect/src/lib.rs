//! Reads the running host: the only room with aya, root, /proc and /sys.
