"""A process's exception is seen by who watches it. After Machin's example of this name."""
from common import catch, fail

from parley.parallel import Process, ProcessException

if __name__ == "__main__":
    catch(Process(target=fail), ProcessException)
