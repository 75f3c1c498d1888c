//! Ranks and sizes: which worker is which, on its node and in the world.

use std::fmt;

macro_rules! rank {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        pub(crate) struct $name(pub(crate) u32);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }

        impl $name {
            /// As an index into a table with one row per rank.
            #[expect(dead_code, reason = "not every kind of rank indexes a table")]
            pub(crate) fn index(self) -> usize {
                self.0 as usize
            }
        }
    };
}

rank! {
    /// A worker's index on its node, from 0: LOCAL_RANK.
    LocalRank
}
rank! {
    /// A worker's index in the whole job, from 0: RANK.
    GlobalRank
}
rank! {
    /// A node's index in the job, from 0: GROUP_RANK, NODE_RANK.
    NodeRank
}
