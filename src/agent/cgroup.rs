//! This process's control group (cgroups(7)): where its files are, in version 1 and 2.

use std::fs;
use std::path::{Path, PathBuf};

/// Where both versions are mounted on every distribution.
const ROOT: &str = "/sys/fs/cgroup";

/// The group that one controller keeps this process in.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Cgroup {
    folder: PathBuf,
    /// The topmost folder that is visible to us.
    top: PathBuf,
    /// Version 2, in which files have other names.
    pub(crate) unified: bool,
}

impl Cgroup {
    /// `controller` is `memory`, `pids`, ...; `None` where it is not in use or not mounted.
    pub(crate) fn of_this_process(controller: &str) -> Option<Self> {
        let lines = fs::read_to_string("/proc/self/cgroup").ok()?;
        Self::find(&lines, Path::new(ROOT), controller)
    }

    /// The whole text of one of its files.
    pub(crate) fn read(&self, file: &str) -> Option<String> {
        fs::read_to_string(self.folder.join(file)).ok()
    }

    /// The texts of this file, of the group first and then of the groups around it.
    pub(crate) fn around(&self, file: &str) -> impl Iterator<Item = String> {
        let around = self.folder.ancestors();
        let visible = around.take_while(|it| it.starts_with(&self.top));
        visible.filter_map(move |it| fs::read_to_string(it.join(file)).ok())
    }

    /// The smallest number in this file of the group and the groups around it: the limit that counts.
    pub(crate) fn least(&self, file: &str) -> Option<u64> {
        let numbers = self.around(file).filter_map(|it| it.trim().parse().ok());
        // Version 1 has a number close to the largest for "no limit", version 2 the word `max`.
        numbers.filter(|it| *it < 1 << 62).min()
    }

    /// `lines` are `0::/path` for version 2 and `N:memory:/path` for version 1, which wins where it has the
    /// controller; on some machines both are mounted.
    fn find(lines: &str, root: &Path, controller: &str) -> Option<Self> {
        let first = path_of(lines, |it| it.split(',').any(|it| it == controller));
        let first = first.and_then(|it| Self::at(&root.join(controller), it, None));
        let second = || {
            let marker = format!("{controller}.max");
            Self::at(root, path_of(lines, str::is_empty)?, Some(&marker))
        };
        first.or_else(second)
    }

    /// In a container the path may be the host's, and the group itself is mounted at the top.
    fn at(top: &Path, path: &str, marker: Option<&str>) -> Option<Self> {
        let is_group =
            |it: &PathBuf| it.is_dir() && marker.is_none_or(|marker| it.join(marker).exists());
        let folder = [top.join(path), top.to_owned()]
            .into_iter()
            .find(is_group)?;
        Some(Self {
            folder,
            top: top.to_owned(),
            unified: marker.is_some(),
        })
    }
}

/// The path in the line with the controllers that are wanted.
fn path_of(lines: &str, wanted: impl Fn(&str) -> bool) -> Option<&str> {
    lines.lines().find_map(|line| {
        let mut parts = line.splitn(3, ':').skip(1);
        parts.next().filter(|it| wanted(it))?;
        parts.next().map(|it| it.trim_start_matches('/'))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(files: &[(&str, &str)]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        root
    }

    #[test]
    fn version_2_is_found_with_the_tightest_limit_around_it() {
        let files = [
            ("pod/memory.max", "4096\n"),
            ("pod/job/memory.max", "max\n"),
        ];
        let root = tree(&files);
        let found = Cgroup::find("0::/pod/job\n", root.path(), "memory").unwrap();
        assert!(found.unified);
        assert_eq!(found.read("memory.max").unwrap(), "max\n");
        assert_eq!(found.least("memory.max"), Some(4096));
        assert_eq!(Cgroup::find("0::/pod/job\n", root.path(), "pids"), None);
    }

    #[test]
    fn version_1_is_preferred_where_it_has_the_controller() {
        let root = tree(&[
            ("memory/job/memory.limit_in_bytes", "9223372036854771712\n"),
            ("memory.max", "1"),
        ]);
        let lines = "4:memory:/job\n1:cpu,cpuacct:/\n0::/\n";
        let found = Cgroup::find(lines, root.path(), "memory").unwrap();
        assert!(!found.unified);
        assert_eq!(found.least("memory.limit_in_bytes"), None);
        // It may be in use and yet not be mounted here.
        let root = tree(&[("memory.max", "64")]);
        assert!(Cgroup::find(lines, root.path(), "memory").unwrap().unified);
    }

    #[test]
    fn in_a_container_the_group_is_mounted_at_the_top() {
        let root = tree(&[("memory.max", "64")]);
        let found = Cgroup::find("0::/docker/abc", root.path(), "memory").unwrap();
        assert_eq!(found.least("memory.max"), Some(64));
    }
}
