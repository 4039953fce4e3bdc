//! What the parts of the screen look like.

use cgscope_model::Cause;
use ratatui::style::{Color, Modifier, Style};

/// Colours, or none: with `NO_COLOR` set only bold and reverse are left.
#[derive(Clone, Copy, Debug)]
pub struct Theme {
    colour: bool,
}

impl Theme {
    /// With or without colours.
    pub const fn new(colour: bool) -> Self {
        Self { colour }
    }

    fn fg(self, colour: Color) -> Style {
        if self.colour { Style::new().fg(colour) } else { Style::new() }
    }

    /// What explains figures.
    pub fn quiet(self) -> Style {
        self.fg(Color::DarkGray)
    }

    /// Headings.
    pub fn heading(self) -> Style {
        Style::new().add_modifier(Modifier::BOLD)
    }

    /// Losses.
    pub fn alarm(self) -> Style {
        self.fg(Color::Red).add_modifier(Modifier::BOLD)
    }

    /// What waits.
    pub fn wait(self) -> Style {
        self.fg(Color::Yellow)
    }

    /// A part of a wait: colours that stay apart for the colour-blind (Okabe and Ito's, as near as 16 colours come).
    pub fn cause(self, cause: Cause) -> Style {
        self.fg(match cause {
            Cause::Throttled => Color::LightRed,
            Cause::OwnCgroup => Color::LightBlue,
            Cause::OtherCgroup => Color::Yellow,
            Cause::Kernel => Color::Magenta,
            Cause::Wakeup => Color::Cyan,
            Cause::Unattributed => Color::DarkGray,
        })
    }

    /// True if parts of a bar differ by colour; else they differ by letter.
    pub fn has_colour(self) -> bool {
        self.colour
    }

    /// The selected row.
    pub fn selected(self) -> Style {
        Style::new().add_modifier(Modifier::REVERSED)
    }
}
