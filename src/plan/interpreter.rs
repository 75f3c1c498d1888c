//! Which Python runs the script.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use crate::environ::Environ;
use crate::source::Sourced;

/// An interpreter and where it was found.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Interpreter {
    pub(crate) path: OsString,
    /// In words, for `--dry-run`.
    pub(crate) source: String,
}

/// The two questions that the search asks about the machine.
pub(crate) struct Files<'a> {
    /// A file that may be executed.
    pub(crate) is_program: &'a dyn Fn(&Path) -> bool,
    pub(crate) exists: &'a dyn Fn(&Path) -> bool,
}

/// Where to look, first that exists wins: what the user names (`--python`, then PYTHON_EXEC as in torch's
/// `torch/distributed/run.py`), the virtual environment that our own binary lies in (as the original's console
/// script does by its nature), the active virtual or conda environment, then PATH.
///
/// # Errors
/// What the user named does not exist, or nothing was found anywhere; the text lists what was tried.
pub(crate) fn find_interpreter(
    named: Option<&Sourced<OsString>>,
    environ: &Environ,
    own_binary: Option<&Path>,
    files: &Files,
) -> Result<Interpreter, String> {
    let is_program = files.is_program;
    if let Some(named) = named {
        return explicit(&named.source.to_string(), &named.value, environ, is_program);
    }
    if let Some(named) = environ.get("PYTHON_EXEC").filter(|it| !it.is_empty()) {
        return explicit("PYTHON_EXEC", named, environ, is_program);
    }
    let mut tried = Vec::new();
    for (source, folder) in environments(environ, own_binary, files.exists) {
        for name in ["python3", "python"] {
            let path = folder.join("bin").join(name);
            if is_program(&path) {
                return Ok(Interpreter {
                    path: path.into(),
                    source,
                });
            }
        }
        tried.push(format!("{} ({source})", folder.join("bin").display()));
    }
    for name in ["python3", "python"] {
        if let Some(path) = on_path(name.as_ref(), environ, is_program) {
            return Ok(Interpreter {
                path,
                source: format!("{name} on PATH"),
            });
        }
    }
    tried.push(match environ.get("PATH") {
        Some(path) => format!("python3 and python on PATH `{}`", path.display()),
        None => "no PATH is set".to_owned(),
    });
    Err(format!(
        "no Python interpreter found; tried {}\nhint: name one with --python PATH or the variable PYTHON_EXEC",
        tried.join(", ")
    ))
}

/// Folders with a `bin`, most specific first. That of our own binary counts only if it is a virtual or a
/// conda environment: /usr/local must not win over the active one.
fn environments(
    environ: &Environ,
    own_binary: Option<&Path>,
    exists: &dyn Fn(&Path) -> bool,
) -> Vec<(String, PathBuf)> {
    let own = own_binary
        .and_then(|it| it.parent()?.parent())
        .map(Path::to_owned);
    let own = own.filter(|it| exists(&it.join("pyvenv.cfg")) || exists(&it.join("conda-meta")));
    let own = own.map(|it| ("the environment fabric is installed in".to_owned(), it));
    let active = ["VIRTUAL_ENV", "CONDA_PREFIX"]
        .into_iter()
        .filter_map(|name| {
            Some((
                name.to_owned(),
                PathBuf::from(environ.get(name).filter(|it| !it.is_empty())?),
            ))
        });
    own.into_iter().chain(active).collect()
}

fn explicit(
    source: &str,
    named: &OsStr,
    environ: &Environ,
    is_program: &dyn Fn(&Path) -> bool,
) -> Result<Interpreter, String> {
    let plain = !named.as_encoded_bytes().contains(&b'/');
    let found = match plain {
        true => on_path(named, environ, is_program),
        false => is_program(Path::new(named)).then(|| named.to_owned()),
    };
    let source_text = source.to_owned();
    match found {
        Some(path) => Ok(Interpreter {
            path,
            source: source_text,
        }),
        None => Err(format!(
            "the interpreter `{}` ({source}) {}\nhint: `command -v python3` prints the one of this shell",
            named.display(),
            if plain {
                "is not on PATH"
            } else {
                "does not exist or cannot be executed"
            }
        )),
    }
}

/// What `--no-python` runs: a path, or a name that is looked for on PATH as execvp(3) does.
///
/// # Errors
/// It is not there or cannot be executed, with the way out.
pub(crate) fn find_program(
    named: &OsStr,
    environ: &Environ,
    files: &Files,
) -> Result<Interpreter, String> {
    let (is_program, exists) = (files.is_program, files.exists);
    let (path, shown) = (Path::new(named), named.display());
    if named.as_encoded_bytes().contains(&b'/') {
        return match is_program(path) {
            true => Ok(Interpreter {
                path: named.to_owned(),
                source: "SCRIPT".to_owned(),
            }),
            false => Err(no_program(path, exists)),
        };
    }
    let found = on_path(named, environ, is_program).map(|path| Interpreter {
        path,
        source: "SCRIPT, on PATH".to_owned(),
    });
    found.ok_or_else(|| {
        let here = if exists(path) {
            format!("\nhint: a file of the current directory is `./{shown}`")
        } else {
            "\nhint: give its path, or install what brings it".to_owned()
        };
        format!("the program `{shown}` (--no-python) is not on PATH{here}")
    })
}

fn no_program(path: &Path, exists: &dyn Fn(&Path) -> bool) -> String {
    let shown = path.display();
    let what = match (exists(path), exists(&path.join("."))) {
        (_, true) => "is a directory".to_owned(),
        (true, false) => format!("cannot be executed\nhint: chmod +x {shown}"),
        (false, false) => "does not exist".to_owned(),
    };
    format!("the program `{shown}` (--no-python) {what}")
}

fn on_path(
    name: &OsStr,
    environ: &Environ,
    is_program: &dyn Fn(&Path) -> bool,
) -> Option<OsString> {
    let path = environ.get("PATH")?;
    let folders = std::env::split_paths(path);
    // An empty entry means the current directory (execvp(3)).
    let found = folders.map(|it| {
        if it.as_os_str().is_empty() {
            PathBuf::from(".")
        } else {
            it
        }
    });
    found
        .map(|it| it.join(name))
        .find(|it| is_program(it))
        .map(Into::into)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::Source;

    #[track_caller]
    fn check(
        named: Option<&str>,
        variables: &[(&str, &str)],
        own: &str,
        programs: &[&str],
        expected: Result<&str, &str>,
    ) {
        let environ: Environ = variables.iter().copied().collect();
        let is_program = |it: &Path| programs.iter().any(|program| Path::new(program) == it);
        let exists = |it: &Path| it == Path::new("/venv/pyvenv.cfg");
        let files = Files {
            is_program: &is_program,
            exists: &exists,
        };
        let own = Path::new(own);
        let named = named.map(|it| Sourced::new(it.into(), Source::Flag("--python")));
        let found = find_interpreter(named.as_ref(), &environ, Some(own), &files);
        match expected {
            Ok(path) => assert_eq!(found.unwrap().path, path),
            Err(text) => assert!(found.as_ref().unwrap_err().contains(text), "{found:?}"),
        }
    }

    const OWN: &str = "/venv/bin/fabric";

    #[test]
    fn the_user_is_asked_first() {
        let exec = [("PYTHON_EXEC", "/b/python"), ("PATH", "/usr/bin")];
        let all = [
            "/a/python",
            "/b/python",
            "/venv/bin/python3",
            "/usr/bin/python3.9",
        ];
        check(Some("/a/python"), &exec, OWN, &all, Ok("/a/python"));
        check(None, &exec, OWN, &all, Ok("/b/python"));
        check(
            Some("python3.9"),
            &exec,
            OWN,
            &all,
            Ok("/usr/bin/python3.9"),
        );
    }

    #[test]
    fn a_name_that_does_not_exist_is_no_reason_to_take_another() {
        let exec = [("PYTHON_EXEC", "/gone/python"), ("PATH", "/usr/bin")];
        check(
            None,
            &exec,
            OWN,
            &["/usr/bin/python3"],
            Err("`/gone/python` (PYTHON_EXEC)"),
        );
        check(
            Some("py"),
            &exec,
            OWN,
            &["/usr/bin/python3"],
            Err("`py` (--python) is not on PATH"),
        );
    }

    #[test]
    fn our_own_environment_comes_before_the_active_one() {
        let both = [
            ("VIRTUAL_ENV", "/active"),
            ("CONDA_PREFIX", "/conda"),
            ("PATH", "/usr/bin"),
        ];
        let all = [
            "/venv/bin/python",
            "/active/bin/python3",
            "/conda/bin/python3",
            "/usr/bin/python3",
        ];
        check(None, &both, OWN, &all, Ok("/venv/bin/python"));
        check(
            None,
            &both,
            "/opt/bin/fabric",
            &all,
            Ok("/active/bin/python3"),
        );
        check(
            None,
            &both,
            "/usr/bin/fabric",
            &all,
            Ok("/active/bin/python3"),
        );
        check(
            None,
            &both,
            "/opt/bin/fabric",
            &all[2..],
            Ok("/conda/bin/python3"),
        );
        check(
            None,
            &both,
            "/opt/bin/fabric",
            &all[3..],
            Ok("/usr/bin/python3"),
        );
    }

    #[test]
    fn a_program_is_found_as_a_shell_finds_it() {
        let files = Files {
            is_program: &|it| [Path::new("/bin/echo"), Path::new("./t.sh")].contains(&it),
            exists: &|it| {
                ["./plain.sh", "t.sh", "./dir", "./dir/."].contains(&it.to_str().unwrap())
            },
        };
        let environ = [("PATH", "/x:/bin")].into_iter().collect();
        let find = |named: &str| {
            let found = find_program(OsStr::new(named), &environ, &files);
            found.map(|it| it.path.into_string().unwrap())
        };
        assert_eq!(find("echo"), Ok("/bin/echo".to_owned()));
        assert_eq!(find("./t.sh"), Ok("./t.sh".to_owned()));
        for (named, expected) in [
            (
                "t.sh",
                "the program `t.sh` (--no-python) is not on PATH\nhint: a file of the current directory is `./t.sh`",
            ),
            (
                "gone",
                "the program `gone` (--no-python) is not on PATH\nhint: give its path, or install what brings it",
            ),
            ("./dir", "the program `./dir` (--no-python) is a directory"),
            (
                "./gone",
                "the program `./gone` (--no-python) does not exist",
            ),
            (
                "./plain.sh",
                "the program `./plain.sh` (--no-python) cannot be executed\nhint: chmod +x ./plain.sh",
            ),
        ] {
            assert_eq!(find(named), Err(expected.to_owned()));
        }
    }

    #[test]
    fn nothing_found_lists_what_was_tried() {
        check(
            None,
            &[("PATH", "/x:/y"), ("VIRTUAL_ENV", "/v")],
            OWN,
            &[],
            Err("/v/bin (VIRTUAL_ENV)"),
        );
        check(None, &[("PATH", "/x:/y")], OWN, &[], Err("on PATH `/x:/y`"));
        check(None, &[], OWN, &[], Err("no PATH is set"));
    }
}
