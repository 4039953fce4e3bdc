//! Shortens ids of containers and pods in names, as the tools of containers print them.

/// Minimum digits of a container or image id, and the digits to keep. Docker and crictl keep the same number.
const ID: (usize, usize) = (32, 12);
/// Digits of the parts of a uid. The parts are separated by `-`, or by `_` if systemd's cgroup driver wrote the name.
const UID: [usize; 5] = [8, 4, 4, 4, 12];

/// Shortens the ids in a path or in a sentence with paths: `/kubepods/pod1c8e2f4a…/9f2d7c4b1a8e…`.
pub fn short(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut out = String::with_capacity(text.len());
    let mut at = 0;
    // Only ASCII digits are cut, so `at` is always at the boundary of a character.
    while let Some(letter) = text[at..].chars().next() {
        let starts = at == 0 || !bytes[at - 1].is_ascii_hexdigit() || text[..at].ends_with("pod");
        let (kept, length) = match starts {
            true => uid(&bytes[at..]).or_else(|| id(&bytes[at..])).unwrap_or((0, 0)),
            false => (0, 0),
        };
        if length == 0 {
            out.push(letter);
            at += letter.len_utf8();
        } else {
            out.push_str(&text[at..at + kept]);
            out.push('…');
            at += length;
        }
    }
    out
}

/// Bytes to keep of an id that begins here, and its length.
fn id(bytes: &[u8]) -> Option<(usize, usize)> {
    let length = digits(bytes);
    (length >= ID.0).then_some((ID.1, length))
}

fn uid(bytes: &[u8]) -> Option<(usize, usize)> {
    let mut at = 0;
    for (part, length) in UID.into_iter().enumerate() {
        if part != 0 {
            matches!(bytes.get(at), Some(b'-' | b'_')).then_some(())?;
            at += 1;
        }
        (digits(&bytes[at..]) == length).then_some(())?;
        at += length;
    }
    Some((UID[0], at))
}

fn digits(bytes: &[u8]) -> usize {
    bytes.iter().take_while(|byte| byte.is_ascii_hexdigit()).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_shortened_and_names_are_kept() {
        let id = "9f2d7c4b1a8e6035d4c2b1a09f8e7d6c5b4a39281706f5e4d3c2b1a091827364";
        for (path, said) in [
            (
                format!("/kubepods/burstable/pod1c8e2f4a-6b7d-4e90-a3f5-0d9b8c7a6e51/{id}"),
                "/kubepods/burstable/pod1c8e2f4a…/9f2d7c4b1a8e…",
            ),
            (
                format!(
                    "/kubepods.slice/kubepods-pod1c8e2f4a_6b7d_4e90_a3f5_0d9b8c7a6e51.slice/cri-containerd-{id}.scope"
                ),
                "/kubepods.slice/kubepods-pod1c8e2f4a….slice/cri-containerd-9f2d7c4b1a8e….scope",
            ),
            ("/system.slice/cafe.service".into(), "/system.slice/cafe.service"),
            ("/日本/deadbeef-dead".into(), "/日本/deadbeef-dead"),
            (format!("/docker/{id}: its tasks waited"), "/docker/9f2d7c4b1a8e…: its tasks waited"),
            (String::new(), ""),
        ] {
            assert_eq!(short(&path), said);
        }
    }
}
