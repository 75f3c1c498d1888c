//! Installed next to Lightning under a name of its own: `fabric` becomes ours and Lightning's again.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

use crate::harness::{Fabric, Finished, test_python};

/// What pip makes of Lightning's entry point.
const SCRIPT: &str = "#!/usr/bin/env python3\nimport sys\nfrom lightning.fabric.cli import _main\nif __name__ == '__main__':\n    sys.exit(_main())\n";

/// A virtual environment with Lightning's script and our program in it, at a path with a space.
struct Environment {
    folder: TempDir,
}

impl Environment {
    /// On top of this Python; no package manager.
    fn on(python: &Path) -> Self {
        let folder = tempfile::Builder::new()
            .prefix("an environment ")
            .tempdir()
            .unwrap();
        let made = Command::new(python)
            .args(["-m", "venv", "--without-pip"])
            .arg(folder.path())
            .status();
        assert!(made.unwrap().success());
        let it = Self { folder };
        fs::copy(env!("CARGO_BIN_EXE_fabric"), it.bin("fabric-run")).unwrap();
        it.install_lightning(SCRIPT);
        it
    }

    /// As pip does it: what is there goes first, be it a link.
    fn install_lightning(&self, script: &str) {
        let path = self.bin("fabric");
        let _ = fs::remove_file(&path);
        fs::write(&path, script).unwrap();
        let mode = fs::metadata(self.bin("fabric-run")).unwrap().permissions();
        fs::set_permissions(&path, mode).unwrap();
    }

    fn bin(&self, name: &str) -> PathBuf {
        self.folder.path().join("bin").join(name)
    }

    fn start(&self, name: &str) -> Fabric {
        Fabric::through(self.bin(name).to_str().unwrap(), &[])
    }

    #[track_caller]
    fn tell(&self, command: &str) -> Finished {
        self.start("fabric-run").arg(command).finish()
    }

    #[track_caller]
    fn expect(&self, command: &str, words: &str) {
        let done = self.tell(command).expect_code(0);
        let expected = format!("`{}` {words}\n", self.bin("fabric").display());
        assert_eq!(done.stdout, expected);
    }

    fn text(&self, name: &str) -> String {
        fs::read_to_string(self.bin(name)).unwrap()
    }

    fn is_ours(&self) -> bool {
        fs::read_link(self.bin("fabric")).is_ok_and(|it| it == Path::new("fabric-run"))
    }
}

fn plain() -> Environment {
    Environment::on(Path::new("python3"))
}

#[test]
fn there_and_back_is_the_same_file() {
    let it = plain();
    it.expect(
        "link",
        "is this program now; Lightning's own is kept as `fabric.lightning`",
    );
    assert!(it.is_ours());
    assert_eq!(it.text("fabric.lightning"), SCRIPT);
    it.expect("link", "is this program already");
    it.expect("unlink", "is Lightning's own again");
    assert_eq!(it.text("fabric"), SCRIPT);
    assert!(!it.bin("fabric.lightning").exists());
    it.expect("unlink", "is Lightning's own already");
}

#[test]
fn a_newer_lightning_is_noticed_and_kept() {
    let it = plain();
    let newer = format!("{SCRIPT}# newer\n");
    it.tell("link").expect_code(0);
    it.install_lightning(&newer);
    let doctor = it.tell("doctor").expect_code(0);
    for text in [
        "Lightning was installed over it",
        "fabric-run link` links it again",
    ] {
        let told = doctor
            .stdout
            .split_whitespace()
            .collect::<Vec<_>>()
            .join(" ");
        assert!(told.contains(text), "{}", doctor.stdout);
    }
    it.expect(
        "link",
        "is this program again; Lightning had been installed anew, its newer script is kept as `fabric.lightning`",
    );
    it.expect("unlink", "is Lightning's own again");
    assert_eq!(it.text("fabric"), newer);
}

#[test]
fn without_lightning_there_is_nothing_to_keep() {
    let it = plain();
    fs::remove_file(it.bin("fabric")).unwrap();
    it.expect("link", "is this program now; there was none of Lightning's");
    it.expect(
        "unlink",
        "is gone; there was none of Lightning's to bring back",
    );
    assert!(!it.bin("fabric").exists());
}

#[test]
fn what_is_not_understood_is_left_alone() {
    let it = plain();
    it.install_lightning("#!/bin/sh\necho my own\n");
    for command in ["link", "unlink"] {
        it.tell(command).expect_code(1).expect_said(&[
            &format!("failed to {command}: `fabric` is neither"),
            "hint: move it away",
        ]);
    }
    assert_eq!(it.text("fabric"), "#!/bin/sh\necho my own\n");
    let named = Fabric::new().arg("link").finish().expect_code(1);
    assert!(named.stderr.contains("so there is nothing to link"));
}

#[test]
fn by_any_name_it_is_the_same_program() {
    let it = plain();
    it.tell("link").expect_code(0);
    let elsewhere = TempDir::new().unwrap();
    let train = elsewhere.path().join("train");
    symlink(it.bin("fabric"), &train).unwrap();
    let words = [
        "run",
        "--dry-run",
        "--main-port",
        "29987",
        "examples/train.py",
    ];
    let by_path = Fabric::through("sh", &["-c", "exec fabric \"$@\"", "sh"]);
    let path = format!(
        "{}:{}",
        it.bin("").display(),
        crate::harness::path().display()
    );
    let plans = [
        it.start("fabric-run").args(words),
        it.start("fabric").args(words),
        Fabric::through(train.to_str().unwrap(), &words),
        by_path.args(words).env("PATH", path.clone()),
    ];
    let plans = plans.map(|plan| {
        plan.env("PATH", &path)
            .env("TMPDIR", "/tmp")
            .finish()
            .expect_code(0)
            .stdout
    });
    let interpreter = it.bin("python3").display().to_string();
    assert!(plans[0].contains(&interpreter), "{}", plans[0]);
    assert!(plans.iter().all(|plan| *plan == plans[0]), "{plans:#?}");
    let usage = it.start("fabric-run").arg("run").finish().expect_code(2);
    assert!(
        usage.stderr.starts_with("Usage: fabric run "),
        "{}",
        usage.stderr
    );
}

#[test]
fn with_real_lightning_scripts_train_and_the_rest_reaches_the_original() {
    let python = test_python();
    let it = Environment::on(&python);
    let ask = [
        "-c",
        "import sysconfig; print(sysconfig.get_path('purelib'))",
    ];
    let packages = Command::new(&python).args(ask).output().unwrap().stdout;
    let ours = Command::new(it.bin("python3"))
        .args(ask)
        .output()
        .unwrap()
        .stdout;
    let ours = PathBuf::from(String::from_utf8(ours).unwrap().trim());
    fs::write(ours.join("lightning.pth"), packages).unwrap();
    let original = fs::read_to_string(python.with_file_name("fabric")).unwrap();
    it.install_lightning(&original);

    it.tell("link").expect_code(0);
    let train = it
        .start("fabric")
        .args(["run", "--accelerator", "cpu", "--devices", "2"]);
    let train = train.arg("examples/fabric_digits.py").finish();
    let train = train.expect_code(0);
    assert!(
        train.stdout.contains("strategy=DDPStrategy world_size=2"),
        "{}",
        train.stdout
    );
    let help = it.start("fabric").args(["consolidate", "--help"]);
    let help = help.finish().expect_code(0);
    assert!(help.stdout.contains("CHECKPOINT_FOLDER"), "{}", help.stdout);
    it.tell("unlink").expect_code(0);
    assert_eq!(it.text("fabric"), original);
}
