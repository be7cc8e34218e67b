from __future__ import annotations

import pytest

from slime_profiler_plugin.demo._generate import generate_responses
from slime_profiler_plugin.demo._model import (
    VOCABULARY,
    count_bytes,
    init_parameters,
    logits_of,
    response_log_probs,
)
from slime_profiler_plugin.demo._settings import Sample, Settings, make_samples, reward_of
from slime_profiler_plugin.demo._weights import convert_parts, load_tensors, split_buckets

torch = pytest.importorskip("torch")


@pytest.fixture(scope="module")
def settings():
    return Settings(trainers=1, prompts=2, samples_per_prompt=2, steps=1)


def test_equal_seeds_make_equal_models_of_a_few_hundred_thousand_parameters():
    one, same, other = (init_parameters(seed, "cpu") for seed in (7, 7, 8))
    assert all(torch.equal(one[name], same[name]) for name in one)
    assert not torch.equal(one["head"], other["head"])
    assert 100_000 < sum(p.numel() for p in one.values()) < 1_000_000


def test_logits_look_only_backwards():
    parameters = init_parameters(0, "cpu")
    tokens = torch.arange(10)[None] % VOCABULARY
    changed = tokens.clone()
    changed[0, 6] += 1
    before, after = logits_of(parameters, tokens), logits_of(parameters, changed)
    torch.testing.assert_close(before[:, :6], after[:, :6])
    assert not torch.equal(before[:, 6:], after[:, 6:])


def test_log_probs_are_those_of_the_tokens_after_the_prompt():
    parameters = init_parameters(0, "cpu")
    tokens = torch.tensor([[3, 1, 4, 1, 5]])
    got = response_log_probs(parameters, tokens, 3)
    all_log_probs = logits_of(parameters, tokens).log_softmax(-1)
    torch.testing.assert_close(got, torch.stack([all_log_probs[0, 2, 1], all_log_probs[0, 3, 5]])[None])


def test_same_weights_and_seed_draw_the_same_tokens_and_others_do_not(settings):
    samples = make_samples(settings, 3, VOCABULARY)
    draws = [generate_responses(init_parameters(s, "cpu"), samples, settings, {}) for s in (0, 0, 1)]
    assert draws[0] == draws[1] != draws[2]
    assert {len(response) for response in draws[0]} == {settings.new_tokens}
    assert draws[0][0] != draws[0][1], "samples of one group must differ"
    other_rollout = make_samples(settings, 4, VOCABULARY)
    assert [s.prompt for s in samples] != [s.prompt for s in other_rollout]


def test_a_cache_from_older_weights_draws_wrong_tokens(settings):
    samples = make_samples(settings, 0, VOCABULARY)
    stale: dict = {}
    generate_responses(init_parameters(0, "cpu"), samples, settings, stale)
    assert len(stale) == settings.prompts
    new = init_parameters(1, "cpu")
    assert generate_responses(new, samples, settings, stale) != generate_responses(new, samples, settings, {})


@pytest.mark.parametrize("limit", [1, 100_000, 262_144, 10**9])
def test_buckets_carry_every_byte_once_and_loading_them_makes_an_equal_model(limit):
    sent, received = init_parameters(0, "cpu"), init_parameters(1, "cpu")
    buckets = split_buckets(sent, limit)
    total = 0
    for parts in buckets:
        tensors = convert_parts(sent, parts)
        size = sum(t.numel() * t.element_size() for _, t in tensors)
        assert size <= limit or len(tensors) == 1
        total += size
        load_tensors(received, dict(tensors))
    assert total == count_bytes(sent)
    assert all(torch.equal(sent[name], received[name]) for name in sent)


def test_engines_have_query_key_and_value_apart():
    parameters = init_parameters(0, "cpu")
    (parts,) = split_buckets(parameters, 10**9)
    tensors = dict(convert_parts(parameters, parts))
    qkv = parameters["blocks.1.attention.qkv"]
    joined = torch.cat([tensors[f"model.layers.1.attention.{x}_proj.weight"] for x in "qkv"])
    assert torch.equal(joined, qkv)


def test_loading_a_tensor_of_no_parameter_names_it():
    parameters = init_parameters(0, "cpu")
    with pytest.raises(KeyError, match=r"model\.nothing"):
        load_tensors(parameters, {"model.nothing": torch.zeros(1)})


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"trainers": 0}, "trainers is 0: at least 1"),
        ({"engines": -1}, "engines is -1: at least 0"),
        ({"prompts": 1, "samples_per_prompt": 3}, "3 samples per rank are too few"),
    ],
)
def test_settings_that_cannot_work_are_refused_by_name(wrong, told):
    with pytest.raises(ValueError, match=told):
        Settings(**wrong)


def test_samples_are_shared_out_in_whole_groups():
    settings = Settings(trainers=3)
    samples = make_samples(settings, 0, VOCABULARY)
    assert [s.index for s in samples] == list(range(3 * settings.samples_per_rank))
    for group in range(3 * settings.prompts):
        assert len({tuple(s.prompt) for s in samples if s.group == group}) == 1


@pytest.mark.parametrize(("response", "reward"), [([2, 4], 1.0), ([1, 3], -1.0), ([1, 2, 4, 6], 0.5)])
def test_reward_counts_even_tokens(response, reward):
    assert reward_of(Sample(rollout=0, index=0, group=0, prompt=[1], response=response)) == reward
