//! The developer's errands: `cargo xtask ci`, `cargo xtask ladder`, `cargo xtask layering`,
//! `cargo xtask lines`, `cargo xtask go-ycsb`, `cargo xtask numa`, `cargo xtask power-cut`,
//! `cargo xtask install-c`, `cargo xtask python`, `cargo xtask wheel`, `cargo xtask api`,
//! `cargo xtask package`, `cargo xtask book`, `cargo xtask deb`, `cargo xtask container`.

use std::process::ExitCode;
use xtask::workspace::Workspace;
use xtask::{
    api, book, ci, container, deb, go_ycsb, install_c, ladder, layering, lines, numa, package,
    power_cut, prose, python,
};

const USAGE: &str = "\
cargo xtask <errand>

  ci [--only a,b] [--skip a,b] [--list]   everything that must hold before a change lands
  ladder [--secs N] [--seed N] [--only substring] [--list]
                                          the long forms of the proofs (default: 600 s each)
  layering [--circles]                    the layering check alone; the largest circle of files of each crate
  lines [REVISION]                        lines of crates/*/src without comments, by crate; those at a revision
  prose [--below PATH]                    forms that prose does not have, in all or below a path
  go-ycsb [--server PATH] [--records N] [--operations N] [--threads N]
                                          its workloads on strings, on `mneme serve` and on Redis
  numa [--nodes N]                        the tests that need NUMA nodes, in guests with 1, 2 and 4 (needs QEMU)
  power-cut [--cuts N] [--seed N] [--server PATH]
                                          a durable server in a guest whose power is cut, and twins that lose (needs QEMU)
  install-c [--prefix P] [--destdir D]    libmneme, mneme.h and mneme.pc below P (default: /usr/local)
  api [--write]                           the public interface of each published crate, as listed; list it anew
  package [--verify]                      the published crates can be; each is built from its package
  book [--check]                          docs/ as a book in target/book (needs mdbook); its pages and links alone
  deb [--try]                             packages for Debian, in target/packages (needs cargo-deb); tried in a chroot
  container [--try]                       the container's root file system, in target/container; tried in a chroot
  python                                  the module for Python, built and tested (needs python3)
  wheel                                   its wheel, in target/wheels; tried in a virtual environment
  python-bench [--rounds N]               the module beside redis-py, lmdb, pickles and shared memory
";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let Some((errand, rest)) = arguments.split_first() else {
        eprint!("{USAGE}");
        return ExitCode::from(2);
    };
    let outcome = Workspace::load().and_then(|workspace| match errand.as_str() {
        "ci" => ci::run_all(&workspace, &ci::Options::parse(rest)?),
        "ladder" => ladder::run_all(&workspace, &ladder::Options::parse(rest)?),
        "go-ycsb" => go_ycsb::run(&workspace, &go_ycsb::Options::parse(rest)?),
        "install-c" => install_c::run(&workspace, &install_c::Options::parse(rest)?),
        "numa" => numa::run_all(&workspace, rest),
        "power-cut" => power_cut::run_all(&workspace, rest),
        "api" => api::run_all(&workspace, rest),
        "package" => package::run_all(&workspace, rest),
        "book" => book::run_all(&workspace, rest),
        "container" => container::run_all(&workspace, rest),
        "deb" => deb::run_all(&workspace, rest),
        "python" => python::run_check(&workspace),
        "wheel" => python::wheel(&workspace, rest),
        "python-bench" => python::bench(&workspace, rest),
        "layering" => report_layering(&workspace, rest),
        "lines" => lines::run(&workspace, rest),
        "prose" => prose::run(&workspace, rest),
        "help" | "--help" | "-h" => {
            print!("{USAGE}");
            Ok(true)
        }
        other => Err(format!("no errand is called `{other}`\n\n{USAGE}")),
    });
    match outcome {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(message) => {
            eprintln!("xtask: {message}");
            ExitCode::from(2)
        }
    }
}

fn report_layering(workspace: &Workspace, arguments: &[String]) -> Result<bool, String> {
    match arguments {
        [] => {}
        [flag] if flag == "--circles" => print_circles(workspace),
        _ => return Err(format!("`layering` has no flags `{}`", arguments.join(" "))),
    }
    let violations = layering::check(workspace);
    for violation in &violations {
        println!("{violation}");
    }
    println!("layering: {} violation(s)", violations.len());
    Ok(violations.is_empty())
}

fn print_circles(workspace: &Workspace) {
    for (package, circle) in layering::modules::circles(workspace) {
        println!("{package}: {} files in the largest circle", circle.len());
        for member in circle {
            let names: Vec<_> = member
                .names
                .iter()
                .map(|to| to.display().to_string())
                .collect();
            println!("    {} -> {}", member.file.display(), names.join(" "));
        }
    }
}
