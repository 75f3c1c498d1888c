#!/usr/bin/env bash
# Several nodes by mpirun, of Open MPI or MPICH: `examples/mpirun.sh gpu-1,gpu-2`.
# Ranks, sizes and the main address come from MPI itself; the script needs no MPI.
set -euo pipefail
hosts=${1:?usage: examples/mpirun.sh HOST,HOST...}

command=(fabric run --accelerator cpu --devices 2 examples/train.py)

# `mpirun (Open MPI) 4.1` or `mpirun.openmpi (OpenRTE) 4.1`; MPICH says `HYDRA build details`.
if [[ $(mpirun --version) == *Open* ]]; then
    # One launcher per host. --bind-to none: else Open MPI binds each to one core, and its
    # workers with it. -x: other hosts get a login's environment, not this one.
    mpirun --host "$hosts" --map-by ppr:1:node --bind-to none -x PATH "${command[@]}"
else
    mpirun -hosts "$hosts" -ppn 1 "${command[@]}"
fi
