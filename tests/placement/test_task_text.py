"""Files of tasks: read back as written, and refused with the line that is wrong."""

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dlc.placement import Task
from dlc.placement.task_text import TaskGraph, TaskTextError, parse_tasks, tasks_text

GOOD = "2\n8 4\n2\na 0 1 0 0 0 0\nb 1 0 1 1 1 0 1 1 0 16\n"


@st.composite
def graphs(draw: st.DrawFn) -> TaskGraph:
    sizes = tuple(draw(st.lists(st.integers(0, 1 << 40), max_size=4)))
    some = st.lists(st.integers(0, len(sizes) - 1), max_size=3).map(tuple) if sizes else st.just(())
    tasks: list[Task] = []
    for k in range(draw(st.integers(0, 4))):
        reads, writes = draw(some), draw(some)
        pairs = [(old, new) for old in reads for new in writes]
        inplace = tuple(draw(st.lists(st.sampled_from(pairs), max_size=2))) if pairs else ()
        after = tuple(draw(st.lists(st.integers(0, k - 1), max_size=2))) if k else ()
        tasks.append(Task(reads, writes, draw(st.integers(0, 99)), inplace, after))
    costs = tuple(draw(st.integers(0, 9)) for _ in tasks) if draw(st.booleans()) else ()
    return TaskGraph(tuple(f"t{k}" for k in range(len(tasks))), tuple(tasks), sizes, costs)


@settings(max_examples=50)
@given(graphs())
def test_what_is_written_is_read_back(graph: TaskGraph) -> None:
    assert parse_tasks(tasks_text(graph)) == graph


def test_every_part_of_a_line() -> None:
    graph = parse_tasks(GOOD)
    assert graph.tasks == (Task((), (0,)), Task((0,), (1,), 16, ((0, 1),), (0,)))
    assert (graph.names, graph.sizes, graph.costs) == (("a", "b"), (8, 4), ())
    assert parse_tasks("0\n\n0\n").tasks == ()


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("", 1, "number of storages"),
        ("99999999999999999999\n", 1, "digits"),
        ("1000000\n", 1, "at most 32,768"),
        ("2\n8\n0\n", 2, "2 storages, but 1 sizes"),
        ("1\n-8\n0\n", 2, "-8"),
        ("1\n8\n", 3, "number of tasks"),
        ("1\n8\n2\na 0 0 0 0 0\n", 3, "2 tasks, but 1 lines"),
        ("1\n8\n\n1\na 0 1 1 0 0 0\n", 5, "storage 1"),
        ("1\n8\n1\na 5 0 0\n", 4, "ends within its reads"),
        ("1\n8\n1\na 0 0 999999999 0\n", 4, "in-place pairs"),
        ("1\n8\n1\na 0 1 0 1 0 0 0 0\n", 4, "in-place pair 0 0"),
        ("1\n8\n1\na 0 0 0 1 0 0\n", 4, "task 0"),
        ("1\n8\n1\na 0 0 0 0\n", 4, "found 0 numbers"),
        ("1\n8\n1\na 0 0 0 0 1 2 3\n", 4, "found 3 numbers"),
        ("1\n8\n2\na 0 0 0 0 1 2\nb 0 0 0 0 1\n", 5, "cost"),
        ("1\n8\n1\na 0 0 0 0 x\n", 4, "x"),
        ("1\n8\n1\na 0 0 0 0 ²\n", 4, "²"),
    ],
)
def test_malformed_text_is_refused_with_its_line(text: str, line: int, words: str) -> None:
    with pytest.raises(TaskTextError, match=re.escape(words)) as refused:
        parse_tasks(text)
    assert refused.value.line == line
