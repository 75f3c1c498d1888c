//! `fabric consolidate` is the Python original's: the words that make an interpreter run it.

use std::ffi::OsString;

/// The module by its present and by its older name, called as its own `fabric` script calls it; or one line
/// that says which package is missing. The working directory is no place to import from.
const CODE: &str = "\
import sys
if sys.path[:1] == ['']:
    del sys.path[0]
import importlib
def needs(package):
    sys.exit('fabric: `fabric consolidate` needs the Python package `' + package + '`, which ' + sys.executable
             + ' does not have\\nhint: ' + sys.executable + ' -m pip install ' + package)
missing = ''
for name in ('lightning.fabric.cli', 'lightning_fabric.cli'):
    try:
        main = getattr(importlib.import_module(name), '_main', None) or needs('click')
    except ModuleNotFoundError as error:
        missing = missing or error.name
    else:
        sys.argv[0] = 'fabric'
        sys.exit(main(prog_name='fabric'))
needs(missing)
";

/// What follows the interpreter's name, for `fabric consolidate WORDS`.
pub(crate) fn consolidate(words: Vec<OsString>) -> Vec<OsString> {
    let call = ["-c", CODE, "consolidate"].map(OsString::from);
    call.into_iter().chain(words).collect()
}
