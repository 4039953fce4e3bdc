//! The daemon's configuration: a TOML file in which every key is optional.

use std::{fmt, net::SocketAddr, path::PathBuf, time::Duration};

use cgscope_model::units::seconds;
use serde::{Deserialize, Deserializer, de::Error as _};
use serde_json::Value;

use crate::http::HttpLimits;

pub const FILE: &str = "/etc/cgscope/cgscope.toml";

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// The user to which the daemon switches after it has loaded BPF, if root started it; `None`: no switch.
    pub user: Option<String>,
    pub collect: CollectConfig,
    pub socket: SocketConfig,
    pub http: HttpConfig,
    pub metrics: cgscope_metrics::Config,
    pub containers: ContainersConfig,
}

/// The section `[collect]`.
#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct CollectConfig {
    /// Time between samples while no viewer requests a shorter interval, ns.
    #[serde(deserialize_with = "duration_ns")]
    pub interval: u64,
    /// Whether to count for whom tasks sleep.
    pub chains: bool,
}

/// The section `[socket]`.
#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SocketConfig {
    /// Path of the socket; empty means no socket.
    pub path: PathBuf,
    /// Owner of the socket, by name or number.
    pub owner: Account,
    /// Group whose members may connect and see everything, given by name or number; see [`Self::groups`].
    pub viewers: Option<Account>,
    /// The group of the socket in versions before 0.2. Members of this group can use the daemon only if they are also viewers;
    /// see [`Self::outdated`].
    pub group: Option<Account>,
    /// Groups whose members could see everything in versions before 0.2. Their members count as viewers, too.
    pub admin_groups: Option<Vec<Account>>,
    /// Minimum interval that a viewer can get, ns.
    #[serde(deserialize_with = "duration_ns")]
    pub shortest_interval: u64,
    /// Maximum number of viewers at the same time.
    pub clients: usize,
    /// Maximum number of viewers of one user at the same time.
    pub clients_per_user: usize,
    /// The group ids of [`Self::groups`]; not a key of the file.
    #[serde(skip)]
    pub viewer_gids: Vec<u32>,
    /// Maximum time until a client must have sent its first request, or must have read something. This is not a key of the file.
    #[serde(skip)]
    pub patience: Duration,
}

/// The section `[http]`.
#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct HttpConfig {
    /// Address on which the HTTP server listens. `None` (in the file: an empty string) means no HTTP server.
    #[serde(deserialize_with = "address")]
    pub listen: Option<SocketAddr>,
    /// PEM file with the certificate and its chain up to the root. It requires `tls_key`.
    pub tls_certificate: Option<PathBuf>,
    /// PEM file with the private key. It requires `tls_certificate`.
    pub tls_key: Option<PathBuf>,
    /// File with lines `NAME:BCRYPT`, as `htpasswd -B` writes them. `None`: everyone may read the pages.
    pub users: Option<PathBuf>,
    /// Limits for clients; not a key of the file.
    #[serde(skip)]
    pub limits: HttpLimits,
}

/// The section `[containers]`.
#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ContainersConfig {
    /// `auto`, the path of a CRI socket, or empty for no runtime.
    pub runtime: String,
}

/// A user or a group.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(untagged)]
pub enum Account {
    Id(u32),
    Name(String),
}

impl fmt::Display for Account {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Id(id) => write!(f, "{id}"),
            Self::Name(name) => f.write_str(name),
        }
    }
}

impl Default for CollectConfig {
    fn default() -> Self {
        Self { interval: 5_000_000_000, chains: false }
    }
}

impl Default for SocketConfig {
    fn default() -> Self {
        let name = |name: &str| Account::Name(name.into());
        Self {
            path: crate::client::SOCKET.into(),
            owner: name("root"),
            viewers: None,
            group: None,
            admin_groups: None,
            shortest_interval: 100_000_000,
            clients: 128,
            clients_per_user: 64,
            viewer_gids: Vec::new(),
            patience: Duration::from_secs(30),
        }
    }
}

impl SocketConfig {
    /// Returns the group that owns the socket file. Members of this group can open the socket.
    pub fn group(&self) -> Account {
        self.group.clone().or_else(|| self.groups().into_iter().next()).unwrap_or(Account::Id(0))
    }

    /// Returns the groups whose members may connect: `viewers` and `admin_groups`, or the default group if neither is set. An
    /// older configuration may set `admin_groups` to an empty list. In that case only root and the daemon's user may connect, as
    /// before version 0.2.
    pub fn groups(&self) -> Vec<Account> {
        match (&self.viewers, &self.admin_groups) {
            (None, None) => vec![Self::default_viewers()],
            (viewers, admins) => viewers.iter().chain(admins.iter().flatten()).cloned().collect(),
        }
    }

    /// Returns the names of [`Self::groups`], separated by `between`.
    pub fn groups_in_words(&self, between: &str) -> String {
        self.groups().iter().map(ToString::to_string).collect::<Vec<_>>().join(between)
    }

    /// Returns the default group. The packages create this group.
    pub fn default_viewers() -> Account {
        Account::Name("cgscope-admin".into())
    }

    /// Returns warnings about keys that a later version will refuse.
    pub fn outdated(&self) -> Vec<String> {
        let group = self.group.as_ref().map(|group| {
            let viewers = self.groups_in_words(" or ");
            format!(
                "`group` in [socket] is outdated: only members of {group} can open the socket, and of these only members of {viewers} \
                 may use it. Remove `group`, and name in `viewers` the group whose members may see everything"
            )
        });
        let admin_groups = "`admin_groups` in [socket] is outdated: remove it, and name in `viewers` the group whose members may see \
                            everything";
        group.into_iter().chain(self.admin_groups.as_ref().map(|_| admin_groups.to_owned())).collect()
    }
}

impl Default for HttpConfig {
    fn default() -> Self {
        let listen = Some(SocketAddr::from(([127, 0, 0, 1], 9753)));
        Self { listen, tls_certificate: None, tls_key: None, users: None, limits: HttpLimits::default() }
    }
}

impl Default for ContainersConfig {
    fn default() -> Self {
        Self { runtime: "auto".into() }
    }
}

impl Config {
    /// Parses a configuration file. An error names the line and the allowed values.
    pub fn parse(text: &str) -> Result<Self, String> {
        let config: Self =
            toml_edit::de::from_str(text).map_err(|error| error.to_string().trim_end().to_owned())?;
        config.check()?;
        Ok(config)
    }

    fn check(&self) -> Result<(), String> {
        let Self { collect, socket, http, metrics, .. } = self;
        let tls = [("tls_certificate", &http.tls_certificate), ("tls_key", &http.tls_key)];
        if let [(has, Some(_)), (lacks, None)] | [(lacks, None), (has, Some(_))] = tls {
            return Err(format!("[http] has `{has}` but no `{lacks}`: TLS needs both"));
        }
        for (name, value) in [
            ("[socket] clients", socket.clients),
            ("[socket] clients_per_user", socket.clients_per_user),
            ("[metrics] cgroups", metrics.cgroups),
        ] {
            if value == 0 || value > 100_000 {
                return Err(format!("`{name}` is {value}: it must be between 1 and 100000"));
            }
        }
        if metrics.culprits > 100 {
            return Err(format!("`[metrics] culprits` is {}: it must be at most 100", metrics.culprits));
        }
        for (name, ns) in [
            ("[collect] interval", collect.interval),
            ("[socket] shortest_interval", socket.shortest_interval),
        ] {
            if !(10_000_000..=3_600_000_000_000).contains(&ns) {
                return Err(format!("`{name}` must be between 10ms and 1h"));
            }
        }
        let paths = [&http.tls_certificate, &http.tls_key, &http.users].into_iter().flatten();
        let is_relative = |path: &&PathBuf| path.is_relative() && !path.as_os_str().is_empty();
        paths.chain([&socket.path]).find(is_relative).map_or(Ok(()), |path| {
            Err(format!("`{}` is a relative path: write the path from the root (`/`)", path.display()))
        })
    }
}

fn duration_ns<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
    let text = match Value::deserialize(deserializer)? {
        Value::String(text) => text,
        other => other.to_string(),
    };
    let seconds = seconds(&text).filter(|seconds| seconds.is_finite() && *seconds >= 0.0);
    let ns = seconds.ok_or_else(|| {
        D::Error::custom(format!("{text:?} is not a duration: write \"500ms\", \"5s\" or \"2m\""))
    })? * 1e9;
    Ok(ns.min(1e18) as u64)
}

fn address<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<SocketAddr>, D::Error> {
    let text = String::deserialize(deserializer)?;
    if text.is_empty() {
        return Ok(None);
    }
    text.parse().map(Some).map_err(|_| {
        D::Error::custom(format!("{text:?} is not an address: write \"127.0.0.1:9753\" or \"[::]:9753\""))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wrong(text: &str) -> String {
        Config::parse(text).expect_err(text)
    }

    #[test]
    fn an_empty_file_gives_the_defaults() {
        let config = Config::parse("").unwrap();
        assert_eq!(config.collect.interval, 5_000_000_000);
        assert_eq!(config.socket.path, PathBuf::from("/run/cgscope.sock"));
        assert_eq!(config.http.listen, Some("127.0.0.1:9753".parse().unwrap()));
        assert!(config.http.listen.unwrap().ip().is_loopback());
        let some = Config::parse("[socket]\nclients = 3").unwrap();
        assert_eq!(some.socket.patience, Duration::from_secs(30), "what is not in the file has its default");
    }

    /// After an upgrade, nobody can see more than before.
    #[test]
    fn an_older_configuration_allows_those_who_saw_everything() {
        let groups = |socket: &str| {
            let config = Config::parse(&format!("[socket]\n{socket}\n")).unwrap().socket;
            (config.groups(), config.group())
        };
        let name = |name: &str| Account::Name(name.into());
        let admin = || name("cgscope-admin");
        assert_eq!(groups(""), (vec![admin()], admin()));
        assert_eq!(groups("viewers = \"adm\""), (vec![name("adm")], name("adm")));
        assert_eq!(groups("group = \"cgscope\""), (vec![admin()], name("cgscope")));
        assert_eq!(groups("admin_groups = [\"wheel\"]"), (vec![name("wheel")], name("wheel")));
        assert_eq!(groups("admin_groups = []"), (vec![], Account::Id(0)));
        assert_eq!(groups("group = \"a\"\nadmin_groups = []"), (vec![], name("a")));
    }

    #[test]
    fn every_key_can_be_set() {
        let config = Config::parse(
            r#"
            user = "cgscope"
            [collect]
            interval = 2
            [socket]
            path = ""
            owner = 0
            viewers = "adm"
            group = 4
            admin_groups = ["wheel", 27]
            shortest_interval = "250ms"
            [http]
            listen = ""
            tls_certificate = "/etc/a.crt"
            tls_key = "/etc/a.key"
            users = "/etc/users"
            [metrics]
            include = "^/kubepods"
            culprits = 0
            [containers]
            runtime = "/run/x.sock"
            "#,
        )
        .unwrap();
        assert_eq!(config.collect.interval, 2_000_000_000);
        assert_eq!((config.socket.owner.clone(), config.socket.group()), (Account::Id(0), Account::Id(4)));
        let outdated = config.socket.outdated();
        assert!(outdated[0].contains("only members of 4 can open the socket"), "{outdated:?}");
        assert!(outdated[0].contains("only members of adm or wheel or 27 may use it"), "{outdated:?}");
        assert!(outdated[1].contains("`admin_groups`"), "{outdated:?}");
        assert_eq!(Config::default().socket.outdated(), [""; 0]);
        let name = |name: &str| Account::Name(name.into());
        assert_eq!(config.socket.groups(), [name("adm"), name("wheel"), Account::Id(27)]);
        assert_eq!(config.socket.shortest_interval, 250_000_000);
        assert_eq!(config.http.listen, None);
        assert!(config.metrics.include.is_some_and(|include| include.is_match("/kubepods/x")));
    }

    #[test]
    fn an_error_names_the_line_and_the_allowed_values() {
        let unknown = wrong("[http]\nlisten_on = \"x\"\n");
        assert!(unknown.contains("line 2") && unknown.contains("unknown field `listen_on`"), "{unknown}");
        assert!(unknown.contains("expected one of `listen`"), "{unknown}");
        assert!(wrong("[http]\nlisten = \"localhost\"\n").contains("\"localhost\" is not an address"));
        assert!(wrong("[collect]\ninterval = \"soon\"").contains("\"soon\" is not a duration"));
        assert!(wrong("[collect]\ninterval = 0").contains("between 10ms and 1h"));
        assert!(wrong("[collect]\ninterval = -1").contains("not a duration"));
        assert!(wrong("[metrics]\ninclude = \"a(\"").contains("not a regular expression: "));
        assert!(wrong("[metrics]\ncgroups = 0").contains("between 1 and 100000"));
        assert!(wrong("[http]\ntls_key = \"/a\"").contains("no `tls_certificate`"));
        assert!(wrong("[socket]\npath = \"run.sock\"").contains("is a relative path"));
        assert!(wrong("[socket]\nclients = -1").contains("line 2"));
        assert!(wrong("nonsense").contains("line 1"));
    }
}
