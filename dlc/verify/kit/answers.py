"""Questions to a backend (`accepts`, `accepts_type`, `accepts_kernel`), answered twice alike and with a reason."""

from __future__ import annotations

from collections.abc import Callable

from dlc.api.backend import Reason
from dlc.verify.kit.check import Wrong
from dlc.verify.kit.subject import in_words


def answer(ask: Callable[[], object], question: str) -> bool:
    """Whether something is accepted.

    Args:
        ask: Asks once: it is called twice.
        question: As messages call it: "accepts_type(f16[])".

    Raises:
        Wrong: there is no answer, another one the second time, or a refusal without a reason.
    """
    try:
        first, again = ask(), ask()
    except Exception as problem:  # a plugin's code may raise anything
        raise Wrong(
            f"{question} fails: {in_words(problem)}", "answer every question: with True or a Reason"
        ) from problem
    if first != again:
        raise Wrong(
            f"{question} gives another answer the second time",
            "it must depend on what it is given and the options only",
        )
    if first is True:
        return True
    if not isinstance(first, Reason) or not first.text.strip():
        help = 'return Reason("what is not supported", "what would help")'
        raise Wrong(f"{question} refuses without a reason: {first!r}", help)
    return False
