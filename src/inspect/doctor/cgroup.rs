//! What our control group and those around it grant: the tightest limit counts.

use crate::agent::Cgroup;

/// Bytes of memory; `None` where there is no limit.
pub(super) fn memory() -> Option<u64> {
    let group = Cgroup::of_this_process("memory")?;
    let (new, old) = ("memory.max", "memory.limit_in_bytes");
    group.least(if group.unified { new } else { old })
}

/// Processes and threads; `None` where there is no limit.
pub(super) fn pids() -> Option<u64> {
    Cgroup::of_this_process("pids")?.least("pids.max")
}

/// CPUs' worth of time in each period; `None` where there is no limit.
pub(super) fn cpu() -> Option<f64> {
    let group = Cgroup::of_this_process("cpu")?;
    let shares: Vec<Option<f64>> = if group.unified {
        group.around("cpu.max").map(|it| share(&it)).collect()
    } else {
        let quotas = group.around("cpu.cfs_quota_us");
        let both = quotas.zip(group.around("cpu.cfs_period_us"));
        both.map(|(quota, period)| share(&format!("{quota} {period}")))
            .collect()
    };
    shares.into_iter().flatten().min_by(f64::total_cmp)
}

/// `QUOTA PERIOD`; the quota is `max` (version 2) or -1 (version 1) for none.
fn share(text: &str) -> Option<f64> {
    let mut words = text.split_ascii_whitespace().map(str::parse::<f64>);
    let (quota, period) = (words.next()?.ok()?, words.next()?.ok()?);
    (quota > 0.0 && period > 0.0).then(|| quota / period)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quota_is_a_share_of_its_period() {
        assert_eq!(share("150000 100000\n"), Some(1.5));
        assert_eq!(share("max 100000\n"), None);
        assert_eq!(share("-1\n 100000\n"), None);
        assert_eq!(share(""), None);
    }
}
