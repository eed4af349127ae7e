"""Cut a network where everything passes through one task, and bound each piece from below."""

from dataclasses import dataclass

from dlc.placement.tasks import Network, bits


@dataclass(frozen=True)
class Segment:
    """Tasks that run together in every order, between two cuts."""

    start: int  # the tasks done before, as a bit set
    members: int  # the tasks of this segment
    live: int  # bytes live when it starts
    bound: int  # no order of the members has a smaller peak


def segments(net: Network) -> tuple[Segment, ...]:
    """The pieces between cut tasks: those with every other task either before or behind them.

    Any order runs all tasks before a cut, the cut, then the rest, so the least peak of the
    whole is the greatest of the least peaks of the pieces.
    """
    past, future = _reach(net)
    everything = (1 << len(net.tasks)) - 1
    borders = {everything}
    for task in range(len(net.tasks)):
        if past[task] | future[task] | 1 << task == everything:
            borders.add(past[task] | 1 << task)
    needs = _needs(net, past, future)
    pieces: list[Segment] = []
    start, live = 0, net.base
    for border in sorted(borders, key=int.bit_count):
        members = border & ~start
        if members:
            bound = max(live, *(needs[task] for task in bits(members)))
            pieces.append(Segment(start, members, live, bound))
            live = _live_after(net, live, start, border)
            start = border
    return tuple(pieces)


def _reach(net: Network) -> tuple[list[int], list[int]]:
    """Per task, all tasks that must run before it and all that must run after it."""
    count = len(net.tasks)
    past = list(net.before)
    for task in range(count):
        for other in bits(net.before[task]):
            past[task] |= past[other]
    future = [0] * count
    for task in reversed(range(count)):
        for other in net.then[task]:
            future[task] |= future[other] | 1 << other
    return past, future


def _live_after(net: Network, live: int, start: int, done: int) -> int:
    """Bytes live when exactly the tasks `done` have run, where `live` are when those of `start` have.

    Only what the tasks between touch is looked at: a network may have as many pieces as tasks.
    """

    def alive(storage: int, run: int) -> bool:
        born = storage in net.given or net.users[storage] & run
        return bool(born and (storage in net.kept or net.users[storage] & ~run))

    touched = {storage for task in bits(done & ~start) for storage in net.touches[task]}
    return live + sum(net.sizes[s] * (alive(s, done) - alive(s, start)) for s in touched)


def _needs(net: Network, past: list[int], future: list[int]) -> list[int]:
    """Per task, bytes that are live while it runs in every order."""
    everything = (1 << len(net.tasks)) - 1
    needs = [_own_need(net, task, past, future) for task in range(len(net.tasks))]
    for storage, size in enumerate(net.sizes):
        born = everything if storage in net.given else 0
        wanted = everything if storage in net.kept else 0
        for user in bits(net.users[storage]):
            born |= future[user]
            wanted |= past[user]
        for task in bits(born & wanted & ~net.users[storage]):
            needs[task] += size
    return needs


def _own_need(net: Network, task: int, past: list[int], future: list[int]) -> int:
    """Storages the task touches plus workspace, less what in-place pairs could save at best."""
    touched = net.touches[task]
    born = [s for s in touched if s not in net.given and not net.users[s] & past[task]]
    dying = [s for s in touched if s not in net.kept and not net.users[s] & future[task]]
    saved = sum(net.sizes[old] for old, _ in net.shared(task, born, dying))
    return sum(net.sizes[storage] for storage in touched) - saved + net.tasks[task].workspace
