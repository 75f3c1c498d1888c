#!/usr/bin/env bash
# Two nodes without any scheduler, by ssh: `examples/two_nodes.sh gpu-1 gpu-2`.
# Both hosts have this folder and fabric; the first must reach the second by ssh, and the
# second the first at port 29400.
set -euo pipefail
first=${1:?usage: examples/two_nodes.sh HOST HOST}
second=${2:?usage: examples/two_nodes.sh HOST HOST}

# The command of one node. Only the rank differs; the main address is the first node's.
on() {
    local host=$1 rank=$2
    # -tt: when ssh ends, the far side's terminal is gone, so the launcher there ends too.
    ssh -tt "$host" cd "$PWD" '&&' exec fabric run --num-nodes 2 --node-rank "$rank" \
        --main-address "$first" --accelerator cpu --devices 2 examples/train.py </dev/null
}

# What runs in the background does not hear Ctrl-C.
trap 'kill $(jobs -p) 2>/dev/null || true' EXIT
on "$first" 0 &
on "$second" 1 &

# When one node fails the other ends by itself. The exit code is that of a node that failed.
status=0
wait -n || status=$?
wait -n || status=$?
exit "$status"
