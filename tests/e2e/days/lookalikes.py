"""Days with nothing to fix that look like days with a fault.

As ``traffic.py``: a function takes a Recorder and whether the client has its fault, which it never has here.
"""

from __future__ import annotations

import random
import time

from e2e.client import prose, system, user
from e2e.days.households import picture, shown, title
from e2e.days.recorder import COMPLETIONS, Recorder
from e2e.days.talk import Talk, at_random, tools


def stamped_messages(day: Recorder, faulty: bool) -> None:
    """A messenger that writes the time before each message and keeps it there; another chat beside it."""
    chat, other, chance = (
        Talk(day, "chat", prose(3401, 1000)),
        Talk(day, "other", prose(3402, 1300)),
        random.Random(601),
    )
    for turn in range(9):
        stamp = f"[2026-11-02 {9 + turn}:{chance.randrange(10, 59)}:{chance.randrange(10, 59)}]"
        chat.messages.append(user(f"{stamp} {chat.text(chance.randrange(60, 400))}"))
        chat.send(25)
        if turn % 3 == 2:
            other.ask(chance.randrange(100, 350))


def uncached_batch_beside(day: Recorder, faulty: bool) -> None:
    """A chat, and a batch of unrelated texts whose requests rightly say ``cache_prompt: false``."""
    chat, chance = Talk(day, "chat", prose(3411, 1500)), random.Random(602)
    for turn in range(6):
        chat.ask(chance.randrange(80, 400), tokens=20)
        for item in range(chance.choice((1, 2, 3))):
            text = prose(8300 + 10 * turn + item, chance.randrange(500, 1500))
            day.chat(f"item{turn}.{item}", "batch", [user(text)], 8, cache_prompt=False)


def warmed_up(day: Recorder, faulty: bool) -> None:
    """A program that sends each of its two system prompts with one word at its start, and chats later begin with
    them."""
    chance, heads = random.Random(603), [prose(3421, 1700), prose(3422, 2100)]
    for i, head in enumerate(heads):
        day.chat(f"warm{i}", "program", [system(head), user("warm")], 1)
    for number in range(6):
        talk = Talk(day, f"visit{number}", heads[chance.randrange(2)], "program")
        for _ in range(chance.choice((1, 2, 3))):
            talk.ask(chance.randrange(60, 400), tokens=20)


def pinned_well(day: Recorder, faulty: bool) -> None:
    """Three chats that each name a slot of their own, in no order, no RAM cache."""
    talks = [Talk(day, f"room{i + 1}", prose(3431 + i, 1100 + 260 * i), id_slot=i) for i in range(3)]
    at_random(talks, 12, seed=604, length=240)


def window_with_reuse(day: Recorder, faulty: bool) -> None:
    """A chat whose program leaves the oldest exchange out, on a server that moves what is kept (``--cache-reuse``)."""
    chat, chance = Talk(day, "chat", prose(3441, 600)), random.Random(605)
    for turn in range(12):
        chat.ask(chance.randrange(250, 500), tokens=30)
        if turn > 4:
            del chat.messages[:2]


def screens_kept(day: Recorder, faulty: bool) -> None:
    """An agent that looks at a screen after each step and keeps all pictures; a title now and then."""
    agent, chance = Talk(day, "screens", prose(3451, 1000)), random.Random(606)
    for step in range(8):
        agent.messages.append(shown(picture(3460 + step), agent.text(chance.randrange(150, 500))))
        agent.send(chance.randrange(8, 40))
        if step % 4 == 0:
            title(day, f"title{step}", prose(3470 + step, 150))


def camera_events(day: Recorder, faulty: bool) -> None:
    """A camera whose pictures are described one by one, by one instruction of 900 tokens, beside a chat."""
    chat, chance = Talk(day, "chat", prose(3481, 1100)), random.Random(607)
    for number in range(12):
        event = shown(picture(3490 + number), f"Camera {chance.randrange(4)}: {prose(3510 + number, 60)}")
        day.chat(f"event{number}", "camera", [system(prose(3482, 900)), event], 25)
        if number % 4 == 1:
            chat.ask(chance.randrange(80, 300))


def slot_files(day: Recorder, faulty: bool) -> None:
    """A long chat that is saved to a file before others use the only slot, and restored after them; no RAM cache."""
    chat, chance = Talk(day, "chat", prose(3521, 2200)), random.Random(608)
    for turn in range(5):
        chat.ask(chance.randrange(150, 450), tokens=20)
        chat.ask(chance.randrange(60, 200), tokens=20)
        day.slot("save")
        for item in range(chance.choice((1, 2))):
            day.chat(
                f"mail{turn}.{item}", "mail", [user(prose(8400 + 10 * turn + item, chance.randrange(400, 1200)))], 10
            )
        day.slot("restore")


def night_restart(day: Recorder, faulty: bool) -> None:
    """A help desk whose server is started again every night: no chat goes on in the morning."""
    chance = random.Random(609)
    for night in range(3):
        if night:
            day.restart()
        for number in range(3):
            talk = Talk(day, f"day{night}.{number}", prose(3531, 1500), "desk")
            for _ in range(chance.choice((1, 2, 3))):
                talk.ask(chance.randrange(80, 400), tokens=20)


def slept_between(day: Recorder, faulty: bool) -> None:
    """Letters that come in bunches, each answered once, on a server that sleeps between them."""
    chance = random.Random(610)
    for bunch in range(4):
        time.sleep(2.2 if bunch else 0)
        for number in range(3):
            letter = [user(prose(3541 + 10 * bunch + number, chance.randrange(700, 1900)))]
            day.chat(f"letter{bunch}.{number}", "letters", letter, 30)


def tiny_ram_enough_slots(day: Recorder, faulty: bool) -> None:
    """Three chats and an agent on four slots; the RAM cache would hold one prompt, and nobody needs it."""
    talks = [Talk(day, f"chat{i + 1}", prose(3551 + i, 1500 + 280 * i)) for i in range(3)]
    talks.append(Talk(day, "agent", prose(3555, 900), tools=tools(2, 12)))
    at_random(talks, 14, seed=611, length=230)


def never_goes_back(day: Recorder, faulty: bool) -> None:
    """An agent and a chat that only add to their prompts, on a server without checkpoints, which they do not need."""
    agent, chat = Talk(day, "agent", prose(3561, 1100), tools=tools(2, 13)), Talk(day, "chat", prose(3562, 1400))
    chance = random.Random(612)
    agent.ask(200)
    for step in range(10):
        agent.step(chance.randrange(120, 500))
        if step % 3 == 0:
            chat.ask(chance.randrange(80, 350), tokens=30)


def typed_in_editor(day: Recorder, faulty: bool) -> None:
    """An editor that writes its own marks around the code and asks ``/v1/completions``; what follows the cursor moves
    on with it."""
    chance, lines = random.Random(613), [prose(3571 + i, 70) for i in range(30)]
    at = 14
    for number in range(14):
        lines[at] += " " + prose(3610 + number, chance.randrange(15, 50))
        code = "<|fim_prefix|>{}<|fim_suffix|>{}<|fim_middle|>".format(
            "\n".join(lines[: at + 1]), "\n".join(lines[at + 1 :])
        )
        body = {"prompt": code, "max_tokens": 8, "temperature": 0}
        day.post(COMPLETIONS, "file", "editor", body)
        at += chance.choice((0, 1, 1))


def prompt_tuned(day: Recorder, faulty: bool) -> None:
    """Somebody who improves the system prompt of a program and asks the same five questions after each change."""
    chance = random.Random(614)
    rules = [prose(3621 + i, 150) for i in range(7)]
    questions = [prose(3630 + i, chance.randrange(90, 300)) for i in range(5)]
    for version in range(5):
        rules[version] = prose(3640 + version, chance.randrange(120, 260))
        for number, question in enumerate(questions):
            day.chat(f"v{version}.{number}", "trial", [system("\n".join(rules)), user(question)], 20)


def forked_helpers(day: Recorder, faulty: bool) -> None:
    """An agent that hands its whole history to two helpers, one after another; each adds two steps, then it goes on."""
    main, chance = Talk(day, "main", prose(3651, 1300), "agent", tools=tools(2, 14)), random.Random(615)
    main.ask(300)
    for part in range(3):
        main.step(chance.randrange(200, 500))
        for number in range(2):
            helper = Talk(day, f"helper{part}.{number}", main.head, "agent", tools=main.fields["tools"])
            helper.messages = [dict(message) for message in main.messages]
            helper.ask(chance.randrange(100, 300))
            helper.step(chance.randrange(100, 300))


def sentences_trimmed(day: Recorder, faulty: bool) -> None:
    """A role play whose program cuts each reply after its last whole sentence: the last few words are not kept."""
    play, chance = Talk(day, "play", prose(3661, 1600)), random.Random(616)
    for _ in range(11):
        reply = play.ask(chance.randrange(60, 350), tokens=chance.randrange(60, 120))
        play.messages[-1]["content"] = reply[: -chance.randrange(5, 25)]


def reviews_by_size(day: Recorder, faulty: bool) -> None:
    """Sixteen changes of a program that are reviewed once each behind guidelines of 1,400 tokens, smallest first."""
    chance = random.Random(617)
    sizes = sorted(chance.randrange(150, 2600) for _ in range(16))
    for number, size in enumerate(sizes):
        change = [system(prose(3671, 1400)), user(f"diff {number}\n{prose(3680 + number, size)}")]
        day.chat(f"change{number}", "review", change, 40)


def drafted(day: Recorder, faulty: bool) -> None:
    """Two chats and a job on a server with a draft model, which prints lines of its own."""
    chance = random.Random(618)
    talks = [Talk(day, f"chat{i + 1}", prose(3701 + i, 1200 + 200 * i)) for i in range(2)]
    for turn in range(10):
        chance.choice(talks).ask(chance.randrange(90, 400), tokens=40)
        if turn % 4 == 2:
            title(day, f"title{turn}", prose(3710 + turn, 220))


def full_window(day: Recorder, faulty: bool) -> None:
    """A person who goes back two questions and asks otherwise, on a sliding window that is kept whole."""
    chat, chance = Talk(day, "chat", prose(3721, 1500)), random.Random(619)
    for turn in range(11):
        if turn in (4, 7, 9):
            del chat.messages[-4:]
        chat.ask(chance.randrange(150, 500), tokens=25)


def context_full(day: Recorder, faulty: bool) -> None:
    """Three chats one after another; the last reply of each is cut as the context is full, and the next chat begins
    with a summary."""
    chance = random.Random(620)
    for number in range(3):
        chat = Talk(day, f"chat{number}", f"{prose(3731, 800)}\nSummary: {prose(3732 + number, 300)}")
        while sum(len(message["content"]) for message in chat.prompt()) < 3000:
            chat.ask(chance.randrange(200, 400), tokens=40)
        chat.ask(300, tokens=1500)


def status_polled(day: Recorder, faulty: bool) -> None:
    """Two chats of a program that counts tokens and looks at the slots before each request."""
    chance = random.Random(621)
    talks = [Talk(day, f"chat{i + 1}", prose(3741 + i, 1200 + 200 * i), "webui") for i in range(2)]
    for _ in range(10):
        talk = chance.choice(talks)
        day.server.post("/tokenize", {"content": talk.head})
        day.server.post("/apply-template", {"messages": talk.prompt()})
        talk.ask(chance.randrange(80, 400), tokens=25)


def two_programs(day: Recorder, faulty: bool) -> None:
    """Two agents on one slot that have the same tools in another order each, always the same one."""
    every, chance = tools(4, 15), random.Random(622)
    first = Talk(day, "first", prose(3751, 700), tools=every)
    second = Talk(day, "second", prose(3752, 900), tools=[every[2], every[0], every[3], every[1]])
    for agent in (first, second):
        agent.ask(250)
    for _ in range(9):
        chance.choice((first, second)).step(chance.randrange(120, 450))


def three_answers(day: Recorder, faulty: bool) -> None:
    """A chat whose program asks for three answers to each question and keeps the first one."""
    chat, chance = Talk(day, "chat", prose(3761, 1400)), random.Random(623)
    for _ in range(7):
        chat.ask(chance.randrange(80, 400), tokens=20, n=3)
