"""Arrays for another process by value and by reference, and a function that refers to one. After Machin's example of this name,
without its GPU."""
import numpy as np

from parley.parallel import Process, dumps, get_context, loads, share


def print_array_sub_proc(array):
    print(loads(array), flush=True)


def exec_sub_proc(func):
    loads(func)()


def run(target, data, context):
    p = Process(target=target, args=(data,), ctx=context)
    p.start()
    p.join()
    p.watch()


if __name__ == "__main__":
    spawn_ctx, fork_ctx = get_context("spawn"), get_context("fork")
    # Not in shared memory: it can only be copied.
    array = np.ones([10], dtype=np.float32)
    run(print_array_sub_proc, dumps(array, copy_tensor=True), fork_ctx)

    # In shared memory: where it is will do.
    array = share(array)
    run(print_array_sub_proc, dumps(array, copy_tensor=False), fork_ctx)
    print(f"Dumped length of shm tensor if copy: {len(dumps(array, copy_tensor=True))}")
    print(f"Dumped length of shm tensor if not copy: {len(dumps(array, copy_tensor=False))}")

    # A local function goes with what it refers to.
    def local_func():
        array.fill(3)

    print(f"Before:{array}")
    run(exec_sub_proc, dumps(local_func, recurse=True, copy_tensor=False), spawn_ctx)
    print(f"After:{array}")
