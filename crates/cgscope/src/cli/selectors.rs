//! The options for the selectors that the model defines.

use cgscope_model::{
    Selection,
    selection::{SELECTORS, Selector},
};
use clap::{Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches};

use crate::complete;

/// The heading of these options in the help.
pub const HEADING: &str = "Selection (default: the whole host)";

/// The given selectors, with their values as text.
#[derive(Clone, Debug, Default)]
pub struct Selectors(pub Vec<(&'static Selector, String)>);

impl Selectors {
    pub fn selection(&self) -> Result<Selection, String> {
        let mut selection = Selection::default();
        self.0.iter().try_for_each(|(selector, text)| (selector.set)(&mut selection, text))?;
        Ok(selection)
    }
}

/// The option of a selector. clap checks each id, so that its error names the invalid one. Other selectors are checked later.
fn argument(selector: &'static Selector) -> Arg {
    let parse = |text: &str| (selector.set)(&mut Selection::default(), text).map(|()| text.to_owned());
    let argument = Arg::new(selector.name)
        .long(selector.name)
        .value_name(selector.value)
        .help(selector.help)
        .help_heading(HEADING)
        // Keeps the short help within 24 lines.
        .hide_short_help(matches!(selector.name, "tid" | "comm" | "cpu" | "node"))
        .action(ArgAction::Set);
    let argument = complete::of_selector(selector, argument);
    if selector.is_ids {
        let argument = argument.short(selector.name.chars().next());
        argument.action(ArgAction::Append).value_delimiter(',').value_parser(parse)
    } else {
        argument
    }
}

impl Args for Selectors {
    fn augment_args(command: Command) -> Command {
        command.args(SELECTORS.iter().map(argument))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for Selectors {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let typed = |selector: &'static Selector| {
            let texts = matches.get_many::<String>(selector.name).into_iter().flatten();
            texts.map(move |text| (selector, text.clone()))
        };
        Ok(Self(SELECTORS.iter().flat_map(typed).collect()))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}
