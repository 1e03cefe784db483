"""What goes wrong on servers at home: adapters, images, bare completions, model swaps, options, two faults on one day.

As ``traffic.py``: a function takes a Recorder and whether the client has its fault.
"""

from __future__ import annotations

import base64
import itertools
import random
import struct
import time
import zlib

from e2e.client import Message, prose, system, user
from e2e.days.recorder import EMBEDDINGS, INFILL, Recorder
from e2e.days.talk import Talk, at_random, tools

SIDE = 56
"""Pixels of a picture: one tile of the projector."""


def picture(seed: int, noise: int = 0) -> Message:
    """An invented picture as a part of a message; ``noise`` changes it a little, as packing it again as JPEG does."""
    pixels = random.Random(seed)
    rows = [bytearray(pixels.randrange(64) for _ in range(3 * SIDE)) for _ in range(SIDE)]
    rows[0][0] = noise
    raw = b"".join(b"\0" + bytes(row) for row in rows)
    chunks = [(b"IHDR", struct.pack(">IIBBBBB", SIDE, SIDE, 8, 2, 0, 0, 0)), (b"IDAT", zlib.compress(raw))]
    data = b"\x89PNG\r\n\x1a\n"
    for name, body in [*chunks, (b"IEND", b"")]:
        data += struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))
    return {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{base64.b64encode(data).decode()}"}}


def shown(image: Message, text: str) -> Message:
    """A user message with a picture before its text."""
    return user("") | {"content": [image, {"type": "text", "text": text}]}


# ---- the server loses


def keepalive_pings(day: Recorder, faulty: bool) -> None:
    """A chat, and a watchdog that says a few words to the model after most turns to see whether it lives."""
    chat, chance = Talk(day, "chat", prose(3011, 1700)), random.Random(501)
    for turn in range(8):
        chat.ask(chance.randrange(60, 420), tokens=chance.randrange(5, 50))
        for ping in range(chance.choice((0, 1, 1, 3))):
            day.chat(f"ping{turn}.{ping}", "watchdog", [user(f"ping {'!' * chance.randrange(12)}")], 1)


def models_swapped(day: Recorder, faulty: bool) -> None:
    """Two chats, each with a model of its own that a proxy loads in place of the other one when it is asked."""
    chance, loaded = random.Random(502), 0
    talks = [Talk(day, f"chat{i + 1}", prose(3021 + i, 1500 + 350 * i)) for i in range(2)]
    for which in (0, 0, 1, 1, 1, 0, 0, 1, 0, 0, 0, 1):
        if faulty and which != loaded:
            day.restart("swa" if which else "")
            loaded = which
        talks[which].ask(chance.randrange(100, 450), tokens=20)


def uncached_by_option(day: Recorder, faulty: bool) -> None:
    """An agent and a chat in no order on a server that was started with ``--no-cache-prompt``."""
    agent, chat = Talk(day, "agent", prose(3031, 900), tools=tools(2, 4)), Talk(day, "chat", prose(3032, 1600))
    chance = random.Random(503)
    agent.ask(200)
    chat.ask(260)
    for _ in range(10):
        if chance.random() < 0.6:
            agent.step(chance.randrange(100, 500))
        else:
            chat.ask(chance.randrange(80, 300), tokens=25)


def erased_after_each(day: Recorder, faulty: bool) -> None:
    """A chat and an agent of a program that erases the slot after each answer, to leave nothing of it in memory."""
    chance = random.Random(504)
    talks = [Talk(day, "chat", prose(3041, 1400)), Talk(day, "agent", prose(3042, 1100), tools=tools(2, 5))]
    for turn in range(11):
        talks[turn % 3 == 1].ask(chance.randrange(90, 400), tokens=15)
        if faulty:
            for slot in range(2):
                day.slot("erase", slot)


def strict_similarity(day: Recorder, faulty: bool) -> None:
    """An agent with long results and a chat on three slots; only what is nearly the same counts as similar."""
    agent, chat = Talk(day, "agent", prose(3051, 700), tools=tools(2, 6)), Talk(day, "chat", prose(3052, 800))
    chance = random.Random(505)
    agent.ask(300)
    for step in range(9):
        agent.step(chance.randrange(500, 900))
        if step % 3 == 1:
            chat.ask(chance.randrange(300, 600), tokens=20)


def adapters_in_turn(day: Recorder, faulty: bool) -> None:
    """Two chats on one slot; one asks for half of the adapter, the other for none of it; repaired, both for none."""
    chance = random.Random(506)
    plain = Talk(day, "plain", prose(3061, 1500), lora=[{"id": 0, "scale": 0.0}])
    tuned = Talk(day, "tuned", prose(3062, 1250), lora=[{"id": 0, "scale": 0.5 if faulty else 0.0}])
    for _ in range(6):
        for talk in (plain, tuned):
            for _ in range(chance.choice((1, 2))):
                talk.ask(chance.randrange(90, 380), tokens=12)


def four_chats_one_dated(day: Recorder, faulty: bool) -> None:
    """Four people in no order on two slots without a RAM cache; the program of one of them writes the time first."""
    chance = random.Random(507)
    talks = [Talk(day, f"person{i + 1}", prose(3071 + i, 1300 + 260 * i)) for i in range(4)]
    for talk in talks:
        talk.ask(chance.randrange(80, 500))
    for number in range(16):
        talk = chance.choice(talks)
        if talk is talks[3] and faulty:
            talk.head = f"It is 09:{10 + number}:07. {prose(3074, 2000)}"
        talk.ask(chance.randrange(80, 500), tokens=15)


def crews_in_one_memory(day: Recorder, faulty: bool) -> None:
    """Four agents of different pace on slots that share one memory; their histories grow beyond it."""
    chance = random.Random(508)
    crew = [Talk(day, f"crew{i + 1}", prose(3081 + i, 600 + 170 * i), tools=tools(1 + i % 2, i)) for i in range(4)]
    for agent in crew:
        agent.ask(chance.randrange(100, 400))
    for _ in range(16):
        chance.choice(crew).step(chance.randrange(150, 420))


def evening_chats(day: Recorder, faulty: bool) -> None:
    """Five people with long chats at night, two or three questions each before another one comes back."""
    chance = random.Random(509)
    people = [Talk(day, f"guest{i + 1}", prose(3091 + i, 2300 + 310 * i)) for i in range(5)]
    order = [*range(5), *(chance.randrange(5) for _ in range(8))]
    for which in order:
        for _ in range(chance.choice((1, 1, 2))):
            people[which].ask(chance.randrange(70, 420), tokens=20)


def lunch_break(day: Recorder, faulty: bool) -> None:
    """An agent and two chats; everybody is away twice for two seconds, in which the server falls asleep."""
    chance = random.Random(510)
    talks = [Talk(day, f"desk{i + 1}", prose(3101 + i, 1200 + 200 * i)) for i in range(3)]
    for part in range(3):
        time.sleep(2.2 if part else 0)
        for talk in talks:
            talk.ask(chance.randrange(150, 500), tokens=20)
        for _ in range(3):
            chance.choice(talks).ask(chance.randrange(100, 300))


def tenants(day: Recorder, faulty: bool) -> None:
    """Three tenants of one help program, with 2,200 tokens of handbook in common and long talks of their own; fixed,
    each names its slot."""
    chance, head = random.Random(511), prose(3111, 2200)
    talks = [Talk(day, f"tenant{i + 1}", head, "handbook", **({} if faulty else {"id_slot": i})) for i in range(3)]
    for talk in talks:
        talk.ask(chance.randrange(500, 900), tokens=30)
    for _ in range(14):
        chance.choice(talks).ask(chance.randrange(60, 260), tokens=40)


def pinned_to_first(day: Recorder, faulty: bool) -> None:
    """Three chats of a gateway that names slot 0 in every request; fixed, each has a slot of its own."""
    chance = random.Random(512)
    talks = [Talk(day, f"room{i + 1}", prose(3121 + i, 1250 + 230 * i)) for i in range(3)]
    for i, talk in enumerate(talks):
        talk.fields["id_slot"] = 0 if faulty else i
        talk.ask(chance.randrange(150, 400))
    at_random(talks, 10, seed=512, length=210)


def autocomplete_beside(day: Recorder, faulty: bool) -> None:
    """A chat about code, and an editor that asks for completions of a file of 2,000 tokens while it is typed."""
    chat, chance = Talk(day, "chat", prose(3131, 1600)), random.Random(513)
    before, after = prose(3132, 1300), prose(3133, 700)
    for _ in range(7):
        chat.ask(chance.randrange(120, 400), tokens=30)
        for _ in range(chance.choice((1, 2, 2))):
            before += "\n" + prose(3134 + len(before), chance.randrange(30, 110))
            body = {"input_prefix": before, "input_suffix": after, "n_predict": 8, "temperature": 0}
            day.post(INFILL, "file", "editor", body)


def rewritten_scene(day: Recorder, faulty: bool) -> None:
    """A writer who has the last scene written again two or three times, and often changes the question before it."""
    book, chance = Talk(day, "book", prose(3141, 1800)), random.Random(514)
    for scene in range(6):
        book.ask(chance.randrange(300, 700), tokens=60)
        for _ in range(chance.choice((1, 2))):
            book.messages.pop()
            book.send(60)
        if scene % 2:
            del book.messages[-2:]
            book.ask(chance.randrange(300, 700), tokens=60)


# ---- the client loses


def screens_dropped(day: Recorder, faulty: bool) -> None:
    """An agent that looks at a screen; only the newest two pictures are sent, older ones become a line of text."""
    agent, chance = Talk(day, "screens", prose(3151, 900)), random.Random(515)
    for step in range(10):
        agent.messages.append(shown(picture(3160 + step), agent.text(chance.randrange(150, 450))))
        agent.send(chance.randrange(8, 40))
        seen = [message for message in agent.messages if isinstance(message["content"], list)]
        if faulty and len(seen) > 2:
            seen[0]["content"] = f"(picture removed)\n{seen[0]['content'][1]['text']}"


def photo_packed_again(day: Recorder, faulty: bool) -> None:
    """A chat about a photo that its program packs again for each request, with loss; another chat beside it."""
    chat, other, chance = (
        Talk(day, "photo", prose(3171, 600)),
        Talk(day, "other", prose(3172, 1300)),
        random.Random(516),
    )
    chat.messages.append(shown(picture(3173), chat.text(700)))
    chat.send(30)
    for turn in range(7):
        if faulty:
            chat.messages[0]["content"][0] = picture(3173, turn + 1)
        chat.ask(chance.randrange(150, 400), tokens=30)
        if turn % 3 == 1:
            other.ask(chance.randrange(100, 300))


def story_note(day: Recorder, faulty: bool) -> None:
    """A story program without chat: memory, text so far, and a note that always stands three paragraphs before the
    end."""
    chance, head, note = random.Random(517), prose(3181, 900), f"\n[{prose(3182, 260)}]"
    story = [prose(3190 + i, 260) for i in range(4)]
    for turn in range(11):
        told = [*story[:-3], note, *story[-3:]] if faulty else [note, *story]
        story.append(day.complete("story", "story", "\n".join([head, *told]), chance.randrange(20, 60)))
        story.append(prose(3200 + turn, chance.randrange(80, 380)))


def story_trimmed(day: Recorder, faulty: bool) -> None:
    """The same program with a budget of 2,900 tokens: what is oldest after the memory is left out."""
    chance, head = random.Random(518), prose(3221, 500)
    story, first = [prose(3230 + i, 300) for i in range(7)], 0
    for turn in range(14):
        while faulty and sum(map(len, story[first:])) > 2400:
            first += 1
        story.append(day.complete("story", "story", "\n".join([head, *story[first:]]), chance.randrange(30, 60)))
        story.append(prose(3250 + turn, chance.randrange(120, 420)))


def dated_agent_among_two(day: Recorder, faulty: bool) -> None:
    """An agent whose first line has the time to the second, and a short chat, two slots, no RAM cache."""
    agent, chat = Talk(day, "agent", ""), Talk(day, "chat", prose(3262, 700))
    chance = random.Random(519)
    for step in range(10):
        agent.head = f"Now: 2026-11-02T10:{10 + step * 4 * faulty}:{31 + step * faulty}Z\n{prose(3261, 1900)}"
        agent.ask(chance.randrange(90, 400), tokens=20)
        if step % 4 == 1:
            chat.ask(chance.randrange(100, 300))


def gateway_messages(day: Recorder, faulty: bool) -> None:
    """A coding agent over ``/v1/messages`` behind a gateway that writes a trace number first, and asks for titles."""
    chance, said = random.Random(520), []
    for turn in range(8):
        trace = f"trace-id: {zlib.crc32(b'%d' % (turn * faulty)):08x}\n"
        said.append(user(f"step {turn}. {prose(3271 + turn, chance.randrange(120, 480))}"))
        said.append(
            {"role": "assistant", "content": day.message("agent", "agent", trace + prose(3270, 1800), said, 20)}
        )
        if turn % 3 == 0:
            ask = [user(prose(3290 + turn, chance.randrange(60, 200)))]
            day.message(f"title{turn}", "agent", "Write a title of five words.", ask, 8)


def state_after_system(day: Recorder, faulty: bool) -> None:
    """An agent whose state, as JSON with the number of the step, is the first message of each request; a chat beside
    it."""
    agent, chat, chance = Talk(day, "agent", prose(3301, 800)), Talk(day, "chat", prose(3302, 900)), random.Random(521)
    agent.messages.append(user(""))
    for step in range(9):
        done = step * faulty
        state = f'{{"step": {done}, "budget": {90 - 7 * done}, "notes": "{prose(3303, 300)}"}}'
        agent.messages[0]["content"] = state
        agent.ask(chance.randrange(150, 450), tokens=15)
        if step % 4 == 2:
            chat.ask(chance.randrange(90, 250))


def modes_in_turn(day: Recorder, faulty: bool) -> None:
    """A coding agent with one history and two modes, each with a system prompt of its own: plan and write."""
    agent, chance = Talk(day, "agent", ""), random.Random(522)
    heads = [prose(3311 + i, 1100 + 240 * i) for i in range(2)]
    for step in range(13):
        agent.head = heads[(0, 1, 1, 1, 0, 0, 1, 1, 0, 1, 1, 1, 0)[step] * faulty]
        agent.ask(chance.randrange(120, 480), tokens=20)


def permissions_change(day: Recorder, faulty: bool) -> None:
    """An agent that has all tools or only those that read, as its user allows; a chat beside it, no RAM cache."""
    agent, chat, chance = Talk(day, "agent", prose(3321, 700)), Talk(day, "chat", prose(3322, 1000)), random.Random(523)
    every = tools(5, 11)
    for step in range(11):
        reading = faulty and step in (2, 3, 5, 8, 10)
        agent.fields["tools"] = [every[0], every[2], every[4]] if reading else every
        agent.ask(chance.randrange(100, 420), tokens=15)
        if step % 4 == 3:
            chat.ask(chance.randrange(100, 250))


def uncached_translator(day: Recorder, faulty: bool) -> None:
    """A translator who keeps what was translated in the prompt, with ``cache_prompt: false`` from an old example."""
    chance = random.Random(524)
    text = Talk(day, "text", prose(3331, 1300), **({"cache_prompt": False} if faulty else {}))
    for _ in range(9):
        text.ask(chance.randrange(200, 600), tokens=40)


def numbered_workers(day: Recorder, faulty: bool) -> None:
    """Two workers whose requests begin with a number of their own, three slots, no RAM cache."""
    chance, number = random.Random(525), itertools.count(48211, 7)
    talks = [Talk(day, f"worker{i + 1}", "") for i in range(2)]
    for _ in range(14):
        which = chance.randrange(2)
        mark = next(number) if faulty else 1
        talks[which].head = f"[req {mark}] {prose(3341 + which, 1300 + 400 * which)}"
        talks[which].ask(chance.randrange(80, 420), tokens=15)


def dated_job(day: Recorder, faulty: bool) -> None:
    """A job that asks a new question every quarter of an hour, with the time in front of a manual of 2,000 tokens."""
    chance = random.Random(526)
    for number in range(11):
        clock = f"Time: 2026-11-02 {7 + number // 4 * faulty}:{15 * (number % 4) * faulty:02}\n"
        question = [system(clock + prose(3351, 2000)), user(prose(3360 + number, chance.randrange(60, 400)))]
        day.chat(f"job{number}", "job", question, 15)


def customer_first(day: Recorder, faulty: bool) -> None:
    """Mails of customers that are answered once each: who writes, then rules of 1,700 tokens, then the mail; fixed,
    the rules come first."""
    chance = random.Random(527)
    for number in range(12):
        who, rules = prose(3381 + number, chance.randrange(60, 140)), prose(3380, 1700)
        head = f"Customer: {who}\n{rules}" if faulty else f"{rules}\nCustomer: {who}"
        day.chat(f"mail{number}", "mails", [system(head), user(prose(8700 + number, chance.randrange(100, 700)))], 30)


def questions_embedded(day: Recorder, faulty: bool) -> None:
    """Two chats about documents on two slots, whose program has each question embedded by the same server."""
    chance = random.Random(528)
    talks = [Talk(day, f"reader{i + 1}", prose(3401 + i, 1500 + 300 * i)) for i in range(2)]
    for turn in range(10):
        text = {"input": prose(8750 + turn, chance.randrange(30, 120))}
        day.post(EMBEDDINGS, f"question{turn}", "search", text)
        talks[turn % 2 if turn < 4 else chance.randrange(2)].ask(chance.randrange(90, 400), tokens=15)


def crowd(day: Recorder, faulty: bool) -> None:
    """Six people who write at the same time and wait for their turn at two slots."""
    talks = [Talk(day, f"face{i + 1}", prose(3411 + i, 1000 + 170 * i)) for i in range(6)]

    def chat(talk: Talk, chance: random.Random) -> None:
        for _ in range(4):
            talk.ask(chance.randrange(80, 400), tokens=20)
            time.sleep(chance.random() / 5)

    day.together(*(lambda talk=talk, i=i: chat(talk, random.Random(530 + i)) for i, talk in enumerate(talks)))


# ---- a question for a title, used by days with nothing to fix as well


def title(day: Recorder, name: str, text: str) -> None:
    """Ask for a title of a text."""
    day.chat(name, "titles", [system("Write a title."), user(text)], 6)
