//! The checks of `mneme doctor`. Each is one function that returns a finding with advice.

use super::host::{Host, option, tmpfs_size};
use super::{Finding, Fix, State};
use crate::command::size;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

/// All checks, the most important for most users first.
pub const CHECKS: &[fn(&Host) -> Option<Finding>] = &[
    memory,
    shared_memory,
    registry,
    registry_mode,
    data_of_others,
    remove_ipc,
    huge_pages,
    huge_pages_shared,
    huge_page_pool,
    overcommit,
    swap,
    address_space,
    mappings,
    open_files,
];

const SHM: &str = "/dev/shm";

fn human(bytes: u64) -> String {
    size::show(bytes)
}

/// The available memory: the machine's, and the limit of the control group if there is one.
fn memory_there(host: &Host) -> Option<(u64, Option<u64>)> {
    let machine = host.memory("MemTotal")?;
    let group = mneme_sys::memory_limit(host.root()).map(|limit| limit.bytes);
    let group = group.filter(|max| *max < machine);
    Some((machine, group))
}

fn memory(host: &Host) -> Option<Finding> {
    let (machine, group) = memory_there(host)?;
    let free = host.memory("MemAvailable").unwrap_or(0);
    Some(match group {
        Some(max) => Finding::new("memory", State::Good, format!("{} of the machine's {} by the control group's limit", human(max), human(machine)))
            .advise("shared segments count against the group that touches them first; size them below its limit"),
        None => Finding::new("memory", State::Good, format!("{}, {} available", human(machine), human(free))),
    })
}

fn shared_memory(host: &Host) -> Option<Finding> {
    const NAME: &str = "shared memory";
    let (machine, group) = memory_there(host)?;
    let memory = group.unwrap_or(machine);
    let Some(size) = host
        .mount_of(Path::new(SHM))
        .filter(|m| m.point == Path::new(SHM))
        .and_then(|m| tmpfs_size(&m, machine))
    else {
        return Some(
            Finding::new(NAME, State::Bad, format!("{SHM} is not a tmpfs")).advise(
                "segments in shared memory lie there: mount a tmpfs, or keep segments in files",
            ),
        );
    };
    let found = format!("{SHM} holds up to {}", human(size));
    if size >= memory / 4 {
        return Some(Finding::new(NAME, State::Good, found));
    }
    Some(
        Finding::new(NAME, State::Bad, found)
            .advise("larger segments are refused; a container gets more by `--shm-size`, which gives 64 MiB otherwise")
            .fix(Fix::Run(&["mount", "-o", "remount,size=50%", SHM])),
    )
}

fn registry(host: &Host) -> Option<Finding> {
    const NAME: &str = "registry";
    let shown = host.registry.display();
    let mount = host.mount_of(&host.registry)?;
    let size = tmpfs_size(&mount, host.memory("MemTotal")?);
    let found = match size {
        Some(size) => format!("{shown}, on a tmpfs of {}", human(size)),
        None => format!("{shown}, on {}", mount.kind),
    };
    let lingers = host.files("/var/lib/systemd/linger");
    if mount.point.starts_with("/run/user") && lingers.is_empty() {
        return Some(
            Finding::new(NAME, State::Worth, found)
                .advise("it is emptied when the user's last session ends: `loginctl enable-linger`, or set MNEME_DIR"),
        );
    }
    Some(Finding::new(NAME, State::Good, found))
}

/// A user who can enter the registry's directory can open those segments whose own modes permit it.
fn registry_mode(host: &Host) -> Option<Finding> {
    const NAME: &str = "registry's mode";
    let mode = std::fs::metadata(&host.registry).ok()?.permissions().mode() & 0o777;
    let found = format!("{mode:03o}");
    let (state, advice) = match mode {
        mode if mode & 0o002 != 0 => (
            State::Bad,
            "every user can put a store of their own in the place of yours: `chmod o-rwx`",
        ),
        mode if mode & 0o007 != 0 => (
            State::Worth,
            "every user sees its segments, and may open those whose modes permit it: `chmod o-rwx`",
        ),
        _ => return Some(Finding::new(NAME, State::Good, found)),
    };
    Some(Finding::new(NAME, state, found).advise(advice))
}

/// Data in shared memory outlives a registry that was removed by hand, and then has no name any
/// more. The names of data files begin with the identity of the registry they belong to.
fn data_of_others(host: &Host) -> Option<Finding> {
    const NAME: &str = "unnamed data";
    let directory = format!("{SHM}/mneme-{}", host.uid);
    let own = host.registry_uuid();
    let is_ours = |file: &String| own.as_ref().is_some_and(|own| file.starts_with(own));
    let segments = host.files(&directory).into_iter();
    let (mut files, mut bytes) = (0, 0);
    for file in segments.filter(|file| file.ends_with(".segment") && !is_ours(file)) {
        files += 1;
        bytes += host.allocated(&format!("{directory}/{file}"));
    }
    (files > 0).then(|| {
        let found = format!(
            "{directory} holds {} in {files} file(s) that the registry {} does not name",
            human(bytes),
            host.registry.display()
        );
        Finding::new(NAME, State::Worth, found).advise(
            "fine if another registry names them (MNEME_DIR, --registry); if theirs was removed, `mneme segment import \
             FILE NAME` names the data again (not a store's, whose control file went with the registry), and removing \
             the files gives the memory back",
        )
    })
}

/// `systemd-logind` removes an ordinary user's shared memory when the user's last session ends.
fn remove_ipc(host: &Host) -> Option<Finding> {
    const NAME: &str = "RemoveIPC";
    const OURS: &str = "/etc/systemd/logind.conf.d/50-mneme.conf";
    if !host.exists("/run/systemd/seats") && !host.exists("/run/systemd/sessions") {
        return None;
    }
    let mut texts: Vec<(String, String)> = Vec::new();
    for directory in [
        "/usr/lib/systemd/logind.conf.d",
        "/run/systemd/logind.conf.d",
        "/etc/systemd/logind.conf.d",
    ] {
        for name in host.files(directory) {
            let text = host
                .read(&format!("{directory}/{name}"))
                .unwrap_or_default();
            texts.push((name, text));
        }
    }
    // Drop-in files are ordered by their names, whatever their directories, and override the main
    // file.
    texts.sort_by(|a, b| a.0.cmp(&b.0));
    let main = host.read("/etc/systemd/logind.conf").unwrap_or_default();
    let settings =
        std::iter::once(main.as_str()).chain(texts.iter().map(|(_, text)| text.as_str()));
    let value = settings
        .flat_map(str::lines)
        .filter_map(|line| line.trim().strip_prefix("RemoveIPC="))
        .next_back();
    let kept = value.is_some_and(|value| {
        matches!(
            value.trim().to_ascii_lowercase().as_str(),
            "no" | "false" | "0" | "off"
        )
    });
    if kept {
        return Some(Finding::new(
            NAME,
            State::Good,
            "no: shared memory outlives sessions".to_owned(),
        ));
    }
    if host.uid < 1000 {
        return Some(Finding::new(
            NAME,
            State::Good,
            "yes, which spares the system's users".to_owned(),
        ));
    }
    Some(
        Finding::new(
            NAME,
            State::Bad,
            "yes: segments in /dev/shm vanish when the user's last session ends".to_owned(),
        )
        .advise("`systemctl restart systemd-logind` makes the change count")
        .fix(Fix::Write(OURS, "[Login]\nRemoveIPC=no\n")),
    )
}

/// The selected value of a kernel setting for huge pages.
fn setting(host: &Host, name: &str) -> Option<String> {
    let (_, choice) = mneme_sys::huge_page_setting(host.root(), name)?;
    Some(choice)
}

fn huge_pages(host: &Host) -> Option<Finding> {
    const NAME: &str = "huge pages";
    let Some(choice) = setting(host, "enabled") else {
        return Some(Finding::new(
            NAME,
            State::Worth,
            "the kernel has no transparent huge pages".to_owned(),
        ));
    };
    if matches!(choice.as_str(), "always" | "madvise") {
        return Some(Finding::new(
            NAME,
            State::Good,
            format!("for private memory: {choice}"),
        ));
    }
    Some(
        Finding::new(NAME, State::Worth, format!("for private memory: {choice}"))
            .advise("4 KiB pages cost a store a quarter of its speed or so")
            .fix(Fix::Write(
                "/sys/kernel/mm/transparent_hugepage/enabled",
                "madvise",
            )),
    )
}

fn huge_pages_shared(host: &Host) -> Option<Finding> {
    const NAME: &str = "huge pages, shared";
    let mount = host
        .mount_of(Path::new(SHM))
        .filter(|m| m.point == Path::new(SHM))?;
    let general = setting(host, "shmem_enabled")?;
    let choice = match general.as_str() {
        "force" | "deny" => general,
        _ => option(&mount, "huge").unwrap_or("never").to_owned(),
    };
    if matches!(
        choice.as_str(),
        "always" | "within_size" | "advise" | "force"
    ) {
        return Some(Finding::new(
            NAME,
            State::Good,
            format!("for {SHM}: {choice}"),
        ));
    }
    Some(
        Finding::new(NAME, State::Worth, format!("for {SHM}: {choice}"))
            .advise("segments there are collapsed into huge pages once, which takes a second or so a GiB")
            .fix(Fix::Run(&["mount", "-o", "remount,huge=advise", SHM])),
    )
}

fn huge_page_pool(host: &Host) -> Option<Finding> {
    let pool = "/sys/kernel/mm/hugepages/hugepages-2048kB";
    let pages = host.number(&format!("{pool}/nr_hugepages"))?;
    let free = host.number(&format!("{pool}/free_hugepages")).unwrap_or(0);
    let found = match pages {
        0 => "none reserved; transparent ones serve".to_owned(),
        _ => format!(
            "{} reserved, {} free",
            human(pages << 21),
            human(free << 21)
        ),
    };
    Some(Finding::new("huge page pool", State::Good, found))
}

fn overcommit(host: &Host) -> Option<Finding> {
    const NAME: &str = "overcommit";
    let found = match host.number("/proc/sys/vm/overcommit_memory")? {
        0 => "by heuristic",
        1 => "always",
        _ => {
            let limit = host.memory("CommitLimit").unwrap_or(0);
            let used = host.memory("Committed_AS").unwrap_or(0);
            return Some(
                Finding::new(NAME, State::Worth, format!("strict: {} of {} promised", human(used), human(limit)))
                    .advise("a store's whole capacity counts at once; raise vm.overcommit_ratio if it is refused"),
            );
        }
    };
    Some(Finding::new(NAME, State::Good, found.to_owned()))
}

fn swap(host: &Host) -> Option<Finding> {
    const NAME: &str = "swap";
    let total = host.memory("SwapTotal")?;
    if total == 0 {
        return Some(Finding::new(NAME, State::Good, "none".to_owned()));
    }
    let swappiness = host.number("/proc/sys/vm/swappiness").unwrap_or(60);
    let found = format!("{}, swappiness {swappiness}", human(total));
    if swappiness <= 10 {
        return Some(Finding::new(NAME, State::Good, found));
    }
    Some(
        Finding::new(NAME, State::Worth, found)
            .advise("what is swapped out takes a thousand times as long to read")
            .fix(Fix::Write("/proc/sys/vm/swappiness", "1")),
    )
}

fn address_space(host: &Host) -> Option<Finding> {
    const NAME: &str = "address space";
    Some(match host.limit("Max address space") {
        None => Finding::new(NAME, State::Good, "unlimited".to_owned()),
        Some(limit) => Finding::new(NAME, State::Bad, format!("limited to {}", human(limit)))
            .advise("regions reserve addresses for all they may grow to: `ulimit -v unlimited`"),
    })
}

fn mappings(host: &Host) -> Option<Finding> {
    const NAME: &str = "mappings";
    let most = host.number("/proc/sys/vm/max_map_count")?;
    if most >= 65_530 {
        return Some(Finding::new(
            NAME,
            State::Good,
            format!("up to {most} a process"),
        ));
    }
    Some(
        Finding::new(NAME, State::Worth, format!("up to {most} a process"))
            .advise("spaces of many segments need more")
            .fix(Fix::Write("/proc/sys/vm/max_map_count", "65530")),
    )
}

fn open_files(host: &Host) -> Option<Finding> {
    const NAME: &str = "open files";
    let most = host.limit("Max open files")?;
    let state = if most >= 1024 {
        State::Good
    } else {
        State::Worth
    };
    let finding = Finding::new(NAME, state, format!("up to {most} a process"));
    Some(if state == State::Good {
        finding
    } else {
        finding.advise("each attached segment needs two, each client one: `ulimit -n 65536`")
    })
}
