"""Arrows from sends to receives: one where one send explains a receive, else none, counted."""

import pytest

from slime_profiler_plugin.merge._arrows import Endpoint, join_arrows
from slime_profiler_plugin.merge._flows import IdSource


def send(**fields):
    base = {
        "attempt": 0,
        "source": "actor-0@1-1",
        "sync": 4,
        "bucket": 0,
        "weight_version": "5",
        "engine": None,
        "receiver": None,
        "pid": 1,
        "tid": 11,
        "start_ns": 100,
        "free": ((100, 200),),
    }
    return Endpoint(**(base | fields))


def receive(**fields):
    return send(
        **(
            {"receiver": "e0", "engine": 0, "pid": 2, "tid": 22, "start_ns": 120, "free": ((120, 220),)}
            | fields
        )
    )


def ends(arrows):
    return sorted(
        (e.flow_id, e.begins, e.pid, e.tid, e.at_ns) for group in arrows.ends.values() for e in group
    )


def test_one_arrow_to_each_engine_from_inside_the_send_to_inside_the_receive():
    arrows = join_arrows([send()], [receive(), receive(receiver="e1", engine=1, pid=3, tid=33)], IdSource())
    assert arrows.drawn == 2
    assert ends(arrows) == [
        (1, False, 2, 22, 120),
        (1, True, 1, 11, 100),
        (2, False, 3, 33, 120),
        (2, True, 1, 11, 100),
    ]
    assert not arrows.undrawn


def test_receive_that_began_to_wait_before_the_send_is_met_after_it():
    arrows = join_arrows([send()], [receive(start_ns=50, free=((50, 220),))], IdSource())
    assert ends(arrows) == [(1, False, 2, 22, 101), (1, True, 1, 11, 100)]


def test_arrow_binds_where_no_inner_slice_lies_over_the_outer_one():
    arrows = join_arrows(
        [send(free=((130, 140), (150, 200)))], [receive(free=((120, 125), (160, 170)))], IdSource()
    )
    assert ends(arrows) == [(1, False, 2, 22, 160), (1, True, 1, 11, 130)]


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"source": "actor-0@1-2"}, "no send matches the receive"),  # another incarnation of the sender
        ({"attempt": 1}, "no send matches the receive"),
        ({"sync": 5}, "no send matches the receive"),
        ({"bucket": 1}, "no send matches the receive"),
        ({"sync": None, "source": None, "weight_version": None}, "the receive names no source"),
        ({"sync": None}, "the receive names no sync"),
        ({"source": None, "weight_version": None}, "the receive names no source"),
        ({"free": ((10, 90),)}, "the receive ended before the send began"),
        ({"free": ()}, "the receive ended before the send began"),
    ],
)
def test_join_that_is_not_certain_is_drawn_as_none_and_counted(change, reason):
    arrows = join_arrows([send()], [receive(**change)], IdSource())
    assert arrows.drawn == 0
    assert dict(arrows.undrawn) == {reason: 1}


def test_receive_that_knows_only_the_weight_version_joins_the_one_send_of_it():
    unknown = receive(source=None, sync=None)
    assert join_arrows([send()], [unknown], IdSource()).drawn == 1
    twice = join_arrows([send(), send(source="actor-1@2-2")], [unknown], IdSource())
    assert (twice.drawn, dict(twice.undrawn)) == (0, {"ambiguous: several sends match the receive": 1})


def test_two_sends_of_one_bucket_are_ambiguous_unless_each_names_its_engine():
    both = join_arrows([send(), send(start_ns=110)], [receive()], IdSource())
    assert dict(both.undrawn) == {"ambiguous: several sends match the receive": 1}
    named = join_arrows(
        [send(engine=0), send(engine=1, free=((105, 200),))],
        [receive(), receive(engine=1, receiver="e1")],
        IdSource(),
    )
    assert (named.drawn, [end[-1] for end in ends(named) if end[1]]) == (2, [100, 105])


def test_bucket_received_twice_by_one_engine_is_ambiguous():
    arrows = join_arrows([send()], [receive(), receive(start_ns=130)], IdSource())
    assert (arrows.drawn, dict(arrows.undrawn)) == (
        0,
        {"ambiguous: the engine received the bucket more than once": 2},
    )
