"""What agencies and their programs do: teams of agents, desks, tutors, searches, digests.

As ``traffic.py``: a function takes a Recorder and whether the client has its fault.
"""

from __future__ import annotations

import random

from e2e.client import prose, system, user
from e2e.days.recorder import Recorder
from e2e.days.talk import Talk, tools

# ---- the server loses


def two_teams(day: Recorder, faulty: bool) -> None:
    """Two agents, each with a helper that sums up what its tools return, and a chat that comes in between."""
    chance = random.Random(301)
    agents = [Talk(day, f"agent{i + 1}", prose(1001 + i, 1300 + 300 * i), tools=tools(2, i)) for i in range(2)]
    helpers = [Talk(day, f"helper{i + 1}", prose(1011 + i, 700), f"agent{i + 1}") for i in range(2)]
    chat = Talk(day, "chat", prose(1021, 1100))
    for agent in agents:
        agent.ask(150)
    for _ in range(6):
        for agent, helper in zip(agents, helpers, strict=True):
            agent.step(chance.randrange(100, 400))
            helper.ask(chance.randrange(100, 300))
        if chance.random() < 0.6:
            chat.ask(chance.randrange(80, 250))


def long_files(day: Recorder, faulty: bool) -> None:
    """Four people with a file of 2,500 to 3,700 tokens each, who ask in no order, one or two questions at a time."""
    chance = random.Random(302)
    people = [Talk(day, f"reader{i + 1}", prose(1031 + i, 2500 + 400 * i)) for i in range(4)]
    for person in people:
        person.ask(120)
    for _ in range(9):
        person = chance.choice(people)
        for _ in range(chance.choice((1, 1, 2))):
            person.ask(chance.randrange(60, 260))


# ---- the client loses


def weather_line(day: Recorder, faulty: bool) -> None:
    """Two chats of a travel agency whose system prompt has the weather after 500 tokens, and 1,000 after that."""
    chance, chats = random.Random(303), [Talk(day, f"traveller{i + 1}", "", "agency") for i in range(2)]
    for _ in range(7):
        for i, chat in enumerate(chats):
            wind = chance.randrange(3, 60) if faulty else 5
            line = f"Weather now: {chance.randrange(-5, 35) if faulty else 20} degrees, wind {wind} km/h."
            chat.head = f"{prose(1041 + i, 500)}\n{line}\n{prose(1051 + i, 1000)}"
            chat.ask(chance.randrange(120, 380))


def instruction_last(day: Recorder, faulty: bool) -> None:
    """A chat whose program sends a standing instruction of 420 tokens as its last message, and does not keep it."""
    chat, chance = Talk(day, "chat", prose(1061, 1000)), random.Random(304)
    instruction = user(f"How to answer: {prose(1062, 420)}")
    if not faulty:
        chat.messages += [instruction, {"role": "assistant", "content": "I will."}]
    for _ in range(8):
        chat.messages.append(user(chat.text(chance.randrange(120, 380))))
        sent = [*chat.prompt(), instruction] if faulty else chat.prompt()
        reply = day.chat(chat.name, chat.client, sent, 8)
        chat.messages.append({"role": "assistant", "content": reply})


def replies_corrected(day: Recorder, faulty: bool) -> None:
    """A person who corrects the first words of each long reply in the editor, and continues from the corrected one."""
    chat, chance = Talk(day, "writer", prose(1071, 900)), random.Random(305)
    for _ in range(8):
        reply = chat.ask(chance.randrange(100, 300), tokens=260)
        if faulty:
            chat.messages[-1]["content"] = f"Well. {reply[12:]}"


def uncached_steps(day: Recorder, faulty: bool) -> None:
    """An agent whose framework sends ``cache_prompt: false`` with two of three steps; a chat beside it."""
    agent, chat = Talk(day, "agent", prose(1081, 1500), tools=tools(2, 2)), Talk(day, "chat", prose(1082, 900))
    chance = random.Random(306)
    agent.ask(150)
    for step in range(9):
        agent.fields.pop("cache_prompt", None)
        if faulty and step % 3:
            agent.fields["cache_prompt"] = False
        agent.step(chance.randrange(120, 400))
        if step % 3 == 1:
            chat.ask(chance.randrange(80, 240))


# ---- nothing to fix


def offers_in_pairs(day: Recorder, faulty: bool) -> None:
    """Seventeen offers of all lengths that are checked by one long instruction: one alone, then two at a time."""
    chance = random.Random(310)
    offers = [[system(prose(1101, 1100)), user(prose(6000 + i, chance.randrange(150, 1300)))] for i in range(17)]
    day.chat("offer0", "offers", offers[0], 20)
    for at in range(1, 17, 2):
        day.together(*(lambda n=n: day.chat(f"offer{n}", "offers", offers[n], 20) for n in (at, at + 1)))


def lessons(day: Recorder, faulty: bool) -> None:
    """Six pupils one after another with one tutor: one system prompt, two to four turns each, texts of all sizes."""
    chance = random.Random(311)
    for number in range(6):
        pupil = Talk(day, f"pupil{number}", prose(1111, 950), "school")
        for _ in range(chance.randrange(2, 5)):
            pupil.ask(chance.randrange(60, 700), tokens=chance.randrange(8, 50))


def search_and_answer(day: Recorder, faulty: bool) -> None:
    """Nine questions: each is turned into a search by a prompt of its own, then answered from what was found."""
    chance = random.Random(312)
    for number in range(9):
        question = prose(6100 + number, chance.randrange(40, 160))
        day.chat(f"query{number}", "search", [system(prose(1121, 320)), user(question)], 12)
        found = "\n".join(prose(6200 + 10 * number + i, chance.randrange(150, 400)) for i in range(4))
        day.chat(f"answer{number}", "search", [system(prose(1122, 600)), user(f"{found}\n{question}")], 30)


def tests_repaired(day: Recorder, faulty: bool) -> None:
    """Five tasks, each tried twice or three times from the start, then once more with the error of the last attempt."""
    chance = random.Random(313)
    for number in range(5):
        task = Talk(day, f"task{number}", prose(1131, 1000), "repairs")
        task.messages.append(user(prose(6300 + number, chance.randrange(200, 900))))
        for _ in range(chance.choice((2, 3))):
            reply = day.chat(task.name, task.client, task.prompt(), chance.randrange(15, 60))
        task.messages.append({"role": "assistant", "content": reply})
        task.ask(chance.randrange(80, 350), tokens=30)


def morning_digest(day: Recorder, faulty: bool) -> None:
    """A chat that rests while six long articles without anything in common are read, twice; prompts are kept in RAM."""
    chat, chance = Talk(day, "chat", prose(1141, 1400)), random.Random(314)
    for morning in range(2):
        for _ in range(3):
            chat.ask(chance.randrange(100, 350))
        for number in range(6):
            text = prose(6400 + 10 * morning + number, chance.randrange(700, 2200))
            day.chat(f"article{morning}.{number}", "digest", [user(text)], 25)
    chat.ask(200)


def moderated_group(day: Recorder, faulty: bool) -> None:
    """A group that writes into one long talk; every message is first checked by a short prompt of its own."""
    talk, chance = Talk(day, "group", prose(1151, 800)), random.Random(315)
    for turn in range(11):
        text = prose(6500 + turn, chance.randrange(40, 350))
        day.chat(f"check{turn}", "moderator", [system(prose(1152, 420)), user(text)], 4)
        talk.messages.append(user(f"{chance.choice(('Ada', 'Bo', 'Cy'))}: {text}"))
        talk.send(chance.randrange(8, 30))
