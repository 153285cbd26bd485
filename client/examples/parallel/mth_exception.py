"""A thread's exception is seen by who watches it. After Machin's example of this name."""
from common import catch, fail

from parley.parallel import Thread, ThreadException

if __name__ == "__main__":
    catch(Thread(target=fail), ThreadException)
