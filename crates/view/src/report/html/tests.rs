use std::{
    io::Write,
    process::{Command, Stdio},
};

use super::*;
use crate::report::tests::{about, whole};

/// Returns the Base64 of the SHA-256 of a text.
fn hash(text: &str) -> String {
    let mut sum = Command::new("sha256sum").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    sum.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    let said = String::from_utf8(sum.wait_with_output().unwrap().stdout).unwrap();
    let bytes: Vec<u8> = (0..32).map(|i| u8::from_str_radix(&said[2 * i..2 * i + 2], 16).unwrap()).collect();
    bytes.chunks(3).map(base64).collect()
}

fn base64(bytes: &[u8]) -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let bits = bytes.iter().fold(0u32, |bits, byte| bits << 8 | u32::from(*byte)) << (8 * (3 - bytes.len()));
    let letters = (0..=bytes.len()).map(|i| char::from(LETTERS[(bits >> (18 - 6 * i) & 63) as usize]));
    format!("{:=<4}", letters.collect::<String>())
}

#[test]
fn the_page_states_the_hashes_of_its_style_and_script() {
    assert_eq!(hash("abc"), "ungWv48Bz+pBQUDeXa4iI7ADYaOWF3qctBD/YfIAFa0=");
    assert_eq!((STYLE_HASH, SCRIPT_HASH), (hash(&style()).as_str(), hash(SCRIPT).as_str()));
}

/// A hostile name that a user of the host can give a task or cgroup.
const HOSTILE: &str = "</script><script>alert(1)</script><!--<script>\"'&\u{2028}";

#[test]
fn no_name_can_break_out_of_its_element() {
    let escaped = text(HOSTILE);
    assert!(!escaped.contains(['<', '>', '"', '\'']), "{escaped}");
    let json = as_script(&[HOSTILE]);
    assert!(!json.contains(['<', '>', '&']), "{json}");
    let back: Vec<String> = serde_json::from_str(&json).unwrap();
    assert_eq!(back, [HOSTILE]);
}

#[test]
fn inserted_text_is_not_searched_for_placeholders() {
    let parts = [("a", "{{b}}".to_owned()), ("b", "no".to_owned())];
    assert_eq!(filled("1 {{a}} 2 {{b}} 3", &parts), "1 {{b}} 2 no 3");
}

#[test]
fn every_part_of_the_template_is_filled_and_named_once_in_the_data() {
    let page = page(&about(), &whole());
    assert!(page.starts_with(BEGINNING));
    assert!(!page.contains("{{"), "a placeholder remains");
    let data = page.split("id=\"data\">").nth(1).and_then(|rest| rest.split("</script>").next()).unwrap();
    let data: serde_json::Value = serde_json::from_str(data).unwrap();
    let sum = |series: &serde_json::Value| -> u64 {
        series.as_array().unwrap().iter().map(|n| n.as_u64().unwrap()).sum()
    };
    let by_cause: u64 = data["over"]["by_cause_ns"].as_array().unwrap().iter().map(sum).sum();
    assert_eq!(Some(by_cause), data["total"]["total_ns"].as_u64());
    assert_eq!(Some(sum(&data["over"]["waits"])), data["total"]["count"].as_u64());
    let heat: u64 = data["over"]["heat"]
        .as_array()
        .unwrap()
        .iter()
        .map(|cells| {
            cells.as_array().unwrap().iter().skip(1).step_by(2).map(|n| n.as_u64().unwrap()).sum::<u64>()
        })
        .sum();
    assert_eq!(Some(heat), data["total"]["count"].as_u64());
    assert_eq!(data["sleeps"]["rows"].as_array().map(Vec::len), Some(0), "chains were not counted");
    insta::assert_snapshot!(serde_json::to_string_pretty(&data["quotas"]).unwrap());
}

#[test]
fn the_page_says_which_quotas_would_have_been_enough() {
    assert!(!page(&about(), &whole()).contains("id=\"enough\""), "no quota ran out");
    let page = page(&about(), &Whole { enough: vec![HOSTILE.into()], ..whole() });
    let section =
        page.split("<section id=\"enough\">").nth(1).and_then(|rest| rest.split("</section>").next());
    let section = section.expect("the section");
    assert!(section.contains(&format!("<li>{}</li>", text(HOSTILE))), "{section}");
    assert!(section.contains("`cgscope whatif /tmp/&lt;b&gt;.rec`"), "{section}");
}
