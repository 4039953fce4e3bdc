//! Names of programs that are comparable: threads carry numbers.

/// The name with each number that follows a separator as `#`, and kernel workers as one: `kworker/0:1-events` and
/// `kworker/u8:2` are `kworker`, `worker-12` is `worker-#`; `python3` and `nginx` stay.
pub fn name(comm: &str) -> String {
    if comm.starts_with("kworker/") {
        return "kworker".into();
    }
    let mut out = String::with_capacity(comm.len());
    let mut letters = comm.chars().peekable();
    while let Some(letter) = letters.next() {
        out.push(letter);
        let is_separator = !letter.is_alphanumeric();
        if is_separator && letters.next_if(char::is_ascii_digit).is_some() {
            while letters.next_if(char::is_ascii_digit).is_some() {}
            out.push('#');
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_threads_are_left_out_and_versions_stay() {
        for (comm, expected) in [
            ("python3", "python3"),
            ("worker-12", "worker-#"),
            ("kworker/0:1-events", "kworker"),
            ("kworker/u8:2", "kworker"),
            ("ksoftirqd/11", "ksoftirqd/#"),
            ("http-nio-8080-e", "http-nio-#-e"),
            ("CPU 3/KVM", "CPU #/KVM"),
            ("", ""),
            ("é-1", "é-#"),
        ] {
            assert_eq!(name(comm), expected);
        }
    }
}
