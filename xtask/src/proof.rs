//! The lists in `docs/proof.md`: what is proved by which command.
//!
//! The page is written for people; the commands read its list items. An item is a line ``-
//! `package` `arguments of cargo test` words`` in one of the sections below; for an interleaving
//! model and for a kill storm or a long run the first span is followed by the `cfg` it is compiled
//! under, and for Miri by its flags, or by `-` where it needs none. So the page cannot drift from
//! what runs.

use std::path::Path;
use std::process::Command;

use crate::steps;

/// One item of a list: its code spans.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Item {
    /// The package the command runs in.
    pub package: String,
    /// The remaining code spans.
    pub arguments: Vec<String>,
}

/// The sections that commands read.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Proof {
    /// `## Interleavings`: package, cfg, arguments of `cargo test`.
    pub interleavings: Vec<Item>,
    /// `## Undefined behaviour`: package, flags of Miri, arguments of `cargo miri test`.
    pub miri: Vec<Item>,
    /// `## Addresses`: package, arguments of `cargo test` for `ci`, those for `ladder`.
    pub addresses: Vec<Item>,
    /// `## Kill storms`: package, cfg, arguments of `cargo test`.
    pub storms: Vec<Item>,
    /// `## Long runs`: package, cfg, arguments of `cargo test`.
    pub ladder: Vec<Item>,
    /// `## NUMA guests`: package, the test, what of it (`-`: all).
    pub numa: Vec<Item>,
}

impl Proof {
    /// Reads `docs/proof.md` below the workspace's root.
    ///
    /// # Errors
    /// In words, when the page cannot be read or an item is malformed.
    pub fn read(root: &Path) -> Result<Self, String> {
        let path = root.join("docs/proof.md");
        let text = std::fs::read_to_string(&path)
            .map_err(|error| format!("{} cannot be read: {error}", path.display()))?;
        Self::parse(&text)
    }

    /// Reads the page's text.
    ///
    /// # Errors
    /// In words, when an item has too few code spans.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut proof = Self::default();
        let mut section: Option<(&mut Vec<Item>, usize)> = None;
        for (number, line) in text.lines().enumerate() {
            if let Some(title) = line.strip_prefix("## ") {
                section = match title.trim() {
                    "Interleavings" => Some((&mut proof.interleavings, 3)),
                    "Undefined behaviour" => Some((&mut proof.miri, 3)),
                    "Addresses" => Some((&mut proof.addresses, 2)),
                    "Kill storms" => Some((&mut proof.storms, 3)),
                    "Long runs" => Some((&mut proof.ladder, 3)),
                    "NUMA guests" => Some((&mut proof.numa, 3)),
                    _ => None,
                };
            } else if let Some((items, wanted)) = section.as_mut()
                && line.starts_with("- `")
            {
                if line.matches('`').count() % 2 == 1 {
                    return Err(format!(
                        "docs/proof.md line {}: a code span goes on in the next line",
                        number + 1
                    ));
                }
                let mut spans = line.split('`').skip(1).step_by(2).map(str::to_owned);
                let item = Item {
                    package: spans.next().unwrap_or_default(),
                    arguments: spans.take(*wanted - 1).collect(),
                };
                if item.arguments.len() + 1 < *wanted {
                    return Err(format!(
                        "docs/proof.md line {}: an item here has {wanted} code spans",
                        number + 1
                    ));
                }
                items.push(item);
            }
        }
        Ok(proof)
    }
}

impl Item {
    /// The command for an item with a cfg: `cargo test` in the package, with the item's arguments.
    pub fn test(&self, root: &Path) -> Command {
        let (cfg, arguments) = (&self.arguments[0], &self.arguments[1]);
        let mut command = steps::cargo();
        command
            .current_dir(root)
            .args(["test", "-p", &self.package]);
        command.args(arguments.split_whitespace());
        if cfg != "-" {
            command.env("RUSTFLAGS", format!("--cfg {cfg}"));
            command.env("CARGO_TARGET_DIR", root.join("target").join(cfg));
        }
        command
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files;
    use crate::workspace::Workspace;

    #[test]
    fn items_are_read_from_their_sections_only() {
        let page = "# Proof\n- `not` `this`\n## Interleavings\nWords.\n- `mneme-sync` `loom` `--test epoch`: pins.\n\
                    ## Undefined behaviour\n- `mneme-sys` `-` `--lib racy::`\n## Else\n- `x` `y`\n## Long runs\n";
        let proof = Proof::parse(page).unwrap();
        assert_eq!(proof.interleavings[0].package, "mneme-sync");
        assert_eq!(proof.interleavings[0].arguments, ["loom", "--test epoch"]);
        assert_eq!(proof.miri[0].arguments, ["-", "--lib racy::"]);
        assert!(proof.ladder.is_empty());
    }

    #[test]
    fn a_malformed_item_is_an_error_with_its_line() {
        let error = Proof::parse("## Undefined behaviour\n- `mneme-sys`\n").unwrap_err();
        assert!(error.contains("line 2"), "{error}");
    }

    /// Half a command would run, and fail for want of the other half.
    #[test]
    fn a_command_that_is_broken_across_lines_is_an_error_with_its_line() {
        let page = "## Addresses\n- `mneme-log` `--test threads --test\n  swap`: readers.\n";
        let error = Proof::parse(page).unwrap_err();
        assert!(error.contains("line 2"), "{error}");
    }

    #[test]
    fn the_page_names_packages_of_this_workspace() {
        let workspace = Workspace::load().unwrap();
        let proof = Proof::read(&workspace.root).unwrap();
        let lists = [
            &proof.interleavings,
            &proof.miri,
            &proof.addresses,
            &proof.storms,
            &proof.ladder,
            &proof.numa,
        ];
        for item in lists.into_iter().flatten() {
            assert!(
                workspace.packages.iter().any(|p| p.name == item.package),
                "docs/proof.md names no package: {}",
                item.package
            );
        }
    }

    /// A model that no command runs proves nothing.
    #[test]
    fn every_crate_with_interleaving_models_is_listed() {
        let workspace = Workspace::load().unwrap();
        let proof = Proof::read(&workspace.root).unwrap();
        let mut models = 0;
        for package in workspace.packages.iter().filter(|p| p.name != "xtask") {
            let files = ["src", "tests"].map(|name| package.directory.join(name));
            let files = files.map(|folder| files::below(&folder, &["rs"])).concat();
            let model = files.iter().find(|file| {
                let text = std::fs::read_to_string(file).unwrap_or_default();
                ["loom::model", "shuttle::check"]
                    .iter()
                    .any(|call| text.contains(call))
            });
            let Some(model) = model else { continue };
            models += 1;
            let listed = proof
                .interleavings
                .iter()
                .any(|item| item.package == package.name);
            assert!(
                listed,
                "docs/proof.md does not list the models of {}",
                model.display()
            );
        }
        assert!(models > 0, "there are models, and this test finds them");
    }
}
