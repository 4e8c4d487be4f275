//! The emulator of a guest with disks that are noted.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use super::GUEST_PORT;
use super::disk::Disk;
use crate::guest::QEMU;

/// A running guest, which is killed if it is given up.
pub struct Guest {
    process: Child,
    answers: Box<dyn BufRead + Send>,
}

impl Guest {
    pub fn boot(mut command: Command, disks: &[Disk], ports: &[u16]) -> Result<Self, String> {
        command.args(["-m", "1536", "-smp", "2", "-qmp", "stdio"]);
        let mut network = "user,id=network,restrict=on".to_owned();
        for (number, (disk, port)) in disks.iter().zip(ports).enumerate() {
            let guests = GUEST_PORT + number as u16;
            network += &format!(",hostfwd=tcp:127.0.0.1:{port}-:{guests}");
            // A comma in a path is written twice.
            let path = |path: &Path| path.display().to_string().replace(',', ",,");
            let serial = &disk.serial;
            let disk = format!(
                "driver=blklogwrites,node-name={serial},file.driver=file,file.filename={},\
                 file.cache.no-flush=on,log.driver=file,log.filename={},log.cache.no-flush=on",
                path(&disk.present),
                path(&disk.log)
            );
            command.args(["-blockdev", &disk]);
            let device = format!("virtio-blk-pci,drive={serial},serial={serial},write-cache=on");
            command.args(["-device", &device]);
        }
        command.args([
            "-netdev",
            &network,
            "-device",
            "virtio-net-pci,netdev=network",
        ]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = command
            .spawn()
            .map_err(|error| format!("{QEMU}: {error}"))?;
        let answers = process.stdout.take().ok_or("QEMU has no output")?;
        Ok(Self {
            process,
            answers: Box::new(BufReader::new(answers)),
        })
    }

    /// Stops the guest, so that each request that it made is in the logs or has not been begun, and
    /// kills it.
    pub fn stop_and_kill(&mut self) -> Result<(), String> {
        let failed = |error| format!("{QEMU}: {error}");
        let commands = self.process.stdin.as_mut().ok_or("QEMU has no input")?;
        let stop = "{\"execute\":\"qmp_capabilities\"}\n{\"execute\":\"stop\"}\n";
        commands.write_all(stop.as_bytes()).map_err(failed)?;
        let mut answered = 0;
        while answered < 2 {
            let mut line = String::new();
            if self.answers.read_line(&mut line).map_err(failed)? == 0 {
                return Err(format!("{QEMU} ended by itself"));
            }
            answered += usize::from(line.contains("\"return\""));
        }
        self.process.kill().map_err(failed)?;
        self.process.wait().map(drop).map_err(failed)
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Ports of this machine that nothing listens on.
pub fn free_ports(many: usize) -> Result<Vec<u16>, String> {
    let listeners = (0..many).map(|_| TcpListener::bind("127.0.0.1:0"));
    let listeners = listeners.collect::<Result<Vec<_>, _>>();
    let ports = listeners.and_then(|all| {
        let ports = all.iter().map(|listener| Ok(listener.local_addr()?.port()));
        ports.collect()
    });
    ports.map_err(|error| format!("no port: {error}"))
}
