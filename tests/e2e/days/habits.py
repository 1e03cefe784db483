"""What people and programs do beside plain chats: habits of clients that change old text, and work that comes in turns.

As ``traffic.py``: a function takes a Recorder and whether the client has its fault.
"""

from __future__ import annotations

import random

from e2e.client import Message, prose, system, user
from e2e.days.recorder import Recorder
from e2e.days.talk import Talk, in_turn, tools

# ---- the server loses


def intents_first(day: Recorder, faulty: bool) -> None:
    """A voice assistant: each sentence is sorted by a prompt of its own, then answered in the long chat."""
    chat, sorter = Talk(day, "chat", prose(1, 1900), "assistant"), prose(2, 620)
    for step in range(7):
        day.chat(f"intent{step}", "assistant", [system(sorter), user(prose(400 + step, 60))])
        chat.ask(180)


def five_agents(day: Recorder, faulty: bool) -> None:
    """Five agents with heads of their own; who takes the next step, and how long its result is, is chance."""
    chance = random.Random(12)
    agents = [
        Talk(day, f"agent{i + 1}", prose(20 + i, chance.randrange(400, 1200)), tools=tools(2, i)) for i in range(5)
    ]
    for agent in agents:
        agent.ask(150)
    for _ in range(4):
        for agent in chance.sample(agents, 5):
            agent.step(chance.randrange(60, 700))


def earlier_edited(day: Recorder, faulty: bool) -> None:
    """A person who goes back two questions, writes that one again, and continues from there, four times."""
    talk = Talk(day, "chat", prose(1, 1600))
    for _ in range(3):
        talk.ask(330)
    for _ in range(4):
        del talk.messages[-4:]
        talk.ask(340)
        talk.ask(300)


def restarted_twice(day: Recorder, faulty: bool) -> None:
    """Two chats on a server that is started again by its supervisor, two times."""
    talks = [Talk(day, f"user{i + 1}", prose(60 + i, 1700 + 150 * i)) for i in range(2)]
    for step in range(3):
        if step and faulty:
            day.restart()
        in_turn(talks, 2)


def support_queue(day: Recorder, faulty: bool) -> None:
    """Nine short chats of a help desk with one system prompt, up to three of them open at a time; fixed, each names its
    slot."""
    talks = [
        Talk(day, f"ticket{i + 1}", prose(1, 1500), "helpdesk", **({} if faulty else {"id_slot": i % 4}))
        for i in range(9)
    ]
    for at in range(len(talks) + 2):
        for talk in talks[max(0, at - 2) : at + 1]:
            talk.ask(190)


# ---- the client loses


def status_late(day: Recorder, faulty: bool) -> None:
    """A home assistant whose system prompt ends with the state of the house, new in each request; a chat beside it."""
    ours, other = Talk(day, "home", "", "assistant"), Talk(day, "healthy", prose(2, 1300), "agent")
    for step in range(7):
        now = step if faulty else 0
        ours.head = (
            f"{prose(1, 1100)}\n\nHall: {19 + now}.{now} C, battery {97 - 3 * now} %, door closed 1{now} min ago."
        )
        ours.ask(280)
        other.ask(150)


def reminder_moves(day: Recorder, faulty: bool) -> None:
    """An agent whose list of things to do stands at the newest user message, and is taken out of the one before."""
    agent, other = Talk(day, "agent", prose(1, 900), tools=tools(2)), Talk(day, "chat", prose(2, 1300))
    for step in range(7):
        todo = f"\n<system-reminder>To do: {prose(850, 420)}</system-reminder>"
        agent.messages.append(user(agent.text(260) + (todo if faulty or not step else "")))
        agent.send()
        if faulty:
            agent.messages[-2]["content"] = agent.messages[-2]["content"].replace(todo, "")
        agent.step(320)
        other.ask(120)


def memory_grows(day: Recorder, faulty: bool) -> None:
    """A companion that writes a sentence about the user into its system prompt after each turn."""
    talk, notes = Talk(day, "companion", ""), ""
    for step in range(8):
        talk.head = f"{prose(1, 1200)}\n\nWhat you know of the user:\n{notes}"
        talk.ask(260)
        if faulty:
            notes += f"- {prose(440 + step, 70)}\n"


def personas(day: Recorder, faulty: bool) -> None:
    """One chat, answered in turn by two personas whose system prompts differ from their first sentence on."""
    talk, heads = (
        Talk(day, "group", ""),
        [f"You are {name}. {prose(70 + i, 700)}" for i, name in enumerate(("Ada", "Bo"))],
    )
    for step in range(8):
        talk.head = heads[step % 2 if faulty else 0]
        talk.ask(240)


def request_ids(day: Recorder, faulty: bool) -> None:
    """Two workers of a gateway that writes the number of the request into the first line; a chat beside them."""
    workers = [Talk(day, f"worker{i + 1}", "", "gateway") for i in range(2)]
    other, chance = Talk(day, "chat", prose(2, 1400)), random.Random(9)
    for _ in range(5):
        for i, worker in enumerate(workers):
            number = f"{chance.randrange(1 << 48):012x}" if faulty else "0" * 12
            worker.head = f"request-id: {number}\n{prose(80 + i, 1200 + 160 * i)}"
            worker.ask(200)
        other.ask(150)


def arguments_rewritten(day: Recorder, faulty: bool) -> None:
    """An agent whose client reads old calls of tools as JSON and writes them again with sorted keys."""
    agent, other = Talk(day, "agent", prose(1, 900), tools=tools(3)), Talk(day, "chat", prose(2, 1300))
    agent.ask(200)
    for step in range(8):
        agent.turn += 1
        call, path = f"call{agent.turn:05d}", f"src/part{agent.turn}.py"
        arguments = f'{{"path": "{path}", "limit": {100 + step}}}'
        function = {"name": "read_file", "arguments": arguments}
        agent.messages[-1]["tool_calls"] = [{"id": call, "type": "function", "function": function}]
        agent.messages.append({"role": "tool", "content": prose(300 + step, 420), "tool_call_id": call})
        agent.send()
        if faulty:
            function["arguments"] = f'{{"limit": {100 + step}, "path": "{path}"}}'
        if step % 2:
            other.ask(150)


def replies_shortened(day: Recorder, faulty: bool) -> None:
    """A client that keeps only the first part of each long reply once it was shown; one chat."""
    talk = Talk(day, "chat", prose(1, 1000))
    for _ in range(7):
        talk.ask(250, tokens=260)
        if faulty:
            talk.messages[-1]["content"] = talk.messages[-1]["content"][:40] + " ..."


def stamped_tool(day: Recorder, faulty: bool) -> None:
    """An agent one of whose tools names the hour of the day in its description; a chat beside it."""
    agent, other = Talk(day, "agent", prose(1, 900), tools=tools(3)), Talk(day, "chat", prose(2, 1400))
    plain = agent.fields["tools"][1]["function"]["description"]
    for step in range(7):
        now = f"2026-11-20T1{step}:3{step}:07Z" if faulty else "2026-11-20T10:30:07Z"
        agent.fields["tools"][1]["function"]["description"] = f"{plain} Valid at {now}."
        agent.ask(200)
        agent.step(220)
        other.ask(150)


def not_cached_alone(day: Recorder, faulty: bool) -> None:
    """A single agent whose library sends ``cache_prompt: false``."""
    agent = Talk(day, "agent", prose(1, 1100), tools=tools(2), **({"cache_prompt": False} if faulty else {}))
    agent.work(8, 260)


# ---- nothing to fix


def night_batch(day: Recorder, faulty: bool) -> None:
    """A chat, and between its turns a job that summarises long documents; prompts are kept in main memory."""
    talk = Talk(day, "chat", prose(1, 1700))
    for step in range(5):
        talk.ask(220)
        for item in range(2):
            day.chat(f"page{step}.{item}", "batch", [user(f"Summarise. {prose(4000 + 10 * step + item, 2600)}")])


def suites(day: Recorder, faulty: bool) -> None:
    """A suite of tests: three system prompts in turn, every question once."""
    heads = [prose(90 + i, 1100 + 130 * i) for i in range(3)]
    for number in range(24):
        ask: list[Message] = [system(heads[number % 3]), user(prose(4100 + number, 260))]
        day.chat(f"case{number}", "suite", ask)


def long_replies(day: Recorder, faulty: bool) -> None:
    """Two people who let long texts be written."""
    in_turn_long = [Talk(day, f"writer{i + 1}", prose(30 + i, 800)) for i in range(2)]
    for _ in range(5):
        for talk in in_turn_long:
            talk.ask(160, tokens=300)
