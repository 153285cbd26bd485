"""A process's exception is seen by who watches it. After Machin's example of this name."""
import time

from parley.parallel import Process, ProcessException


def test1():
    print(f"Exception occurred at {time.time()}", flush=True)
    raise RuntimeError("Error")


if __name__ == "__main__":
    t1 = Process(target=test1)
    t1.start()
    while True:
        try:
            t1.watch()
        except ProcessException as e:
            print(f"Exception caught at {time.time()}")
            print(f"Exception is: {e}")
            break
    t1.join()
