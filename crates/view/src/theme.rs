//! What the parts of the screen look like.

use cgscope_model::{Cause, causes};
use ratatui::style::{Color, Modifier, Style};

/// The sixteen colours of a terminal, by number.
#[rustfmt::skip]
pub(crate) const SIXTEEN: [Color; 16] = {
    use Color::*;
    [Black, Red, Green, Yellow, Blue, Magenta, Cyan, Gray, DarkGray, LightRed, LightGreen, LightYellow, LightBlue, LightMagenta, LightCyan, White]
};

/// The colours that a terminal has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Colours {
    /// None (`NO_COLOR`, a dumb terminal): bold and reverse are left, and bars differ by letter.
    None,
    /// The sixteen that each terminal defines for itself, light or dark.
    #[default]
    Sixteen,
    /// The 256 of xterm: the same on every terminal.
    Many,
}

impl Colours {
    /// What the environment says: `NO_COLOR` (set and not empty), `COLORTERM`, `TERM`.
    pub fn of_environment(variable: impl Fn(&str) -> Option<String>) -> Self {
        let set = |name: &str| variable(name).filter(|value| !value.is_empty());
        let term = set("TERM").unwrap_or_default();
        if set("NO_COLOR").is_some() || term == "dumb" || term.starts_with("vt") {
            Self::None
        } else if set("COLORTERM").is_some() || term.contains("256color") || term.contains("direct") {
            Self::Many
        } else {
            Self::Sixteen
        }
    }
}

/// A theme. Text has the terminal's own colour, so that it can be read on light and dark ones.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Theme {
    colours: Colours,
}

impl Theme {
    /// With these colours.
    pub const fn new(colours: Colours) -> Self {
        Self { colours }
    }

    /// One of the sixteen, or of the 256.
    fn fg(self, sixteen: Color, many: u8) -> Style {
        match self.colours {
            Colours::None => Style::new(),
            Colours::Sixteen => Style::new().fg(sixteen),
            Colours::Many => Style::new().fg(Color::Indexed(many)),
        }
    }

    /// What explains figures.
    pub fn quiet(self) -> Style {
        match self.colours {
            // Of sixteen colours the dark grey is the ground of some palettes.
            Colours::Sixteen => Style::new().add_modifier(Modifier::DIM),
            _ => self.fg(Color::Reset, 245),
        }
    }

    /// Headings.
    pub fn heading(self) -> Style {
        Style::new().add_modifier(Modifier::BOLD)
    }

    /// Losses, and what is wrong.
    pub fn alarm(self) -> Style {
        self.fg(Color::Red, 160).add_modifier(Modifier::BOLD)
    }

    /// What waits.
    pub fn wait(self) -> Style {
        self.fg(Color::Yellow, 172)
    }

    /// What a key does, and the view that is shown.
    pub fn key(self) -> Style {
        self.fg(Color::Cyan, 36).add_modifier(Modifier::BOLD)
    }

    /// Work: CPUs that are busy.
    pub fn busy(self) -> Style {
        self.fg(Color::Green, 36)
    }

    /// A part of a wait.
    pub fn cause(self, cause: Cause) -> Style {
        let colours = causes::shown(cause).terminal;
        colours
            .map_or_else(|| self.quiet(), |(sixteen, many)| self.fg(SIXTEEN[usize::from(sixteen & 15)], many))
    }

    /// What a part of a bar consists of.
    pub fn sign(self, cause: Cause) -> char {
        if self.has_colour() { '█' } else { causes::shown(cause).letter }
    }

    /// True if parts of a bar differ by colour; else they differ by letter.
    pub fn has_colour(self) -> bool {
        self.colours != Colours::None
    }

    /// The selected row, but for its bars.
    pub fn selected(self) -> Style {
        Style::new().add_modifier(Modifier::REVERSED)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_environment_tells_the_colours() {
        let of = |variables: &[(&str, &str)]| {
            Colours::of_environment(|name| {
                variables.iter().find(|(set, _)| *set == name).map(|(_, value)| (*value).to_owned())
            })
        };
        assert_eq!(of(&[("TERM", "xterm-256color")]), Colours::Many);
        assert_eq!(of(&[("TERM", "xterm"), ("COLORTERM", "truecolor")]), Colours::Many);
        assert_eq!(of(&[("TERM", "linux")]), Colours::Sixteen);
        assert_eq!(of(&[("TERM", "dumb")]), Colours::None);
        assert_eq!(of(&[("TERM", "xterm-256color"), ("NO_COLOR", "1")]), Colours::None);
        assert_eq!(of(&[("TERM", "xterm-256color"), ("NO_COLOR", "")]), Colours::Many);
    }

    #[test]
    fn causes_stay_apart() {
        for colours in [Colours::Sixteen, Colours::Many] {
            let styles: std::collections::HashSet<_> =
                Cause::ALL.iter().map(|cause| Theme::new(colours).cause(*cause)).collect();
            assert_eq!(styles.len(), Cause::ALL.len());
        }
    }
}
