"""What programs that many people run do: coding agents, chat programs with side requests, plugins, jobs.

As ``traffic.py``: a function takes a Recorder and whether the client has its fault.
"""

from __future__ import annotations

import random
import time

from e2e.client import prose, system, user
from e2e.days.recorder import Recorder
from e2e.days.talk import Talk, tools


def _said(chat: Talk) -> str:
    """The history as one text, as programs put it into a request for a title."""
    return "\n".join(f"{message['role'].upper()}: {message['content']}" for message in chat.messages)


def _aside(day: Recorder, chat: Talk, what: str) -> None:
    """Ask for something beside a chat: the whole chat in one message, after a task of its own."""
    text = f"### Task: write {what} for this chat.\n{prose(2001 + len(what), 240)}\n### Chat History:\n{_said(chat)}"
    day.chat(f"{what}.{chat.name}.{chat.turn}", chat.client, [user(text)], 12)


# ---- the server loses


def follow_ups_and_tags(day: Recorder, faulty: bool) -> None:
    """A chat after each of whose answers its program asks for questions that could follow, and at first for tags, on
    one slot."""
    chat, chance = Talk(day, "chat", prose(2011, 1500), "webui"), random.Random(401)
    for turn in range(7):
        chat.ask(chance.randrange(80, 450), tokens=chance.randrange(8, 60))
        for what in ("questions", "tags")[: 2 if turn < 2 else 1]:
            _aside(day, chat, what)


def pasted_logs(day: Recorder, faulty: bool) -> None:
    """Three people who paste 600 to 1,300 tokens of output with most questions, and come in no order, on two slots."""
    chance = random.Random(402)
    people = [Talk(day, f"admin{i + 1}", prose(2021 + i, 1400 + 300 * i)) for i in range(3)]
    for person in people:
        person.ask(chance.randrange(600, 1300))
    for _ in range(13):
        chance.choice(people).ask(chance.choice((90, 200, 700, 1000, 1300)), tokens=20)


def noon_restart(day: Recorder, faulty: bool) -> None:
    """Two agents and a chat; at noon the server is updated and started again, and all of them go on."""
    chance, chat = random.Random(403), Talk(day, "chat", prose(2031, 1100))
    agents = [Talk(day, f"agent{i + 1}", prose(2032 + i, 1300 + 200 * i), tools=tools(2 + i, i)) for i in range(2)]
    for half in range(2):
        for agent in agents:
            agent.ask(chance.randrange(100, 300))
        for _ in range(5):
            chance.choice(agents).step(chance.randrange(150, 600))
        chat.ask(chance.randrange(100, 300))
        chat.ask(chance.randrange(100, 300))
        if faulty and not half:
            day.restart()


def forked_from_middle(day: Recorder, faulty: bool) -> None:
    """A person with a long chat who opens three new ones from its third answer, and asks two questions in each."""
    chat, chance = Talk(day, "chat", prose(2041, 1200)), random.Random(404)
    for _ in range(8):
        chat.ask(chance.randrange(350, 650), tokens=20)
    for _ in range(3):
        del chat.messages[6:]
        for _ in range(2):
            chat.ask(chance.randrange(150, 400), tokens=20)


def two_on_one_slot(day: Recorder, faulty: bool) -> None:
    """Two people at one slot, one to three questions at a time; one of them has every third answer written again."""
    chance = random.Random(405)
    first, second = Talk(day, "first", prose(2051, 1600)), Talk(day, "second", prose(2052, 1250))
    for _ in range(6):
        for _ in range(chance.choice((1, 2, 3))):
            first.ask(chance.randrange(60, 300), tokens=25)
        for number in range(chance.choice((1, 2))):
            second.ask(chance.randrange(100, 400), tokens=40)
            if number:
                second.messages.pop()
                second.send(40)


# ---- the client loses


def environment_details(day: Recorder, faulty: bool) -> None:
    """A coding agent whose client ends the newest message with open files and a file list, and takes them out later."""
    agent, chance = Talk(day, "coder", prose(2061, 1900)), random.Random(406)
    listing = "\n".join(f"src/{prose(2062 + i, 14)}ts" for i in range(24))
    for _ in range(9):
        text = agent.text(chance.randrange(150, 600))
        details = f"<environment_details>\n{listing}\nCost: 0.{chance.randrange(10, 99)}\n</environment_details>"
        agent.messages.append(user(f"{text}\n{details}"))
        agent.send(chance.randrange(10, 50))
        if faulty:
            agent.messages[-2]["content"] = text


def todo_in_system(day: Recorder, faulty: bool) -> None:
    """An agent whose system prompt ends with its list of things to do, of which one is ticked off every other step."""
    agent, chance = Talk(day, "agent", "", tools=tools(3, 7)), random.Random(407)
    things = [prose(2071 + i, 45) for i in range(6)]
    for step in range(10):
        done = step // 2 if faulty else 0
        ticked = "\n".join(f"- [{'x' if i < done else ' '}] {thing}" for i, thing in enumerate(things))
        agent.head = f"{prose(2080, 1500)}\n# Todos\n{ticked}"
        if step in (0, 5):
            agent.ask(chance.randrange(100, 300))
        else:
            agent.step(chance.randrange(150, 500))


def tool_servers_reconnect(day: Recorder, faulty: bool) -> None:
    """An agent with tools of three servers, in the order in which they connected last; a chat beside it."""
    agent, chat, chance = Talk(day, "agent", prose(2091, 800)), Talk(day, "chat", prose(2092, 1000)), random.Random(408)
    every = tools(6, 8)
    servers = [every[:2], every[2:3], every[3:]]
    agent.fields["tools"] = every
    agent.ask(200)
    for step in range(10):
        if faulty and step % 2:
            servers = chance.choice([[servers[1], servers[2], servers[0]], [servers[2], servers[0], servers[1]]])
        agent.fields["tools"] = [tool for server in servers for tool in server]
        agent.step(chance.randrange(120, 400))
        if step % 4 == 2:
            chat.ask(chance.randrange(80, 260))


def web_results_in_system(day: Recorder, faulty: bool) -> None:
    """A chat whose program searches the web for each question and puts what it found into the system prompt."""
    chat, chance = Talk(day, "chat", ""), random.Random(409)
    for turn in range(7):
        number = turn if faulty else 0
        found = "\n".join(f"<source>{prose(2101 + 10 * number + i, 260)}</source>" for i in range(3))
        chat.head = f"{prose(2100, 450)}\n<context>\n{found}\n</context>\n{prose(2099, 350)}"
        chat.ask(chance.randrange(90, 350), tokens=40)


def memory_plugin(day: Recorder, faulty: bool) -> None:
    """A chat whose plugin writes the four memories that fit best before the first question; another chat beside it."""
    chat, other, chance = Talk(day, "chat", prose(2201, 1100)), Talk(day, "other", prose(2202, 900)), random.Random(410)
    known = [prose(2210 + i, 70) for i in range(9)]
    question = ""
    for turn in range(7):
        fits = chance.sample(known, 4) if faulty else known[:4]
        chat.messages.append(user(chat.text(chance.randrange(150, 420))))
        question = question or chat.messages[0]["content"]
        chat.messages[0]["content"] = "What you know of me:\n" + "\n".join(fits) + f"\n\n{question}"
        chat.send(25)
        if turn % 3 == 1:
            other.ask(chance.randrange(100, 300))


def characters_reply(day: Recorder, faulty: bool) -> None:
    """A group chat of two characters who answer by chance: one scene, then the sheet of who speaks, then all that was
    said."""
    chat, chance = Talk(day, "group", ""), random.Random(411)
    sheets = [prose(2231, 700), prose(2232, 900)]
    for _ in range(11):
        chat.head = f"{prose(2230, 350)}\n{sheets[chance.randrange(2) if faulty else 0]}"
        chat.ask(chance.randrange(80, 380), tokens=30)


def folder_in_first_message(day: Recorder, faulty: bool) -> None:
    """A coding agent whose first message names the folder it works in, which is another one after every second step."""
    agent, chance = Talk(day, "agent", prose(2241, 1300), tools=tools(2, 9)), random.Random(412)
    agent.ask(300)
    question = agent.messages[0]["content"]
    for step in range(10):
        folder = f"/code/{prose(2250 + (step // 2) * faulty, 9)}/src"
        context = f"<environment_context>\n  <cwd>{folder}</cwd>\n  <shell>bash</shell>\n</environment_context>"
        agent.messages[0]["content"] = f"{context}\n{question}"
        agent.step(chance.randrange(120, 480))


# ---- nothing to fix


def voice_interrupted(day: Recorder, faulty: bool) -> None:
    """A voice assistant whose answers are streamed; the person often talks over them, and what was heard is kept."""
    talk, chance = Talk(day, "voice", prose(2301, 1000)), random.Random(420)
    for _ in range(12):
        talk.messages.append(user(talk.text(chance.randrange(25, 120))))
        if chance.random() < 0.6:
            heard = day.cut(talk.name, talk.client, talk.prompt(), chance.randrange(3, 25), max_tokens=300)
            talk.messages.append({"role": "assistant", "content": heard})
            time.sleep(0.3)
        else:
            talk.send(chance.randrange(10, 50))


def again_and_from_there(day: Recorder, faulty: bool) -> None:
    """Three chats one after another, in each of which an answer is written again once or twice, and a question put in
    other words."""
    chance = random.Random(421)
    for number in range(3):
        chat = Talk(day, f"chat{number}", prose(2311, 900), "webui")
        for turn in range(4):
            chat.ask(chance.randrange(80, 500), tokens=chance.randrange(20, 80))
            for _ in range(chance.choice((0, 1, 2)) if turn != 2 else 0):
                chat.messages.pop()
                chat.send(chance.randrange(20, 80))
        del chat.messages[-2:]
        chat.ask(chance.randrange(80, 500))


def summaries_by_clock(day: Recorder, faulty: bool) -> None:
    """A job that sums up the new messages of three channels, with its last summary after them; an agent beside it."""
    agent, chance = Talk(day, "agent", prose(2321, 1500), tools=tools(2, 3)), random.Random(422)
    last = ["Nothing yet."] * 3
    agent.ask(200)
    for hour in range(4):
        for channel in range(3):
            news = "\n".join(prose(8000 + 100 * hour + 10 * channel + i, 130) for i in range(chance.randrange(1, 8)))
            prompt = [system(prose(2322, 500)), user(f"New messages:\n{news}\nLast summary: {last[channel]}")]
            last[channel] = day.chat(f"hour{hour}.{channel}", "job", prompt, chance.randrange(20, 60))
        for _ in range(chance.randrange(1, 4)):
            agent.step(chance.randrange(100, 500))


def invoices(day: Recorder, faulty: bool) -> None:
    """Two workers that read twenty invoices of all lengths into fields, after one instruction with an example."""
    chance = random.Random(423)
    prompts = [[system(prose(2331, 1300)), user(prose(8500 + i, chance.randrange(200, 1600)))] for i in range(20)]
    day.chat("invoice0", "fields", prompts[0], 40)

    def work(first: int) -> None:
        for number in range(first, 20, 2):
            day.chat(f"invoice{number}", "fields", prompts[number], 40)

    day.together(lambda: work(1), lambda: work(2))


def passages_at_end(day: Recorder, faulty: bool) -> None:
    """Two chats about documents: passages follow each question and stay in the history; short questions have none."""
    chance = random.Random(424)
    chats = [Talk(day, f"reader{i + 1}", prose(2341, 600), "library") for i in range(2)]
    for turn in range(12):
        chat = chats[0] if turn < 3 else chance.choice(chats)
        passages = [prose(8600 + 10 * turn + i, chance.randrange(150, 350)) for i in range(chance.choice((0, 2, 3)))]
        chat.messages.append(user("\n".join([chat.text(chance.randrange(40, 160)), *passages])))
        chat.send(chance.randrange(10, 50))


def answered_then_judged(day: Recorder, faulty: bool) -> None:
    """A harness: five solved examples and a question, ten times; then each answer is judged after other examples."""
    chance = random.Random(425)
    solved, judged = ("\n".join(f"Q: {prose(seed + i, 150)}" for i in range(5)) for seed in (2351, 2361))
    questions = [prose(8800 + i, chance.randrange(60, 600)) for i in range(10)]
    answers = [day.chat(f"answer{i}", "harness", [user(f"{solved}\nQ: {q}\nA:")], 30) for i, q in enumerate(questions)]
    for i, (question, answer) in enumerate(zip(questions, answers, strict=True)):
        day.chat(f"verdict{i}", "harness", [user(f"{judged}\nQ: {question}\nA: {answer}\nGrade:")], 3)


def five_languages(day: Recorder, faulty: bool) -> None:
    """Seven texts that are translated into five languages, one after another: terms, text, then the language."""
    chance = random.Random(426)
    for number in range(7):
        text = prose(8900 + number, chance.randrange(250, 1200))
        for language in ("German", "French", "Polish", "Dutch", "Czech"):
            prompt = [system(prose(2371, 700)), user(f"{text}\n\nTranslate into {language}.")]
            day.chat(f"text{number}.{language}", "translator", prompt, chance.randrange(10, 50))


def titles_on_one_slot(day: Recorder, faulty: bool) -> None:
    """Two chats one after another on one slot, with a title, tags and questions asked beside them; RAM is on."""
    chance = random.Random(427)
    for number in range(2):
        chat = Talk(day, f"chat{number}", prose(2381, 1200), "webui")
        for turn in range(5):
            chat.ask(chance.randrange(80, 400), tokens=chance.randrange(10, 60))
            for what in ("questions", "title", "tags")[: 3 if not turn else 1]:
                _aside(day, chat, what)
