//! GPUs that an engine hid from a worker that will look for them.

use super::facts::Seat;
use crate::environ::Environ;

/// A warning where this launcher sees fewer GPUs than its node has workers, each of which
/// takes GPU number LOCAL_RANK: Slurm's `--gpus-per-task` shows each task its own only.
/// Meant for workers that use GPUs.
pub(crate) fn narrowed(environ: &Environ, seat: &Seat) -> Option<String> {
    let shown = environ.text("CUDA_VISIBLE_DEVICES")?;
    let visible = shown.split(',').take_while(|it| it.trim() != "-1").count() as u32;
    let workers = seat.local_world_size.value;
    (visible > 0 && visible < workers).then(|| {
        format!(
            "local rank {} of {workers} sees {visible} of its node's GPUs \
             (`CUDA_VISIBLE_DEVICES` is `{shown}`) and will look for GPU number {}: let every \
             task see all of them, under Slurm with `--gpus-per-node` in place of \
             `--gpus-per-task`",
            seat.local_rank.value, seat.local_rank.value
        )
    })
}

#[cfg(test)]
mod tests {
    use super::super::variables::derived;
    use super::*;
    use crate::topology::{GlobalRank, LocalRank};

    fn warned(visible: &str) -> bool {
        let seat = Seat {
            local_rank: derived(LocalRank(1), ""),
            local_world_size: derived(2, ""),
            global_rank: derived(GlobalRank(1), ""),
            world_size: derived(2, ""),
        };
        let environ = [("CUDA_VISIBLE_DEVICES", visible)].into_iter().collect();
        narrowed(&environ, &seat).is_some()
    }

    #[test]
    fn fewer_gpus_than_workers_are_warned_of() {
        assert!(warned("1"));
        assert!(!warned("0,1"));
        assert!(!warned("-1"));
        assert!(!warned(""));
    }
}
