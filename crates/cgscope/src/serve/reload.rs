//! The keys of the configuration that a reload does not change.

use cgscope_serve::config::Config;

/// The end of a sentence: the changed keys that only a restart applies. Empty if there are none.
pub fn what_stays(started: &Config, now: &Config) -> String {
    let changed: Vec<_> = [
        ("`user`", started.user != now.user),
        ("`path` in [socket]", started.socket.path != now.socket.path),
        ("`owner` in [socket]", started.socket.owner != now.socket.owner),
        ("`viewers` in [socket]", started.socket.group() != now.socket.group()),
        ("`listen` in [http]", started.http.listen != now.http.listen),
        ("`runtime` in [containers]", started.containers.runtime != now.containers.runtime),
    ]
    .into_iter()
    .filter_map(|(key, is_changed)| is_changed.then_some(key))
    .collect();
    if changed.is_empty() {
        return String::new();
    }
    format!("; changes to {} take effect when the daemon is restarted", changed.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Config {
        Config::parse(text).expect(text)
    }

    #[test]
    fn only_changed_keys_that_need_a_restart_are_named() {
        let started = parsed("");
        let at_once = "[collect]\ninterval = \"1s\"\n[socket]\nclients = 3\nadmin_groups = [\"cgscope-admin\"]\n\
                       [http]\nusers = \"/u\"\ntls_certificate = \"/c\"\ntls_key = \"/k\"\n[metrics]\ndepth = 3\n";
        assert_eq!(what_stays(&started, &parsed(at_once)), "");
        for (text, key) in [
            ("user = \"x\"", "`user`"),
            ("[socket]\npath = \"/x\"", "`path` in [socket]"),
            ("[socket]\nowner = 5", "`owner` in [socket]"),
            ("[socket]\nviewers = \"x\"", "`viewers` in [socket]"),
            ("[http]\nlisten = \"\"", "`listen` in [http]"),
            ("[containers]\nruntime = \"\"", "`runtime` in [containers]"),
        ] {
            let words = what_stays(&started, &parsed(text));
            assert!(words.contains(&format!(" to {key} take effect")), "{words:?}");
            assert_eq!(what_stays(&parsed(text), &parsed(text)), "");
        }
        let two = what_stays(&started, &parsed("[http]\nlisten = \"\"\n[containers]\nruntime = \"\""));
        assert!(two.contains("`listen` in [http], `runtime` in [containers]"), "{two}");
    }
}
