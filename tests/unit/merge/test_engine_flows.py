"""Arrows of traces: ids, partners, what is counted, what goes with a slice that goes."""

from collections import Counter, defaultdict

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from traces import end_of_arrow, joined, merge, op, write_trace

from slime_profiler_plugin.merge._counts import count_arrows
from slime_profiler_plugin.merge._filters import drop_arrows
from slime_profiler_plugin.merge._flows import IdSource, number_flows, pair_flows
from slime_profiler_plugin.merge._kinds import FLOW_END, FLOW_START, FLOW_STEP

KINDS = {"s": FLOW_START, "t": FLOW_STEP, "f": FLOW_END}
#: (key, time, letter, name).
ends = st.lists(
    st.tuples(st.integers(0, 4), st.integers(0, 20), st.sampled_from("stf"), st.integers(0, 1)), max_size=30
)


def number(rows):
    keys, times = (np.array([row[n] for row in rows], np.int64) for n in (0, 1))
    kinds = np.array([KINDS[row[2]] for row in rows], np.uint8)
    return number_flows(keys, times, kinds, np.array([row[3] for row in rows], np.int32))


def reference(rows):
    """Which ends belong together, word for word."""
    together = {}
    by_key = defaultdict(list)
    for place, row in enumerate(rows):
        by_key[row[0]].append(place)
    rest = []
    for places in by_key.values():
        if sorted(rows[place][2] for place in places) == ["f", "s"]:
            together.update(dict.fromkeys(places, ("pair", places[0])))
        else:
            rest.extend(places)
    ids = pair_flows([(rows[p][1], rows[p][2], (rows[p][0], rows[p][3])) for p in sorted(rest)], IdSource())
    together.update({place: ("rest", flow) for place, flow in zip(sorted(rest), ids, strict=True)})
    return [together[place] for place in range(len(rows))]


@given(ends)
def test_ids_say_which_ends_belong_together(rows):
    flows = number(rows)
    ids, wanted = flows.ids.tolist(), reference(rows)
    assert sorted(set(ids)) == list(range(1, flows.highest + 1))
    for one in range(len(rows)):
        for other in range(len(rows)):
            assert (ids[one] == ids[other]) == (wanted[one] == wanted[other])
    for place, partner in enumerate(flows.partners.tolist()):
        of_id = sorted(rows[n][2] for n in range(len(rows)) if ids[n] == ids[place])
        assert (partner >= 0) == (of_id == ["f", "s"])
        if partner >= 0:
            assert flows.partners[partner] == place
            assert ids[partner] == ids[place]


def test_an_end_before_its_start_stays_one_arrow():
    flows = number([(1, 50, "s", 0), (1, 40, "f", 0), (2, 10, "s", 0), (2, 20, "f", 0)])
    assert flows.ids.tolist() == [1, 1, 2, 2]
    assert flows.partners.tolist() == [1, 0, 3, 2]


def test_an_id_that_is_used_again_is_an_arrow_each_time():
    rows = [
        (1, at, letter, 0) for at, letter in ((0, "s"), (5, "f"), (10, "s"), (15, "f"), (20, "s"), (25, "f"))
    ]
    assert number(rows).ids.tolist() == [1, 1, 2, 2, 3, 3]


def test_ends_without_a_start_never_join_anything():
    assert len(set(number([(1, at, "f", 0) for at in range(5)]).ids.tolist())) == 5


def test_two_arrows_with_one_id_are_told_apart_by_their_names():
    rows = [(1, 0, "s", 0), (1, 1, "s", 1), (1, 5, "f", 1), (1, 9, "f", 0)]
    ids = number(rows).ids.tolist()
    assert ids[0] == ids[3] != ids[1] == ids[2]


def drawn(rows):
    """What Perfetto draws of (id, letter, time) rows, as it goes through them."""
    counts = Counter()
    for number in {row[0] for row in rows}:
        own = sorted((r for r in rows if r[0] == number), key=lambda r: r[2])
        has_start, seen = any(r[1] == "s" for r in own), False
        if all(r[1] == "s" for r in own):
            counts["ends of arrows without the other end"] += len(own)
            continue
        for _, letter, _ in own:
            if letter == "s":
                seen = True
            elif not has_start:
                counts["ends of arrows without the other end"] += 1
            else:
                counts["arrows" if seen else "arrows that end before they begin"] += 1
    return counts


@given(st.lists(st.tuples(st.integers(1, 4), st.sampled_from("stf"), st.integers(0, 9)), max_size=25))
def test_arrows_are_counted_as_they_are_drawn(rows):
    started = set()
    kept = []
    for row in rows:  # an id starts once in what is written
        if row[1] != "s" or row[0] not in started:
            kept.append(row)
            started.update({row[0]} if row[1] == "s" else ())
    ids, times = (np.array([row[n] for row in kept], np.int64) for n in (0, 2))
    kinds = np.array([KINDS[row[1]] for row in kept], np.uint8)
    assert count_arrows(ids, kinds, times, np.arange(len(kept))) == drawn(kept)


@given(
    st.lists(st.tuples(st.integers(1, 4), st.sampled_from("stf"), st.integers(-1, 9)), max_size=25),
    st.sets(st.integers(0, 9)),
)
def test_no_filter_leaves_an_arrow_with_one_end(rows, gone):
    ids, slices = (np.array([row[n] for row in rows], np.int64) for n in (0, 2))
    kinds = np.array([KINDS[row[1]] for row in rows], np.uint8)
    events = np.arange(10, 10 + len(rows))
    is_gone = np.zeros(10 + len(rows), np.bool_)
    is_gone[list(gone)] = True
    dropped = drop_arrows(events, ids, kinds, slices, is_gone).tolist()
    for number in set(ids.tolist()):
        own = [(row, drop) for row, drop in zip(rows, dropped, strict=True) if row[0] == number]
        left = "".join(row[1] for row, drop in own if not drop)
        was = "".join(row[1] for row, _ in own)
        assert all(drop for row, drop in own if row[2] in gone)
        if not any(row[2] in gone for row, _ in own):
            assert left == was
        elif "s" in was and left:
            assert "s" in left
            assert len(left) > 1


@pytest.mark.parametrize("same_name", [True, False])
def test_end_without_bp_belongs_to_the_next_slice_and_takes_its_lane_and_name(tmp_path, same_name):
    events = [
        op("from", 10, 5),
        op("outer", 100, 50, tid=2),
        op("crossing", 120, 50, tid=2),  # goes to another lane
        end_of_arrow("s", 1, 11, name="x"),
        end_of_arrow("f", 1, 110, tid=2, bp="i", name="x" if same_name else "y"),
    ]
    report, merged = merge([write_trace(tmp_path / "a.json", events)], tmp_path / "out.json")
    (crossing,) = [e for e in merged.events if e["name"] == "crossing"]
    (end,) = [e for e in merged.events if e["ph"] == "f"]
    assert (end["tid"], end["name"]) == (crossing["tid"], "x")
    assert report.outputs[0].counts["arrows"] == 1
    assert report.outputs[0].mended == {
        "row added for slices that cross those of another": 1,
        **({} if same_name else {"end of an arrow, named as its start": 1}),
    }


def test_slices_that_are_ends_themselves_have_ids_of_their_file(tmp_path):
    for name in "ab":
        events = [
            op(f"{name}1", 10, 5, bind_id="0x7", flow_out=True),
            op(f"{name}2", 30, 5, bind_id="0x7", flow_in=True, flow_out=True, id=4),
            op(f"{name}3", 50, 5, bind_id="0x7", flow_in=True),
        ]
        write_trace(tmp_path / f"{name}.json", events)
    report, merged = merge([tmp_path], tmp_path / "out" / "out.json")
    bound = {e["name"]: e["bind_id"] for e in merged.events}
    assert bound["a1"] == bound["a2"] == bound["a3"] != bound["b1"] == bound["b2"] == bound["b3"]
    assert report.outputs[0].counts["arrows"] == 4


def test_arrows_of_two_files_never_meet(tmp_path):
    for name in "ab":
        events = [op(f"{name}1", 10, 5), op(f"{name}2", 30, 5)]
        events += [end_of_arrow("s", 1, 10), end_of_arrow("f", 1, 30), end_of_arrow("f", 9, 30)]
        write_trace(tmp_path / f"{name}.json", events)
    write_trace(tmp_path / "c.json", [op("c1", 5, 3), end_of_arrow("s", 9, 5)])
    report, merged = merge([tmp_path], tmp_path / "out" / "out.json")
    assert joined(merged) == [("a1", "a2"), ("b1", "b2")]
    assert report.outputs[0].counts == {
        "slices": 5,
        "arrows": 2,
        "ends of arrows without the other end": 3,
    }
