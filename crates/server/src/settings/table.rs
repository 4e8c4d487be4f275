//! All settings: one entry each, with what it takes, its value unless it is set, and its doc.

use mneme_log::{DATABASES, MAX_VALUE, MIN_CAPACITY};

use super::kind::{Kind, Refused};

/// I/O threads a server may have; far more than cores that one machine has today.
pub(crate) const MOST_THREADS: usize = 512;

/// One setting.
#[derive(Debug)]
pub struct Setting {
    /// Which.
    pub key: Key,
    /// Its name as a flag, in the environment, in the file and for `CONFIG`.
    pub name: &'static str,
    /// Another name, which does wherever the name does.
    pub alias: Option<&'static str>,
    /// What it takes.
    pub kind: Kind,
    /// Its value unless it is set.
    pub default: &'static str,
    /// Whether `CONFIG SET` may change it.
    pub changes: Changes,
    /// What it means.
    pub doc: &'static str,
}

/// When a setting may change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Changes {
    /// Never, once the server has started.
    AtStart,
    /// At any time, by `CONFIG SET`.
    Live,
}

impl Setting {
    /// The variable that sets it in the environment.
    pub fn variable(&self) -> String {
        variable(self.name)
    }

    /// All variables that set it, the first one before the others.
    pub fn variables(&self) -> impl Iterator<Item = String> {
        self.names().map(variable)
    }

    /// Its names, the first one before the other.
    pub fn names(&self) -> impl Iterator<Item = &'static str> {
        std::iter::once(self.name).chain(self.alias)
    }

    /// The setting called `name`, in any case, and which of its names that is.
    pub fn spelt(name: &[u8]) -> Option<(&'static Setting, &'static str)> {
        let found = |setting: &'static Setting| {
            let is_it = |known: &&str| known.as_bytes().eq_ignore_ascii_case(name);
            Some((setting, setting.names().find(is_it)?))
        };
        SETTINGS.iter().find_map(found)
    }

    /// The setting called `name`, in any case.
    pub fn named(name: &[u8]) -> Option<&'static Setting> {
        Self::spelt(name).map(|(setting, _)| setting)
    }

    /// What it takes, in words.
    pub fn range(&self) -> String {
        self.kind.to_string()
    }

    /// A refusal in words, with the range where it does not name it: `CONFIG SET` has Redis' words
    /// alone.
    pub fn refusal(&self, reason: &Refused) -> String {
        match reason {
            Refused::NotANumber | Refused::NotASize | Refused::NotASizeOrPercent => {
                format!("{reason}; it takes {}", self.range())
            }
            reason => reason.to_string(),
        }
    }
}

fn variable(name: &str) -> String {
    format!("MNEME_{}", name.replace('-', "_").to_ascii_uppercase())
}

macro_rules! settings {
    ($($(#[doc = $doc:literal])+ $key:ident: $name:literal $(or $alias:literal)?, $kind:expr, $default:literal, $changes:ident;)*) => {
        /// A setting's place in the table.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        #[repr(usize)]
        pub enum Key { $($(#[doc = $doc])+ $key),* }

        /// All settings, in alphabetical order.
        pub static SETTINGS: &[Setting] = &[$(Setting {
            key: Key::$key,
            name: $name,
            alias: settings!(@alias $($alias)?),
            kind: $kind,
            default: $default,
            changes: Changes::$changes,
            doc: concat!($($doc, "\n"),+),
        }),*];
    };
    (@alias) => { None };
    (@alias $alias:literal) => { Some($alias) };
}

const SECONDS: Kind = Kind::Number {
    least: 0,
    most: i32::MAX as i64,
};

const PERCENT_OF_A_CPU: Kind = Kind::Number { least: 1, most: 99 };
const FRAGMENTATION: Kind = Kind::Number {
    least: 0,
    most: 1000,
};

settings! {
    /// Whether a new user may use all channels unless its rules say otherwise.
    AclPubSub: "acl-pubsub-default", Kind::Word(&["allchannels", "resetchannels"]), "resetchannels", Live;
    /// The file of users, in the form of Redis' own: read at the start and by ACL LOAD, written by
    /// ACL SAVE. A default user that it does not name has the password of `requirepass`. No file if
    /// empty.
    AclFile: "aclfile", Kind::Text, "", AtStart;
    /// Denied commands, and failed attempts to authenticate, that ACL LOG keeps.
    AclLogLength: "acllog-max-len", Kind::Number { least: 0, most: i64::MAX }, "128", Live;
    /// The largest share of one CPU that compaction takes to save memory, in percent: at
    /// `active-defrag-threshold-upper` and above.
    DefragMost: "active-defrag-cycle-max", PERCENT_OF_A_CPU, "25", Live;
    /// The smallest share of one CPU that compaction takes, in percent: at
    /// `active-defrag-threshold-lower`.
    DefragLeast: "active-defrag-cycle-min", PERCENT_OF_A_CPU, "1", Live;
    /// Stale bytes below which the log is not compacted to save memory.
    DefragIgnored: "active-defrag-ignore-bytes", Kind::Size { least: 1, most: i64::MAX }, "2097152", Live;
    /// Stale bytes of the log, in percent of the live ones, above which it is compacted. Less than
    /// 6 counts as 6.
    DefragLower: "active-defrag-threshold-lower", FRAGMENTATION, "25", Live;
    /// Stale bytes of the log, in percent of the live ones, from which on compaction takes the
    /// share of a CPU that `active-defrag-cycle-max` allows.
    DefragUpper: "active-defrag-threshold-upper", FRAGMENTATION, "100", Live;
    /// Whether the log is compacted to save memory: resident memory then follows the live data, and
    /// shrinks further while nothing is written. If not, compaction waits until free memory runs
    /// short, except for parts of the log that are nearly all stale. The process that maintains the
    /// store does this.
    ActiveDefrag: "activedefrag", Kind::Flag, "yes", Live;
    /// When a change becomes durable, with `data`. always: before its reply is sent, and before the
    /// reply to a read that saw it. everysec: within a second; a power cut loses two seconds at
    /// most. no: when the operating system writes it.
    AppendFsync: "appendfsync", Kind::Word(&["always", "everysec", "no"]), "everysec", Live;
    /// Whether changes are kept on disk. `data` decides that: this is yes with it and no without
    /// it, and the opposite is refused.
    AppendOnly: "appendonly", Kind::Word(&["no", "yes"]), "no", Live;
    /// Addresses to listen on: IP addresses, `localhost`, or `*` for all. One with a `-` in front
    /// is left out if this machine does not have it. None if empty: then there is no TCP, and the
    /// port is 0.
    Bind: "bind", Kind::Addresses, "127.0.0.1", AtStart;
    /// Bytes of unsent replies and messages at which a client is disconnected, by its class: at
    /// once at the first number, and at the second after as many seconds as the third says. 0 is no
    /// limit. The classes are normal, slave (or replica; there are none
    /// yet) and pubsub: clients that have subscribed to channels.
    OutputLimit: "client-output-buffer-limit", Kind::OutputLimit, "normal 1073741824 0 0 slave 268435456 67108864 60 pubsub 33554432 8388608 60", Live;
    /// Bytes of unsent replies beyond which no more commands of a client are read until it has read
    /// replies; for clients that connect later.
    OutputPause: "client-output-buffer-pause", Kind::Size { least: 64 << 10, most: i64::MAX }, "67108864", Live;
    /// Bytes of an incomplete command, or of a transaction that waits for EXEC, beyond which a
    /// client is disconnected.
    QueryBuffer: "client-query-buffer-limit", Kind::Size { least: 1 << 20, most: i64::MAX }, "1073741824", Live;
    /// Whether a crash of `mneme serve` may leave a core dump, as far as the process' limits allow
    /// one. It has all that clients send, passwords among it, and the key of `tls-key-file`.
    CoreDumps: "core-dumps", Kind::Flag, "no", AtStart;
    /// The directory on a local disk that keeps the data through a power cut, in the form of
    /// `durability`. Created if it does not exist. If empty, nothing is kept on disk.
    Data: "data", Kind::Text, "", AtStart;
    /// Databases that clients may SELECT.
    Databases: "databases", Kind::Number { least: 1, most: DATABASES as i64 }, "16", AtStart;
    /// The form in which the directory `data` keeps the data. journal: every change is appended to
    /// a journal, which checkpoints keep short; for disks. tree: commits change a tree in place,
    /// and there are no checkpoints; for media on which a sync costs little. A directory keeps the
    /// form that it was created with.
    Durability: "durability", Kind::Word(&["journal", "tree"]), "journal", AtStart;
    /// Which connections may use MNEME BACKUP, which writes to the disk: none, all, or those from
    /// this machine.
    EnableBackup: "enable-backup-command", Kind::Word(&["no", "yes", "local"]), "local", AtStart;
    /// Which connections may use DEBUG, which is for tests: none, all, or those from this machine.
    EnableDebug: "enable-debug-command", Kind::Word(&["no", "yes", "local"]), "no", AtStart;
    /// Fields up to which Redis keeps a hash as a listpack. Here it decides what OBJECT ENCODING
    /// says of a hash, and whether HSCAN returns it at once.
    HashEntries: "hash-max-listpack-entries" or "hash-max-ziplist-entries", Kind::Number { least: 0, most: i64::MAX }, "512", Live;
    /// Bytes of a field or a value up to which Redis keeps a hash as a listpack; as
    /// `hash-max-listpack-entries`.
    HashValue: "hash-max-listpack-value" or "hash-max-ziplist-value", Kind::Size { least: 0, most: i64::MAX }, "64", Live;
    /// I/O threads, each of which serves its own connections; 0 is one for each CPU.
    Threads: "io-threads" or "threads", Kind::Number { least: 0, most: MOST_THREADS as i64 }, "0", AtStart;
    /// Milliseconds from which on an event is kept for LATENCY; 0 is never.
    LatencyThreshold: "latency-monitor-threshold", Kind::Number { least: 0, most: i64::MAX }, "0", Live;
    /// Whether to keep the distribution of each command's time, for LATENCY HISTOGRAM and INFO
    /// latencystats.
    LatencyTracking: "latency-tracking", Kind::Flag, "yes", Live;
    /// Memory that a new store lends, while it does not need it, to programs that attach its
    /// segment: they keep copies there of data that they can read again elsewhere. 0 lends nothing.
    /// Fixed when a segment is created.
    LendMemory: "lend-memory", Kind::Size { least: 0, most: i64::MAX }, "0", AtStart;
    /// Nodes at each end of a list that Redis does not compress. Accepted and without effect: lists
    /// are not compressed.
    ListCompressDepth: "list-compress-depth", Kind::Number { least: 0, most: i32::MAX as i64 }, "0", Live;
    /// Items, or as a negative number a class of bytes, up to which Redis lets a node of a list
    /// grow. Accepted and without effect.
    ListNodeSize: "list-max-listpack-size" or "list-max-ziplist-size", Kind::Number { least: i32::MIN as i64, most: i32::MAX as i64 }, "-2", Live;
    /// What local programs may do that attach the segment while the server serves it: write and
    /// read, read, or nothing (none), as far as its permissions allow it. It holds for programs
    /// that attach later. Against malice only the permissions help.
    LocalPrograms: "local-programs", Kind::Word(&["write", "read", "none"]), "write", Live;
    /// The most connections; further ones are refused. If the limit on open files is too low and
    /// cannot be raised, the number is lowered at the start, and cannot be set higher.
    MaxClients: "maxclients", Kind::Number { least: 1, most: u32::MAX as i64 }, "10000", Live;
    /// Memory for the whole store: the data, its index and all else. 0 is half of the memory of the
    /// machine or the control group; at run time 0 changes nothing. A store can grow up to the
    /// maximum that it was created with; its capacity never shrinks.
    MaxMemory: "maxmemory" or "memory", Kind::Capacity { least: MIN_CAPACITY as i64 }, "0", Live;
    /// Memory that all clients may take together, for incomplete commands, transactions that wait
    /// for EXEC, watched keys and unsent replies. Above it the clients that take most are
    /// disconnected; clients with CLIENT NO-EVICT are neither disconnected nor counted. A single
    /// reply above it ends its connection, and a command is refused if its keys, at 256 bytes
    /// each, exceed it.
    MaxMemoryClients: "maxmemory-clients", Kind::SizeOrPercent, "100%", Live;
    /// Which records are evicted when the memory is full.
    MaxMemoryPolicy: "maxmemory-policy", Kind::Word(POLICIES), "noeviction", Live;
    /// The address and port at which metrics are served in Prometheus' text format, by HTTP at
    /// /metrics, as in 127.0.0.1:9121. None if empty. Metrics contain counts, but no keys and no
    /// values, and need no password.
    Metrics: "metrics-listen", Kind::Endpoint, "", AtStart;
    /// Which changes of keys are reported on channels, by letters: K on __keyspace@DB__:KEY, E on
    /// __keyevent@DB__:EVENT; g any key, $ strings, l lists, s sets, h hashes, z sorted sets, n
    /// new keys, m keys that were looked up and are absent; A all but n and m. Nothing if empty.
    /// Letters of events that do not exist yet are accepted: t, d; and x and e, for records that
    /// the store removes by itself.
    NotifyEvents: "notify-keyspace-events", Kind::Events, "", Live;
    /// The TCP port; 0 lets the system choose a free one, which CONFIG GET shows and CONFIG REWRITE
    /// does not write. No TCP at all is an empty `bind`.
    Port: "port", Kind::Number { least: 0, most: 65_535 }, "6379", AtStart;
    /// Whether to serve private memory, which ends with the process and cannot be attached.
    Private: "private", Kind::Flag, "no", AtStart;
    /// Whether to refuse other machines while there is no password.
    ProtectedMode: "protected-mode", Kind::Flag, "yes", Live;
    /// Bytes of one argument, and of one value; for clients that connect later.
    BulkLength: "proto-max-bulk-len", Kind::Size { least: 1 << 20, most: MAX_VALUE as i64 }, "536870912", Live;
    /// The registry's directory. If empty `$MNEME_DIR`, else /dev/shm/mneme-UID-registry.
    Registry: "registry", Kind::Text, "", AtStart;
    /// The password of the default user; none if empty. Set it in the environment or in a
    /// file rather than by a flag: other users can see a process' arguments.
    Password: "requirepass", Kind::Secret, "", Live;
    /// When checkpoints are written, for a server with `data`: after so many seconds, if there were
    /// so many changes, as in `900 1 300 10`. If empty, only when the journal has become long.
    Save: "save", Kind::SavePoints, "", Live;
    /// The segment to serve. It keeps the records when the server ends, and local programs can
    /// attach it. Created if it does not exist. Its name has 1 to 200 bytes, no slashes, does not
    /// begin with a dot, and has no letter behind a `~`.
    Segment: "segment", Kind::Text, "default", AtStart;
    /// Members up to which Redis keeps a set of integers as an intset. Here it decides what OBJECT
    /// ENCODING says of a set, and whether SSCAN returns it at once.
    SetIntegers: "set-max-intset-entries", Kind::Number { least: 0, most: i64::MAX }, "512", Live;
    /// Microseconds from which on the SLOWLOG keeps a command; -1 is never.
    SlowerThan: "slowlog-log-slower-than", Kind::Number { least: -1, most: i64::MAX }, "10000", Live;
    /// Commands that the SLOWLOG keeps.
    SlowlogLength: "slowlog-max-len", Kind::Number { least: 0, most: i64::MAX }, "128", Live;
    /// Connections that the system keeps waiting until they are accepted.
    Backlog: "tcp-backlog", Kind::Number { least: 0, most: i32::MAX as i64 }, "511", AtStart;
    /// Seconds of silence after which TCP probes whether the peer is alive; 0 is never. Linux takes
    /// 32767 at most. For clients that connect later.
    Keepalive: "tcp-keepalive", SECONDS, "300", Live;
    /// Seconds after which a client that sends and reads nothing is disconnected; 0 is never.
    Timeout: "timeout", SECONDS, "0", Live;
    /// Whether clients of `tls-port` must show a certificate that is signed by `tls-ca-cert-file`
    /// or one in `tls-ca-cert-dir`; `optional` verifies those that show one.
    TlsAuthClients: "tls-auth-clients", Kind::Word(&["yes", "no", "optional"]), "yes", Live;
    /// A directory of such files as `tls-ca-cert-file` names.
    TlsAuthorities: "tls-ca-cert-dir", Kind::Text, "", Live;
    /// The certificates, as PEM, of the authorities that sign clients' certificates.
    TlsAuthority: "tls-ca-cert-file", Kind::Text, "", Live;
    /// The server's certificate as PEM, followed by those that sign it. `CONFIG SET` of this or any
    /// other setting of TLS reads all files again, as SIGHUP does, for later connections: all of
    /// them, or none.
    TlsCertificate: "tls-cert-file", Kind::Text, "", Live;
    /// Ciphers of TLS 1.2 by OpenSSL's names, separated by colons, the preferred ones first; all
    /// supported ones if empty.
    TlsCiphers: "tls-ciphers", Kind::Text, "", Live;
    /// Ciphers of TLS 1.3, likewise.
    TlsCipherSuites: "tls-ciphersuites", Kind::Text, "", Live;
    /// The key of the certificate as PEM, not encrypted.
    TlsKey: "tls-key-file", Kind::Text, "", Live;
    /// Whether clients are served only on `tls-port` and the unix socket, and not on `port`.
    TlsOnly: "tls-only", Kind::Flag, "no", AtStart;
    /// A port for clients that speak TLS, beside `port`; none if 0.
    TlsPort: "tls-port", Kind::Number { least: 0, most: u16::MAX as i64 }, "0", AtStart;
    /// Whether the server's order of ciphers decides, and not the client's.
    TlsPreferServerCiphers: "tls-prefer-server-ciphers", Kind::Flag, "no", Live;
    /// The supported versions: `TLSv1.2`, `TLSv1.3` or both, separated by a space; both if empty.
    TlsProtocols: "tls-protocols", Kind::Text, "", Live;
    /// Whether clients get session tickets, which shorten their next handshake.
    TlsSessionCaching: "tls-session-caching", Kind::Flag, "yes", Live;
    /// Keys that clients have read which track them (CLIENT TRACKING), beyond which the server
    /// forgets some, and says that they may have changed; so it does beyond 512 bytes for each of
    /// so many, and beyond maxmemory-clients. 0: any number.
    TrackingKeys: "tracking-table-max-keys", Kind::Number { least: 0, most: i64::MAX }, "1000000", Live;
    /// A unix socket to listen on as well; none if empty.
    UnixSocket: "unixsocket" or "socket", Kind::Text, "", AtStart;
    /// Permissions of the unix socket, as `chmod` takes them: 700 is this user alone, 770 the group
    /// too. 0 leaves them to the process' umask.
    UnixSocketPermissions: "unixsocketperm", Kind::Permissions, "0", AtStart;
    /// How records are updated; fixed when a segment is created. `in-place` suits a store that is
    /// nearly full of values that often change.
    UpdatePolicy: "update-policy", Kind::Word(&["append", "in-place"]), "append", AtStart;
    /// Members up to which Redis keeps a sorted set as a listpack. Here it decides what OBJECT
    /// ENCODING says of one, and whether ZSCAN returns it at once.
    SortedSetEntries: "zset-max-listpack-entries" or "zset-max-ziplist-entries", Kind::Number { least: 0, most: i64::MAX }, "128", Live;
    /// Bytes of a member up to which Redis keeps a sorted set as a listpack; as
    /// `zset-max-listpack-entries`.
    SortedSetValue: "zset-max-listpack-value" or "zset-max-ziplist-value", Kind::Size { least: 0, most: i64::MAX }, "64", Live;
}

/// Redis' names of [`mneme_log::Evict`], in Redis' order.
const POLICIES: &[&str] = &[
    "volatile-lru",
    "volatile-lfu",
    "volatile-random",
    "volatile-ttl",
    "allkeys-lru",
    "allkeys-lfu",
    "allkeys-random",
    "noeviction",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_stand_in_order_and_take_their_defaults() {
        assert!(SETTINGS.is_sorted_by(|a, b| a.name < b.name));
        for (place, setting) in SETTINGS.iter().enumerate() {
            assert_eq!(setting.key as usize, place, "{}", setting.name);
            let value = setting.kind.parse(setting.default).unwrap();
            assert_eq!(
                value.show(setting.kind),
                setting.default,
                "{}",
                setting.name
            );
        }
    }

    #[test]
    fn no_two_settings_share_a_name() {
        for setting in SETTINGS {
            for name in setting.names() {
                let found = Setting::spelt(name.to_ascii_uppercase().as_bytes());
                let found = found.map(|(found, name)| (found.key, name));
                assert_eq!(found, Some((setting.key, name)));
            }
        }
    }

    /// `docs/configuration.md` says what the table says. `MNEME_WRITE_DOCS=1` writes it.
    #[test]
    fn the_documentation_is_the_table() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/configuration.md");
        let text = super::super::print::documentation();
        if std::env::var_os("MNEME_WRITE_DOCS").is_some() {
            std::fs::write(path, &text).unwrap();
        }
        let written = std::fs::read_to_string(path).unwrap();
        assert!(written == text, "run this test with MNEME_WRITE_DOCS=1");
    }
}
