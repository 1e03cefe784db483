"""What several clients of one server do on a day, by situation.

A function takes a Recorder and whether the client has its fault; where the fault is the server's, that changes nothing.
Prompts have 1,000 to 3,000 tokens: a character is one.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable

from e2e.client import Message, prose, system, user
from e2e.days.recorder import EMBEDDINGS, INFILL, Recorder
from e2e.days.talk import Talk, at_random, in_turn, tools

Traffic = Callable[[Recorder, bool], None]

HEAD = 1300
"""Tokens of a system prompt."""


def _talks(day: Recorder, count: int, length: int = HEAD) -> list[Talk]:
    """Conversations of several people, each with a system prompt of its own length."""
    return [Talk(day, f"user{i + 1}", prose(100 + i, length + 90 * i)) for i in range(count)]


def six_in_turn(day: Recorder, faulty: bool) -> None:
    """Six append-only conversations, one request of each in turn."""
    in_turn(_talks(day, 6), 5)


def eight_users(day: Recorder, faulty: bool) -> None:
    """Eight people, one long-lived chat each; who writes next is chance."""
    at_random(_talks(day, 8), 24, seed=8)


def three_users(day: Recorder, faulty: bool) -> None:
    """Three people, one long-lived chat each; who writes next is chance."""
    at_random(_talks(day, 3), 15, seed=3)


def with_pauses(day: Recorder, faulty: bool) -> None:
    """Two chats; the people pause for three seconds between rounds."""
    talks = _talks(day, 2, 1800)
    for step in range(4):
        time.sleep(3.0 if step else 0)
        in_turn(talks, 1)


def infill_between(day: Recorder, faulty: bool) -> None:
    """A chat, and between its turns an editor asks for completions in a file."""
    talk = Talk(day, "chat", prose(1, 1800))
    for step in range(6):
        talk.ask()
        before, after = prose(700 + step, 600), prose(800 + step, 500)
        body = {"input_prefix": before, "input_suffix": after, "n_predict": 6, "temperature": 0}
        day.post(INFILL, f"file{step}", "editor", body)


def embeddings_between(day: Recorder, faulty: bool) -> None:
    """A chat, and between its turns a search index asks for embeddings."""
    talk = Talk(day, "chat", prose(1, 1800))
    for step in range(6):
        talk.ask()
        day.post(EMBEDDINGS, f"passage{step}", "index", {"input": prose(750 + step, 450)})


def _beside(day: Recorder, head: Callable[[int], str], rounds: int = 6) -> None:
    """A client whose head is new in each request, and a healthy one, in turn."""
    ours, other = Talk(day, "clock", "", "assistant"), Talk(day, "healthy", prose(2, 1500), "agent")
    body = prose(1, HEAD)
    for step in range(rounds):
        ours.head = head(step) + body
        ours.ask()
        other.ask()


def clock_beside(day: Recorder, faulty: bool) -> None:
    """One client puts the time at the head of its prompt; another is healthy."""
    _beside(day, lambda step: f"Current date and time: 2026-11-20 14:0{step * faulty}:1{step * faulty} UTC\n\n")


def billing_beside(day: Recorder, faulty: bool) -> None:
    """One client begins with a billing header that changes; another is healthy."""
    marks = ("82c9b", "b791f", "0d3e6", "5fa10", "c7d21", "19be4")
    line = "x-anthropic-billing-header: cc_version=2.1.101.e51; cc_entrypoint=cli; cch={};\n"
    _beside(day, lambda step: line.format(marks[step * faulty]))


def clock_alone(day: Recorder, faulty: bool) -> None:
    """One chat with a clock at its head."""
    talk = Talk(day, "clock", "")
    for step in range(6):
        talk.head = f"Current date and time: 2026-11-20 14:0{step * faulty}:1{step * faulty} UTC\n\n" + prose(1, HEAD)
        talk.ask()


def clock_and_tools(day: Recorder, faulty: bool) -> None:
    """An agent with a clock in its system prompt whose tools come in another order each time, and a healthy chat."""
    agent, other = Talk(day, "agent", "", tools=tools(5)), Talk(day, "chat", prose(2, 1200))
    chance = random.Random(4)
    for step in range(6):
        agent.head = f"It is 2026-11-20T09:1{step * faulty}:0{step * faulty}Z.\n\n" + prose(1, 700)
        if faulty:
            chance.shuffle(agent.fields["tools"])
        agent.ask(200)
        agent.step(200)
        other.ask(200)


def tools_shuffled(day: Recorder, faulty: bool) -> None:
    """An agent whose tools come in another order each time, beside a healthy chat."""
    agent, other = Talk(day, "agent", prose(1, 900), tools=tools(5)), Talk(day, "chat", prose(2, 1500))
    chance = random.Random(5)
    for _ in range(6):
        if faulty:
            chance.shuffle(agent.fields["tools"])
        agent.ask()
        other.ask()


def mode_switch(day: Recorder, faulty: bool) -> None:
    """An agent that changes between planning and building, with other tools for each, beside a healthy chat."""
    agent, other = Talk(day, "agent", prose(1, 900), tools=tools(5)), Talk(day, "chat", prose(2, 1500))
    for step in range(6):
        if faulty:
            agent.fields["tools"] = tools(5)[: 5 if step % 2 else 3]
        agent.ask()
        other.ask()


def rolling_window(day: Recorder, faulty: bool) -> None:
    """A client that sends the system prompt and the last three exchanges only, beside a healthy chat."""
    ours, other = Talk(day, "window", prose(1, 1000), "assistant"), Talk(day, "healthy", prose(2, 1500), "agent")
    for _ in range(9):
        if faulty:
            del ours.messages[: max(0, len(ours.messages) - 6)]
        ours.ask(300)
        other.ask(100)


def rag_shuffled(day: Recorder, faulty: bool) -> None:
    """A chat about passages that come before the history and come in another order each time, beside a healthy one."""
    passages = [f"[{i}] {prose(600 + i, 320)}" for i in range(5)]
    ours, other = Talk(day, "library", "", "rag"), Talk(day, "healthy", prose(2, 1500), "agent")
    chance = random.Random(6)
    for _ in range(6):
        if faulty:
            chance.shuffle(passages)
        ours.head = prose(1, 400) + "\n\nPassages:\n" + "\n".join(passages)
        ours.ask(150)
        other.ask(150)


def not_cached(day: Recorder, faulty: bool) -> None:
    """One client sends ``cache_prompt: false``; another is healthy."""
    off = {"cache_prompt": False} if faulty else {}
    in_turn([Talk(day, "script", prose(1, 1800), **off), Talk(day, "chat", prose(2, 1500))], 6)


def pinned(day: Recorder, faulty: bool) -> None:
    """Two clients that both name slot 0, although there are more."""
    fields = [{"id_slot": 0}, {"id_slot": 0 if faulty else 1}]
    in_turn([Talk(day, f"worker{i}", prose(20 + i, 1500 + 200 * i), **fields[i]) for i in range(2)], 6)


def reasoning_dropped(day: Recorder, faulty: bool) -> None:
    """An agent that sends its reasoning back while tools are called; the template drops it at the next user message."""
    switch = {"preserve_thinking": False}  # newer builds keep the reasoning unless they are told not to
    agent = Talk(day, "agent", prose(1, 1200), chat_template_kwargs=switch)
    other = Talk(day, "chat", prose(2, 1500))
    for turn in range(4):
        agent.ask(150)
        for step in range(2):
            if faulty:
                agent.messages[-1]["reasoning_content"] = prose(40 + 10 * turn + step, 250)
            agent.step(350)
        other.ask(150)


def regenerated(day: Recorder, faulty: bool) -> None:
    """A person who writes the last question again, twice a turn, before going on."""
    talk = Talk(day, "chat", prose(1, 1800))
    for _ in range(4):
        talk.ask(400)
        for _ in range(2):
            del talk.messages[-2:]
            talk.ask(400)


def middle_edited(day: Recorder, faulty: bool) -> None:
    """A client that rewrites an early message, a memory of the user, before each turn; a healthy one beside it."""
    ours, other = Talk(day, "memory", prose(1, 1000), "assistant"), Talk(day, "healthy", prose(2, 1500), "agent")
    for step in range(6):
        if faulty and step:
            ours.messages[0] = user(f"Notes, revision {step}: {prose(30 + step, 300)}")
        ours.ask(350)
        other.ask(150)


def results_pruned(day: Recorder, faulty: bool) -> None:
    """Two agents with one system prompt whose client replaces all results of tools but the last two."""
    agents = [Talk(day, f"agent{i + 1}", prose(1, HEAD), "agent") for i in range(2)]
    for agent in agents:
        agent.ask(150)
    for _ in range(8):
        for agent in agents:
            agent.step(350)
            results = [message for message in agent.messages if message["role"] == "tool"]
            for message in results[:-2] if faulty else []:
                message["content"] = "[old result removed]"


def agents_and_chat(day: Recorder, faulty: bool) -> None:
    """Two agents that call tools and a chat, in turn."""
    agents = [Talk(day, f"agent{i + 1}", prose(10 + i, 700 + 150 * i), tools=tools(3, i)) for i in range(2)]
    chat = Talk(day, "chat", prose(3, 900))
    for agent in agents:
        agent.ask(200)
    chat.ask()
    for _ in range(4):
        for agent in agents:
            agent.step(200)
        chat.ask(150)
        agents[0].step(150)


def sub_agents(day: Recorder, faulty: bool) -> None:
    """An agent that hands tasks to sub-agents with a system prompt of their own, and continues when they are done."""
    main = Talk(day, "main", prose(1, 1200), "agent", tools=tools(3))
    main.work(1)
    for number in range(3):
        sub = Talk(day, f"sub{number + 1}", prose(2, 900), "agent")
        sub.work(2, 250)
        main.step(250)
    main.ask()


def title_requests(day: Recorder, faulty: bool) -> None:
    """Two chats whose program asks for a title or for tags after each turn, with another short prompt."""
    talks = [Talk(day, f"chat{i + 1}", prose(10 + i, 1700 + 200 * i), "webui") for i in range(2)]
    for step in range(4):
        for i, talk in enumerate(talks):
            talk.ask(200)
            ask = f"Write a title of at most six words for this. {prose(300 + 10 * i + step, 90)}"
            day.chat(f"title{i}.{step}", "webui", [system("You write short titles."), user(ask)])


def batch_beside(day: Recorder, faulty: bool) -> None:
    """An agent that calls tools, and a batch job of unrelated one-shot prompts on the same server."""
    agent = Talk(day, "agent", prose(1, 1200), tools=tools(3))
    agent.ask(200)
    for step in range(6):
        for item in range(3):
            text = f"Sort into one of five groups. {prose(5000 + 10 * step + item, 1100)}"
            day.chat(f"item{step}.{item}", "batch", [user(text)])
        agent.step(200)


def one_shots(day: Recorder, faulty: bool) -> None:
    """Forty unrelated prompts; nothing is shared but the frame."""
    chance = random.Random(7)
    for number in range(40):
        day.chat(f"item{number}", "batch", [user(prose(7000 + number, chance.randrange(700, 1400)))])


def new_chats(day: Recorder, faulty: bool) -> None:
    """Twelve short chats one after another, all with the same system prompt."""
    for number in range(12):
        talk = Talk(day, f"chat{number + 1}", prose(1, 1600), "helpdesk")
        in_turn([talk], 2, 200)


def same_question(day: Recorder, faulty: bool) -> None:
    """Twenty-four one-shot questions after one long system prompt."""
    for number in range(24):
        day.chat(f"q{number}", "classifier", [system(prose(1, 1800)), user(prose(7100 + number, 200))])


def short_instruction(day: Recorder, faulty: bool) -> None:
    """Sixteen one-shot documents behind a short system prompt, of lengths by chance."""
    chance = random.Random(7)
    for number in range(16):
        text = prose(7300 + number, chance.randrange(1400, 2600))
        day.chat(f"doc{number}", "reader", [system(prose(1, 120)), user(text)])


def compaction(day: Recorder, faulty: bool) -> None:
    """A long chat that is replaced by a summary once, and continues; another chat beside it."""
    talk, other = Talk(day, "agent", prose(1, 1000)), Talk(day, "chat", prose(2, 1300))
    for step in range(12):
        if step == 7:
            summary = f"Summary of what was done so far: {prose(77, 500)}"
            talk.messages = [user(summary), {"role": "assistant", "content": "Understood."}]
        talk.ask(280)
        if step % 3 == 0:
            other.ask(200)


def cancellations(day: Recorder, faulty: bool) -> None:
    """Two chats; replies are stopped early and once a prompt is given up, and the chats continue from there."""
    talks = _talks(day, 2, 1600)
    in_turn(talks, 2)
    for step in range(4):
        talk = talks[step % 2]
        talk.messages.append(user(talk.text(250)))
        heard = day.cut(talk.name, talk.client, talk.prompt(), 0 if step == 3 else 4, max_tokens=400)
        if heard:
            talk.messages.append({"role": "assistant", "content": heard})
        else:
            talk.messages.pop()
        time.sleep(0.5)
        in_turn(talks, 1)


def restarted(day: Recorder, faulty: bool) -> None:
    """Three chats; the server is restarted in the middle of the day."""
    talks = _talks(day, 3, 1500)
    in_turn(talks, 3)
    if faulty:
        day.restart()
    in_turn(talks, 3)


def at_once(day: Recorder, faulty: bool) -> None:
    """Two agents and a chat that work at the same time."""
    talks = [Talk(day, f"agent{i + 1}", prose(10 + i, 900 + 150 * i), tools=tools(3, i)) for i in range(2)]
    chat = Talk(day, "chat", prose(3, 1200))
    day.together(*(lambda talk=talk: talk.work(4, 250) for talk in talks), lambda: in_turn([chat], 4))


def cold_burst(day: Recorder, faulty: bool) -> None:
    """Four requests with one long beginning, sent at once to empty slots; without the fault one after another."""
    head, works = prose(1, 2600), []
    for i in range(4):
        talk = Talk(day, f"worker{i + 1}", head, "pipeline")
        works.append(lambda talk=talk: in_turn([talk], 1, 180))
    if faulty:
        day.together(*works)
    else:
        for work in works:
            work()
    Talk(day, "worker5", head, "pipeline").ask(180)


def sibling(day: Recorder, faulty: bool) -> None:
    """Two conversations that share only the system prompt, and a third between them; fixed, each names its slot."""
    heads = {"long": prose(1, 1500), "other": prose(2, 1700), "short": prose(1, 1500)}
    long, other, short = (Talk(day, name, head) for name, head in heads.items())
    for slot, talk in enumerate((long, other, short)):
        talk.fields = {} if faulty else {"id_slot": slot}
    for _ in range(2):
        long.ask(1800 if not long.messages else 200)
        other.ask(300)
        long.ask(200)
        other.ask(200)
        short.ask(220)
        other.ask(200)
        long.ask(200)


def growing_documents(day: Recorder, faulty: bool) -> None:
    """Two people who ask several questions about a long document each."""
    texts = [Talk(day, f"reader{i + 1}", prose(50 + i, 2300 + 300 * i)) for i in range(2)]
    in_turn(texts, 6, 120)


def messages_of(talk: Talk) -> list[Message]:
    """Copy of what was said, for a branch."""
    return [dict(message) for message in talk.messages]


def branches(day: Recorder, faulty: bool) -> None:
    """A chat that is continued in two ways from the same point, in turn; fixed, each names its slot."""
    first = Talk(day, "trunk", prose(1, 1500), **({} if faulty else {"id_slot": 0}))
    in_turn([first], 3)
    second = Talk(day, "branch", first.head, **({} if faulty else {"id_slot": 1}))
    second.messages = messages_of(first)
    in_turn([first, second], 7, 200)
