//! Tests that the client knows exactly the names that a runtime reports.

use std::collections::HashMap;

use cgscope_runtimes::{Runtimes, Wanted};

use crate::runtime::{Answer, Container, Fake, Metadata, PACE, knows, list, runtime};

const ID: &str = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";
const UID: &str = "7f3a1b2c-0d4e-4f5a-8b6c-9d0e1f2a3b4c";

fn container(id: &str, labels: &[(&str, &str)]) -> Container {
    Container {
        id: id.into(),
        pod_sandbox_id: "sandbox".into(),
        metadata: Some(Metadata { name: "own-name".into(), attempt: 3 }),
        created_at: 1,
        labels: labels.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect(),
        annotations: HashMap::from([("a".to_owned(), "b".to_owned())]),
    }
}

fn of_kubernetes(id: &str) -> Container {
    let labels = [
        ("io.kubernetes.container.name", "api"),
        ("io.kubernetes.pod.name", "shop-5d9"),
        ("io.kubernetes.pod.namespace", "prod"),
        ("io.kubernetes.pod.uid", UID),
        ("app", "shop"),
    ];
    container(id, &labels)
}

#[tokio::test]
async fn a_container_of_kubernetes_has_its_three_names_and_its_pod_has_two() {
    let dir = tempfile::tempdir().unwrap();
    let plain = container(&ID.replace('0', "f"), &[]);
    let fake = Fake::start(dir.path().join("cri"), list(vec![of_kubernetes(ID), plain.clone()]));
    let mut runtime = runtime(&fake.socket);
    let of = |runtime: &Runtimes, id: &str| runtime.listing().names(&Wanted::Container(id.into())).cloned();
    let of_pod = |runtime: &Runtimes, uid: &str| runtime.listing().names(&Wanted::Pod(uid.into())).cloned();
    assert!(of(&runtime, ID).is_none());
    assert_eq!(runtime.refresh().await, None, "there is nothing to say");
    let names = of(&runtime, ID).unwrap();
    assert_eq!(
        [&names.container, &names.pod, &names.namespace].map(|name| name.as_deref()),
        [Some("api"), Some("shop-5d9"), Some("prod")]
    );
    let pod = of_pod(&runtime, UID).unwrap();
    assert_eq!(
        [&pod.container, &pod.pod, &pod.namespace].map(|name| name.as_deref()),
        [None, Some("shop-5d9"), Some("prod")]
    );
    let names = of(&runtime, &plain.id).unwrap();
    assert_eq!((names.container.as_deref(), &names.pod), (Some("own-name"), &None), "no pod is around it");
    assert!(of(&runtime, "sandbox").is_none() && of_pod(&runtime, "").is_none());
    assert_eq!(runtime.listing().named(), 2);
}

#[tokio::test]
async fn a_list_in_many_pieces_is_read_as_one() {
    let dir = tempfile::tempdir().unwrap();
    let containers = (0..9_000).map(|n| of_kubernetes(&format!("{n:064x}"))).collect();
    let fake = Fake::start(dir.path().join("cri"), list(containers));
    let mut runtime = runtime(&fake.socket);
    assert_eq!(runtime.refresh().await, None);
    assert_eq!(runtime.listing().named(), 9_000);
    assert!((0..9_000).all(|n| runtime.listing().names(&Wanted::Container(format!("{n:064x}"))).is_some()));
}

#[tokio::test]
async fn all_runtimes_that_answer_are_used() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    // Docker's own containerd, with its CRI turned off, answers like this.
    let without = Fake::start(path("b"), Answer::Status("12", "unknown service runtime.v1.RuntimeService"));
    let other = &ID.replace('0', "f");
    let _with = Fake::start(path("c"), list(vec![of_kubernetes(ID)]));
    let _last = Fake::start(path("d"), list(vec![of_kubernetes(other)]));
    let mut runtime = Runtimes::at(["a", "b", "c", "d"].map(path).into(), PACE);
    for round in 1..4 {
        assert_eq!(runtime.refresh().await, None);
        assert!([ID, other].iter().all(|id| knows(&runtime, id)));
        assert_eq!(without.calls(), round);
    }
}

#[tokio::test]
async fn no_runtime_is_called_if_none_is_configured() {
    let mut runtime = Runtimes::new("").unwrap();
    assert_eq!(runtime.refresh().await, None);
    assert_eq!(runtime.listing().named(), 0);
}

#[tokio::test]
async fn the_configured_runtime_must_be_an_absolute_path() {
    let dir = tempfile::tempdir().unwrap();
    let fake = Fake::start(dir.path().join("cri"), list(vec![of_kubernetes(ID)]));
    let path = fake.socket.to_str().unwrap();
    for config in [path.to_owned(), format!("unix://{path}")] {
        let mut runtime = Runtimes::new(&config).unwrap();
        assert_eq!(runtime.refresh().await, None);
        assert!(knows(&runtime, ID));
    }
    for config in ["containerd", "http://127.0.0.1", "run/containerd.sock", "unix://x"] {
        let words = Runtimes::new(config).err().expect(config).to_string();
        assert!(words.contains(config) && words.contains("\"auto\""), "{words}");
    }
    assert!(Runtimes::new("auto").is_ok());
}
