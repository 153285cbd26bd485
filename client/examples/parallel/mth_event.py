"""Waiting on several events: any of them, or all. After Machin's example of this name; events have levels here, so nobody asks
in a loop."""
from parley.parallel import AndEvent, Event, OrEvent, Thread

event1, event2, event3 = Event(), Event(), Event()


def test1():
    OrEvent(event1, event2, event3).wait()
    print("hello1")


def test2():
    AndEvent(AndEvent(event1, event3), event2).wait()
    print("hello2")


if __name__ == "__main__":
    t1, t2 = Thread(target=test1), Thread(target=test2)
    t1.start()
    t2.start()
    print("set event1")
    event1.set()
    t1.join()
    print("set event2")
    event2.set()
    print("set event3")
    event3.set()
