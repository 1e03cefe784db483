"""What people in an office do with one server: many short visits, long texts, questions that are written again.

As ``traffic.py``: a function takes a Recorder and whether the client has its fault.
"""

from __future__ import annotations

import random

from e2e.client import Message, prose, system, user
from e2e.days.recorder import Recorder
from e2e.days.talk import Talk, in_turn, tools

# ---- the server loses


def five_visitors(day: Recorder, faulty: bool) -> None:
    """Five people with chats of their own who come in no order; some ask twice."""
    chance = random.Random(81)
    people = [Talk(day, f"person{i + 1}", prose(510 + i, chance.randrange(900, 1700))) for i in range(5)]
    in_turn(people, 1, 140)
    for _ in range(11):
        person = chance.choice(people)
        for _ in range(chance.choice((1, 1, 2))):
            person.ask(chance.randrange(80, 430))


def drafts(day: Recorder, faulty: bool) -> None:
    """Three people who have long drafts written and ask for changes, on one slot."""
    chance = random.Random(82)
    writers = [Talk(day, f"writer{i + 1}", prose(520 + i, 1900 + 310 * i)) for i in range(3)]
    for _ in range(4):
        for writer in chance.sample(writers, 3):
            writer.ask(chance.randrange(100, 300), tokens=chance.randrange(60, 160))


def three_pinned(day: Recorder, faulty: bool) -> None:
    """Three workers of which two name the same slot."""
    chance = random.Random(83)
    named = (0, 0, 2) if faulty else (0, 1, 2)
    workers = [Talk(day, f"worker{i + 1}", prose(530 + i, 1100 + 240 * i), id_slot=named[i]) for i in range(3)]
    for _ in range(5):
        for worker in workers:
            worker.ask(chance.randrange(110, 380))


# ---- the client loses


def log_in_system(day: Recorder, faulty: bool) -> None:
    """A helper whose system prompt shows the end of a log file after 800 tokens of rules, before 300 more."""
    helper, chance = Talk(day, "helper", ""), random.Random(84)
    for step in range(7):
        shown = prose(540 + (step if faulty else 0), 500)
        helper.head = f"{prose(23, 800)}\nLog:\n{shown}\n{prose(24, 300)}"
        helper.ask(chance.randrange(120, 400))


def tools_by_use(day: Recorder, faulty: bool) -> None:
    """An agent whose tools are sorted by how often each was called; a chat beside it."""
    agent, other, chance = Talk(day, "agent", prose(1, 800)), Talk(day, "healthy", prose(2, 1250)), random.Random(85)
    every, used = tools(5), [0] * 5
    for _ in range(6):
        order = sorted(range(5), key=lambda i: -used[i]) if faulty else range(5)
        agent.fields["tools"] = [every[i] for i in order]
        agent.ask(chance.randrange(130, 300))
        agent.step(chance.randrange(90, 360))
        used[chance.randrange(5)] += 2
        other.ask(chance.randrange(80, 200))


def solved_tasks(day: Recorder, faulty: bool) -> None:
    """A tutor whose system prompt gets every task that was solved, as an example; one chat."""
    tutor, solved, chance = Talk(day, "tutor", ""), "", random.Random(86)
    for step in range(8):
        tutor.head = f"{prose(25, 1100)}\nSolved before:\n{solved}"
        tutor.ask(chance.randrange(120, 340))
        if faulty:
            solved += f"{step}. {prose(550 + step, chance.randrange(60, 160))}\n"


# ---- nothing to fix


def mails_beside(day: Recorder, faulty: bool) -> None:
    """An agent, and mails with nothing in common that are answered once, on three slots."""
    agent, chance = Talk(day, "agent", prose(1, 1000), tools=tools(2)), random.Random(87)
    agent.ask(170)
    for step in range(6):
        agent.step(chance.randrange(90, 500))
        for item in range(chance.randrange(1, 3)):
            day.chat(f"mail{step}.{item}", "mail", [user(prose(2600 + 10 * step + item, chance.randrange(400, 1800)))])


def new_at_once(day: Recorder, faulty: bool) -> None:
    """Four people who begin chats of their own at one moment, ask three times each, and four more later."""
    chance = random.Random(88)
    for group in range(2):
        talks = [
            Talk(day, f"new{group}.{i}", prose(560 + 4 * group + i, chance.randrange(700, 1600))) for i in range(4)
        ]
        lengths = [chance.randrange(90, 300) for _ in talks]
        day.together(*(lambda talk=talk, n=n: in_turn([talk], 3, n) for talk, n in zip(talks, lengths, strict=True)))


def resumed_later(day: Recorder, faulty: bool) -> None:
    """A chat that rests while five others begin and end, and goes on then, on one slot with a RAM cache."""
    chat, chance = Talk(day, "chat", prose(1, 1500)), random.Random(89)
    in_turn([chat], 3, 220)
    for number in range(5):
        visit = Talk(day, f"visit{number + 1}", prose(570 + number, chance.randrange(600, 1500)))
        in_turn([visit], 2, chance.randrange(100, 380))
    in_turn([chat], 3, 240)


def last_rewritten(day: Recorder, faulty: bool) -> None:
    """A person who writes the last question again before the third and the fifth answer satisfy."""
    chat, chance = Talk(day, "chat", prose(1, 1400)), random.Random(90)
    for step in range(6):
        chat.ask(chance.randrange(120, 500), tokens=30)
        for _ in range(step % 3):
            del chat.messages[-2:]
            chat.ask(chance.randrange(120, 500), tokens=30)


def passages_once(day: Recorder, faulty: bool) -> None:
    """Fourteen questions, each with passages of its own behind an instruction of 300 tokens, each asked once."""
    rules, chance = system(prose(26, 300)), random.Random(91)
    for number in range(14):
        passages = prose(2700 + number, chance.randrange(700, 2000))
        ask: list[Message] = [rules, user(f"{passages}\n\nQuestion: {prose(2750 + number, 80)}")]
        day.chat(f"question{number}", "search", ask)
