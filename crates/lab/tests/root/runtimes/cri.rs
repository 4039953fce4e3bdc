//! The CRI calls that the kubelet makes to a runtime. The messages contain only the fields of `runtime/v1/api.proto` that the
//! tests use.

use std::{
    collections::HashMap,
    io::Write,
    process::{Command, Stdio},
};

use prost::Message;

/// Value `NODE` of the enum `NamespaceMode`: the container uses the namespace of the host.
pub(super) const NODE: i32 = 2;

#[derive(Clone, PartialEq, Message)]
pub(super) struct RunPodSandbox {
    #[prost(message, optional, tag = "1")]
    pub(super) config: Option<Sandbox>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Sandbox {
    #[prost(message, optional, tag = "1")]
    pub(super) metadata: Option<SandboxMetadata>,
    #[prost(map = "string, string", tag = "6")]
    pub(super) labels: HashMap<String, String>,
    #[prost(message, optional, tag = "8")]
    pub(super) linux: Option<LinuxSandbox>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct SandboxMetadata {
    #[prost(string, tag = "1")]
    pub(super) name: String,
    #[prost(string, tag = "2")]
    pub(super) uid: String,
    #[prost(string, tag = "3")]
    pub(super) namespace: String,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct LinuxSandbox {
    #[prost(string, tag = "1")]
    pub(super) cgroup_parent: String,
    #[prost(message, optional, tag = "2")]
    pub(super) security: Option<SandboxSecurity>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct SandboxSecurity {
    #[prost(message, optional, tag = "1")]
    pub(super) namespaces: Option<Namespaces>,
    #[prost(bool, tag = "6")]
    pub(super) privileged: bool,
}

#[derive(Clone, Copy, PartialEq, Message)]
pub(super) struct Namespaces {
    #[prost(int32, tag = "1")]
    pub(super) network: i32,
    #[prost(int32, tag = "2")]
    pub(super) pid: i32,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct CreateContainer {
    #[prost(string, tag = "1")]
    pub(super) sandbox_id: String,
    #[prost(message, optional, tag = "2")]
    pub(super) config: Option<Container>,
    #[prost(message, optional, tag = "3")]
    pub(super) sandbox: Option<Sandbox>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Container {
    #[prost(message, optional, tag = "1")]
    pub(super) metadata: Option<Text>,
    #[prost(message, optional, tag = "2")]
    pub(super) image: Option<Text>,
    #[prost(string, repeated, tag = "3")]
    pub(super) command: Vec<String>,
    #[prost(string, repeated, tag = "4")]
    pub(super) args: Vec<String>,
    #[prost(message, repeated, tag = "7")]
    pub(super) mounts: Vec<Mount>,
    #[prost(map = "string, string", tag = "9")]
    pub(super) labels: HashMap<String, String>,
    #[prost(message, optional, tag = "15")]
    pub(super) linux: Option<LinuxContainer>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Mount {
    #[prost(string, tag = "1")]
    pub(super) container_path: String,
    #[prost(string, tag = "2")]
    pub(super) host_path: String,
    #[prost(bool, tag = "3")]
    pub(super) readonly: bool,
    /// Mount propagation: 0 is private. With 1, new mounts of the host also appear in the container.
    #[prost(int32, tag = "5")]
    pub(super) propagation: i32,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct LinuxContainer {
    #[prost(message, optional, tag = "1")]
    pub(super) resources: Option<Resources>,
    #[prost(message, optional, tag = "2")]
    pub(super) security: Option<ContainerSecurity>,
}

#[derive(Clone, Copy, PartialEq, Message)]
pub(super) struct Resources {
    #[prost(int64, tag = "1")]
    pub(super) cpu_period: i64,
    #[prost(int64, tag = "2")]
    pub(super) cpu_quota: i64,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct ContainerSecurity {
    #[prost(message, optional, tag = "1")]
    pub(super) capabilities: Option<Capabilities>,
    #[prost(bool, tag = "2")]
    pub(super) privileged: bool,
    #[prost(message, optional, tag = "3")]
    pub(super) namespaces: Option<Namespaces>,
    #[prost(message, optional, tag = "5")]
    pub(super) user: Option<User>,
    #[prost(bool, tag = "7")]
    pub(super) has_readonly_root: bool,
    #[prost(bool, tag = "11")]
    pub(super) no_new_privileges: bool,
    #[prost(message, optional, tag = "15")]
    pub(super) seccomp: Option<SeccompProfile>,
}

/// Names of capabilities, without `CAP_`.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Capabilities {
    #[prost(string, repeated, tag = "1")]
    pub(super) add: Vec<String>,
    #[prost(string, repeated, tag = "2")]
    pub(super) drop: Vec<String>,
}

#[derive(Clone, Copy, PartialEq, Message)]
pub(super) struct User {
    #[prost(int64, tag = "1")]
    pub(super) id: i64,
}

/// A seccomp profile. Kind 0 is the default profile of the runtime.
#[derive(Clone, Copy, PartialEq, Message)]
pub(super) struct SeccompProfile {
    #[prost(int32, tag = "1")]
    pub(super) kind: i32,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct ExecSync {
    #[prost(string, tag = "1")]
    pub(super) container_id: String,
    #[prost(string, repeated, tag = "2")]
    pub(super) command: Vec<String>,
    #[prost(int64, tag = "3")]
    pub(super) timeout_s: i64,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Executed {
    #[prost(bytes = "vec", tag = "1")]
    pub(super) stdout: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    pub(super) stderr: Vec<u8>,
    #[prost(int32, tag = "3")]
    pub(super) status: i32,
}

/// A message with a single text, which is the name of a container or an image, or an id. Some requests and replies consist only
/// of an id.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Text {
    #[prost(string, tag = "1")]
    pub(super) text: String,
}

pub(super) fn text(text: &str) -> Text {
    Text { text: text.to_owned() }
}

/// Calls a method of the runtime. Five bytes precede each message: one byte that says whether it is compressed, and four bytes
/// for its length.
pub(super) fn call<Reply: Message + Default>(socket: &str, method: &str, request: &impl Message) -> Reply {
    let mut curl = Command::new("curl")
        .args([
            "--silent",
            "--show-error",
            "--http2-prior-knowledge",
            "--unix-socket",
            socket,
            "--max-time",
            "10",
        ])
        .args(["--header", "content-type: application/grpc", "--header", "te: trailers"])
        .args(["--data-binary", "@-", "--dump-header", "/dev/stderr"])
        .arg(format!("http://localhost/runtime.v1.RuntimeService/{method}"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("curl starts");
    let message = request.encode_to_vec();
    let length = u32::try_from(message.len()).expect("a short message").to_be_bytes();
    let framed = [&[0][..], &length, &message].concat();
    curl.stdin.take().expect("its input").write_all(&framed).expect("curl reads");
    let output = curl.wait_with_output().expect("a child of ours");
    let headers = String::from_utf8_lossy(&output.stderr);
    assert!(headers.contains("grpc-status: 0"), "{method}: {headers}");
    Reply::decode(output.stdout.get(5..).expect("a reply")).expect("a message")
}
