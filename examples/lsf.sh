#!/usr/bin/env bash
# Two hosts under IBM LSF: `bsub < examples/lsf.sh`. The launcher takes hosts, ranks and the
# main address from LSF; as main port, one made of the job's number.
#BSUB -n 2
# One slot, so one launcher, per host; without it LSF may put both slots on one host.
#BSUB -R span[ptile=1]
#BSUB -o %J.out
set -euo pipefail

command=(fabric run --accelerator cpu --devices 2 examples/train.py)

if command -v jsrun >/dev/null; then
    # IBM's big machines: one resource set per host with everything the host has. jsrun's
    # default is one core and no GPU.
    jsrun --rs_per_host 1 --tasks_per_rs 1 --cpu_per_rs ALL_CPUS --gpu_per_rs ALL_GPUS \
        "${command[@]}"
else
    # blaunch starts the command once per slot of the job.
    blaunch "${command[@]}"
fi
