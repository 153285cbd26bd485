#!/usr/bin/env python3
"""An agent of one's own, which counts the words of each conversation. usage: words.py [ADDRESS [NAME]]"""
import sys

import parley


@parley.agent("words")
class Words:
    count = 0

    def observe(self, messages):
        self.count += sum(len(m.text.split()) for m in messages if m.role == "user")

    def act(self):
        return f"{self.count} words"


parley.serve(Words, *sys.argv[1:])
