"""What the examples share."""
import secrets
import sys
import time

from parley.parallel import Process, get_context


def run(main, n=3):
    """main(rank, address, secret) in n processes, of the daemon that the command names; raises what one of them has raised."""
    address = sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:8001"
    secret = secrets.token_bytes(32)
    processes = [Process(target=main, args=(rank, address, secret), ctx=get_context("spawn")) for rank in range(n)]
    for p in processes:
        p.start()
    for p in processes:
        p.join()
        p.watch()


def fail():
    print(f"Exception occurred at {time.time()}", flush=True)
    raise RuntimeError("Error")


def catch(worker, kind):
    """Starts a thread or process, and watches it until it has raised something."""
    worker.start()
    while True:
        try:
            worker.watch()
        except kind as e:
            print(f"Exception caught at {time.time()}")
            print(f"Exception is: {e}")
            break
    worker.join()
