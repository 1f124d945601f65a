"""The bandit on arms whose rates are known: it finds the best, follows when that dries up, and is reproducible."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Callable

import pytest

from fuzzer.guidance.bandit import (
    EXPLORATION,
    MIN_TRIES,
    Bandit,
    CandidateOutcome,
    Reward,
    always_refused,
    decode_rewards,
    encode_rewards,
    never_new,
)

NAMES = ("a", "b", "c", "d", "e")


def played(bandit: Bandit, rates: Callable[[int], dict[str, float]], pulls: int, size: int = 1) -> list[str]:
    """What is chosen where a pull takes a second on average and discoveries come at these rates."""
    world, chosen = random.Random(7), []
    for n in range(pulls):
        name = bandit.choose()
        seconds = world.uniform(0.5, 1.5)
        found = world.random() < rates(n)[name] * seconds
        bandit.learn(name, CandidateOutcome(seconds, compiled=True, new=world.randint(1, 2 * size - 1) if found else 0))
        chosen.append(name)
    return chosen


def share(chosen: list[str], name: str) -> float:
    return Counter(chosen)[name] / len(chosen)


@pytest.mark.parametrize("size", [1, 200])
def test_the_best_arm_is_chosen_most_however_large_discoveries_are(size: int) -> None:
    rates = dict.fromkeys(NAMES, 0.1) | {"c": 0.4}
    chosen = played(Bandit(NAMES, random.Random(1)), lambda n: rates, 1500, size)
    assert share(chosen[-500:], "c") > 0.6
    assert all(share(chosen, name) > EXPLORATION / len(NAMES) / 2 for name in NAMES), "none is starved"


def test_cheap_choices_win_over_dear_ones_that_bring_as_much() -> None:
    bandit = Bandit(("cheap", "dear"), random.Random(1))
    chosen = []
    for n in range(600):
        chosen.append(name := bandit.choose())
        bandit.learn(name, CandidateOutcome(1.0 if name == "cheap" else 4.0, compiled=True, new=n % 2))
    assert share(chosen[-300:], "cheap") > 0.85


def test_it_follows_when_the_best_arm_dries_up() -> None:
    bandit = Bandit(NAMES, random.Random(2), half_life=300)
    before, after = ({**dict.fromkeys(NAMES, 0.1), best: 0.4} for best in ("a", "e"))
    chosen = played(bandit, lambda n: before if n < 1000 else after, 3000)
    assert share(chosen[600:1000], "a") > 0.5
    assert share(chosen[2600:], "e") > 0.5
    assert share(chosen[2600:], "a") < 0.2


def drying(slow: int) -> list[str]:
    """Features fall as 1 / n; e brings twice as many, and is tried late; or first, in so many programs, all slow."""
    bandit, world, chosen = Bandit(NAMES, random.Random(8)), random.Random(9), []
    for n in range(2000):
        name = bandit.choose() if n >= 100 else "e" if n < slow else NAMES[n % 4]
        chosen.append(name)
        expected, cost = (2.0 if name == "e" else 1.0) * 20000 / (n + 20), 10.0 if n < slow else 1.0
        seconds, new = cost * world.uniform(0.5, 1.5), round(world.expovariate(1 / expected))
        bandit.learn(name, CandidateOutcome(seconds, compiled=True, new=new))
    return chosen


def test_early_luck_does_not_last_where_everything_brings_less_and_less() -> None:
    assert share(drying(slow=0)[-500:], "e") > 0.7, "0.3 where features are counted as they are"


def test_what_was_tried_while_workers_start_is_not_dear_for_ever() -> None:
    assert share(drying(slow=20)[-500:], "e") > 0.7, "0.02 where seconds are counted as they are"


def test_arms_that_are_all_alike_are_all_chosen() -> None:
    chosen = played(Bandit(NAMES, random.Random(3)), lambda n: dict.fromkeys(NAMES, 0.2), 3000)
    assert all(0.03 < share(chosen, name) < 0.7 for name in NAMES)


def test_nothing_known_is_a_blind_choice_and_nothing_new_starves_nobody() -> None:
    chosen = played(Bandit(NAMES, random.Random(4)), lambda n: dict.fromkeys(NAMES, 0.0), 1000)
    assert all(0.15 < share(chosen, name) < 0.25 for name in NAMES)


def test_the_same_seed_and_outcomes_give_the_same_choices() -> None:
    rates = {name: 0.1 * n for n, name in enumerate(NAMES)}
    once, twice, other = (played(Bandit(NAMES, random.Random(seed)), lambda n: rates, 300) for seed in (5, 5, 6))
    assert once == twice
    assert once != other


def test_a_bandit_goes_on_from_what_was_written_down() -> None:
    rates = dict.fromkeys(NAMES, 0.1) | {"c": 0.4}
    bandit, later = Bandit(NAMES, random.Random(1)), Bandit((*NAMES[1:], "new"), random.Random(2))
    played(bandit, lambda n: rates, 1000)
    later.restore(json.loads(json.dumps(bandit.state())))
    assert later.rewards["c"].new == bandit.rewards["c"].new
    assert later.rewards["new"] == Reward()
    assert "a" not in later.rewards
    chosen = [later.choose() for _ in range(200)]
    assert share(chosen, "c") > 0.4


def test_who_never_earned_is_named_after_enough_tries() -> None:
    credits = {
        "refused": Reward(tries=MIN_TRIES, refused=MIN_TRIES),
        "soon": Reward(tries=MIN_TRIES - 1, refused=MIN_TRIES - 1),
        "sometimes": Reward(tries=MIN_TRIES + 1, refused=MIN_TRIES, compiled=1),
        "barren": Reward(tries=99, compiled=MIN_TRIES),
        "good": Reward(tries=99, compiled=MIN_TRIES, new=1),
    }
    assert always_refused(credits) == ["refused"]
    assert never_new(credits) == ["barren"]
    assert decode_rewards(json.loads(json.dumps(encode_rewards(credits)))) == credits
