"""The smallest of the candidates (see `candidates`): with the fewest rules, and of these the fewest constraints.

A smallest one is minimal, since a rule or a constraint that could still go would leave a smaller candidate. If it keeps
all the rules that fire, removals one after another lead to it, in any order: with more constraints, rules fire and read
on no more of the data, and exclude each other no less. A rule that fires is dropped only as an heir loses constraints,
which no single removal does.

The search goes best first: a node is a set of decisions, with all that follows from them, and a bound on the candidates
that agree with them; nodes are opened in the order of their bounds until one has nothing left to decide.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from heapq import heappop, heappush
from typing import NamedTuple

from alta.analysis.candidates import Bits, Heir, Need, Part, Size, bits, parts, union
from alta.analysis.examples import Table
from alta.language.rules import Rule


def smallest_rules(
    rules: Sequence[Rule], table: Table, known: Sequence[Mapping[int, Rule]], limit: int
) -> tuple[list[Rule], Size]:
    """A smallest candidate and its size, or, if that takes more than `limit` nodes, the smallest so far and a bound on
    the size of all. `known` are candidates to begin with, by the numbers of the rules that they keep."""
    found: list[tuple[int, Rule]] = []
    least = (0, 0)
    problems = sorted(parts(rules, table), key=lambda part: len(part.needs))
    for number, part in enumerate(problems):
        first = min((part.find(rules, left) for left in known), key=lambda both: part.size(*both))
        solved = _solve(part, *first, limit // (len(problems) - number))
        limit -= solved.nodes
        least = least[0] + solved.bound[0], least[1] + solved.bound[1]
        found += part.build(rules, solved.kept, solved.taken)
    return [rule for _, rule in sorted(found, key=lambda item: item[0])], least


class _Solved(NamedTuple):
    kept: Bits
    taken: Bits
    bound: Size
    nodes: int


class _Node(NamedTuple):
    """Decisions: rules that are kept and gone, constraints that stay if their rules do, and those that may."""

    kept: Bits
    gone: Bits
    taken: Bits
    allowed: Bits


class _Will(NamedTuple):
    """A rule that is gone, or may yet go, and those that could do its work on some example, where that is open."""

    rule: int
    gone: bool
    heirs: list[Heir]


class _Settled(NamedTuple):
    """A node with all that follows from it, and what is still open."""

    node: _Node
    needs: list[Need]
    wills: list[_Will]


def _solve(part: Part, kept: Bits, taken: Bits, limit: int) -> _Solved:
    """The smallest candidate of a part, where one is known."""
    best = part.size(kept, taken)
    stay = union(1 << rule for rule, cases in enumerate(part.heirs) if cases is None)
    root = _settle(part, _Node(stay, 0, part.taken, union(part.constraints)))
    assert root is not None, "there is a candidate"
    queue = [(_bound(part, root), 0, root.node, _branches(root))]
    nodes = 0
    while queue and queue[0][0] < best:
        bound, _, node, branches = heappop(queue)
        if not branches:
            return _Solved(node.kept, node.taken, bound, nodes)
        if nodes >= limit:
            return _Solved(kept, taken, bound, nodes)
        for branch in branches:
            nodes += 1
            after = _settle(part, branch)
            if after is not None and (least := max(bound, _bound(part, after))) < best:
                # of equals the last, which has decided most, comes first
                heappush(queue, (least, -nodes, after.node, _branches(after)))
    return _Solved(kept, taken, best, nodes)


def _settle(part: Part, node: _Node) -> _Settled | None:
    """Decides what follows from what has been decided, or what one of the smallest candidates agrees with; None if no
    candidate is left."""
    while True:
        settled = _Settled(node, [], [])
        after = _take(part, settled)
        if after is not None:
            after = _inherit(part, after, settled)
        if after is None:
            return None
        if after == node and not settled.wills:
            after = node._replace(allowed=node.allowed & ~_idle(settled))
        if after == node:
            return settled
        node = after


def _take(part: Part, settled: _Settled) -> _Node | None:
    """Takes the constraints that all options of a need share."""
    kept, _, taken, allowed = settled.node
    for need in part.needs:
        if need.rules & ~kept or any(not option & ~taken for option in need.options):
            continue
        options = tuple(option for option in need.options if not option & ~allowed)
        if not options:
            return None
        if len(options) > 1:
            settled.needs.append(need._replace(options=options))
        shared = options[0]
        for option in options:
            shared &= option
        taken |= shared
    return settled.node._replace(taken=taken)


def _inherit(part: Part, node: _Node, settled: _Settled) -> _Node | None:
    """Keeps rules whose work nobody else can do, drops those whose work is done, appoints heirs that have no rival."""
    kept, gone, taken, allowed = node
    for rule, cases in enumerate(part.heirs):
        if kept >> rule & 1 or not cases:
            continue
        is_gone = bool(gone >> rule & 1)
        for case in cases:
            if any(kept >> heir.rule & 1 and not heir.fails & allowed for heir in case):
                continue
            heirs = [heir for heir in case if not gone >> heir.rule & 1 and not heir.fails & taken]
            if is_gone and not heirs:
                return None
            if not heirs:
                kept |= 1 << rule
                break
            settled.wills.append(_Will(rule, is_gone, heirs))
            if is_gone and len(heirs) == 1:
                kept, allowed = kept | 1 << heirs[0].rule, allowed & ~heirs[0].fails
        else:
            if not any(will.rule == rule for will in settled.wills):
                gone |= 1 << rule
    return _Node(kept, gone, taken, allowed)


def _idle(settled: _Settled) -> Bits:
    """A constraint that another one can stand in for, in all needs that it helps to meet; 0 if there is none."""
    wanted = [[option & ~settled.node.taken for option in need.options] for need in settled.needs]
    helped: defaultdict[Bits, list[list[Bits]]] = defaultdict(list)
    for options in wanted:
        for bit in bits(union(options)):
            helped[bit].append(options)
    for bit, needs in helped.items():
        others = ~bit
        for options in needs:
            others &= union(options)
        for other in bits(others):
            if all(
                any(not choice & ~(option & ~bit | other) for choice in options)
                for options in needs
                for option in options
                if option & bit
            ):
                return bit
    return 0


def _bound(part: Part, settled: _Settled) -> Size:
    """What is kept, and what more is needed, as far as needs have nothing in common."""
    kept, _, taken, _ = settled.node
    rules, constraints = part.size(kept, taken)
    apart: list[dict[int, Bits]] = []  # for examples of which no rule could do two: the rules that could do each
    for will in sorted(settled.wills, key=lambda will: len(will.heirs)):
        able = dict(will.heirs) if will.gone else {will.rule: 0, **dict(will.heirs)}
        if not any(
            kept >> rule & 1 or any(rule in other and part.can_lose(rule, fails | other[rule]) for other in apart)
            for rule, fails in able.items()
        ):
            apart.append(able)
            rules += 1
            constraints += min(part.least[rule] for rule in able)
    counted = 0
    wanted = [tuple(option & ~taken for option in need.options) for need in settled.needs]
    for options in sorted(wanted, key=lambda options: union(options).bit_count()):
        if not (every := union(options)) & counted:
            counted |= every
            constraints += min(option.bit_count() for option in options)
    return rules, constraints


def _branches(settled: _Settled) -> list[_Node]:
    """Decides one thing, in each way, so that each candidate is in a branch; none if all is decided."""
    node = settled.node
    if settled.wills:
        will = min(settled.wills, key=lambda will: (not will.gone, len(will.heirs)))
        if not will.gone:
            return [node._replace(kept=node.kept | 1 << will.rule), node._replace(gone=node.gone | 1 << will.rule)]
        chosen = ((node.kept | 1 << heir.rule, node.allowed & ~heir.fails) for heir in will.heirs)
        return [node._replace(kept=kept, allowed=allowed) for kept, allowed in chosen]
    if not settled.needs:
        return []
    wanted = [union(need.options) & ~node.taken for need in settled.needs]
    bit = max(bits(min(wanted, key=int.bit_count)), key=lambda bit: sum(bool(bit & other) for other in wanted))
    return [node._replace(taken=node.taken | bit), node._replace(allowed=node.allowed & ~bit)]
