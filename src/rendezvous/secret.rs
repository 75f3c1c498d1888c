//! What nobody can guess.

use std::fs::File;
use std::io::{self, Read};

/// 128 random bits in hexadecimal.
pub(super) fn secret() -> io::Result<String> {
    let mut bytes = [0; 16];
    File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(bytes.iter().map(|it| format!("{it:02x}")).collect())
}
