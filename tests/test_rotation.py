"""Turns of conversations are found by lengths that come round, and by nothing less."""

from __future__ import annotations

from conftest import FIXTURES

import cachedoctor
from cachedoctor.doctor.replaying.rotation import SlotPrompt, turns


def rounds(chats: int, slots: int, growth: int, first: int = 2000, step: int = 40, times: int = 4) -> list[SlotPrompt]:
    """Chats in turn, each ``growth`` tokens longer than what it left; slots are taken in turn."""
    found = []
    for at in range(chats * times):
        chat, turn = at % chats, at // chats
        length = first + step * chat + turn * (growth + 5)
        found.append(SlotPrompt(length, length + 5, at % slots, is_fresh=True))
    return found


def test_six_chats_on_four_slots_come_round() -> None:
    """Each continues the prompt six before, which two others have overwritten since."""
    assert turns(rounds(6, 4, 410)) == {at: at - 6 for at in range(6, 24)}


def test_a_chat_whose_head_changes_is_not_taken_for_several() -> None:
    """The lengths of one chat rise by one step: its last prompt lay in the slot, and would have been found."""
    assert turns(rounds(1, 1, 300, times=12)) == {}


def test_what_still_lies_in_a_slot_was_not_lost() -> None:
    """Two chats on two slots: each prompt waits where it was."""
    assert turns(rounds(2, 2, 300, times=6)) == {}
    assert len(turns(rounds(2, 1, 300, times=6))) == 10


def test_a_reused_prompt_is_not_a_turn_that_was_lost() -> None:
    prompts = rounds(6, 4, 410)
    prompts[7] = prompts[7]._replace(is_fresh=False)
    assert 7 not in turns(prompts)
    assert 8 in turns(prompts)


def test_lengths_without_order_and_two_rounds_prove_nothing() -> None:
    lengths = [900, 1400, 760, 1310, 820, 1090, 770, 1240, 1270, 940, 1160, 790]
    assert turns([SlotPrompt(one, one + 5, 0, is_fresh=True) for one in lengths]) == {}
    assert turns(rounds(6, 4, 410, times=2)) == {}


def test_growth_that_differs_by_much_is_not_a_round() -> None:
    """Any lengths that rise come round at some distance."""
    prompts = rounds(3, 1, 300, times=6)
    odd = [
        one._replace(length=one.length + 150 * (at // 3 % 2), left=one.left + 400 * (at // 3 % 2))
        for at, one in enumerate(prompts)
    ]
    assert turns(odd) == {}


def test_tune_finds_what_six_chats_need_from_the_log_alone() -> None:
    """Measured on that server: 53,708 tokens were lost, and --cache-ram brings them back; 1 GiB is enough for them."""
    from cachedoctor.doctor.whatif.evidence import Asking, gather
    from cachedoctor.doctor.whatif.tuning import tune

    log = FIXTURES / "days/dense-six_on_four-b11549-lv4/server.log"
    found = tune(gather(Asking([str(log)], build=11549)), [str(log)])
    assert found.best is not None
    assert found.best.options == "--cache-ram 1024"
    assert abs(found.best.saved_tokens - 53_708) < 0.01 * 53_708


def test_the_rotation_of_a_day_is_that_of_its_clients() -> None:
    import json

    from cachedoctor.doctor.whatif.evidence import Asking, gather

    run = FIXTURES / "days/dense-six_on_four-b11549-lv4"
    truth = json.loads((run / "truth.json").read_text("utf-8"))["requests"]
    asked = gather(Asking([str(run / "server.log")], build=11549)).traffic.asked
    whose = [one["conversation"] for one in truth]
    by_log: dict[int | None, set[str]] = {}
    for one, name in zip(asked, whose, strict=True):
        by_log.setdefault(one.conversation, set()).add(name)
    assert sorted(len(names) for names in by_log.values()) == [1] * 6
    assert cachedoctor.analyze(run / "server.log", build=11549).totals.requests == len(truth)
