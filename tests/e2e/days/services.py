"""What services send that stand between people and a model: translation, judging, retrieval, role play, coding tools.

As ``traffic.py``: a function takes a Recorder and whether the client has its fault.
"""

from __future__ import annotations

import random

from e2e.client import Message, prose, system, tool, user
from e2e.days.recorder import Recorder
from e2e.days.talk import Talk, in_turn, tools

# ---- the server loses


def translators(day: Recorder, faulty: bool) -> None:
    """Three documents that are translated piece by piece, each with the pieces before; which one is next is chance."""
    chance = random.Random(21)
    books = [Talk(day, f"book{i + 1}", prose(110 + i, 900 + 240 * i), "translator") for i in range(3)]
    for book in books:
        book.ask(chance.randrange(200, 500))
    for _ in range(14):
        chance.choice(books).ask(chance.randrange(90, 520), tokens=chance.randrange(10, 60))


def judge_between(day: Recorder, faulty: bool) -> None:
    """A chat each of whose answers is judged by a long rubric, with the same model."""
    chat, rubric, chance = Talk(day, "chat", prose(1, 1500), "app"), prose(3, 1300), random.Random(22)
    for step in range(6):
        chat.ask(chance.randrange(120, 420), tokens=20)
        answer = user(f"Judge this answer. {prose(1200 + step, chance.randrange(150, 500))}")
        day.chat(f"judge{step}", "judge", [system(rubric), answer])


def long_readers(day: Recorder, faulty: bool) -> None:
    """Two people who ask about a document of 4,500 and 3,900 tokens, several questions at a time."""
    readers = [Talk(day, f"reader{i + 1}", prose(130 + i, 4500 - 600 * i)) for i in range(2)]
    for count in (2, 1, 3, 1):
        for reader in readers:
            in_turn([reader], count, 140)


# ---- the client loses


def session_line(day: Recorder, faulty: bool) -> None:
    """A help desk whose system prompt has the number of the visit after 350 tokens of rules; a chat beside it."""
    ours, other, chance = Talk(day, "desk", "", "portal"), Talk(day, "healthy", prose(2, 1350)), random.Random(23)
    for _ in range(6):
        visit = f"{chance.randrange(1 << 40):010x}" if faulty else "0" * 10
        ours.head = f"{prose(5, 350)}\nVisit: {visit}\n{prose(6, 1050)}"
        ours.ask(chance.randrange(150, 400))
        other.ask(chance.randrange(100, 260))


def examples_drawn(day: Recorder, faulty: bool) -> None:
    """A classifier that draws four of twelve examples for each question; every question is asked once."""
    examples, chance = [f"Example {i}: {prose(140 + i, 290)}" for i in range(12)], random.Random(24)
    for number in range(16):
        drawn = chance.sample(examples, 4) if faulty else examples[:4]
        head = f"{prose(7, 420)}\n" + "\n".join(drawn)
        day.chat(f"item{number}", "classifier", [system(head), user(prose(1300 + number, 170))])


def open_file_first(day: Recorder, faulty: bool) -> None:
    """A coding assistant that puts the file that is open behind its system prompt, before what was said."""
    chat, chance = Talk(day, "editor", prose(1, 900), tools=tools(2)), random.Random(25)
    said: list[Message] = []
    for step in range(8):
        shown = user(f"Open file:\n{prose(150 + (step // 2 if faulty else 0), 500)}")
        chat.messages = [shown, {"role": "assistant", "content": "Noted."}, *said]
        chat.ask(chance.randrange(120, 330))
        said = chat.messages[2:]


def summary_rolls(day: Recorder, faulty: bool) -> None:
    """A companion that keeps a summary and the last two exchanges: both are new in each request; a chat beside it."""
    ours, other = Talk(day, "companion", prose(1, 800), "companion"), Talk(day, "healthy", prose(2, 1200), "agent")
    for step in range(8):
        if faulty and step > 2:
            ours.messages = [user(f"So far: {prose(160 + step, 420)}"), *ours.messages[-4:]]
        ours.ask(300)
        other.ask(110)


def authors_note(day: Recorder, faulty: bool) -> None:
    """A story whose author's note of 240 tokens always stands two messages before the end."""
    story, chance, said = Talk(day, "story", prose(1, 1200)), random.Random(26), []
    note = system(f"Note: {prose(170, 240)}")
    for _ in range(8):
        story.messages = [*said, user(story.text(chance.randrange(150, 420)))]
        if faulty and said:
            story.messages.insert(len(story.messages) - 2, note)
        story.send(tokens=24)
        said = [message for message in story.messages if message is not note]


def world_entries(day: Recorder, faulty: bool) -> None:
    """A role play whose system prompt has the entries of a lexicon that the last message mentions, after 500 tokens."""
    entries, chance = [f"Entry {i}: {prose(180 + i, 200)}" for i in range(6)], random.Random(27)
    play, other = Talk(day, "play", ""), Talk(day, "healthy", prose(2, 1250), "agent")
    for _ in range(7):
        shown = sorted(chance.sample(entries, 3)) if faulty else entries[:3]
        play.head = f"{prose(8, 500)}\n" + "\n".join(shown) + f"\n{prose(9, 350)}"
        play.ask(chance.randrange(130, 380), tokens=18)
        other.ask(130)


def passages_leave(day: Recorder, faulty: bool) -> None:
    """A chat about documents: passages stand at the newest question only and are dropped from the one before."""
    chat, chance = Talk(day, "library", prose(1, 1000), "rag"), random.Random(28)
    for step in range(7):
        question, passages = chat.text(120), f"\nPassages: {prose(190 + step, chance.randrange(500, 900))}"
        chat.messages.append(user(question + passages))
        chat.send(tokens=16)
        if faulty:
            chat.messages[-2] = user(question)


def tools_by_question(day: Recorder, faulty: bool) -> None:
    """An agent that is given three of seven tools, those that fit the question; a chat beside it."""
    agent, other, chance = Talk(day, "agent", prose(1, 850)), Talk(day, "healthy", prose(2, 1300)), random.Random(29)
    every = tools(7)
    for _ in range(6):
        at = sorted(chance.sample(range(7), 3)) if faulty else [0, 1, 2]
        agent.fields["tools"] = [every[i] for i in at]
        agent.ask(chance.randrange(150, 300))
        agent.step(chance.randrange(120, 420))
        other.ask(140)


def every_second_uncached(day: Recorder, faulty: bool) -> None:
    """A chat whose program sends every second request with ``cache_prompt: false``."""
    chat, chance = Talk(day, "chat", prose(1, 1600)), random.Random(30)
    for step in range(9):
        chat.ask(chance.randrange(140, 360), **({"cache_prompt": False} if faulty and step % 2 else {}))


# ---- nothing to fix


def letters(day: Recorder, faulty: bool) -> None:
    """Eighteen letters of nearly one length, each answered once, and nothing in common."""
    for number in range(18):
        day.chat(f"letter{number}", "mail", [user(prose(1400 + number, 1500 + number % 3))])


def one_after_another(day: Recorder, faulty: bool) -> None:
    """Four agents with heads of their own, one after another: each ends before the next one begins."""
    chance = random.Random(31)
    for number in range(4):
        agent = Talk(day, f"task{number + 1}", prose(200 + number, 600 + 170 * number), tools=tools(2, number))
        agent.ask(170)
        for _ in range(4):
            agent.step(chance.randrange(80, 600))


def voice_commands(day: Recorder, faulty: bool) -> None:
    """Thirty commands by voice behind a system prompt of 900 tokens, each on its own."""
    for number in range(30):
        day.chat(f"command{number}", "voice", [system(prose(10, 900)), user(prose(1500 + number, 40 + number % 5))])


def results_at_once(day: Recorder, faulty: bool) -> None:
    """An agent that calls several tools at a time, whose results come together, beside a short chat."""
    agent, chat = Talk(day, "agent", prose(1, 1000), tools=tools(4)), Talk(day, "chat", prose(2, 700))
    chance = random.Random(32)
    agent.ask(200)
    for step in range(6):
        functions = [{"name": "read_file", "arguments": f'{{"path": "f{i}"}}'} for i in range(3)]
        calls = [
            {"id": f"c{step}x{i}xxxxx", "type": "function", "function": function}
            for i, function in enumerate(functions)
        ]
        agent.messages[-1]["tool_calls"] = calls
        results = [tool(prose(1600 + 10 * step + i, chance.randrange(60, 300))) for i in range(3)]
        agent.messages += [{**result, "tool_call_id": call["id"]} for result, call in zip(results, calls, strict=True)]
        agent.send()
        chat.ask(chance.randrange(60, 200))
