//! The keys that a file gives to commands.

use toml_edit::{Item, TableLike};

use super::file::{Warnings, said};
use crate::keys::{Command, Key, Keymap};

/// The key that quits where a file leaves none for it: a screen that nobody can leave is no good.
const ALWAYS_QUITS: &str = "ctrl-c";

/// The keymap that a table says. Keys that it gives away are taken from the commands that have them by default.
pub(super) fn read(table: &dyn TableLike, warnings: &mut Warnings<'_>) -> Keymap {
    let mut given: Vec<(Command, Vec<Key>)> = Vec::new();
    for (name, item) in table.iter() {
        let at = || item.span().or(table.key(name).and_then(toml_edit::Key::span));
        let Some(command) = Command::by_name(name) else {
            let names: Vec<&str> = Command::ALL.iter().map(|command| command.name()).collect();
            warnings.add(at(), format_args!("there is no command {name:?}: there are {}", names.join(", ")));
            continue;
        };
        match keys(item) {
            Err(says) => warnings.add(at(), format_args!("{name}: {says}")),
            Ok((keys, wrong)) => {
                wrong.into_iter().for_each(|says| warnings.add(at(), format_args!("{name}: {says}")));
                let wanted = keys.len();
                let free: Vec<Key> = keys
                    .into_iter()
                    .filter(|key| {
                        let other = given.iter().find(|(_, keys)| keys.contains(key));
                        if let Some((other, _)) = other {
                            warnings.add(
                                at(),
                                format_args!(
                                    "{key} is a key of {} already: it stays with it, not {name}",
                                    other.name()
                                ),
                            );
                        }
                        other.is_none()
                    })
                    .collect();
                if !free.is_empty() || wanted == 0 && is_empty(item) {
                    given.push((command, free));
                }
            }
        }
    }
    apply(given, table, warnings)
}

fn is_empty(item: &Item) -> bool {
    item.as_array().is_some_and(|keys| keys.is_empty())
}

/// The keys of a command, and what is wrong with those that are none.
fn keys(item: &Item) -> Result<(Vec<Key>, Vec<String>), String> {
    let form = || format!("its keys are a list like [\"q\", \"ctrl-c\"], not {}", said(item));
    let texts: Vec<&str> = match (item.as_str(), item.as_array()) {
        (Some(key), _) => vec![key],
        (None, Some(keys)) => keys.iter().map(|key| key.as_str()).collect::<Option<_>>().ok_or_else(form)?,
        (None, None) => return Err(form()),
    };
    let (mut keys, mut wrong) = (Vec::new(), Vec::new());
    for text in texts {
        match text.parse() {
            Ok(key) if keys.contains(&key) => {}
            Ok(key) => keys.push(key),
            Err(says) => wrong.push(says),
        }
    }
    Ok((keys, wrong))
}

fn apply(given: Vec<(Command, Vec<Key>)>, table: &dyn TableLike, warnings: &mut Warnings<'_>) -> Keymap {
    let mut keymap = Keymap::default();
    let is_given: Vec<Command> = given.iter().map(|(command, _)| *command).collect();
    for (command, keys) in given {
        keymap.set(command, keys);
    }
    let at = |command: Command| table.get(command.name()).and_then(Item::span);
    for command in
        Command::ALL.iter().filter(|command| **command != Command::Quit && !is_given.contains(command))
    {
        if keymap.keys(*command).is_empty() {
            let name = command.name();
            warnings.add(
                None,
                format_args!("{name} has no key left: give it one, or {name} = [] where that is meant"),
            );
        }
    }
    if keymap.keys(Command::Quit).is_empty() {
        warnings.add(at(Command::Quit), format_args!("quit needs a key: it is {ALWAYS_QUITS}"));
        keymap.set(Command::Quit, ALWAYS_QUITS.parse().into_iter().collect());
    }
    keymap
}
