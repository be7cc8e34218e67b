"""Ids of flows: unique in the output, one per start and end that belong together."""

from hypothesis import given
from hypothesis import strategies as st

from slime_profiler_plugin.merge._flows import IdSource, pair_flows


def test_reused_id_becomes_two_flows():
    assert pair_flows([(0, "s", 1), (100, "f", 1), (200, "s", 1), (300, "f", 1)], IdSource()) == [1, 1, 2, 2]


def test_order_in_the_file_does_not_matter():
    assert pair_flows([(300, "f", 1), (0, "s", 1), (100, "f", 1), (200, "s", 1)], IdSource()) == [2, 1, 1, 2]


def test_one_id_in_two_categories_is_two_flows():
    events = [(0, "s", ("ac2g", 5)), (1, "s", ("fwdbwd", 5)), (2, "f", ("fwdbwd", 5)), (3, "f", ("ac2g", 5))]
    assert pair_flows(events, IdSource()) == [1, 2, 2, 1]


def test_end_without_a_start_stays_alone():
    ids = IdSource()
    assert pair_flows([(5, "f", 1), (6, "f", 2)], ids) == [1, 2]
    # Another input that has a start of the same id is another flow.
    assert pair_flows([(0, "s", 1), (9, "f", 1)], ids) == [3, 3]


def test_steps_and_further_ends_belong_to_their_start():
    assert pair_flows([(0, "s", 1), (1, "t", 1), (2, "f", 1), (3, "f", 1)], IdSource()) == [1, 1, 1, 1]


def test_start_at_the_same_time_as_its_end_comes_first():
    assert pair_flows([(7, "f", 1), (7, "s", 1)], IdSource()) == [1, 1]


@given(
    st.lists(
        st.lists(st.tuples(st.integers(0, 50), st.sampled_from("stf"), st.integers(0, 3)), max_size=30),
        max_size=4,
    )
)
def test_no_flow_joins_two_inputs_two_keys_or_two_starts(inputs):
    ids = IdSource()
    owner = {}
    starts = []
    for number, events in enumerate(inputs):
        for (_, kind, key), flow in zip(events, pair_flows(events, ids), strict=True):
            assert owner.setdefault(flow, (number, key)) == (number, key)
            assert 0 < flow < 2**63
            if kind == "s":
                starts.append(flow)
    assert len(starts) == len(set(starts))
