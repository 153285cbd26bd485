#!/usr/bin/env python3
"""Worlds whose code says who speaks, for test_worlds.py. usage: scripted_worker.py ADDRESS"""
import asyncio
import os
import sys
import threading

import parley
import parley.aio


@parley.world("dialog")
class Dialog:
    """A task and an agent, as the plain world has them: ARGUMENT is the agent."""

    @staticmethod
    def participants(argument):
        return [{"name": "teacher", "teacher": ""}, {"name": "answers", "agent": argument}]

    def parley(self):
        teacher, answers = self.agents
        answers.observe(teacher.act())
        teacher.observe(answers.act())


@parley.world("later")
class Later(Dialog):
    """The same as a coroutine that also waits for other things, and asks with gather."""

    async def parley(self):
        teacher, answers = self.agents
        asked, _ = await asyncio.gather(teacher.act(), asyncio.sleep(0))
        answers.observe(dict(asked))
        teacher.observe(await answers.act())


@parley.world("tutor")
class Tutor:
    """Two speak to each question: the first may speak as often as it likes, and the world itself speaks, too."""

    participants = [{"name": "teacher", "teacher": ""}, {"name": "thinks", "agent": "attached:echo"}, {"name": "answers", "agent": "repeat_query"}]

    def parley(self):
        asked = self.agents["teacher"].act()
        for i in range(len(asked["text"].split()) % 3):
            self.agents["thinks"].observe(f"{asked['text']} {i}")
            asked = {**asked, "text": self.agents["thinks"].act()["text"]}
        self.agents["answers"].observe(asked)
        self.agents["teacher"].observe(self.agents["answers"].act())


@parley.world("talk")
class Talk:
    """Who speaks next follows from what was said; ends in the fourth parley, or as ARGUMENT says."""

    participants = [{"name": "a", "agent": "attached:echo", "opening": "b c"}, {"name": "b", "agent": "attached:echo"}, {"name": "c", "agent": "attached:echo"}]

    def __init__(self, agents, argument):
        self.argument, self.last, self.n = argument, None, 0

    def parley(self):
        self.n += 1
        if self.last is None:
            self.last = self.agents["a"].act()
        who = self.agents[self.last["text"].split()[0]]
        if self.n == 3:
            if self.argument == "fails":
                raise ValueError("I was told\nto fail")
            if self.argument == "twice":
                who.act()
            if self.argument == "nobody":
                self.agents["nobody"].act()
            if self.argument == "wrong":
                who.observe(3)
            if self.argument == "typed":
                who.observe({"text": 3})
        who.observe(f"{self.last['text'].split()[-1]} {who.name}")
        self.last = who.act()

    def episode_done(self):
        return self.n == 4


@parley.world("quiet")
class Quiet:
    """Nobody speaks in the first parley of two."""

    participants = [{"name": "a", "agent": "attached:echo"}, {"name": "b", "agent": "attached:echo"}]

    def __init__(self, agents):
        self.agents, self.has_begun, self.is_over = agents, False, False

    def parley(self):
        self.is_over = self.has_begun
        if self.has_begun:
            self.agents["a"].act()
        else:
            self.agents["a"].observe("hello")
        self.has_begun = True

    def episode_done(self):
        return self.is_over


@parley.world("until")
class Until(Dialog):
    """Over with the task's question that has as many words as ARGUMENT says."""

    @staticmethod
    def participants(argument):
        return Dialog.participants("repeat_label")

    def __init__(self, agents, argument):
        self.agents, self.most = agents, int(argument)

    def epoch_done(self):
        return len(self.agents["teacher"].said["text"].split()) == self.most


@parley.world("moody")
class Moody:
    """Says something else in each process."""

    participants = [{"name": "me", "human": True}, {"name": "echo", "agent": "attached:echo"}]

    def parley(self):
        me, echo = self.agents
        echo.observe(f"{me.act()['text']} {os.getpid()}")
        me.observe(echo.act())


@parley.world("refused")
def refused(argument):
    few = [{"name": "a", "agent": "attached:echo"}, {"name": "b", "agent": "attached:echo"}]
    return {"participants": [{**few[0], "hears": ["b"]}, few[1]] if argument == "hears" else few, "scripted": True,
            **({"end_text": "x"} if argument == "ends" else {})}


for served in Later, Tutor, Talk, Quiet, Until, Moody, refused:
    threading.Thread(target=parley.serve, args=(served, sys.argv[1]), daemon=True).start()
asyncio.run(parley.aio.serve(Dialog, sys.argv[1]))
