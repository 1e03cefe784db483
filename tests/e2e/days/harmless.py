"""Days on which nothing is to be fixed, though their logs or bodies look as if: new numbers, repeats, refusals.

As ``traffic.py``: a function takes a Recorder and whether the client has its fault.
"""

from __future__ import annotations

import random

from e2e.client import prose, system, tool, user
from e2e.days.recorder import CHAT, Recorder
from e2e.days.talk import Talk, tools


def call_ids_new(day: Recorder, faulty: bool) -> None:
    """An agent whose client numbers all calls again in each request; the template does not show the numbers."""
    agent, chance = Talk(day, "agent", prose(4401, 1100), tools=tools(2, 22)), random.Random(801)
    agent.ask(200)
    for _ in range(11):
        for message in agent.messages:
            number = f"call{chance.getrandbits(32):08x}"
            if message["role"] == "tool":
                message["tool_call_id"] = number
            for call in message.get("tool_calls", []):
                call["id"] = number
        agent.step(chance.randrange(120, 500))


def partials_spoken(day: Recorder, faulty: bool) -> None:
    """A voice program that sends what was heard so far every few words, for one token, and then the whole question."""
    chat, chance = Talk(day, "voice", prose(4411, 1300)), random.Random(802)
    for turn in range(5):
        spoken, end = prose(4420 + turn, 260), 0
        for _ in range(chance.choice((1, 2, 3))):
            end += chance.randrange(30, 80)
            day.chat("voice", "voice", [*chat.prompt(), user(spoken[:end])], 1)
        chat.messages.append(user(spoken))
        chat.send(25)


def asks_with_time(day: Recorder, faulty: bool) -> None:
    """Fourteen single questions behind rules of 1,500 tokens; each question begins with the time."""
    chance = random.Random(803)
    for number in range(14):
        question = (
            f"It is 11:{20 + 2 * number}:{chance.randrange(10, 60)}. {prose(4440 + number, 90 + 30 * (number % 7))}"
        )
        day.chat(f"question{number}", "desk", [system(prose(4431, 1500)), user(question)], 20)


def endpoints_mixed(day: Recorder, faulty: bool) -> None:
    """One chat that goes on over ``/v1/messages`` and ``/v1/chat/completions`` in no order, beside another one."""
    chance, said = random.Random(804), []
    head, other = prose(4461, 1400), Talk(day, "other", prose(4462, 1000))
    for turn in range(10):
        said.append(user(f"{turn}. {prose(4470 + turn, chance.randrange(100, 400))}"))
        if chance.random() < 0.5:
            reply = day.message("mixed", "mixed", head, said, 20)
        else:
            reply = day.chat("mixed", "mixed", [system(head), *said], 20)
        said.append({"role": "assistant", "content": reply})
        if turn % 3 == 1:
            other.ask(chance.randrange(80, 250))


def manual_translated(day: Recorder, faulty: bool) -> None:
    """Five chapters that are translated with one glossary, each in a chat of its own with two to four parts."""
    chance = random.Random(806)
    for number in range(5):
        chapter = Talk(day, f"chapter{number}", prose(4491, 950), "manual")
        for _ in range(chance.choice((2, 3, 4))):
            length = chance.randrange(200, 700)
            chapter.ask(length, tokens=length // 8)


def three_passes(day: Recorder, faulty: bool) -> None:
    """Five short questions behind 1,300 tokens of examples, asked in three passes to see how answers differ."""
    for _ in range(3):
        for number in range(5):
            said = [system(prose(4501, 1300)), user(prose(4510 + number, 28 + 3 * number))]
            day.chat(f"question{number}", "trial", said, 30)


def overlapping_chunks(day: Recorder, faulty: bool) -> None:
    """A book in pieces of 1,200 tokens, each beginning with the last 300 of the piece before, behind instructions."""
    book = prose(4521, 14 * 900 + 300)
    for number in range(14):
        piece = book[900 * number : 900 * number + 1200]
        day.chat(f"piece{number}", "book", [system(prose(4522, 420)), user(piece)], 25)


def ab_prompts(day: Recorder, faulty: bool) -> None:
    """A program that tries two system prompts: each new chat of one to three turns gets one of them by chance."""
    chance = random.Random(807)
    heads = [prose(4531, 1100), prose(4532, 1350)]
    for number in range(8):
        chat = Talk(day, f"chat{number}", chance.choice(heads), "trial")
        for _ in range(chance.choice((1, 2, 3))):
            chat.ask(chance.randrange(80, 350), tokens=20)


def abandoned_drafts(day: Recorder, faulty: bool) -> None:
    """A person who sends a question, stops it before the answer, changes its end and sends it again."""
    chat, chance = Talk(day, "chat", prose(4541, 1500)), random.Random(808)
    for turn in range(7):
        question = chat.text(chance.randrange(200, 500))
        if turn % 2:
            day.cut("chat", "chat", [*chat.prompt(), user(question)], 0)
            question = f"{question[:-40]} {prose(4550 + turn, 70)}"
        chat.messages.append(user(question))
        chat.send(30)


def overflow_once(day: Recorder, faulty: bool) -> None:
    """Four documents; one that is too long is refused, shortened and sent again, and two questions follow each."""
    chance = random.Random(809)
    for number, length in enumerate((2600, 4300, 2100, 5200)):
        reader = Talk(day, f"document{number}", prose(4561, 400), "reader")
        for share in (length, 2900):
            said = [system(reader.head), user(prose(4570 + number, share))]
            if day.post(CHAT, reader.name, "reader", {"messages": said, "max_tokens": 20}).status == 200:
                break
        reader.messages = [
            said[1],
            {"role": "assistant", "content": day.sent[-1].answer["choices"][0]["message"]["content"]},
        ]
        for _ in range(2):
            reader.ask(chance.randrange(50, 150), tokens=20)


def schemas_vary(day: Recorder, faulty: bool) -> None:
    """A chat of a program that asks for another JSON schema with each question; the prompt does not show it."""
    chat, chance = Talk(day, "forms", prose(4581, 1400)), random.Random(810)
    for turn in range(9):
        names = [f"field{turn}{i}" for i in range(1 + turn % 3)]
        schema = {"type": "object", "properties": {name: {"type": "integer"} for name in names}, "required": names}
        form = {"type": "json_schema", "json_schema": {"name": "form", "schema": schema}}
        chat.ask(chance.randrange(100, 350), tokens=40, response_format=form)


def asked_thrice(day: Recorder, faulty: bool) -> None:
    """A program that sends each question three times, one after another, and keeps the last answer."""
    chat, chance = Talk(day, "chat", prose(4591, 1200)), random.Random(811)
    for _ in range(5):
        chat.messages.append(user(chat.text(chance.randrange(150, 450))))
        for _ in range(2):
            day.chat("chat", "chat", chat.prompt(), 20)
        chat.send(20)


def languages_each(day: Recorder, faulty: bool) -> None:
    """Messages in four languages, each answered once behind the rules in its language, in no order."""
    chance = random.Random(812)
    rules = [prose(4661 + i, 800 + 150 * i) for i in range(4)]
    for number in range(16):
        letter = prose(4670 + number, chance.randrange(80, 500))
        day.chat(f"letter{number}", "letters", [system(chance.choice(rules)), user(letter)], 30)


def same_error(day: Recorder, faulty: bool) -> None:
    """An agent that runs into the same error again and again: most results have the same text."""
    agent, chance = Talk(day, "agent", prose(4691, 1100), tools=tools(2, 24)), random.Random(813)
    agent.ask(200)
    for number in range(12):
        if number < 3:
            agent.step(chance.randrange(100, 300))
            continue
        call = {"name": "run_command", "arguments": '{"command": "make"}'}
        agent.messages[-1]["tool_calls"] = [{"id": f"c{number}", "type": "function", "function": call}]
        agent.messages.append(tool(f"Error: {prose(4692, 260)}") | {"tool_call_id": f"c{number}"})
        agent.send(12)


def sizes_falling(day: Recorder, faulty: bool) -> None:
    """Fifteen mails that are sorted into folders behind 900 tokens of rules, the longest first."""
    chance = random.Random(814)
    for number, size in enumerate(sorted((chance.randrange(100, 2400) for _ in range(15)), reverse=True)):
        day.chat(f"mail{number}", "mails", [system(prose(4711, 900)), user(prose(4720 + number, size))], 12)
