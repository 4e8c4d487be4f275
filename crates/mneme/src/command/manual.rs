//! Manual pages, made from what the command line accepts.

use std::error::Error;
use std::path::Path;

use super::output;

/// Prints the page of the whole, or writes all pages to a directory, made if there is none, and
/// says where.
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
