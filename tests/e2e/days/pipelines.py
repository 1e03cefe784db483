"""What programs that work by themselves send: reports, watchers, extraction, agents that list what they know.

As ``traffic.py``: a function takes a Recorder and whether the client has its fault.
"""

from __future__ import annotations

import random
from typing import Any

from e2e.client import Message, prose, system, user
from e2e.days.recorder import Recorder
from e2e.days.talk import Talk, in_turn, tools

# ---- the server loses


def reports_and_chats(day: Recorder, faulty: bool) -> None:
    """Three chats in no order, and a job that writes a report of unrelated text every now and then."""
    chance = random.Random(61)
    chats = [Talk(day, f"chat{i + 1}", prose(410 + i, 1100 + 260 * i)) for i in range(3)]
    in_turn(chats, 1, 170)
    for step in range(12):
        if step % 3 == 2:
            day.chat(f"report{step}", "job", [user(f"Report. {prose(2000 + step, chance.randrange(700, 2200))}")])
        chance.choice(chats).ask(chance.randrange(100, 480))


def tests_watched(day: Recorder, faulty: bool) -> None:
    """Two agents, and a watcher that has the output of tests explained after each step, by one instruction."""
    chance, head = random.Random(62), prose(17, 600)
    agents = [Talk(day, f"agent{i + 1}", prose(420 + i, 900 + 300 * i), tools=tools(2, i)) for i in range(2)]
    for agent in agents:
        agent.ask(160)
    for step in range(5):
        for i, agent in enumerate(agents):
            agent.step(chance.randrange(90, 500))
            output = user(prose(2100 + 10 * step + i, chance.randrange(100, 600)))
            day.chat(f"tests{step}.{i}", "watcher", [system(head), output])


def two_books(day: Recorder, faulty: bool) -> None:
    """Two people with a book of 4,000 tokens each, who ask one to three questions before the other one does."""
    chance = random.Random(63)
    readers = [Talk(day, f"reader{i + 1}", prose(430 + i, 3800 + 400 * i)) for i in range(2)]
    for _ in range(4):
        for reader in readers:
            for _ in range(chance.randrange(1, 4)):
                reader.ask(chance.randrange(60, 240))


def agents_in_one_memory(day: Recorder, faulty: bool) -> None:
    """Three agents of growing length whose slots share one memory."""
    chance = random.Random(64)
    agents = [Talk(day, f"agent{i + 1}", prose(440 + i, 1300 + 200 * i), tools=tools(2, i)) for i in range(3)]
    for agent in agents:
        agent.ask(150)
    for _ in range(5):
        for agent in agents:
            agent.step(chance.randrange(150, 420))


# ---- the client loses


def first_message_stamped(day: Recorder, faulty: bool) -> None:
    """A weather service that puts what is measured now before the first question of its chat; a chat beside it."""
    ours, other, chance = Talk(day, "weather", prose(1, 1000)), Talk(day, "healthy", prose(2, 1300)), random.Random(65)
    first = ours.text(200)
    for step in range(7):
        now = f'{{"celsius": {chance.randrange(100, 300) / 10}, "hpa": {chance.randrange(980, 1030)}}}\n'
        if step:
            ours.messages[0] = user((now if faulty else "{}\n") + first)
            ours.ask(chance.randrange(120, 360))
        else:
            ours.messages.append(user((now if faulty else "{}\n") + first))
            ours.send()
        other.ask(chance.randrange(80, 220))


def newest_first(day: Recorder, faulty: bool) -> None:
    """A mailer that writes the whole thread into one message, the newest letter first; repaired, the oldest first."""
    letters: list[str] = []
    chance = random.Random(66)
    for step in range(8):
        letters.append(f"Letter {step}: {prose(2200 + step, chance.randrange(200, 420))}")
        told = reversed(letters) if faulty else letters
        day.chat("thread", "mailer", [system(prose(18, 900)), user("\n\n".join(told))])


def results_trimmed(day: Recorder, faulty: bool) -> None:
    """An agent whose client cuts every result of a tool but the newest to its first 60 characters."""
    agent, chance = Talk(day, "agent", prose(1, 1000), tools=tools(3)), random.Random(67)
    agent.ask(180)
    for _ in range(8):
        agent.step(chance.randrange(200, 620))
        results = [message for message in agent.messages if message["role"] == "tool"]
        for message in results[:-1] if faulty else []:
            message["content"] = message["content"][:60]


def uncached_pair(day: Recorder, faulty: bool) -> None:
    """Two workers of one library that sends ``cache_prompt: false``."""
    off: dict[str, Any] = {"cache_prompt": False} if faulty else {}
    workers, chance = (
        [Talk(day, f"worker{i + 1}", prose(450 + i, 1200 + 330 * i), **off) for i in range(2)],
        random.Random(68),
    )
    for _ in range(6):
        for worker in workers:
            worker.ask(chance.randrange(110, 400))


def version_line(day: Recorder, faulty: bool) -> None:
    """One agent whose framework names its build and a hash of its settings first, new in each request."""
    agent, chance = Talk(day, "agent", "", tools=None), random.Random(69)
    for step in range(8):
        mark = f"{chance.randrange(1 << 36):09x}" if faulty else "0" * 9
        agent.head = f"framework 4.{step if faulty else 0}.1 ({mark})\n{prose(19, 1300)}"
        agent.ask(chance.randrange(130, 380))


def tool_lists_files(day: Recorder, faulty: bool) -> None:
    """An agent one of whose tools names the files that are open, which change; a chat beside it."""
    agent, other = Talk(day, "agent", prose(1, 800), tools=tools(4)), Talk(day, "healthy", prose(2, 1350))
    plain, chance = agent.fields["tools"][2]["function"]["description"], random.Random(70)
    for _ in range(6):
        names = " ".join(f"src/m{chance.randrange(90)}.py" for _ in range(3)) if faulty else "src/m1.py"
        agent.fields["tools"][2]["function"]["description"] = f"{plain} Open: {names}"
        agent.ask(chance.randrange(120, 260))
        agent.step(chance.randrange(100, 420))
        other.ask(130)


def window_by_tokens(day: Recorder, faulty: bool) -> None:
    """A chat whose client drops the oldest messages as soon as they are more than 1,300 tokens together."""
    chat, chance = Talk(day, "chat", prose(1, 1000)), random.Random(71)
    for _ in range(11):
        while faulty and sum(len(message["content"]) for message in chat.messages) > 1300:
            del chat.messages[:2]
        chat.ask(chance.randrange(160, 420), tokens=14)


# ---- nothing to fix


def forms_beside(day: Recorder, faulty: bool) -> None:
    """A chat, and letters of all lengths that are sorted by one instruction between its turns."""
    chat, head, chance = Talk(day, "chat", prose(1, 1400)), system(prose(20, 800)), random.Random(72)
    for step in range(6):
        chat.ask(chance.randrange(100, 380))
        day.chat(f"letter{step}", "sorter", [head, user(prose(2300 + step, chance.randrange(150, 900)))])


def translations(day: Recorder, faulty: bool) -> None:
    """Eighteen texts of all lengths, translated one by one behind one instruction of 1,000 tokens."""
    chance = random.Random(73)
    for number in range(18):
        text = user(prose(2400 + number, chance.randrange(120, 1500)))
        day.chat(f"text{number}", "translator", [system(prose(21, 1000)), text])


def short_agents(day: Recorder, faulty: bool) -> None:
    """Six agents with one head and the same tools, three steps each, one after another."""
    chance, shared = random.Random(74), tools(3)
    for number in range(6):
        agent = Talk(day, f"task{number + 1}", prose(22, 900), "agents", tools=shared)
        agent.ask(chance.randrange(150, 400))
        for _ in range(3):
            agent.step(chance.randrange(100, 450))


def summaries_asked(day: Recorder, faulty: bool) -> None:
    """A chat of which a summary is asked for after every second turn, in a message that is not kept."""
    chat, chance = Talk(day, "chat", prose(1, 1300)), random.Random(75)
    ask: Message = user("Sum up what was said so far in five sentences, for the list of chats.")
    for step in range(8):
        chat.ask(chance.randrange(120, 400))
        if step % 2:
            chat.messages.append(ask)
            chat.send(tokens=30)
            del chat.messages[-2:]
