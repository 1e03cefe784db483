"""What assistants and the programs around them do: many voices over one text, lists that are rewritten, retries.

As ``traffic.py``: a function takes a Recorder and whether the client has its fault.
"""

from __future__ import annotations

import random

from e2e.client import Message, prose, system, user
from e2e.days.recorder import Recorder
from e2e.days.talk import Talk, in_turn, tools

# ---- the server loses


def round_table(day: Recorder, faulty: bool) -> None:
    """Three characters with heads of their own who answer in turn, each to all that was said."""
    said, chance = [], random.Random(41)
    cast = [Talk(day, f"voice{i + 1}", prose(210 + i, 700 + 130 * i), "table") for i in range(3)]
    for step in range(15):
        talk = cast[step % 3]
        said.append(f"{talk.name}: {prose(1700 + step, chance.randrange(80, 260))}")
        talk.messages = [user(line) for line in said]
        talk.send(tokens=12)


def raw_completions(day: Recorder, faulty: bool) -> None:
    """A chat, and between its turns a script that completes plain texts of other lengths."""
    chat, chance = Talk(day, "chat", prose(1, 1500)), random.Random(42)
    for step in range(6):
        chat.ask(chance.randrange(130, 400))
        body = {"prompt": prose(1800 + step, chance.randrange(500, 1900)), "n_predict": 8, "temperature": 0}
        day.post("/completion", f"text{step}", "script", body)


def four_readers(day: Recorder, faulty: bool) -> None:
    """Four people with a document each on three slots; two of them come often, two seldom."""
    chance = random.Random(43)
    people = [Talk(day, f"person{i + 1}", prose(220 + i, 1500 + 350 * i)) for i in range(4)]
    in_turn(people, 1, 160)
    for _ in range(14):
        chance.choices(people, (5, 5, 2, 2))[0].ask(chance.randrange(90, 420))


def nothing_similar(day: Recorder, faulty: bool) -> None:
    """Two chats of several people, in no order."""
    chance = random.Random(44)
    talks = [Talk(day, f"user{i + 1}", prose(230 + i, 1400 + 300 * i)) for i in range(2)]
    in_turn(talks, 1)
    for _ in range(12):
        chance.choice(talks).ask(chance.randrange(120, 360))


# ---- the client loses


def hour_in_head(day: Recorder, faulty: bool) -> None:
    """Two chats of one program that names the hour in its first line, a new one every third round."""
    chats, chance = [Talk(day, f"chat{i + 1}", "", "program") for i in range(2)], random.Random(45)
    for step in range(9):
        for i, chat in enumerate(chats):
            chat.head = f"The hour is {10 + (step // 3 if faulty else 0)}.\n{prose(240 + i, 1300 + 170 * i)}"
            chat.ask(chance.randrange(100, 320))


def keys_shuffled(day: Recorder, faulty: bool) -> None:
    """A shop whose system prompt begins with what is known of the customer, as a set in no fixed order."""
    known, chance = [f"{prose(250 + i, 20)} {prose(260 + i, 60)}" for i in range(8)], random.Random(46)
    shop, other = Talk(day, "shop", "", "shop"), Talk(day, "healthy", prose(2, 1300), "agent")
    for _ in range(6):
        if faulty:
            chance.shuffle(known)
        shop.head = "You sell. Customer:\n" + "\n".join(known) + f"\n{prose(11, 900)}"
        shop.ask(chance.randrange(130, 300))
        other.ask(chance.randrange(90, 200))


def tools_found(day: Recorder, faulty: bool) -> None:
    """An agent that finds one tool more with each question; tools come before everything else."""
    agent, chance, every = Talk(day, "agent", prose(1, 900)), random.Random(47), tools(7)
    for step in range(6):
        agent.fields["tools"] = every[: step + 2 if faulty else 2]
        agent.ask(chance.randrange(140, 320))
        agent.step(chance.randrange(150, 500))


def compacts_often(day: Recorder, faulty: bool) -> None:
    """An agent whose client replaces the history by a summary every second step, but for the last exchange."""
    agent, chance = Talk(day, "agent", prose(1, 1100), tools=tools(2)), random.Random(48)
    for step in range(9):
        if faulty and step and step % 2 == 0:
            agent.messages = [user(f"Summary {step}: {prose(270 + step, 350)}"), *agent.messages[-4:]]
        agent.ask(chance.randrange(200, 360))
    agent.ask(150)


def window_keeps_first(day: Recorder, faulty: bool) -> None:
    """A chat of which the system prompt, the first question and the last two exchanges are sent; a chat beside it."""
    ours, other, chance = Talk(day, "chat", prose(1, 900)), Talk(day, "healthy", prose(2, 1250)), random.Random(49)
    for _ in range(9):
        if faulty and len(ours.messages) > 6:
            ours.messages = [*ours.messages[:2], *ours.messages[-4:]]
        ours.ask(chance.randrange(250, 420))
        other.ask(chance.randrange(70, 180))


def answers_rewritten(day: Recorder, faulty: bool) -> None:
    """A client that shows long answers as a table and sends that table back one turn later."""
    chat, chance = Talk(day, "chat", prose(1, 1000)), random.Random(50)
    for step in range(7):
        chat.ask(chance.randrange(160, 380), tokens=120)
        if faulty and step:
            chat.messages[-3] = {"role": "assistant", "content": f"| {prose(280 + step, 150)} |"}


def location_late(day: Recorder, faulty: bool) -> None:
    """An assistant in a car: the place stands after 1,000 of 1,500 tokens of the system prompt; nothing beside it."""
    chat, chance = Talk(day, "car", ""), random.Random(51)
    for _ in range(8):
        at = chance.randrange(10000, 99999) if faulty else 12345
        chat.head = f"{prose(12, 1000)}\nPlace: 48.{at}, 11.{at}\n{prose(13, 450)}"
        chat.ask(chance.randrange(110, 400))


def greeting_varies(day: Recorder, faulty: bool) -> None:
    """Two chats whose gateway opens each request with one of several greetings; three slots."""
    chats, chance = [Talk(day, f"chat{i + 1}", "", "gateway") for i in range(2)], random.Random(52)
    words = ("Good morning", "Hello there", "Welcome back", "Nice to see you", "At your service")
    for _ in range(7):
        for i, chat in enumerate(chats):
            greeting = words[chance.randrange(5) if faulty else 0]
            chat.head = f"{greeting}! {prose(290 + i, 1250 + 210 * i)}"
            chat.ask(chance.randrange(120, 380))


def uncached_worker(day: Recorder, faulty: bool) -> None:
    """A worker that sends ``cache_prompt: false`` beside a chat of other lengths."""
    off, chance = ({"cache_prompt": False} if faulty else {}), random.Random(53)
    worker, chat = Talk(day, "worker", prose(1, 1450), **off), Talk(day, "chat", prose(2, 1050))
    for _ in range(7):
        worker.ask(chance.randrange(120, 380))
        chat.ask(chance.randrange(120, 380))


# ---- nothing to fix


def polling(day: Recorder, faulty: bool) -> None:
    """A chat, and a monitor that sends one prompt of 700 tokens again and again to a slot of its own."""
    chat, chance = Talk(day, "chat", prose(1, 1300)), random.Random(54)
    ask: list[Message] = [system(prose(14, 650)), user("Are you there?")]
    for _ in range(7):
        day.chat("monitor", "monitor", ask)
        chat.ask(chance.randrange(100, 400))


def queue_of_four(day: Recorder, faulty: bool) -> None:
    """Twelve questions behind one system prompt, four at a time, after one that came alone."""
    head = system(prose(15, 1500))
    day.chat("first", "queue", [head, user(prose(1900, 120))])
    for group in range(3):
        day.together(
            *(
                lambda n=4 * group + i: day.chat(f"q{n}", "queue", [head, user(prose(1910 + n, 100 + 17 * n))])
                for i in range(4)
            )
        )


def new_day_new_chat(day: Recorder, faulty: bool) -> None:
    """Five chats one after another; each begins with another summary of the last one behind the same short rules."""
    chance = random.Random(55)
    for number in range(5):
        head = f"{prose(16, 200)}\nYesterday: {prose(300 + number, 700)}"
        in_turn([Talk(day, f"day{number + 1}", head, "diary")], 4, chance.randrange(130, 420))


def agents_start_together(day: Recorder, faulty: bool) -> None:
    """Three agents with heads of their own that start at one moment and work at their own pace."""
    agents = [Talk(day, f"agent{i + 1}", prose(310 + i, 800 + 220 * i), tools=tools(2, i)) for i in range(3)]
    day.together(*(lambda a=a, n=n: a.work(3 + n, 200 + 70 * n) for n, a in enumerate(agents)))
