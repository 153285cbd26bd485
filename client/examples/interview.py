#!/usr/bin/env python3
"""Worlds whose code says who speaks next, and when it ends: a person interviews an agent, and two persons debate before a judge.
parley interactive --world attached:interview:2. usage: interview.py [ADDRESS]"""
import sys
import threading

import parley


@parley.agent("candidate")
class Candidate:
    turns = 0

    def observe(self, messages):
        self.turns += 1
        self.asked = messages[-1].text

    def act(self):
        return f"Answer {self.turns}: I have thought about '{self.asked}'."


@parley.world("interview")
class Interview:
    participants = [{"name": "interviewer", "human": True}, {"name": "candidate", "agent": "attached:candidate"}]

    def __init__(self, agents, argument):
        self.interviewer, self.candidate = agents
        self.left = int(argument or 3)  # questions
        self.interviewer.observe({"id": "host", "text": f"You have {self.left} questions."})

    def parley(self):
        self.candidate.observe(self.interviewer.act())
        self.interviewer.observe(self.candidate.act())
        self.left -= 1

    def epoch_done(self):
        return self.left <= 0


@parley.agent("judge")
class Judge:
    def observe(self, messages):
        self.words = {}
        for act in map(parley.act_of, messages):
            self.words[act["id"]] = self.words.get(act["id"], 0) + len(act["text"].split())

    def act(self):
        return "The most words has " + max(self.words, key=self.words.get) + "."


@parley.world("debate")
class Debate:
    participants = [{"name": "ann", "human": True}, {"name": "bob", "human": True}, {"name": "judge", "agent": "attached:judge"}]
    is_over = False

    async def parley(self):  # ann and bob speak in turn; whoever says "enough" has the judge speak
        ann, bob, judge = self.agents
        for speaker, other in (ann, bob), (bob, ann):
            act = await speaker.act()
            if act["text"] == "enough":
                break
            other.observe(act)
            judge.observe(act)
        else:
            return
        verdict = await judge.act()
        ann.observe(verdict)
        bob.observe(verdict)
        self.is_over = True

    def epoch_done(self):
        return self.is_over


if __name__ == "__main__":
    for served in Candidate, Judge, Debate:
        threading.Thread(target=parley.serve, args=(served, *sys.argv[1:]), daemon=True).start()
    parley.serve(Interview, *sys.argv[1:])
