"""Clusters: suspects of one key, until they are told apart."""

from __future__ import annotations

from dataclasses import replace

from fuzzer.campaign.suspects.clusters import MOST_OTHERS, Clusters, distance, firsts_first
from fuzzer.campaign.suspects.suspect import Suspect
from fuzzer.language.text import parse
from tests.campaign.fakes import PROGRAM, SIGNATURE, TANH
from tests.campaign.suspects.test_core import CORE


def test_suspects_of_one_key_are_one_cluster_unless_they_are_told_apart() -> None:
    clusters, first, other = Clusters(), *(Suspect(parse(text), SIGNATURE, core=CORE) for text in (PROGRAM, TANH))
    assert clusters.of(first) is clusters.of(other)
    assert clusters.of(first).first is first
    assert clusters.of(replace(other, apart=True)) is not clusters.of(first)
    assert len(clusters) == 2
    elsewhere = Suspect(parse(TANH), SIGNATURE, core=replace(CORE, stage="eager"))
    assert clusters.of(elsewhere).first is elsewhere


def test_the_furthest_of_a_cluster_has_least_in_common_with_the_first() -> None:
    cluster = Clusters().of(Suspect(parse(PROGRAM), SIGNATURE, core=CORE))
    assert cluster.furthest is None
    near, far = (Suspect(parse(text), SIGNATURE) for text in (PROGRAM.replace("seed=1", "seed=2"), TANH))
    cluster.others += [far, near]
    assert cluster.furthest is far
    assert cluster.members == [cluster.first, far, near]
    assert distance(near.program, cluster.first.program) == 0
    assert 0 < distance(far.program, cluster.first.program) < 1


def test_of_each_key_one_comes_first_and_then_the_others() -> None:
    first, other = (Suspect(parse(text), SIGNATURE, core=CORE) for text in (PROGRAM, TANH))
    bare, elsewhere = Suspect(parse(TANH), SIGNATURE), replace(other, core=replace(CORE, stage="eager"))
    given = {"a": first, "b": other, "c": bare, "d": elsewhere, "e": None}
    assert firsts_first([*given], given.__getitem__) == ["a", "c", "d", "e", "b"]


def test_a_cluster_keeps_the_two_furthest_once_a_fault_explains_it_and_none_once_it_is_over_without() -> None:
    cluster = Clusters().of(Suspect(parse(PROGRAM), SIGNATURE, core=CORE))
    near, far = (Suspect(parse(PROGRAM.replace("relu", op)), SIGNATURE) for op in ("relu", "tanh"))
    others = [*(replace(near, stage=str(n)) for n in range(MOST_OTHERS - 1)), far]
    cluster.others = others.copy()
    assert cluster.surplus() == []
    cluster.over, cluster.fault = True, "F1"
    assert len(given_up := cluster.surplus()) == MOST_OTHERS - 2
    assert cluster.furthest == far
    assert {*given_up, *cluster.others} == {*others}
    cluster.fault = ""
    assert len(cluster.surplus()) == 2
    assert cluster.members == [cluster.first]


def test_of_decided_clusters_those_that_were_not_met_for_longest_are_forgotten() -> None:
    clusters = Clusters()
    suspects = [Suspect(parse(PROGRAM), SIGNATURE, core=replace(CORE, stage=name)) for name in ("a", "b", "c", "d")]
    for suspect in suspects:
        clusters.of(suspect).over = suspect.core != suspects[1].core
    clusters.of(suspects[0])
    assert clusters.forget_decided(3) == []
    assert [gone.first for gone in clusters.forget_decided(1)] == [suspects[2], suspects[3]]
    assert [cluster.first for cluster in clusters] == [suspects[1], suspects[0]]
    clusters.of(suspects[2])
    assert (clusters.made, len(clusters)) == (5, 3)
    assert clusters.forget(suspects[3]) is None
    assert (suspects[2] in clusters, suspects[3] in clusters) == (True, False)
