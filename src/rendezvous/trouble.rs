//! Why a node cannot reach node 0, in words.

use core::net::IpAddr;
use std::fmt;

/// What went wrong with one attempt.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Trouble {
    NoName(String),
    /// `trap`: the name stands for this machine itself.
    Refused {
        by: IpAddr,
        trap: bool,
    },
    /// `route`: the local address and interface that were used.
    NoAnswer {
        from: IpAddr,
        route: Option<(IpAddr, String)>,
    },
    Other {
        to: IpAddr,
        error: String,
    },
    /// A connection stood and was lost before the start; `None` where node 0 closed it.
    Lost(Option<String>),
    /// Somebody answers, but no store.
    NoStore,
    /// Somebody accepts connections and says nothing.
    Silent,
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoName(error) => write!(f, "the name does not resolve ({error})"),
            Self::Refused { by, trap: false } => {
                write!(f, "refused by {by}: no launcher listens there yet")
            }
            Self::Refused { by, trap: true } => write!(
                f,
                "refused by {by}, which is this machine itself: /etc/hosts may give node 0's name to it"
            ),
            Self::NoAnswer { from, route: None } => write!(f, "no answer from {from}"),
            Self::NoAnswer {
                from,
                route: Some((local, interface)),
            } => {
                write!(
                    f,
                    "no answer from {from}, asked from {local} on {interface}"
                )
            }
            Self::Other { to, error } => write!(f, "{error} ({to})"),
            Self::Lost(None) => f.write_str("node 0 closed the connection"),
            Self::Lost(Some(error)) => write!(f, "the connection was lost: {error}"),
            Self::NoStore => f.write_str("what listens there is no store"),
            Self::Silent => f.write_str("what listens there has not answered yet"),
        }
    }
}
