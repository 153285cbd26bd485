#!/usr/bin/env python3
"""A world of one's own: B answers A, and C overhears both of them in private. parley self-chat --world attached:gossip. usage: gossip.py [ADDRESS]"""
import sys
import threading

import parley


@parley.agent("listener")
class Listener:
    def observe(self, messages):
        self.heard = [m.text for m in messages]

    def act(self):
        return f"I heard {' and '.join(self.heard)}"


@parley.world("gossip")
def gossip(argument):
    return {"participants": [{"name": "A", "agent": "attached:echo", "hears": ["B"], "opening": argument or "hello"},
                             {"name": "B", "agent": "attached:echo", "hears": ["A"]},
                             {"name": "C", "agent": "attached:listener", "hears": ["A", "B"]}], "rounds": 2}


threading.Thread(target=parley.serve, args=(Listener, *sys.argv[1:]), daemon=True).start()
parley.serve(gossip, *sys.argv[1:])
