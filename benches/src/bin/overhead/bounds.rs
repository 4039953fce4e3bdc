//! Bounds that are printed beside a figure, and decide about the exit code.

use anyhow::{Result, bail};

/// The bounds that were missed so far.
#[derive(Default)]
pub struct Bounds(Vec<String>);

impl Bounds {
    /// Prints a figure, which is `value`, with its bound.
    pub fn at_most(&mut self, figure: &str, value: f64, most: f64) {
        println!("{figure} (at most {most})");
        if value.is_nan() || value > most {
            self.0.push(format!("{figure} (at most {most})"));
        }
    }

    /// Fails if one was missed.
    pub fn check(self) -> Result<()> {
        if !self.0.is_empty() {
            bail!("missed: {}", self.0.join("; "));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::Bounds;

    #[test]
    fn a_missed_bound_is_an_error_that_names_it() {
        let mut bounds = Bounds::default();
        bounds.at_most("speed: 2", 2.0, 2.0);
        bounds.at_most("memory: 3", 3.0, 2.5);
        bounds.at_most("nothing: NaN", f64::NAN, 2.0);
        let missed = bounds.check().expect_err("two bounds are missed").to_string();
        assert_eq!(missed, "missed: memory: 3 (at most 2.5); nothing: NaN (at most 2)");
        assert!(Bounds::default().check().is_ok());
    }
}
