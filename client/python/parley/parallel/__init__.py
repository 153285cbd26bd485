"""Pools of processes and threads, watched exceptions, events that combine and queues of tensors, named as Machin's users know
them.

    with Pool(4) as pool:
        print(pool.map(lambda x: (2 * x).sum(), arrays))

A pool's tasks go through a daemon (parley.v1.Work), so its workers may be lost: a task is then run again, `retries` times, or
fails with how its worker ended. Tensors are numpy arrays. By value they are copied; by reference (is_copy_tensor=False,
share_method="cpu") processes of one machine see the same memory, as `share` makes it."""
from multiprocessing import get_context

from parley.parallel.events import AndEvent, Event, OrEvent
from parley.parallel.pickle import dumps, loads, share
from parley.parallel.pool import AsyncResult, CtxPool, CtxThreadPool, Pool, RemoteError, ThreadPool, WorkerLost
from parley.parallel.queue import Queue
from parley.parallel.watched import Process, ProcessException, Thread, ThreadException

__all__ = ["AndEvent", "AsyncResult", "CtxPool", "CtxThreadPool", "Event", "OrEvent", "Pool", "Process", "ProcessException", "Queue",
           "RemoteError", "Thread", "ThreadException", "ThreadPool", "WorkerLost", "dumps", "get_context", "loads", "share"]
