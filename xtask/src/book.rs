//! Builds the documents as a book with mdBook, checks its links, and draws the pictures of the screen in them.
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::steps::{self, Failure};

/// Where mdBook writes the book: see `docs/book.toml`.
const BOOK: &str = "target/book";

pub(crate) fn run() -> Result<(), Failure> {
    let top = steps::workspace();
    let mut build = Command::new("mdbook");
    let status = steps::status(build.args(["build", "docs"]).current_dir(&top)).map_err(|failure| {
        Failure::Host(format!("{failure}; to install mdBook: `cargo install mdbook --version 0.5.4`"))
    })?;
    if !status.success() {
        return Err(Failure::Step(format!("mdbook: failed ({status}); see the messages above")));
    }
    let book = top.join(BOOK);
    let failed = |why| Failure::Step(format!("book: a page cannot be read or written ({why})"));
    let mut dead = Vec::new();
    let pages = pages(&book).map_err(failed)?;
    for page in &pages {
        let text = fs::read_to_string(page).map_err(failed)?;
        let folder = page.parent().unwrap_or(&book);
        let (text, dead_here) = checked(&text, &|file| {
            if folder.join(file).exists() {
                Target::Exists
            } else if file.ends_with("README.html") && folder.join(index_of(file)).exists() {
                Target::Index
            } else if top.join("docs").join(page_dir(&book, folder)).join(source(file)).exists() {
                Target::Outside
            } else {
                Target::Missing
            }
        });
        let name = page.strip_prefix(&book).unwrap_or(page).display().to_string();
        dead.extend(dead_here.into_iter().map(|link| format!("{name}: {link}")));
        fs::write(page, text).map_err(failed)?;
    }
    if dead.is_empty() {
        eprintln!("book: {} pages in {BOOK}; every link between them leads somewhere", pages.len());
        return Ok(());
    }
    Err(Failure::Step(format!("book: dead links:\n{}", dead.join("\n"))))
}

/// All pages of a directory.
fn pages(dir: &Path) -> std::io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir)? {
        let path = entry?.path();
        if path.is_dir() {
            found.extend(pages(&path)?);
        } else if path.extension().is_some_and(|kind| kind == "html") {
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}

/// What a link leads to.
enum Target {
    Exists,
    /// mdBook turns `README.md` into `index.html`, but not in links.
    Index,
    /// A file of the repository that is not in the book, such as source.
    Outside,
    Missing,
}

/// The directory of a page, relative to the book.
fn page_dir<'a>(book: &Path, folder: &'a Path) -> &'a Path {
    folder.strip_prefix(book).unwrap_or(folder)
}

/// The file of the repository that a link names: mdBook turns `.md` in links into `.html`.
fn source(file: &str) -> String {
    file.strip_suffix(".html").map_or_else(|| file.to_owned(), |file| format!("{file}.md"))
}

fn index_of(file: &str) -> String {
    file.replace("README.html", "index.html")
}

/// Returns the page without links to files outside the book, and its dead links.
fn checked(page: &str, target: &dyn Fn(&str) -> Target) -> (String, Vec<String>) {
    const LINK: &str = " href=\"";
    let mut parts = page.split(LINK);
    let mut text = parts.next().unwrap_or_default().to_owned();
    let mut dead = Vec::new();
    for part in parts {
        let (link, rest) = part.split_once('"').unwrap_or((part, ""));
        let file = link.split('#').next().unwrap_or_default();
        let is_local = !file.is_empty() && !link.contains(':') && !file.starts_with('/');
        let link = match if is_local { target(file) } else { Target::Exists } {
            Target::Exists => link.to_owned(),
            Target::Index => index_of(link),
            Target::Outside => {
                text.push_str(rest);
                continue;
            }
            Target::Missing => {
                dead.push(link.to_owned());
                link.to_owned()
            }
        };
        text.extend([LINK, link.as_str(), "\"", rest]);
    }
    (text, dead)
}

pub(crate) fn pictures(arguments: &[String]) -> Result<(), Failure> {
    let mut command = match arguments {
        [] => draw_pictures(),
        [check] if check == "--check" => check_pictures(),
        [word, ..] => {
            return Err(Failure::Usage(format!(
                "unknown argument `{word}` of `pictures`, which takes only `--check`"
            )));
        }
    };
    steps::succeed(&mut command, |status| format!("pictures: failed ({status}); see the messages above"))
}

/// A command that fails if the pictures are out of date, and prints what to do.
pub(crate) fn check_pictures() -> Command {
    let mut check = draw_pictures();
    check.arg("--check");
    check
}

fn draw_pictures() -> Command {
    steps::cargo(&["run", "--quiet", "--package", "cgscope-view", "--example", "pictures", "--"])
}

#[cfg(test)]
mod tests {
    use super::{Target, checked};

    #[test]
    fn links_out_of_the_book_become_text_and_dead_links_are_reported() {
        let page = "<a href=\"a.html#b\">1</a><a href=\"../x.rs\">2</a><a href=\"README.html#c\">3</a><a href=\"no.html\">4</a>\
                    <a href=\"https://example.org\">5</a><a href=\"#d\">6</a>";
        let (text, dead) = checked(page, &|file| match file {
            "a.html" => Target::Exists,
            "README.html" => Target::Index,
            "no.html" => Target::Missing,
            _ => Target::Outside,
        });
        assert_eq!(
            text,
            "<a href=\"a.html#b\">1</a><a>2</a><a href=\"index.html#c\">3</a><a href=\"no.html\">4</a>\
             <a href=\"https://example.org\">5</a><a href=\"#d\">6</a>"
        );
        assert_eq!(dead, ["no.html"]);
    }
}
