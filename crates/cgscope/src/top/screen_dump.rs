//! The screen dump (key `w`): writes the screen and all its rows as text to a file.

use std::{
    io::{self, Write},
    path::PathBuf,
};

use cgscope_model::{printable, units};
use cgscope_view::{app::App, snapshot};

/// How many names to try, because several dumps in one second need different names.
const TRIES: u32 = 100;

/// Writes a new file in the working directory. Returns a sentence about the result.
pub fn write(app: &App) -> String {
    let Some((text, end_unix_ns)) = snapshot::text(app) else {
        return "nothing has been measured yet, so there is nothing to write".into();
    };
    match create(end_unix_ns).and_then(|(mut file, path)| file.write_all(text.as_bytes()).map(|()| path)) {
        Ok(path) => format!("written to {}", printable(&path.display().to_string())),
        Err(error) => format!("not written: {error}; dumps go to the directory where cgscope was started"),
    }
}

fn create(unix_ns: u64) -> io::Result<(std::fs::File, PathBuf)> {
    let (year, month, day) = units::date(unix_ns);
    let time: String = units::time_of_day(unix_ns).chars().filter(char::is_ascii_digit).collect();
    let stamp = format!("cgscope-{year:04}{month:02}{day:02}T{time}Z");
    let names = (0..TRIES).map(|n| if n == 0 { format!("{stamp}.txt") } else { format!("{stamp}-{n}.txt") });
    let mut taken = io::Error::from(io::ErrorKind::AlreadyExists);
    for name in names {
        match cgscope_record::create_here(&name) {
            Ok(file) => {
                let path = std::env::current_dir()
                    .map_or_else(|_| PathBuf::from(&name), |folder| folder.join(&name));
                return Ok((file, path));
            }
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => taken = error,
            Err(error) => return Err(error),
        }
    }
    Err(taken)
}
