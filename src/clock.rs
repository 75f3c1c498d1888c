//! The time of day as people read it. What machines read is counted from 1970.

use std::time::{SystemTime, UNIX_EPOCH};

/// Local time as `2026-07-20 14:03:22`.
pub(crate) fn local_time() -> String {
    written(since_1970().0)
}

/// The same to the millisecond, `2026-07-20 14:03:22.250`.
pub(crate) fn exact_local_time() -> String {
    let (seconds, milliseconds) = since_1970();
    format!("{}.{milliseconds:03}", written(seconds))
}

fn since_1970() -> (libc::time_t, u32) {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let now = now.unwrap_or_default();
    (now.as_secs() as libc::time_t, now.subsec_millis())
}

fn written(seconds: libc::time_t) -> String {
    let mut text = [0u8; 32];
    // SAFETY: localtime_r fills in `parts`, and strftime writes at most the length that it is given.
    let length = unsafe {
        let mut parts = std::mem::zeroed();
        if libc::localtime_r(&seconds, &mut parts).is_null() {
            return String::new();
        }
        let format = c"%Y-%m-%d %H:%M:%S".as_ptr();
        libc::strftime(text.as_mut_ptr().cast(), text.len(), format, &parts)
    };
    String::from_utf8_lossy(&text[..length]).into_owned()
}
