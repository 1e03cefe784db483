"""What workshops and their programs do: helpers in parallel, games, reviews, harnesses, transcripts, forms.

As ``traffic.py``: a function takes a Recorder and whether the client has its fault.
"""

from __future__ import annotations

import json
import random
import time

from e2e.client import Message, prose, system, user
from e2e.days.recorder import Recorder
from e2e.days.talk import Talk, tools

# ---- the server loses


def parallel_helpers(day: Recorder, faulty: bool) -> None:
    """An agent that three times sends out three helpers at once, two steps each, and goes on when they are done."""
    agent, chance = Talk(day, "agent", prose(700, 1900), tools=tools(2)), random.Random(201)
    agent.ask(200)
    for task in range(3):
        helpers = [Talk(day, f"helper{task}.{i}", prose(701, 700), "agent") for i in range(3)]
        lengths = [(chance.randrange(150, 500), chance.randrange(100, 400)) for _ in helpers]
        day.together(*(lambda h=h, n=n: [h.ask(length) for length in n] for h, n in zip(helpers, lengths, strict=True)))
        agent.step(chance.randrange(200, 500))
        agent.step(chance.randrange(100, 300))


def game_master(day: Recorder, faulty: bool) -> None:
    """A game: after each turn of its master two of four characters speak, each with a long sheet of its own."""
    master, chance = Talk(day, "master", prose(710, 1500)), random.Random(202)
    characters = [Talk(day, f"character{i + 1}", prose(711 + i, 800 + 150 * i), "game") for i in range(4)]
    for _ in range(6):
        master.ask(chance.randrange(120, 400), tokens=chance.randrange(8, 30))
        for character in chance.sample(characters, 2):
            character.ask(chance.randrange(80, 250), tokens=12)


def pauses_at_work(day: Recorder, faulty: bool) -> None:
    """An agent and the chat of the person who watches it; every third step the person thinks for two seconds."""
    agent, chat = Talk(day, "agent", prose(720, 1700), tools=tools(2)), Talk(day, "watcher", prose(721, 900))
    chance = random.Random(203)
    agent.ask(150)
    for step in range(9):
        agent.step(chance.randrange(120, 400))
        if step % 3 == 2:
            time.sleep(2)
            chat.ask(chance.randrange(80, 200))


def review_and_fix(day: Recorder, faulty: bool) -> None:
    """A writer and a reviewer begin with the same files of 2,100 tokens and go on in their own way, beside a chat;
    fixed, each names its slot."""
    files, chance = prose(730, 2100), random.Random(204)
    heads = (f"{files}\nYou write. {prose(731, 150)}", f"{files}\nYou review. {prose(732, 190)}", prose(733, 1000))
    writer, reviewer, chat = (
        Talk(day, name, head, **({} if faulty else {"id_slot": at}))
        for at, (name, head) in enumerate(zip(("writer", "reviewer", "chat"), heads, strict=True))
    )
    for _ in range(5):
        writer.ask(chance.randrange(150, 500), tokens=30)
        reviewer.ask(chance.randrange(100, 450), tokens=20)
        if chance.random() < 0.5:
            chat.ask(chance.randrange(80, 250))


# ---- the client loses


def pinned_by_name(day: Recorder, faulty: bool) -> None:
    """Four people whose gateway makes a slot of their names: three get the same one, although there are four."""
    slot = {"anna": 1, "bert": 1, "carla": 3, "dora": 1}
    people = [Talk(day, name, prose(740 + i, 900 + 250 * i), **({"id_slot": slot[name]} if faulty else {}))
              for i, name in enumerate(slot)]  # fmt: skip
    chance = random.Random(205)
    for _ in range(14):
        chance.choice(people).ask(chance.randrange(100, 400))


def tool_server_drops(day: Recorder, faulty: bool) -> None:
    """An agent with five tools; the server of the second and third is away now and then, and so are they."""
    agent, chance = Talk(day, "agent", prose(750, 900)), random.Random(206)
    every = tools(5, 3)
    agent.fields["tools"] = every
    agent.ask(200)
    for step in range(9):
        away = faulty and step % 4 in (1, 2)
        agent.fields["tools"] = [every[0], *every[3:]] if away else every
        agent.step(chance.randrange(120, 420))


def branch_in_prompt(day: Recorder, faulty: bool) -> None:
    """A coding agent whose system prompt shows, after 260 tokens, the branch, the last commit and the changed files."""
    chance, agent, commit = random.Random(207), Talk(day, "coder", "", tools=tools(2, 4)), "3fa9c21"
    for turn in range(7):
        commit = f"{chance.getrandbits(28):07x}" if faulty else commit
        changed = [f" M src/part{i}.py" for i in sorted(chance.sample(range(30), 1 + turn % 4))] if faulty else []
        state = "\n".join([f"Current branch: work-{commit[:3]}", f"Recent commits: {commit} step", "Status:", *changed])
        agent.head = f"{prose(760, 260)}\n{state}\n{prose(761, 1100)}"
        agent.ask(chance.randrange(150, 400))


def files_refreshed(day: Recorder, faulty: bool) -> None:
    """An agent whose client puts the newest text of a file into the result that first showed it, after each change."""
    agent, chance = Talk(day, "agent", prose(770, 1000), tools=tools(3, 5)), random.Random(208)
    agent.work(4, 350)
    shown = agent.messages[-4]
    for change in range(6):
        if faulty:
            shown["content"] = prose(4000 + change, chance.randrange(300, 500))
        agent.step(chance.randrange(150, 450))


def last_seen(day: Recorder, faulty: bool) -> None:
    """A shop assistant whose system prompt begins with the profile of the customer, and when he was last seen; another
    chat beside it."""
    chat, other, chance = Talk(day, "customer", ""), Talk(day, "other", prose(781, 1200)), random.Random(209)
    for turn in range(7):
        profile = {"name": "Ivo", "last_seen": f"2026-03-04T10:{10 + 3 * turn * faulty:02d}:07Z", "city": "Trieste"}
        chat.head = f"Customer: {json.dumps(profile)}\n{prose(780, 1400)}"
        chat.ask(chance.randrange(120, 400))
        if turn % 2:
            other.ask(chance.randrange(100, 300))


def quota_line(day: Recorder, faulty: bool) -> None:
    """Two chats of one gateway that ends its system prompt of 1,300 tokens with how much of a budget is left."""
    chance, left = random.Random(210), 200_000
    chats = [Talk(day, f"chat{i + 1}", "", "gateway") for i in range(2)]
    for _ in range(6):
        for i, chat in enumerate(chats):
            left -= chance.randrange(900, 4000) * faulty
            chat.head = f"{prose(790 + i, 1300)}\nTokens left this month: {left}."
            chat.ask(chance.randrange(150, 400))


def core_memory(day: Recorder, faulty: bool) -> None:
    """An assistant with a notebook after 700 tokens of its system prompt; it rewrites the notebook every third turn."""
    talk, chance, notes = Talk(day, "assistant", ""), random.Random(211), prose(800, 220)
    for turn in range(11):
        if faulty and turn % 3 == 2:
            notes = prose(801 + turn, chance.randrange(180, 300))
        talk.head = f"{prose(802, 700)}\n<notes>{notes}</notes>\n{prose(803, 600)}"
        talk.ask(chance.randrange(120, 380))


# ---- together


def drafts_at_once(day: Recorder, faulty: bool) -> None:
    """Four tasks, each with files of its own; four drafts of each are written at once; fixed, one goes ahead."""
    for task in range(4):
        prompt = [system(prose(810, 300)), user(prose(4100 + task, 1500 + 200 * task))]

        def draft(number: int, prompt: list[Message] = prompt, task: int = task) -> None:
            day.chat(f"draft{task}.{number}", "drafts", prompt, 12)

        first = 0 if faulty else 1
        if first:
            draft(0)
        day.together(*(lambda n=n, d=draft: d(n) for n in range(first, 4)))


# ---- nothing to fix


def subtitles(day: Recorder, faulty: bool) -> None:
    """Thirty lines of a film, each translated with the two before it, behind 600 tokens of names and rules."""
    chance = random.Random(220)
    lines = [prose(4200 + i, chance.randrange(20, 160)) for i in range(32)]
    for i in range(2, 32):
        text = f"Before: {lines[i - 2]}\n{lines[i - 1]}\nTranslate: {lines[i]}"
        day.chat(f"line{i}", "film", [system(prose(820, 600)), user(text)], chance.randrange(6, 30))


def endings_scored(day: Recorder, faulty: bool) -> None:
    """A harness with eight solved examples: twelve questions, longest first, each sent with four possible endings."""
    chance = random.Random(221)
    head = "\n".join(f"Q: {prose(830 + i, 120)}\nA: {prose(850 + i, 50)}" for i in range(8))
    questions = sorted((prose(4300 + i, chance.randrange(80, 500)) for i in range(12)), key=len, reverse=True)
    for i, question in enumerate(questions):
        for ending in range(4):
            text = f"{head}\nQ: {question}\nA: {prose(4400 + 4 * i + ending, chance.randrange(10, 60))}"
            day.chat(f"question{i}.{ending}", "harness", [user(text)], 1)


def thoughts(day: Recorder, faulty: bool) -> None:
    """A puzzle that is explored as a tree: three ideas, two steps on from each, then a verdict on the best one."""
    chance = random.Random(222)
    root = [system(prose(860, 800)), user(prose(4500, 900))]
    for idea in range(3):
        said = day.chat(f"idea{idea}", "solver", [*root, user(f"Idea {idea}: {prose(4510 + idea, 150)}")], 20)
        path = [*root, user(f"Idea {idea}: {prose(4510 + idea, 150)}"), {"role": "assistant", "content": said}]
        for step in range(2):
            more = user(f"Step {step}: {prose(4520 + 2 * idea + step, chance.randrange(80, 250))}")
            day.chat(f"idea{idea}.{step}", "solver", [*path, more], 15)
    day.chat("verdict", "solver", [*root, user(prose(4540, 350))], 30)


def forms_with_errors(day: Recorder, faulty: bool) -> None:
    """Nine letters read into a form; where the form is broken, the error is sent back, once or twice."""
    chance = random.Random(223)
    for number in range(9):
        letter = Talk(day, f"letter{number}", prose(870, 950), "forms")
        letter.ask(chance.randrange(200, 1300), tokens=25)
        for _ in range(chance.choice((0, 0, 1, 2))):
            letter.ask(chance.randrange(30, 90), tokens=25)


def meeting_notes(day: Recorder, faulty: bool) -> None:
    """A meeting whose transcript grows; every few lines notes are asked for at its end. A chat beside it."""
    chance, transcript, chat = random.Random(224), "", Talk(day, "chat", prose(881, 1100))
    for part in range(10):
        transcript += f"\n[{part}] {prose(4600 + part, chance.randrange(150, 450))}"
        text = [system(prose(880, 400)), user(transcript), user("Notes so far, in three lines.")]
        day.chat("meeting", "notes", text, 20)
        if part % 3 == 1:
            chat.ask(chance.randrange(100, 300))


def pasted_documents(day: Recorder, faulty: bool) -> None:
    """Seven people who paste a document without any system prompt, and ask one to three questions about it."""
    chance = random.Random(225)
    for number in range(7):
        person = Talk(day, f"person{number}", "", f"client{number % 4}")
        person.messages.append(user(prose(4700 + number, chance.randrange(600, 2600))))
        for _ in range(chance.choice((1, 2, 3))):
            person.ask(chance.randrange(30, 150), tokens=chance.randrange(10, 50))


def tickets(day: Recorder, faulty: bool) -> None:
    """Three tickets that are read again whenever a letter comes: instruction, letters in their order, one question."""
    chance = random.Random(226)
    letters: list[list[str]] = [[], [], []]
    for number in range(14):
        at = chance.randrange(3)
        letters[at].append(f"Letter: {prose(4800 + number, chance.randrange(150, 600))}")
        text = "\n".join([*letters[at], "What is to be done?"])
        day.chat(f"ticket{at}", "desk", [system(f"Desk {at}. {prose(890, 700)}"), user(text)], 18)


def hourly_figures(day: Recorder, faulty: bool) -> None:
    """A job that explains new figures behind a long guide every hour, beside two chats, on three slots."""
    chance = random.Random(227)
    chats = [Talk(day, f"chat{i + 1}", prose(901 + i, 800 + 500 * i)) for i in range(2)]
    for hour in range(8):
        figures = " ".join(str(chance.randrange(10_000)) for _ in range(chance.randrange(60, 220)))
        day.chat(f"hour{hour}", "job", [system(prose(900, 1200)), user(f"Hour {hour}: {figures}")], 25)
        for _ in range(chance.randrange(3)):
            chance.choice(chats).ask(chance.randrange(80, 350))


def small_talk(day: Recorder, faulty: bool) -> None:
    """A voice assistant: twenty-two short turns in one chat, now and then a look-up with a prompt of its own."""
    talk, chance = Talk(day, "voice", prose(910, 650)), random.Random(228)
    for turn in range(22):
        talk.ask(chance.randrange(12, 60), tokens=chance.randrange(5, 25))
        if turn % 5 == 3:
            found = user(f"Look-up: {prose(4900 + turn, chance.randrange(200, 700))}")
            day.chat(f"lookup{turn}", "lookup", [system(prose(911, 350)), found], 10)


def pieces_refined(day: Recorder, faulty: bool) -> None:
    """Two long documents that are summed up piece by piece: each prompt has the summary so far and the next piece."""
    chance = random.Random(229)
    for number in range(2):
        summary = "Nothing yet."
        for piece in range(5):
            text = f"Summary so far: {summary}\nNext piece: {prose(5000 + 10 * number + piece, 1100)}"
            day.chat(f"piece{number}.{piece}", "sums", [system(prose(920, 450)), user(text)], 30)
            summary = prose(5100 + 10 * number + piece, chance.randrange(150, 150 + 120 * (piece + 1)))


def parallel_team(day: Recorder, faulty: bool) -> None:
    """Four agents with heads of their own that work at the same time, five steps each, on four slots."""
    chance = random.Random(230)
    agents = [Talk(day, f"agent{i + 1}", prose(930 + i, 900 + 300 * i), tools=tools(1 + i % 2, i)) for i in range(4)]
    lengths = [[chance.randrange(100, 500) for _ in range(5)] for _ in agents]

    def work(agent: Talk, results: list[int]) -> None:
        agent.ask(150)
        for length in results:
            agent.step(length)

    day.together(*(lambda a=a, r=r: work(a, r) for a, r in zip(agents, lengths, strict=True)))


def long_agent_compacts(day: Recorder, faulty: bool) -> None:
    """An agent that asks for a summary when its history is long, and continues after that, twice."""
    agent, chance = Talk(day, "agent", prose(940, 1200), tools=tools(2, 6)), random.Random(231)
    for part in range(3):
        agent.ask(200)
        for _ in range(4):
            agent.step(chance.randrange(200, 600))
        agent.messages.append(user("Sum up all of this for the next session."))
        agent.send(60)
        agent.messages = [user(f"Summary: {prose(5200 + part, chance.randrange(250, 500))}")]
        agent.messages.append({"role": "assistant", "content": "I go on."})
