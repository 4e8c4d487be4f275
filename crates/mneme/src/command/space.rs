//! `mneme space`: makes, shows, fills and removes the spaces of a registry.

use std::error::Error;

use mneme_space::{MemberInfo, Registry, Segment, Space, SpaceInfo};
use mneme_sys::Access;
use serde_json::{Value, json};

use super::output;
use super::registry::{self, Listing, mode, properties};

#[derive(Debug, clap::Args)]
pub struct Arguments {
    #[command(flatten)]
    registry: registry::RegistryPath,

    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, clap::Subcommand)]
enum Action {
    /// List the spaces.
    Ls {
        /// Print them as JSON.
        #[arg(long)]
        json: bool,
    },
    /// Make a space without members.
    Create {
        /// Its name: 1 to 200 bytes, no slashes, no dot at the beginning.
        name: String,
        /// Permissions to see and attach it (read), and to change its members (write), as for
        /// chmod.
        #[arg(long, default_value = "600", value_parser = mode)]
        mode: u32,
    },
    /// Say what a space is, and which segments are its members.
    Show {
        /// The space.
        name: String,
        /// Print it as JSON.
        #[arg(long)]
        json: bool,
    },
    /// Make segments members. Attached processes have them when they enter next.
    Add {
        /// The space.
        name: String,
        /// Segments of the same registry.
        #[arg(required = true)]
        segments: Vec<String>,
        /// Processes that attach the space may only read them.
        #[arg(long)]
        read_only: bool,
    },
    /// Take segments out of a space; they stay.
    Remove {
        /// The space.
        name: String,
        /// Members of it.
        #[arg(required = true)]
        segments: Vec<String>,
    },
    /// Change what processes that attach the space may do with a member.
    Access {
        /// The space.
        name: String,
        /// The member.
        segment: String,
        /// What they may do.
        access: Rights,
    },
    /// Make a space with the same members.
    Clone {
        /// The space.
        name: String,
        /// The new one's name.
        new: String,
    },
    /// Remove spaces; their segments stay. Refused while a living process has one attached.
    Rm {
        /// The spaces.
        #[arg(required = true)]
        names: Vec<String>,
    },
    /// Look at the whole registry, or at one space, and say what is wrong.
    Check {
        /// The space; all of the registry without one.
        name: Option<String>,
        /// Print the findings as JSON.
        #[arg(long)]
        json: bool,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Rights {
    ReadOnly,
    ReadWrite,
}

impl From<Rights> for Access {
    fn from(rights: Rights) -> Self {
        match rights {
            Rights::ReadOnly => Self::ReadOnly,
            Rights::ReadWrite => Self::ReadWrite,
        }
    }
}

/// Executes the command and prints its result.
pub fn run(arguments: Arguments) -> Result<(), Box<dyn Error>> {
    let registry = arguments.registry.open()?;
    let open = |name: &str| Space::open(&registry, name);
    match arguments.action {
        Action::Ls { json } => list(&registry, json),
        Action::Create { name, mode } => {
            let space = registry.space(&name).mode(mode).create()?;
            output::print(described(&space, &space.info()?))
        }
        Action::Show { name, json } => {
            let space = open(&name)?;
            let info = space.info()?;
            match json {
                true => output::line(format_args!("{:#}", as_json(&space, &info))),
                false => output::print(described(&space, &info)),
            }
        }
        Action::Add {
            name,
            segments,
            read_only,
        } => {
            let space = open(&name)?;
            let access = match read_only {
                true => Access::ReadOnly,
                false => Access::ReadWrite,
            };
            for segment in segments {
                space.add(&Segment::open(&registry, &segment)?, access)?;
            }
            output::print(described(&space, &space.info()?))
        }
        Action::Remove { name, segments } => {
            let space = open(&name)?;
            for segment in segments {
                space.remove_segment(&segment)?;
            }
            Ok(())
        }
        Action::Access {
            name,
            segment,
            access,
        } => Ok(open(&name)?.set_access(&segment, access.into())?),
        Action::Clone { name, new } => {
            let clone = open(&name)?.clone_as(&new)?;
            output::line(format_args!("{}: {}", clone.name(), clone.uuid()))
        }
        Action::Rm { names } => {
            for name in names {
                registry.remove_space(&name)?;
            }
            Ok(())
        }
        Action::Check { name, json } => match name {
            None => registry::check(&registry, None, false, json),
            // Reports a missing or unreadable space before any problems of its parts.
            Some(name) => {
                let directory = open(&name)?.directory();
                registry::check(&registry, Some(&[&directory]), false, json)
            }
        },
    }
}

/// Lists the spaces, one on each line.
fn list(registry: &Registry, json: bool) -> Result<(), Box<dyn Error>> {
    let head = ["NAME", "VERSION", "MODE", "MEMBERS"];
    let mut listing = Listing::new(registry, "spaces", head, json);
    for name in registry.spaces()? {
        let opened = Space::open(registry, name.as_str()).and_then(|space| {
            let info = space.info()?;
            Ok((space, info))
        });
        let as_json = |(space, info): &(Space, SpaceInfo)| as_json(space, info);
        listing.add(name.as_str(), opened, as_json, |(_, info)| {
            let members = info.members.iter().map(|member| member.name.as_str());
            [
                name.to_string(),
                info.version.to_string(),
                format!("{:o}", info.mode),
                members.collect::<Vec<_>>().join(" "),
            ]
        });
    }
    listing.print()
}

/// Why a member cannot be attached.
fn trouble(registry: &Registry, member: &MemberInfo) -> Option<String> {
    match Segment::open(registry, member.name.as_str()) {
        Ok(segment) if segment.uuid() == member.uuid => None,
        Ok(_) => Some("stale: it was removed, and is another segment now".to_owned()),
        Err(error) => Some(output::with_causes(&error)),
    }
}

fn word(access: Access) -> &'static str {
    match access {
        Access::ReadOnly => "read-only",
        Access::ReadWrite => "read-write",
    }
}

fn as_json(space: &Space, info: &SpaceInfo) -> Value {
    let member = |member: &MemberInfo| {
        json!({
            "name": member.name.as_str(),
            "uuid": member.uuid.to_string(),
            "access": word(member.access),
            "trouble": trouble(space.registry(), member),
        })
    };
    json!({
        "name": space.name().as_str(),
        "uuid": space.uuid().to_string(),
        "version": info.version,
        "mode": format!("{:o}", info.mode),
        "cloned_from": info.cloned_from.map(|uuid| uuid.to_string()),
        "members": Value::from_iter(info.members.iter().map(member)),
    })
}

fn described(space: &Space, info: &SpaceInfo) -> String {
    let mut lines = vec![
        ("name", space.name().to_string()),
        ("uuid", space.uuid().to_string()),
        ("version", info.version.to_string()),
        ("mode", format!("{:o}", info.mode)),
    ];
    if let Some(original) = info.cloned_from {
        lines.push(("cloned from", original.to_string()));
    }
    for member in &info.members {
        let trouble = trouble(space.registry(), member);
        let trouble = trouble.map_or_else(String::new, |why| format!(": {why}"));
        let (name, access) = (&member.name, word(member.access));
        lines.push(("member", format!("{name} {access}{trouble}")));
    }
    properties(lines)
}
