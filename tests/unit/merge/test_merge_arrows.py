"""Arrows from sends to receives: one where one send explains a receive, else none, counted."""

import pytest
from reading import Merged

from slime_profiler_plugin.merge import merge_run
from slime_profiler_plugin.merge._arrows import Endpoint, join_arrows
from slime_profiler_plugin.merge._flows import IdSource
from slime_profiler_plugin.merge._pairs import find_pair
from slime_profiler_plugin.testing import MS, ProcessFile

BUCKETS = find_pair("bucket_send", {"bucket": 0})
SHARDS = find_pair("shard_write", {"transport": "disk"})
DELTAS = find_pair("delta_publish", {})
FROM_TO = {
    BUCKETS: "bucket_send to engine_receive",
    SHARDS: "shard_write to engine_load",
    DELTAS: "delta_publish to engine_pull",
}
SEVERAL = f"{FROM_TO[BUCKETS]}: ambiguous: several sends match the receive"


def send(**fields):
    base = {
        "pair": BUCKETS,
        "begins": True,
        "attempt": 0,
        "source": "actor-0@1-1",
        "sync": 4,
        "bucket": 0,
        "weight_version": "5",
        "version_reused": False,
        "engine": None,
        "group": None,
        "transport": "disk",
        "receiver": None,
        "pid": 1,
        "tid": 11,
        "start_ns": 100,
        "end_ns": 200,
        "free": ((100, 200),),
    }
    return Endpoint(**(base | fields))


def receive(**fields):
    return send(
        **(
            {
                "begins": False,
                "receiver": "e0",
                "engine": 0,
                "pid": 2,
                "tid": 22,
                "start_ns": 120,
                "end_ns": 220,
                "free": ((120, 220),),
            }
            | fields
        )
    )


def ends(arrows):
    return sorted(
        (e.flow_id, e.begins, e.pid, e.tid, e.at_ns) for group in arrows.ends.values() for e in group
    )


def test_one_arrow_to_each_engine_from_inside_the_send_to_inside_the_receive():
    arrows = join_arrows([send(), receive(), receive(receiver="e1", engine=1, pid=3, tid=33)], IdSource())
    assert arrows.drawn == {FROM_TO[BUCKETS]: 2}
    assert ends(arrows) == [
        (1, False, 2, 22, 120),
        (1, True, 1, 11, 100),
        (2, False, 3, 33, 120),
        (2, True, 1, 11, 100),
    ]
    assert not arrows.undrawn


def test_two_senders_of_one_version_are_told_apart_by_their_groups():
    senders = [
        send(group="pp_0"),
        send(group="pp_1", source="actor-1@1-1", pid=5, tid=55, start_ns=110, free=((110, 200),)),
    ]
    told = {"source": None, "sync": None}
    receives = [receive(group=group, **told) for group in ("pp_0", "pp_1")]
    arrows = join_arrows([*senders, *receives], IdSource())
    assert ends(arrows) == [
        (1, False, 2, 22, 120),
        (1, True, 1, 11, 100),
        (2, False, 2, 22, 120),
        (2, True, 5, 55, 110),
    ]
    assert not arrows.undrawn


def test_two_senders_of_one_version_without_groups_are_ambiguous():
    senders = [send(), send(source="actor-1@1-1")]
    arrows = join_arrows([*senders, receive(source=None, sync=None)], IdSource())
    assert not arrows.drawn
    assert arrows.undrawn == {SEVERAL: 1}


def test_receive_that_began_to_wait_before_the_send_is_met_after_it():
    arrows = join_arrows([send(), receive(start_ns=50, free=((50, 220),))], IdSource())
    assert ends(arrows) == [(1, False, 2, 22, 101), (1, True, 1, 11, 100)]


def test_arrow_binds_where_no_inner_slice_lies_over_the_outer_one():
    arrows = join_arrows(
        [send(free=((130, 140), (150, 200))), receive(free=((120, 125), (160, 170)))], IdSource()
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
        ({"start_ns": 10, "end_ns": 90, "free": ((10, 90),)}, "the receive ended before the send began"),
        ({"end_ns": 120, "free": ()}, "the receive lasted 0 ns"),
        ({"free": ()}, "other phases cover the send or the receive"),
        ({"start_ns": 50, "free": ((50, 90),)}, "other phases cover the send or the receive"),
    ],
)
def test_join_that_is_not_certain_is_drawn_as_none_and_counted(change, reason):
    arrows = join_arrows([send(), receive(**change)], IdSource())
    assert not arrows.drawn
    assert arrows.undrawn == {f"{FROM_TO[BUCKETS]}: {reason}": 1}


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"free": ()}, "other phases cover the send or the receive"),
        ({"end_ns": 100, "free": ()}, "the send lasted 0 ns"),
    ],
)
def test_a_send_that_an_arrow_cannot_begin_at_is_told_as_that(change, reason):
    arrows = join_arrows([send(**change), receive()], IdSource())
    assert (arrows.drawn, arrows.undrawn) == ({}, {f"{FROM_TO[BUCKETS]}: {reason}": 1})


@pytest.mark.parametrize(
    ("sent_to", "received_by", "drawn"),
    [("0", 0, 1), (0, "0", 1), ("east", "east", 1), ("1", 0, 0), (0, None, 0), ("None", None, 0)],
)
def test_engine_is_the_same_as_number_and_as_text(sent_to, received_by, drawn):
    arrows = join_arrows([send(engine=sent_to), receive(engine=received_by)], IdSource())
    assert arrows.drawn.total() == drawn


def test_a_load_that_names_no_transport_is_told_where_files_of_its_sync_were_written():
    load = receive(pair=SHARDS, bucket=None, transport=None, free=((200, 300),))
    arrows = join_arrows([*_published(SHARDS, transport=None), load], IdSource())
    assert (arrows.drawn, arrows.undrawn) == ({}, {f"{FROM_TO[SHARDS]}: the receive names no transport": 1})
    without_files = join_arrows([load], IdSource())
    assert (without_files.drawn, without_files.undrawn) == ({}, {})


def test_a_file_that_names_no_transport_is_joined_to_the_loads_that_do():
    load = receive(pair=SHARDS, bucket=None, free=((200, 300),))
    arrows = join_arrows([*_published(SHARDS, transport=None), load], IdSource())
    assert (arrows.drawn, arrows.undrawn) == ({FROM_TO[SHARDS]: 3}, {})


def test_receive_that_knows_only_the_weight_version_joins_the_one_send_of_it():
    unknown = receive(source=None, sync=None)
    assert join_arrows([send(), unknown], IdSource()).drawn.total() == 1
    twice = join_arrows([send(), send(source="actor-1@2-2"), unknown], IdSource())
    assert (twice.drawn.total(), twice.undrawn) == (0, {SEVERAL: 1})


def test_two_sends_of_one_bucket_are_ambiguous_unless_each_names_its_engine():
    both = join_arrows([send(), send(start_ns=110), receive()], IdSource())
    assert both.undrawn == {SEVERAL: 1}
    named = join_arrows(
        [
            send(engine=0),
            send(engine=1, free=((105, 200),)),
            receive(),
            receive(engine=1, receiver="e1"),
        ],
        IdSource(),
    )
    assert (named.drawn.total(), [end[-1] for end in ends(named) if end[1]]) == (2, [100, 105])


def test_bucket_received_twice_by_one_engine_is_ambiguous():
    arrows = join_arrows([send(), receive(), receive(start_ns=130)], IdSource())
    assert not arrows.drawn
    assert arrows.undrawn == {f"{FROM_TO[BUCKETS]}: ambiguous: the engine received it more than once": 2}


def _published(pair, **more):
    """Two ranks publish three files of one sync, all keyed by rank 0."""
    return [
        send(pair=pair, bucket=number, pid=1 + number % 2, start_ns=at, free=((at, at + 10),), **more)
        for number, at in enumerate((100, 110, 120))
    ]


@pytest.mark.parametrize("pair", [SHARDS, DELTAS])
def test_each_file_has_an_arrow_to_each_engine(pair):
    late = {"pair": pair, "bucket": None, "start_ns": 200, "free": ((200, 300),)}
    engines = [receive(**late), receive(receiver="e1", engine=1, pid=3, tid=33, **late)]
    arrows = join_arrows([*_published(pair), *engines], IdSource())
    assert arrows.drawn == {FROM_TO[pair]: 6}
    assert not arrows.undrawn
    starts = [(e.pid, e.at_ns) for group in arrows.ends.values() for e in group if e.begins]
    assert sorted(starts) == sorted(2 * [(1, 100), (2, 110), (1, 120)])
    heads = [(e.pid, e.at_ns) for group in arrows.ends.values() for e in group if not e.begins]
    assert sorted(heads) == [(2, 200)] * 3 + [(3, 200)] * 3
    assert len({e.flow_id for group in arrows.ends.values() for e in group}) == 6


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"source": "actor-0@1-2"}, "no send matches the receive"),
        ({"attempt": 1}, "no send matches the receive"),
        ({"sync": 5}, "no send matches the receive"),
        ({"source": None, "weight_version": None}, "the receive names no source"),
    ],
)
def test_files_of_another_sync_are_not_joined(change, reason):
    loaded = receive(**({"pair": SHARDS, "bucket": None} | change))
    arrows = join_arrows([*_published(SHARDS), loaded], IdSource())
    assert not arrows.drawn
    assert arrows.undrawn == {f"{FROM_TO[SHARDS]}: {reason}": 1}


def test_a_file_that_was_written_twice_is_ambiguous_and_the_others_are_joined():
    again = send(pair=SHARDS, bucket=1, pid=9)
    loaded = receive(pair=SHARDS, bucket=None, free=((200, 300),))
    arrows = join_arrows([*_published(SHARDS), again, loaded], IdSource())
    assert arrows.drawn == {FROM_TO[SHARDS]: 2}
    assert arrows.undrawn == {f"{FROM_TO[SHARDS]}: ambiguous: several sends match the receive": 1}


@pytest.mark.parametrize("pair", [SHARDS, DELTAS])
def test_files_without_a_number_are_one_for_each_process(pair):
    ranks = [send(pair=pair, bucket=None, pid=pid) for pid in (1, 2)]
    loaded = receive(pair=pair, bucket=None, pid=3, free=((200, 300),))
    arrows = join_arrows([*ranks, loaded], IdSource())
    assert (arrows.drawn, arrows.undrawn) == ({FROM_TO[pair]: 2}, {})
    assert sorted(e.pid for group in arrows.ends.values() for e in group if e.begins) == [1, 2]
    another = send(pair=pair, bucket=None, pid=2, start_ns=150)
    arrows = join_arrows([*ranks, another, loaded], IdSource())
    assert arrows.drawn == {FROM_TO[pair]: 1}
    assert arrows.undrawn == {f"{FROM_TO[pair]}: ambiguous: several sends match the receive": 1}


def test_the_documented_recipe_for_weights_over_a_disk_draws_an_arrow_from_each_rank(tmp_path):
    ranks = [ProcessFile("r", pid=1 + n, role="actor", rank=n, start_ns=1) for n in (0, 1)]
    engines = [ProcessFile("r", pid=8 + n, role="engine", rank=n, start_ns=1) for n in (0, 1)]
    about = {"sync": 0, "source": ranks[0].source, "weight_version": "1", "transport": "disk"}
    for rank in ranks:
        rank.phase("shard_write", 10 * MS, 20 * MS, rollout=0, **about)
    for engine in engines:
        engine.phase("engine_load", 30 * MS, 40 * MS, **about)
    for process in (*ranks, *engines):
        process.write(tmp_path)
    (output,) = merge_run([tmp_path / "r"], 0).outputs
    assert (output.arrows_drawn, output.arrows_not_drawn) == ({FROM_TO[SHARDS]: 4}, {})
    joined = [(sender[0], receiver[0]) for sender, receiver in Merged(output.path).arrows()]
    assert joined == [
        (f"actor rank {rank} · phases", f"engine {engine} · phases") for rank in (0, 1) for engine in (0, 1)
    ]


def test_files_of_two_senders_are_ambiguous_for_a_load_that_knows_only_the_weight_version():
    loaded = receive(pair=SHARDS, bucket=None, source=None, sync=None, free=((200, 300),))
    assert join_arrows([*_published(SHARDS), loaded], IdSource()).drawn == {FROM_TO[SHARDS]: 3}
    two = [*_published(SHARDS), send(pair=SHARDS, bucket=3, source="actor-0@1-2"), loaded]
    arrows = join_arrows(two, IdSource())
    assert not arrows.drawn
    assert arrows.undrawn == {f"{FROM_TO[SHARDS]}: ambiguous: several sends match the receive": 1}


def test_an_engine_that_loads_a_version_twice_is_ambiguous():
    loaded = {"pair": SHARDS, "bucket": None}
    twice = [receive(start_ns=at, free=((at, at + 10),), **loaded) for at in (200, 300)]
    arrows = join_arrows([*_published(SHARDS), *twice], IdSource())
    assert not arrows.drawn
    assert arrows.undrawn == {f"{FROM_TO[SHARDS]}: ambiguous: the engine received it more than once": 2}


@pytest.mark.parametrize(
    ("name", "args", "pair"),
    [
        ("engine_receive", {"bucket": 3}, BUCKETS),
        ("engine_receive", {}, None),
        ("bucket_send", {"transport": "ipc"}, None),
        ("engine_load", {"transport": "disk"}, SHARDS),
        ("engine_load", {"transport": "nccl", "bucket": 3}, None),
        ("engine_load", {"transport": "ipc", "bucket": 3}, None),
        ("engine_load", {"transport": "disk_delta"}, None),
        ("engine_load", {}, SHARDS),
        ("shard_write", {}, SHARDS),
        ("shard_write", {"transport": "nccl"}, None),
        ("engine_pull", {"transport": "disk_delta"}, DELTAS),
        ("bucket_ack", {"bucket": 3}, None),
    ],
)
def test_which_phases_are_ends_of_which_arrows(name, args, pair):
    assert find_pair(name, args) is pair


_SENDS = {
    BUCKETS: ("bucket_send", "engine_receive", {"transport": "nccl", "bucket": 0}),
    SHARDS: ("shard_write", "engine_load", {"transport": "disk"}),
    DELTAS: ("delta_publish", "engine_pull", {"transport": "disk_delta"}),
}


def _write_restarted(out, pair, rollout, version="1", **sent):
    """A sender dies after its first sync, its successor numbers syncs and versions anew.

    The engine names the weight version alone, and loads once, while rollout 0 is still under way.
    """
    sends, receives, fields = _SENDS[pair]
    trainers = [ProcessFile("r", pid=pid, role="actor", rank=0, start_ns=1) for pid in (1, 2)]
    for trainer, at, of, named, more in (
        (trainers[0], 100, 0, "1", {}),
        (trainers[1], 300, rollout, version, sent),
    ):
        about = {"sync": 0, "weight_version": named, "source": trainer.source, "rollout": of}
        trainer.phase("weight_sync", at * MS, (at + 50) * MS, **about)
        trainer.phase(sends, at * MS, (at + 50) * MS, **(about | fields | more))
    engine = ProcessFile("r", pid=3, role="engine", rank=0, start_ns=1)
    engine.phase(receives, 310 * MS, 360 * MS, weight_version="1", **fields)
    manager = ProcessFile("r", pid=4, role="rollout_manager", start_ns=1)
    manager.phase("generate", 10 * MS, 900 * MS, rollout=0)
    for process in (*trainers, engine, manager):
        process.write(out)
    return out / "r"


@pytest.mark.parametrize("rollouts", [0, 1, (0, 2)])
@pytest.mark.parametrize("pair", [BUCKETS, SHARDS, DELTAS])
def test_a_load_is_never_joined_to_the_dead_sender_of_another_rollout(tmp_path, pair, rollouts):
    (output,) = merge_run([_write_restarted(tmp_path, pair, 1)], rollouts).outputs
    assert output.arrows_drawn == {}
    assert output.arrows_not_drawn == {
        f"{FROM_TO[pair]}: ambiguous: the weight version is that of several syncs": 1
    }


def test_a_receive_is_not_joined_to_a_dead_sender_whose_successor_lacks_that_bucket(tmp_path):
    folder = _write_restarted(tmp_path, BUCKETS, 0, bucket=7)
    (output,) = merge_run([folder], 0).outputs
    assert output.arrows_drawn == {}
    assert output.arrows_not_drawn == {
        f"{FROM_TO[BUCKETS]}: ambiguous: the weight version is that of several syncs": 1
    }


def test_a_version_of_one_sync_decides_though_a_successor_sent_another_in_the_same_rollout(tmp_path):
    folder = _write_restarted(tmp_path, BUCKETS, 0, version="2")
    (output,) = merge_run([folder], 0).outputs
    assert (output.arrows_drawn, output.arrows_not_drawn) == ({FROM_TO[BUCKETS]: 1}, {})
