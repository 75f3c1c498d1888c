"""Every call of torch's TCPStore, against the store at PORT (0: torch's own, hosted here).

Prints one JSON line for each call: its name and what came of it, or which function this torch lacks for it. Cases in which
torch's own server is known to be wrong are left out; the store's unit tests have them.
"""
import datetime, json, os, sys, threading
import torch.distributed as dist

def seconds(number):
    return datetime.timedelta(seconds=number)

port, libuv = int(sys.argv[1]), sys.argv[2] == "libuv"
if port == 0:
    host = dist.TCPStore("127.0.0.1", 0, None, True, seconds(60), False)
    port = host.port

def client(**more):
    return dist.TCPStore("127.0.0.1", port, None, False, seconds(60), use_libuv=libuv, **more)

def say(name, call, needs=None):
    try:
        has = needs is None or hasattr(dist.TCPStore, needs)
        result = repr(call()) if has else f"lacks {needs}"
    except Exception as error:  # the text holds addresses and errno words; the type does not
        result = type(error).__name__
    print(json.dumps([name, result]), flush=True)

def woken(wait, *changes):
    """What `wait` returns when another client makes the changes meanwhile."""
    out = []
    thread = threading.Thread(target=lambda: out.append(wait()))
    thread.start()
    for change in changes:
        change()
    thread.join()
    return out

a, b = client(), client()
say("has_extended_api", a.has_extended_api)
say("set, get", lambda: (a.set("a", "1"), a.get("a"), b.get("a")))
say("empty value", lambda: (a.set("e", ""), a.get("e")))
say("any bytes", lambda: (a.set("z", b"\0\xff\n"), a.get("z")))
say("add", lambda: (a.add("n", 5), a.add("n", -7), a.get("n"), a.add("a", 1)))
say("check", lambda: (a.check(["a", "n"]), a.check(["a", "no"]), a.check([])))
say("compare_set", lambda: [a.compare_set("c", *it) for it in [("", "1"), ("1", "2"), ("1", "3")]])
say("compare_set of nothing", lambda: (a.compare_set("d", "x", "y"), a.check(["d"])))
say("append", lambda: (a.append("p", "po"), a.append("p", "tato"), a.get("p")))
say("multi_set, multi_get", lambda: (a.multi_set(["x", "y"], ["1", "2" * 5000]), a.multi_get(["y", "x"])))
say("none at once", lambda: (a.multi_get([]), a.multi_set([], []), a.wait([], seconds(1))))
say("num_keys", a.num_keys)
say("delete_key", lambda: (a.delete_key("a"), a.delete_key("a"), a.num_keys()))
say("list_keys", lambda: sorted(a.list_keys()), "list_keys")
say("wait in vain", lambda: a.wait(["no"], seconds(0.2)))
say("wait no time", lambda: a.wait(["no"], seconds(0)))
say("well afterwards", lambda: a.get("n"))
say("get woken", lambda: woken(lambda: a.get("w"), lambda: b.set("w", "W")))
say("wait for three", lambda: woken(
    lambda: a.wait(["w1", "w2", "w3"], seconds(60)),
    lambda: b.set("w1", ""), lambda: b.add("w2", 1), lambda: b.append("w3", "q")))
say("wait twice for one", lambda: woken(lambda: a.wait(["w4", "w4"], seconds(60)), lambda: b.set("w4", "1")))
say("compare_set wakes", lambda: woken(lambda: a.get("w5"), lambda: b.compare_set("w5", "", "5")))
say("multi_set wakes", lambda: woken(lambda: a.get("w6"), lambda: b.multi_set(["w6"], ["6"])))
say("queue", lambda: (a.queue_len("q"), a.queue_push("q", "1"), a.queue_push("q", "2"), a.queue_len("q"),
    a.check(["q"]), a.queue_pop("q"), a.queue_pop("q"), a.check(["q"]), a.queue_len("q")), "queue_push")
say("queue_pop of nothing", lambda: a.queue_pop("q", False), "queue_pop")
say("queue_pop woken", lambda: woken(lambda: a.queue_pop("q"), lambda: b.queue_push("q", "late")), "queue_pop")
say("barrier", lambda: woken(lambda: a.barrier("b", 2, seconds(60)), lambda: b.barrier("b", 2, seconds(60))), "barrier")
say("barrier again", lambda: (a.barrier("b", 2, seconds(1)), a.get("b")), "barrier")
say("barrier alone", lambda: a.barrier("b1", 1), "barrier")
say("barrier in vain", lambda: a.barrier("b9", 9, seconds(0.2)), "barrier")
say("barrier has counted", lambda: a.get("b9"), "barrier")
say("clone", lambda: (a.clone().set("cl", "1"), a.get("cl")), "clone")
prefixed = dist.PrefixStore("none", a)
say("prefix", lambda: (prefixed.set("k", "v"), prefixed.get("k"), a.get("none/k"), prefixed.add("n", 2),
    prefixed.check(["k"]), prefixed.compare_set("k", "v", "w"), prefixed.delete_key("k"), prefixed.num_keys()))
say("prefix barrier", lambda: prefixed.barrier("b", 1), "barrier")
say("prefix queue", lambda: (prefixed.queue_push("q", "1"), prefixed.queue_pop("q")), "queue_push")
say("workers counted", lambda: (dist.TCPStore("127.0.0.1", port, 2, False, seconds(60), use_libuv=libuv), a.num_keys())[1])
say("8 MiB", lambda: (a.set("big", "x" * (8 << 20)), len(a.get("big"))))
say("add to C numbers", lambda: (a.set("t", " 12abc"), a.add("t", 1)))
say("add wraps", lambda: (a.set("t", str(2**63 - 1)), a.add("t", 1), a.get("t")))
say("longest key", lambda: (a.set("k" * 8191, "1"), a.get("k" * 8191)))
# What ends the connection; each with a client of its own.
say("add to text", lambda: (a.set("t", "abc"), client().add("t", 1)))
say("add to nothing", lambda: (a.set("t", ""), client().add("t", 1)))
def over(key, value):
    doomed = client()
    doomed.set(key, value)
    return doomed.get(key)
say("key too long", lambda: over("k" * 8192, "1"))
say("value too long", lambda: over("v", "x" * ((8 << 20) + 1)))
say("the others live", lambda: (a.get("n"), b.get("n")))
sys.stdout.flush()
os._exit(0)  # torch's own host would wait for its clients
