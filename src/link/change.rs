//! What `link` and `unlink` change, decided from what is there.

/// The name that scripts call.
pub(super) const NAME: &str = "fabric";
/// Where Lightning's script is kept while `fabric` is ours.
pub(super) const KEPT: &str = "fabric.lightning";

/// What a name in the bin folder stands for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Entry {
    Nothing,
    /// A symbolic link to this program.
    OurLink,
    /// The script of Lightning's package.
    Lightnings,
    Unknown,
}

/// The two names that matter.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Names {
    pub(super) fabric: Entry,
    pub(super) kept: Entry,
}

/// The one change to the folder.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Change {
    Nothing,
    /// `fabric` becomes a link to this program, where there was nothing.
    Link,
    /// The same, and what `fabric` was moves to the kept name, over what is there.
    KeepAndLink,
    /// What was kept becomes `fabric` again, over the link.
    Restore,
    RemoveLink,
    RemoveKept,
}

/// A change and the words for it, which follow the path of `fabric`.
type Decision = Result<(Change, &'static str), String>;

/// For `link`.
///
/// # Errors
/// Something is there that is not understood; it is not touched.
pub(super) fn link(names: Names) -> Decision {
    use Entry::{Lightnings, Nothing, OurLink};
    names.understood()?;
    Ok(match (names.fabric, names.kept) {
        (OurLink, _) => (Change::Nothing, "is this program already"),
        (Lightnings, Nothing) => (
            Change::KeepAndLink,
            "is this program now; Lightning's own is kept as `fabric.lightning`",
        ),
        (Lightnings, _) => (
            Change::KeepAndLink,
            "is this program again; Lightning had been installed anew, its newer script is kept as `fabric.lightning`",
        ),
        (_, Nothing) => (
            Change::Link,
            "is this program now; there was none of Lightning's",
        ),
        _ => (
            Change::Link,
            "is this program again; Lightning's own was kept as `fabric.lightning`",
        ),
    })
}

/// For `unlink`.
///
/// # Errors
/// As for `link`.
pub(super) fn unlink(names: Names) -> Decision {
    use Entry::{Lightnings, Nothing, OurLink};
    names.understood()?;
    Ok(match (names.fabric, names.kept) {
        (OurLink | Nothing, Lightnings) => (Change::Restore, "is Lightning's own again"),
        (OurLink, _) => (
            Change::RemoveLink,
            "is gone; there was none of Lightning's to bring back",
        ),
        (Lightnings, Lightnings) => (
            Change::RemoveKept,
            "is Lightning's own, installed anew since the link; the older one is removed",
        ),
        (Lightnings, _) => (Change::Nothing, "is Lightning's own already"),
        _ => (Change::Nothing, "is not there; nothing to do"),
    })
}

impl Names {
    fn understood(self) -> Result<(), String> {
        let strange = match self {
            Self {
                fabric: Entry::Unknown,
                ..
            } => (
                NAME,
                "neither Lightning's script nor a link to this program",
            ),
            Self {
                kept: Entry::Unknown | Entry::OurLink,
                ..
            } => (KEPT, "not Lightning's script"),
            _ => return Ok(()),
        };
        let (name, fault) = strange;
        Err(format!(
            "`{name}` is {fault}, so it is left alone\nhint: move it away first"
        ))
    }

    /// Whether Lightning's package was installed over our link.
    pub(super) fn overwritten(self) -> bool {
        (self.fabric, self.kept) == (Entry::Lightnings, Entry::Lightnings)
    }
}

#[cfg(test)]
mod tests {
    use super::Change as C;
    use super::Entry::{self, Lightnings, Nothing, OurLink, Unknown};
    use super::*;

    const ALL: [Entry; 4] = [Nothing, OurLink, Lightnings, Unknown];

    #[track_caller]
    fn check(fabric: Entry, kept: Entry, linked: C, unlinked: C) {
        let names = Names { fabric, kept };
        assert_eq!(link(names).unwrap().0, linked);
        assert_eq!(unlink(names).unwrap().0, unlinked);
    }

    /// The names after a change.
    fn changed(names: Names, change: C) -> Names {
        let Names { fabric, kept } = names;
        let (fabric, kept) = match change {
            C::Nothing => (fabric, kept),
            C::Link => (OurLink, kept),
            C::KeepAndLink => (OurLink, fabric),
            C::Restore => (kept, Nothing),
            C::RemoveLink => (Nothing, kept),
            C::RemoveKept => (fabric, Nothing),
        };
        Names { fabric, kept }
    }

    #[test]
    fn every_state_that_is_understood() {
        check(Nothing, Nothing, C::Link, C::Nothing);
        check(Nothing, Lightnings, C::Link, C::Restore);
        check(OurLink, Nothing, C::Nothing, C::RemoveLink);
        check(OurLink, Lightnings, C::Nothing, C::Restore);
        check(Lightnings, Nothing, C::KeepAndLink, C::Nothing);
        check(Lightnings, Lightnings, C::KeepAndLink, C::RemoveKept);
    }

    #[test]
    fn the_unknown_is_left_alone() {
        for other in ALL {
            for (fabric, kept) in [(Unknown, other), (other, Unknown), (other, OurLink)] {
                let names = Names { fabric, kept };
                assert!(link(names).is_err() && unlink(names).is_err(), "{names:?}");
            }
        }
    }

    #[test]
    fn twice_is_once_and_nothing_of_lightnings_is_lost() {
        for names in ALL.iter().flat_map(|fabric| {
            let names = |kept: &Entry| Names {
                fabric: *fabric,
                kept: *kept,
            };
            ALL.iter().map(names).collect::<Vec<_>>()
        }) {
            for decide in [link, unlink] {
                let Ok((change, _)) = decide(names) else {
                    continue;
                };
                let after = changed(names, change);
                assert_eq!(decide(after).unwrap().0, C::Nothing, "{names:?}");
                let has = |it: Names| it.fabric == Lightnings || it.kept == Lightnings;
                assert!(!has(names) || has(after), "{names:?}");
            }
        }
    }

    #[test]
    fn only_two_scripts_of_lightnings_mean_that_the_link_was_overwritten() {
        let names = |fabric, kept| Names { fabric, kept };
        assert!(names(Lightnings, Lightnings).overwritten());
        assert!(!names(Lightnings, Nothing).overwritten());
        assert!(!names(OurLink, Lightnings).overwritten());
    }
}
