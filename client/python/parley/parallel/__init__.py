"""Pools of processes and threads, threads and processes whose exceptions the parent sees, events that can be combined, and queues of
tensors. The names are those of Machin.

    >>> import numpy as np
    >>> from parley.parallel import Pool
    >>> with Pool(2, address=ADDRESS) as pool:
    ...     pool.map(lambda x: int((2 * x).sum()), [np.arange(3), np.ones(2)])
    [6, 4]

A pool's tasks go through a daemon (parley.v1.Work). When a worker is lost, its task is run again, up to `retries` times; after that the
task fails with an error that says how the worker ended. Tensors are numpy arrays, or torch's. By default they are copied. By reference
(is_copy_tensor=False, share_method="cpu") the processes of one machine use the same shared memory, which `share` creates; tensors are those of
the cpu.

A `World` of processes has groups, whose members call each other's functions and services (`help(parley.parallel.group)`). A
`ModelAssigner` chooses a device for each model."""
from multiprocessing import get_context
from typing import TYPE_CHECKING, Any

from parley.parallel.assigner import ModelAssigner, ModelSizeEstimator
from parley.parallel.events import AndEvent, Event, OrEvent
from parley.parallel.futures import Future, collect_all, wait_all
from parley.parallel.group import Group, Reference, RpcGroup, World, get_cur_name, get_cur_rank, get_world, is_world_initialized
from parley.parallel.membership import MemberLost
from parley.parallel.messages import Receive
from parley.parallel.pickle import dumps, loads, share
from parley.parallel.pool import CtxPool, CtxThreadPool, P2PPool, Pool, ThreadPool
from parley.parallel.queue import Queue
from parley.parallel.tasks import AsyncResult, RemoteError, RpcException, WorkerLost
from parley.parallel.watched import Process, ProcessException, Thread, ThreadException

if TYPE_CHECKING:
    from parley.store import OrderedStore

__all__ = ["AndEvent", "AsyncResult", "CtxPool", "CtxThreadPool", "Event", "Future", "Group", "MemberLost", "ModelAssigner",
           "ModelSizeEstimator", "OrEvent", "OrderedStore", "P2PPool", "Pool", "Process", "ProcessException", "Queue", "Receive",
           "Reference", "RemoteError", "RpcException", "RpcGroup", "Thread", "ThreadException", "ThreadPool", "WorkerLost", "World", "collect_all",
           "dumps", "get_context", "get_cur_name", "get_cur_rank", "get_world", "is_world_initialized", "loads", "share", "wait_all"]


def __getattr__(name: str) -> Any:
    """Imports the classes that need numpy on first use, so that `import parley.parallel` works without numpy."""
    if name == "OrderedStore":
        from parley.store import OrderedStore

        return OrderedStore
    raise AttributeError(f"module 'parley.parallel' has no attribute '{name}'")
