"""Data-parallel training with nothing but Python: `fabric run --devices 2 examples/train.py`.

Softmax regression by stochastic gradient descent on Fisher's iris table. Each worker computes the
gradient on its share of every batch; the shares are summed over plain sockets, so that all take
the same step, and the numbers come out the same (up to rounding) with any number of workers.
Works under torchrun too, and alone: `python examples/train.py`.

iris.csv is table I of R. A. Fisher, "The use of multiple measurements in taxonomic problems",
Annals of Eugenics 7 (1936), public domain, as scikit-learn ships it (UCI's has two typing errors).
"""

import csv
import math
import os
import random
import socket
import struct
import time

# The launcher tells each worker who it is. Without a launcher: one worker, alone.
RANK = int(os.environ.get("RANK", 0))
WORLD_SIZE = int(os.environ.get("WORLD_SIZE", 1))
ADDRESS = os.environ.get("MASTER_ADDR", "127.0.0.1")
PORT = int(os.environ.get("MASTER_PORT", 29400))
# A launcher may serve torch's key-value store (TCPStore) at ADDRESS:PORT. Then rank 0 cannot listen
# there: it takes a free port and publishes it in the store, anew after each restart.
STORE_IS_SERVED = os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
KEY = b"/examples/train.py/" + os.environ.get("TORCHELASTIC_RESTART_COUNT", "0").encode()
PATIENCE = 60  # seconds to wait for the other workers to come
EPOCHS, BATCH, RATE = 40, 24, 0.5
CENTRE = (5.8, 3.1, 3.8, 1.2)  # about the middle of each feature: descent likes numbers around 0


def connect(port):
    """Connects as soon as somebody listens there: workers start in no particular order."""
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            return socket.create_connection((ADDRESS, port))
        except OSError as error:
            if time.monotonic() > deadline:
                raise SystemExit(f"rank {RANK}: cannot reach {ADDRESS}:{port}: {error}") from None
            time.sleep(0.05)


def receive(peer, form):
    """Unpacks one message; if the peer has gone this worker ends too, with a clear word."""
    if len(data := peer.recv(struct.calcsize(form), socket.MSG_WAITALL)) < struct.calcsize(form):
        raise SystemExit(f"rank {RANK}: another worker closed its connection")
    return struct.unpack(form, data)


# The store's protocol (torch 2.2 and later): a greeting, then commands; texts follow their length.
GREETING = struct.pack("=BI", 0, 0x3C85F7CE)
SET, GET, WAIT_FOR_ONE = b"\1", b"\3", struct.pack("=BQ", 6, 1)


def counted(text):
    return struct.pack("=Q", len(text)) + text


def publish(port):
    with connect(PORT) as store:
        store.sendall(GREETING + SET + counted(KEY) + counted(b"%d" % port))


def look_up():
    with connect(PORT) as store:
        store.sendall(GREETING + WAIT_FOR_ONE + counted(KEY))
        receive(store, "=B")  # comes once the key is set
        store.sendall(GET + counted(KEY))
        return int(receive(store, f"{receive(store, '=Q')[0]}s")[0])


def meet():
    """Connects the workers as a star: rank 0 gets one socket per other rank, the others one."""
    if RANK != 0:
        peer = connect(look_up() if STORE_IS_SERVED else PORT)
        peer.sendall(struct.pack("!I", RANK))
        return [peer]
    family = socket.getaddrinfo(ADDRESS, PORT, type=socket.SOCK_STREAM)[0][0]  # IPv4 or IPv6
    server = socket.create_server(("", 0 if STORE_IS_SERVED else PORT), family=family)
    if STORE_IS_SERVED:
        publish(server.getsockname()[1])
    server.settimeout(PATIENCE)
    peers = {}  # by rank
    while len(peers) < WORLD_SIZE - 1:
        try:
            peer, _ = server.accept()
        except TimeoutError:
            raise SystemExit(f"rank 0: of {WORLD_SIZE} workers only {[0, *peers]} came") from None
        peers[receive(peer, "!I")[0]] = peer
    return [peers[rank] for rank in sorted(peers)]


def all_reduce(peers, numbers):
    """Sums lists element by element over all workers: inwards to rank 0, then out again."""
    form = f"!{len(numbers)}d"
    if RANK != 0:
        peers[0].sendall(struct.pack(form, *numbers))
        return receive(peers[0], form)
    for peer in peers:  # always in rank order: rounding is then the same in every run
        numbers = [ours + theirs for ours, theirs in zip(numbers, receive(peer, form))]
    for peer in peers:
        peer.sendall(struct.pack(form, *numbers))
    return numbers


def read_table():
    """One pair per flower: its four features and a constant 1, and its species (0, 1 or 2)."""
    with open(os.path.join(os.path.dirname(__file__), "iris.csv"), newline="") as file:
        _, *rows = csv.reader(file)
    species = sorted({row[4] for row in rows})
    features = [[float(cm) - mid for cm, mid in zip(row, CENTRE)] + [1.0] for row in rows]
    return [(x, species.index(row[4])) for x, row in zip(features, rows)]


def predict(weights, x):
    """The probability of each species."""
    odds = [math.exp(sum(w * it for w, it in zip(weights[k : k + 5], x))) for k in (0, 5, 10)]
    return [it / sum(odds) for it in odds]


def gradient(weights, rows):
    """Of the cross-entropy loss, summed over `rows`; the last number is the loss itself."""
    total = [0.0] * 16
    for x, y in rows:
        for k, p in enumerate(predict(weights, x)):
            total[15] -= math.log(p) if k == y else 0.0
            for i in range(5):
                total[5 * k + i] += (p - (k == y)) * x[i]
    return total


if __name__ == "__main__":
    table, peers = read_table(), meet() if WORLD_SIZE > 1 else []
    test, train = table[::5], [row for i, row in enumerate(table) if i % 5]
    weights, order = [0.0] * 15, random.Random(1936)  # one seed: all must agree on the batches
    for epoch in range(1, EPOCHS + 1):
        order.shuffle(train)
        loss = 0.0
        for batch in (train[i : i + BATCH] for i in range(0, len(train), BATCH)):
            *slope, part = all_reduce(peers, gradient(weights, batch[RANK::WORLD_SIZE]))
            weights = [w - RATE * it / len(batch) for w, it in zip(weights, slope)]
            loss += part / len(train)
        if RANK == 0 and epoch % 8 == 0:
            print(f"epoch {epoch}/{EPOCHS}  loss {loss:.4f}", flush=True)
    if RANK == 0:
        hits = sum(max(range(3), key=predict(weights, x).__getitem__) == y for x, y in test)
        print(f"workers {WORLD_SIZE}  unseen flowers {len(test)}  accuracy {hits / len(test):.3f}")
