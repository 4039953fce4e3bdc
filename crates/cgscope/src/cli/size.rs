//! Sizes as people type them.

/// `100M`: bytes in binary units, as the outputs have them; a plain number is bytes.
pub fn size(text: &str) -> Result<u64, String> {
    let nonsense = || "a size looks like 500K, 100M or 2G (1K is 1024 bytes)".to_owned();
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let shift = match &text[digits.len()..] {
        "" => 0,
        "K" | "k" | "KiB" => 10,
        "M" | "MiB" => 20,
        "G" | "GiB" => 30,
        "T" | "TiB" => 40,
        _ => return Err(nonsense()),
    };
    let number: f64 = digits.parse().map_err(|_| nonsense())?;
    let bytes = number * (1u64 << shift) as f64;
    if !(SMALLEST as f64..=LARGEST as f64).contains(&bytes) {
        return Err("a size lies between 4K and 1024T".to_owned());
    }
    Ok(bytes as u64)
}

/// Below this a file is hardly more than its header.
const SMALLEST: u64 = 4 << 10;
const LARGEST: u64 = 1 << 50;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_binary() {
        for (text, bytes) in [
            ("4096", 4096),
            ("64K", 64 << 10),
            ("64k", 64 << 10),
            ("100M", 100 << 20),
            ("100MiB", 100 << 20),
            ("1.5G", 3 << 29),
            ("2T", 2 << 40),
        ] {
            assert_eq!(size(text), Ok(bytes), "{text}");
        }
    }

    #[test]
    fn nonsense_sizes_are_refused() {
        for text in
            ["", "M", "-1M", "1", "4095", "nan", "inf", "10 M", "10MB", "10X", "iB", "10iB", "1e30", "2000T"]
        {
            assert!(size(text).is_err(), "{text}");
        }
    }
}
