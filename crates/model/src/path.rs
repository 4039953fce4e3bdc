//! Paths of cgroups, relative to the mount.

/// Normalises a path: `/a/b` for `a/b/`, `/a//b` and `/a/b`; the root is `/`.
pub fn normal_path(path: &str) -> String {
    let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
    format!("/{}", parts.join("/"))
}

/// True if `path` is `root` or a descendant of it.
pub fn is_at_or_below(path: &str, root: &str) -> bool {
    let is_below = || path.strip_prefix(root).is_some_and(|rest| !root.is_empty() && rest.starts_with('/'));
    root == "/" || path == root || is_below()
}

/// Maximum length of a cgroup's path, bytes. The kernel opens no longer path.
pub const LONGEST_PATH: usize = 4_096;
/// Maximum number of levels below the root.
pub const DEEPEST: usize = 256;

/// True for a path within both limits. Any user may create deeply nested cgroups, and each level costs memory and time.
pub fn is_bounded(path: &str) -> bool {
    let levels = || path.bytes().filter(|byte| *byte == b'/').count();
    !path.is_empty() && path.len() <= LONGEST_PATH && levels() <= DEEPEST
}

/// Returns the first three names of a path. Only root creates cgroups at these levels: for a user, a service or a pod.
pub fn family(path: &str) -> &str {
    path.match_indices('/').nth(3).map_or(path, |(end, _)| &path[..end])
}

/// Returns a path and its ancestors, such as `/a/b`, `/a` and `/`: all paths for which [`is_at_or_below`] is true. A file may
/// hold a path that does not begin at the root. Its last ancestor is `/` as well.
pub fn path_and_ancestors(path: &str) -> impl Iterator<Item = &str> {
    std::iter::successors(Some(path), |path| match path.rfind('/') {
        _ if *path == "/" => None,
        None | Some(0) => Some("/"),
        Some(end) => Some(&path[..end]),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn the_ancestors_of_a_path_are_the_paths_it_is_below(path in "[/a-b-]{0,8}", root in "[/a-b-]{0,5}") {
            let is_ancestor = path_and_ancestors(&path).any(|at| at == root);
            prop_assert_eq!(is_ancestor, is_at_or_below(&path, &root));
            prop_assert!(path_and_ancestors(&path).last() == Some("/"));
        }
    }

    #[test]
    fn a_cgroup_selects_itself_and_all_below_but_no_namesake() {
        assert!(is_at_or_below("/a", "/a"));
        assert!(is_at_or_below("/a/b", "/a"));
        assert!(!is_at_or_below("/ab", "/a"));
        assert!(is_at_or_below("/ab", "/"));
    }

    #[test]
    fn paths_are_normalised() {
        for path in ["a/b", "/a/b", "/a/b/", "//a//b"] {
            assert_eq!(normal_path(path), "/a/b");
        }
        assert_eq!(normal_path("/"), "/");
        assert_eq!(normal_path(""), "/");
    }
}
