#!/usr/bin/env python3
"""A task of the chat service whose code says who may speak: one person asks, the other answers. In the service's file it is
task_world: attached:panel:2, with agents_required: 2 and roles: [asks, answers]. usage: panel.py [ADDRESS]"""
import sys

import parley


@parley.world("panel")
class Panel:
    participants = [{"name": "asks", "human": True}, {"name": "answers", "human": True}]

    def __init__(self, agents, argument):
        self.asks, self.answers = agents
        self.left = int(argument or 3)  # questions

    def parley(self):
        self.asks.observe({"text": "Your question?", "quick_replies": ["Why?", "How?"]})
        self.answers.observe(self.asks.act())
        self.asks.observe(self.answers.act())
        self.left -= 1

    def epoch_done(self):
        return self.left <= 0


if __name__ == "__main__":
    parley.serve(Panel, *sys.argv[1:])
