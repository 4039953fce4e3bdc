//! Colours and styles of the screen.

use cgscope_model::{Cause, causes};
use ratatui::style::{Color, Modifier, Style};

/// The sixteen colours of a terminal, by number.
#[rustfmt::skip]
pub const SIXTEEN: [Color; 16] = {
    use Color::*;
    [Black, Red, Green, Yellow, Blue, Magenta, Cyan, Gray, DarkGray, LightRed, LightGreen, LightYellow, LightBlue, LightMagenta, LightCyan, White]
};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Colours {
    /// No colours (`NO_COLOR` or a dumb terminal). Bold and reverse remain, and bars differ by letter.
    None,
    /// The 16 colours that each terminal defines for its own background, light or dark.
    #[default]
    Sixteen,
    /// The 256 colours of xterm, the same on every terminal.
    Many,
}

impl Colours {
    /// Detects the colours from `NO_COLOR` (set and not empty), `COLORTERM` and `TERM`.
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

/// The styles of the screen. Text keeps the terminal's default colour, which is readable on light and dark backgrounds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Theme {
    colours: Colours,
}

impl Theme {
    pub const fn new(colours: Colours) -> Self {
        Self { colours }
    }

    fn fg(self, sixteen: Color, many: u8) -> Style {
        match self.colours {
            Colours::None => Style::new(),
            Colours::Sixteen => Style::new().fg(sixteen),
            Colours::Many => Style::new().fg(Color::Indexed(many)),
        }
    }

    /// The style of words that explain figures.
    pub(crate) fn quiet(self) -> Style {
        match self.colours {
            // Some palettes of 16 colours use dark grey as the background.
            Colours::Sixteen => Style::new().add_modifier(Modifier::DIM),
            _ => self.fg(Color::Reset, 245),
        }
    }

    pub(crate) fn heading(self) -> Style {
        Style::new().add_modifier(Modifier::BOLD)
    }

    /// The style of losses and findings.
    pub(crate) fn alarm(self) -> Style {
        self.fg(Color::Red, 160).add_modifier(Modifier::BOLD)
    }

    pub(crate) fn wait(self) -> Style {
        self.fg(Color::Yellow, 172)
    }

    /// The style of keys and of the current view.
    pub(crate) fn key(self) -> Style {
        self.fg(Color::Cyan, 36).add_modifier(Modifier::BOLD)
    }

    pub(crate) fn busy(self) -> Style {
        self.fg(Color::Green, 36)
    }

    pub(crate) fn cause(self, cause: Cause) -> Style {
        let colour = |(sixteen, many): (u8, u8)| self.fg(SIXTEEN[usize::from(sixteen & 15)], many);
        causes::shown(cause).terminal.map_or_else(|| self.quiet(), colour)
    }

    pub(crate) fn sign(self, cause: Cause) -> char {
        self.block_or(causes::shown(cause).letter)
    }

    /// Returns a full block, or this letter if there are no colours.
    pub(crate) fn block_or(self, letter: char) -> char {
        if self.has_colour() { '█' } else { letter }
    }

    /// Whether parts of a bar differ by colour; otherwise they differ by letter.
    pub(crate) fn has_colour(self) -> bool {
        self.colours != Colours::None
    }

    /// The style of the selected row, except its bars.
    pub(crate) fn selected(self) -> Style {
        Style::new().add_modifier(Modifier::REVERSED)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_environment_selects_the_colours() {
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
    fn causes_have_different_colours() {
        for colours in [Colours::Sixteen, Colours::Many] {
            let styles: std::collections::HashSet<_> =
                Cause::ALL.iter().map(|cause| Theme::new(colours).cause(*cause)).collect();
            assert_eq!(styles.len(), Cause::ALL.len());
        }
    }
}
