//! `cgscope packaging DIR`: generates manual pages and shell completions for packages from the definitions of the command line.

use std::{
    fs::{self, File},
    io::{self, Write},
    path::Path,
};

use clap::CommandFactory;
use clap_mangen::{
    Man,
    roff::{Roff, bold, roman},
};

use crate::{
    cli::{Cli, Packaging},
    complete,
    exit::{Error, Exit, Result},
};

const MANUAL: &str = "cgscope";

const EXIT_STATUS: [(&str, &str); 3] = [
    ("0", "Done."),
    ("1", "Done but incomplete: something was lost that the output should show, or the target exited."),
    ("2", "Could not run. Standard error says what is missing, what that prevents and what to do."),
];

/// Creates a directory with `man/` (a page for each command) and `completions/` (a file for each shell).
pub fn run(options: &Packaging) -> Result {
    write_all(&options.directory).map_err(|error| {
        let directory = options.directory.display();
        Error::could_not_run(format!(
            "manual pages and completions could not be written to {directory} ({error}); name a directory that does not \
             exist yet, in a directory where you can write"
        ))
    })?;
    Ok(Exit::Done)
}

fn write_all(directory: &Path) -> io::Result<()> {
    fs::create_dir(directory)?;
    let (man, completions) = (directory.join("man"), directory.join("completions"));
    fs::create_dir(&man)?;
    for (name, page) in pages()? {
        File::create_new(man.join(name))?.write_all(&page)?;
    }
    fs::create_dir(&completions)?;
    for (file, shell) in complete::SHELLS {
        let mut file = File::create_new(completions.join(file))?;
        shell.write_registration(complete::VARIABLE, MANUAL, MANUAL, MANUAL, &mut file)?;
    }
    Ok(())
}

/// Returns all pages with their file names. The page of `cgscope` is first.
fn pages() -> io::Result<Vec<(String, Vec<u8>)>> {
    let mut all = Cli::command().disable_help_subcommand(true);
    all.build();
    let shown: Vec<_> = all.get_subcommands().filter(|command| !command.is_hide_set()).cloned().collect();
    let names: Vec<String> = shown.iter().map(|command| format!("{MANUAL}-{}", command.get_name())).collect();
    let others =
        shown.into_iter().zip(&names).map(|(command, name)| page(command, name, &[MANUAL.to_owned()]));
    std::iter::once(page(all.clone(), MANUAL, &names)).chain(others).collect()
}

/// Returns a page with its file name. The page ends with references to `others`.
fn page(command: clap::Command, name: &str, others: &[String]) -> io::Result<(String, Vec<u8>)> {
    let has_commands = command.get_subcommands().any(|command| !command.is_hide_set());
    let source = format!("{MANUAL} {}", env!("CARGO_PKG_VERSION"));
    let man = Man::new(command).title(name).source(source).manual(MANUAL);
    let mut out = Vec::new();
    man.render_title(&mut out)?;
    man.render_name_section(&mut out)?;
    man.render_synopsis_section(&mut out)?;
    man.render_description_section(&mut out)?;
    man.render_options_section(&mut out)?;
    if has_commands {
        man.render_subcommands_section(&mut out)?;
    }
    ending(others).to_writer(&mut out)?;
    Ok((format!("{name}.1"), out))
}

fn ending(others: &[String]) -> Roff {
    let mut roff = Roff::new();
    roff.control("SH", ["EXIT STATUS"]);
    for (code, words) in EXIT_STATUS {
        roff.control("TP", []).text([bold(code)]).text([roman(words)]);
    }
    roff.control("SH", ["SEE ALSO"]);
    for (i, other) in others.iter().enumerate() {
        let comma = if i + 1 < others.len() { "," } else { "" };
        roff.text([bold(other), roman(format!("(1){comma}"))]);
    }
    roff
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(page: &[u8]) -> String {
        String::from_utf8(page.to_vec()).unwrap()
    }

    #[test]
    fn every_visible_command_has_a_page_and_the_first_page_lists_them() {
        let pages = pages().unwrap();
        assert_eq!(pages[0].0, "cgscope.1");
        let first = text(&pages[0].1);
        let commands = Cli::command();
        let shown: Vec<_> = commands.get_subcommands().filter(|command| !command.is_hide_set()).collect();
        assert!(shown.len() >= 10, "{}", shown.len());
        assert_eq!(pages.len(), shown.len() + 1);
        for command in shown {
            let name = format!("cgscope-{}", command.get_name());
            let (_, page) = pages.iter().find(|(file, _)| *file == format!("{name}.1")).expect(&name);
            let page = text(page);
            assert!(page.contains(&format!(".TH {name} 1")), "{page}");
            assert!(page.contains("EXIT STATUS") && page.contains("SEE ALSO"), "{name}");
            assert!(first.contains(&name.replace('-', "\\-")), "{name} is not in {first}");
        }
        assert!(!pages.iter().any(|(file, _)| file.contains("packaging") || file.contains("help")));
    }

    #[test]
    fn options_and_their_values_are_in_the_pages() {
        let pages = pages().unwrap();
        let (_, export) = pages.iter().find(|(file, _)| file == "cgscope-export.1").unwrap();
        for word in ["\\-\\-format", "perfetto", "parquet", "OUT"] {
            assert!(text(export).contains(word), "{word}: {}", text(export));
        }
    }

    #[test]
    fn only_a_new_directory_is_filled() {
        let directory = std::env::temp_dir().join(format!("cgscope-packaging-{}", std::process::id()));
        let options = Packaging { directory: directory.clone() };
        assert_eq!(run(&options).unwrap(), Exit::Done);
        let count = |name: &str| fs::read_dir(directory.join(name)).unwrap().count();
        assert_eq!((count("man"), count("completions")), (pages().unwrap().len(), 3));
        for file in ["cgscope.bash", "_cgscope", "cgscope.fish"] {
            let script = fs::read_to_string(directory.join("completions").join(file)).unwrap();
            assert!(script.contains("COMPLETE") && script.contains("cgscope"), "{file}");
        }
        let error = run(&options).unwrap_err();
        assert!(error.sentence.contains("name a directory that does not exist yet"), "{error}");
        fs::remove_dir_all(&directory).unwrap();
    }
}
