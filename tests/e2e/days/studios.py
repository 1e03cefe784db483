"""What studios and their programs do: several drafts, forms, editors that complete code, attachments, memories.

As ``traffic.py``: a function takes a Recorder and whether the client has its fault.
"""

from __future__ import annotations

import random
import time

from e2e.client import Message, prose, system, user
from e2e.days.recorder import INFILL, Recorder
from e2e.days.talk import Talk, tools

# ---- the server loses


def newsroom(day: Recorder, faulty: bool) -> None:
    """Two writers with a draft and a research chat each; who goes on, and in which of the two, is chance."""
    chance = random.Random(101)
    talks = [Talk(day, f"{kind}{i + 1}", prose(601 + 2 * i + k, chance.randrange(800, 1800)), f"writer{i + 1}")
             for i in range(2) for k, kind in enumerate(("draft", "research"))]  # fmt: skip
    for talk in talks:
        talk.ask(chance.randrange(100, 400))
    for _ in range(13):
        chance.choice(talks).ask(chance.randrange(90, 480), tokens=chance.randrange(8, 50))


def parts_and_whole(day: Recorder, faulty: bool) -> None:
    """A chat, and twice a job that reads four parts of a document and then writes one text about all of them."""
    chat, chance = Talk(day, "chat", prose(1, 1700)), random.Random(102)
    for job in range(2):
        chat.ask(chance.randrange(150, 400))
        chat.ask(chance.randrange(150, 400))
        for part in range(4):
            text = prose(3000 + 10 * job + part, chance.randrange(900, 1500))
            day.chat(f"part{job}.{part}", "job", [system(prose(31, 260)), user(text)])
            if part == 1:
                chat.ask(chance.randrange(100, 300))
        day.chat(f"whole{job}", "job", [system(prose(32, 310)), user(prose(3050 + job, 700))])
        chat.ask(chance.randrange(150, 400))


def long_runs(day: Recorder, faulty: bool) -> None:
    """Two agents that each do several steps before the other one goes on."""
    chance = random.Random(103)
    agents = [Talk(day, f"agent{i + 1}", prose(610 + i, 1500 + 400 * i), tools=tools(2, i)) for i in range(2)]
    for _ in range(4):
        for agent in agents:
            agent.ask(chance.randrange(100, 250))
            for _ in range(chance.randrange(1, 4)):
                agent.step(chance.randrange(100, 400))


# ---- the client loses


def moods(day: Recorder, faulty: bool) -> None:
    """One chat whose system prompt is chosen by the mood of the last message, out of three with nothing in common."""
    heads = [f"{word} {prose(620 + i, 650 + 90 * i)}" for i, word in enumerate(("Calm.", "Brisk.", "Merry."))]
    talk, chance = Talk(day, "pet", ""), random.Random(104)
    for step in range(10):
        talk.head = heads[(0, 1, 0, 2, 1, 1, 0, 2, 0, 1)[step] if faulty else 0]
        talk.ask(chance.randrange(150, 360))


def budget_in_results(day: Recorder, faulty: bool) -> None:
    """An agent whose client writes hints of 350 tokens before the text of the newest result, and takes them out
    again."""
    agent, chance = Talk(day, "agent", prose(1, 1100), tools=tools(3)), random.Random(105)
    hints = f"Hints: {prose(630, 350)}\n"
    agent.ask(180)
    for _ in range(8):
        if faulty:
            for message in agent.messages:
                message["content"] = str(message["content"]).replace(hints, "")
        agent.turn += 1
        call = f"call{agent.turn:05d}"
        function = {"name": "read_file", "arguments": f'{{"path": "a{agent.turn}.py"}}'}
        agent.messages[-1]["tool_calls"] = [{"id": call, "type": "function", "function": function}]
        text = prose(3100 + agent.turn, chance.randrange(150, 500))
        agent.messages.append({"role": "tool", "content": hints * faulty + text, "tool_call_id": call})
        agent.send()


def attachments_removed(day: Recorder, faulty: bool) -> None:
    """A chat in which a document is attached now and then; two turns later a line of text stands in its place."""
    chat, other, chance = Talk(day, "chat", prose(1, 900)), Talk(day, "healthy", prose(2, 1300)), random.Random(106)
    shown: list[tuple[int, Message]] = []
    for step in range(10):
        if faulty:
            for message in [m for at, m in shown if at == step - 2]:
                message["content"] = str(message["content"])[:60] + " [attachment removed]"
        chat.ask(chance.randrange(120, 300) + (700 if step % 3 == 0 else 0))
        if step % 3 == 0:
            shown.append((step, chat.messages[-2]))
        other.ask(chance.randrange(80, 200))


def memories_first(day: Recorder, faulty: bool) -> None:
    """A companion whose system prompt begins with the three memories that fit the last message; rules follow."""
    memories, chance = [f"{i}: {prose(640 + i, 210)}" for i in range(7)], random.Random(107)
    talk = Talk(day, "friend", "")
    for _ in range(8):
        fit = chance.sample(memories, 3) if faulty else memories[:3]
        talk.head = "\n".join(fit) + f"\n{prose(33, 1200)}"
        talk.ask(chance.randrange(130, 380))


def ages_rewritten(day: Recorder, faulty: bool) -> None:
    """A messenger that writes before each message how many minutes ago it was sent, counted for each request."""
    talk, said, chance = Talk(day, "messenger", prose(1, 1300)), [], random.Random(108)
    at = 0
    for _ in range(8):
        at += chance.randrange(2, 9)
        talk.messages.append(user(talk.text(chance.randrange(150, 350))))
        said.append((at, talk.messages[-1], str(talk.messages[-1]["content"])))
        for sent, message, text in said:
            message["content"] = f"[{at - sent if faulty else 0} minutes ago] {text}"
        talk.send()


# ---- together


def batch_at_once(day: Recorder, faulty: bool) -> None:
    """Six groups of four reviews that are rated at once behind twelve fixed examples; fixed, one goes ahead alone."""
    head, chance = prose(40, 1600), random.Random(117)
    if not faulty:
        day.chat("first", "ratings", [system(head), user(prose(3599, 200))])
    for group in range(6):
        texts = [prose(3600 + 4 * group + i, chance.randrange(80, 700)) for i in range(4)]
        day.together(*(
            lambda n=4 * group + i, t=text: day.chat(f"review{n}", "ratings", [system(head), user(t)])
            for i, text in enumerate(texts)
        ))  # fmt: skip


# ---- nothing to fix


def forms_of_kinds(day: Recorder, faulty: bool) -> None:
    """Twenty papers that are filed once each, by four instructions that begin alike."""
    chance, start = random.Random(109), prose(34, 240)
    for number in range(20):
        form = f"{start}\n{prose(650 + chance.randrange(4), 420)}"
        day.chat(f"paper{number}", "files", [system(form), user(prose(3200 + number, chance.randrange(200, 1100)))])


def retried(day: Recorder, faulty: bool) -> None:
    """A chat whose program hangs up when an answer takes too long, and sends the same again."""
    chat, other, chance = Talk(day, "chat", prose(1, 1400)), Talk(day, "other", prose(2, 1100)), random.Random(110)
    for step in range(6):
        chat.messages.append(user(chat.text(chance.randrange(150, 450))))
        if step % 2:
            for pieces in (2, 3):
                day.cut(chat.name, chat.client, chat.prompt(), pieces, max_tokens=400)
                time.sleep(0.4)
        chat.send()
        other.ask(chance.randrange(100, 250))


def goes_back(day: Recorder, faulty: bool) -> None:
    """A person who goes back two exchanges and asks something else from there, several times."""
    chat, chance = Talk(day, "chat", prose(1, 1500)), random.Random(111)
    for step in range(9):
        if step in (3, 5, 7):
            del chat.messages[-4:]
        chat.ask(chance.randrange(130, 420), tokens=20)


def code_completion(day: Recorder, faulty: bool) -> None:
    """An editor that asks for completions: what is before the cursor grows, what follows it stays."""
    before, after, chance = prose(660, 1200), prose(661, 600), random.Random(112)
    for step in range(12):
        body = {"input_prefix": before, "input_suffix": after, "n_predict": 6, "temperature": 0}
        day.post(INFILL, "file", "editor", body)
        before += "\n" + prose(3300 + step, chance.randrange(20, 120))


def fixed_passages(day: Recorder, faulty: bool) -> None:
    """A search over one fixed handbook of 2,200 tokens: three people, each question once, now and then a second one."""
    rules, chance = prose(35, 2200), random.Random(113)
    for number in range(12):
        person = Talk(day, f"search{number}", rules, f"person{number % 3}")
        for _ in range(chance.choice((1, 1, 2))):
            person.ask(chance.randrange(50, 260))


def titles_beside(day: Recorder, faulty: bool) -> None:
    """Three chats one after another, each with a title and suggestions asked in a slot of their own."""
    chance = random.Random(114)
    for number in range(3):
        chat = Talk(day, f"chat{number}", prose(670, 900), "app")
        for step in range(4):
            chat.ask(chance.randrange(120, 420))
            if step == 0:
                title = user(f"Title for: {prose(3400 + number, chance.randrange(120, 300))}")
                day.chat(f"title{number}", "titles", [system(prose(36, 300)), title])
            hints = user(f"Three questions that may follow: {prose(3450 + 10 * number + step, 200)}")
            day.chat(f"hints{number}.{step}", "hints", [system(prose(37, 420)), hints])


def ensemble(day: Recorder, faulty: bool) -> None:
    """Seven questions, each put to three experts at once, with heads of their own; a fourth request picks the best."""
    heads, chance = [prose(680 + i, 700 + 150 * i) for i in range(3)], random.Random(115)

    def put(number: int, expert: int, question: Message) -> None:
        day.chat(f"expert{expert}.{number}", "ensemble", [system(heads[expert]), question])

    for number in range(7):
        question = user(prose(3500 + number, chance.randrange(120, 500)))
        day.together(*(lambda e=e, q=question, n=number: put(n, e, q) for e in range(3)))
        answers = user(prose(3550 + number, chance.randrange(300, 700)))
        day.chat(f"pick{number}", "picker", [system(prose(38, 350)), answers])


def minutes_at_end(day: Recorder, faulty: bool) -> None:
    """Three talks of five turns; after each of them its minutes are written, with a system prompt of their own."""
    chance = random.Random(116)
    for number in range(3):
        chat = Talk(day, f"talk{number}", prose(690 + number, 1000 + 200 * number))
        for _ in range(5):
            chat.ask(chance.randrange(120, 420), tokens=16)
        lines = "\n".join(f"{m['role']}: {m['content']}" for m in chat.messages)
        day.chat(f"minutes{number}", "minutes", [system(prose(39, 500)), user(lines)], 40)
