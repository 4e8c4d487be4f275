//! Manual pages, generated from the command line parser.

use std::error::Error;
use std::path::Path;

use super::output;

/// Prints the main page; or, if a directory is given, writes all pages to it, making it if
/// necessary, and prints its path.
pub fn write(command: clap::Command, directory: Option<&Path>) -> Result<(), Box<dyn Error>> {
    let Some(directory) = directory else {
        let mut page = Vec::new();
        clap_mangen::Man::new(command).render(&mut page)?;
        return output::print(String::from_utf8_lossy(&page));
    };
    let written = std::fs::create_dir_all(directory)
        .and_then(|()| clap_mangen::generate_to(command, directory));
    written.map_err(|error| {
        format!(
            "cannot write manual pages to {}: {error}",
            directory.display()
        )
    })?;
    output::print(format!(
        "{}: man --local-file {}/mneme.1\n",
        directory.display(),
        directory.display()
    ))
}
