"""Memory planning as pure algorithms: an order of tasks, lifetimes, shared storages, offsets, and a judge of them.

Sizes are bytes, steps are positions in the order, storages and tasks are indices. Nothing
here knows graphs or tensors, and nothing imports the rest of the compiler.
"""

from dlc.placement.aliases import Storages, View, merge_views
from dlc.placement.allocator import Allocator, Decision, Instance
from dlc.placement.buffers import Buffer, Placement, max_live
from dlc.placement.check import check_placement, check_regions
from dlc.placement.check_steps import check_steps
from dlc.placement.lifetimes import Lifetimes, lifetimes, peak_of
from dlc.placement.order import order_tasks
from dlc.placement.place import Strategy, place
from dlc.placement.recompute import Recomputation, Unrolled, least_cost, least_memory, unrolled
from dlc.placement.regions import Region, Regional, place_in_regions
from dlc.placement.tasks import OrderResult, Task

__all__ = [
    "Allocator",
    "Buffer",
    "Decision",
    "Instance",
    "Lifetimes",
    "OrderResult",
    "Placement",
    "Recomputation",
    "Region",
    "Regional",
    "Storages",
    "Strategy",
    "Task",
    "Unrolled",
    "View",
    "check_placement",
    "check_regions",
    "check_steps",
    "least_cost",
    "least_memory",
    "lifetimes",
    "max_live",
    "merge_views",
    "order_tasks",
    "peak_of",
    "place",
    "place_in_regions",
    "unrolled",
]
