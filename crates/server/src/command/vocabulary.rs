//! Redis's terms for commands: flags, chapters, ACL categories and argument types, each an enum
//! with Redis's spelling.

macro_rules! named {
    ($(#[$doc:meta])* $type:ident { $($variant:ident => $name:literal),* $(,)? }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        #[allow(dead_code, reason = "Redis' whole vocabulary, so that a new command finds its words")]
        pub(crate) enum $type { $($variant),* }

        impl $type {
            /// All variants.
            #[allow(dead_code, reason = "of use to some of these types only")]
            pub const ALL: &[Self] = &[$(Self::$variant),*];

            /// The name that Redis uses.
            pub fn name(self) -> &'static str {
                match self { $(Self::$variant => $name),* }
            }

            /// The variant with this Redis name, in any case.
            #[allow(dead_code, reason = "of use to some of these types only")]
            pub fn from_name(name: &[u8]) -> Option<Self> {
                [$((Self::$variant, $name)),*]
                    .into_iter()
                    .find_map(|(value, spelt)| spelt.as_bytes().eq_ignore_ascii_case(name).then_some(value))
            }
        }
    };
}
pub(super) use named;

named! {
    /// An effect of a command, or a state in which it may run.
    Flag {
        Write => "write",
        Readonly => "readonly",
        DenyOom => "denyoom",
        Admin => "admin",
        PubSub => "pubsub",
        NoScript => "noscript",
        Blocking => "blocking",
        Loading => "loading",
        Stale => "stale",
        SkipMonitor => "skip_monitor",
        SkipSlowlog => "skip_slowlog",
        Fast => "fast",
        NoAuth => "no_auth",
        MayReplicate => "may_replicate",
        NoMandatoryKeys => "no_mandatory_keys",
        NoMulti => "no_multi",
        NoAsyncLoading => "no_async_loading",
        MovableKeys => "movablekeys",
        AllowBusy => "allow_busy",
    }
}

named! {
    /// A chapter of the manual.
    Group {
        Bitmap => "bitmap",
        Connection => "connection",
        Generic => "generic",
        Geo => "geo",
        Hash => "hash",
        HyperLogLog => "hyperloglog",
        List => "list",
        PubSub => "pubsub",
        Scripting => "scripting",
        Server => "server",
        Set => "set",
        SortedSet => "sorted-set",
        Stream => "stream",
        String => "string",
        Transactions => "transactions",
    }
}

named! {
    /// An ACL category.
    Category {
        Keyspace => "keyspace",
        Read => "read",
        Write => "write",
        Set => "set",
        SortedSet => "sortedset",
        List => "list",
        Hash => "hash",
        String => "string",
        Bitmap => "bitmap",
        HyperLogLog => "hyperloglog",
        Geo => "geo",
        Stream => "stream",
        PubSub => "pubsub",
        Admin => "admin",
        Fast => "fast",
        Slow => "slow",
        Blocking => "blocking",
        Dangerous => "dangerous",
        Connection => "connection",
        Transaction => "transaction",
        Scripting => "scripting",
    }
}

named! {
    /// The type of an argument.
    Kind {
        String => "string",
        Integer => "integer",
        Double => "double",
        Key => "key",
        Pattern => "pattern",
        UnixTime => "unix-time",
        PureToken => "pure-token",
        OneOf => "oneof",
        Block => "block",
    }
}
