"""Views: every value keeps its bytes to itself and to those it is part of."""

from hypothesis import given
from hypothesis import strategies as st

from dlc.placement import View, merge_views


def test_concat_inputs_live_in_the_output_and_a_reshape_follows() -> None:
    merged = merge_views([16, 32, 48, 16], [View(0, 2, 0), View(1, 2, 16), View(3, 0)])
    assert merged.of == (0, 0, 0, 0)
    assert merged.offset == (0, 16, 0, 0)
    assert merged.sizes == (48,)
    assert merged.refused == ()


def test_a_value_has_one_place() -> None:
    second = View(0, 2, 16)
    merged = merge_views([16, 32, 32], [View(0, 1, 0), second])
    assert merged.refused == (second,)
    assert merged.of == (0, 0, 1)


def test_unsafe_wishes_are_refused() -> None:
    wishes = [View(0, 1, 8), View(0, 1, -4), View(1, 1), View(2, 1), View(0, 1, 2)]
    merged = merge_views([8, 12, 4], wishes, pinned={2}, align=4)
    assert merged.refused == tuple(wishes)
    assert merged.sizes == (8, 12, 4)


def test_cycles_are_refused() -> None:
    assert merge_views([8, 8], [View(0, 1), View(1, 0)]).refused == (View(1, 0),)


def test_only_whole_storages_are_handed_over() -> None:
    merged = merge_views([8, 16, 16, 8], [View(0, 1, 8)])
    assert merged.pair(1, 2) == (0, 1)
    assert merged.pair(0, 3) is None  # a part of a storage
    assert merged.pair(1, 1) is None
    assert merged.pair(2, 3) is None  # sizes differ


@given(st.data())
def test_granted_views_are_where_they_were_wished(data: st.DataObject) -> None:
    sizes = data.draw(st.lists(st.integers(0, 16), min_size=1, max_size=8))
    value = st.integers(0, len(sizes) - 1)
    views = data.draw(st.lists(st.builds(View, value, value, st.integers(-1, 16)), max_size=12))
    pinned = data.draw(st.sets(value))
    merged = merge_views(sizes, views, pinned=pinned)
    for view in views:
        if view not in merged.refused:
            assert merged.of[view.value] == merged.of[view.of]
            assert merged.offset[view.value] == merged.offset[view.of] + view.offset
    for index, size in enumerate(sizes):
        assert 0 <= merged.offset[index] <= merged.sizes[merged.of[index]] - size
    assert all(merged.owner[merged.of[index]] == index for index in pinned)
    assert len(merged.sizes) == len(sizes) - (len(views) - len(merged.refused))
