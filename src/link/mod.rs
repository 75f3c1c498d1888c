//! Whose `fabric` stands in our bin folder: ours under a name of its own, or the one of Lightning's package.
//!
//! A wheel must not bring a file that another package owns: pip overwrites it in silence, and uninstalling either
//! package takes it away. So the wheel brings `fabric-run`, and the user decides what `fabric` is:
//!
//! ```text
//! installed   fabric = Lightning's script                   fabric-run = this program
//! link        fabric -> fabric-run     fabric.lightning = Lightning's script
//! unlink      fabric = Lightning's script, the same file as before
//! ```
//!
//! `pip install -U lightning` writes its script over the link (pip removes a link before it writes). Then `fabric`
//! and `fabric.lightning` are both Lightning's, which is how it is noticed, and `link` takes the newer one over.

mod change;
mod folder;

pub(crate) use folder::{link, overwritten, unlink};
