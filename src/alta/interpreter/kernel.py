"""The batch interpreter's inner loops for Numba: one input after another, each variable a row of codes.

It gives outputs, layers, halting and counts of rules. Inputs that trap, read UNDEFINED or would never halt are left to
NumPy, which says what happened.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Sequence, Sized
from functools import lru_cache
from typing import NamedTuple

import numba
import numpy as np

from alta.interpreter.plan import Plan, Selection
from alta.interpreter.reading import Array
from alta.interpreter.sheet import Outcome, Wanted
from alta.interpreter.tries import BAD, NONE, RULE

CONSTANT, FROM_TOKEN, FROM_POSITION, WRITTEN = range(4)
"""Where a variable starts; WRITTEN is for outputs of heads."""

NEIGHBOUR, EVERYWHERE, NEAR, BY_KEY = range(4)
"""How a selection works: one neighbour, the same for all positions, at relative positions, or anywhere."""


# Columns of the tables that describe a plan.
UNDEFINED, SOURCE, START, RESET, SHIFT, SHIFTED, STEP = range(7)
"""Of a variable: the code of UNDEFINED; where it starts, and the first of its codes in `starts`; the number of its
first reset, or -1; where it is read: how far away, in which row of the state (a neighbour's, or its own), and whether
that has an entry for each position (1) or one for all (0)."""

HOW, QUERY, KEY, KEYS, MEMBER, NEAREST, NEAR_COUNT = range(7)
"""Of a selection: how it works; its variables; how many codes a key has; the first of its rows in `members`, or -1; the
first of its relative positions in `nears`, and how many there are."""

OUTPUT, VALUE, SELECTION, MEAN, EDGES = range(5)
"""Of a head: its variables and selection; the first of its steps in `steps`, or -1; between how many buckets."""

ROOT, OWNER, LEVEL, DEPTH, UNIFORM_DEPTH, OFFSET, OFFSETS = range(7)
"""Of a trie: root and owner; the first of its levels in `levels`, how many there are, and how many are uniform; the
first in `offsets` of the distances at which it looks at positions, and how many these are."""

CHANGES, EVERYWHERE_CHANGED, STAMP, LAYERS = range(4)
"""Of the account of changes: how many positions have changed; whether all have; the newest stamp; layers so far."""


class Flat(NamedTuple):
    """A plan as tables."""

    variables: Array
    selections: Array
    heads: Array
    tries: Array
    groups: Array  # of tries that begin with one uniform variable: that, and the first of its codes in `group_ends`
    group_ends: Array  # for each code of a group's variable, where its tries begin in `grouped`; and where the last end
    grouped: Array  # tries; first those that are in no group
    starts: Array
    members: Array
    nears: Array
    steps: Array
    levels: Array
    offsets: Array
    spread: Array  # (variable): whether a change of it, though it is uniform, is one at each position
    base: Array
    child: Array
    key: Array
    target: Array
    new: Array
    in_order: Array  # all variables, the uniform ones first
    width: int
    output: int
    halt: int
    halt_code: int
    causal: bool


def run_rows(
    how: Plan, encoded: Sequence[Array], order: Sequence[int], wanted: Wanted
) -> Generator[tuple[list[int], Outcome], None, list[int]]:
    """Runs inputs, and returns the places of those that are left to do."""
    longest = max((len(encoded[place]) for place in order), default=0)
    if not all(head.mean is None or head.mean.fits(longest) for head in how.heads):
        return list(order)
    flat = flatten(how)
    limits, limit = _limits(how, longest)
    rest: list[int] = []
    rules = len(how.program.rules) if wanted.fired else 0
    size = max(2**24 // max(rules, 1), 1) if wanted.fired else max(len(order), 1)
    for first in range(0, len(order), size):
        part = list(order[first : first + size])
        tokens = np.concatenate([np.zeros(0, np.int32), *(encoded[place] for place in part)])
        ends = np.cumsum([0, *(len(encoded[place]) for place in part)])
        outputs = np.zeros(len(tokens), np.int32)
        layers, status = np.zeros(len(part), np.int64), np.zeros(len(part), np.int8)
        counts = np.zeros((len(part) if wanted.fired else 0, rules), np.int32)
        most = -1 if wanted.max_layers is None else wanted.max_layers
        _run(flat, limits, limit, tokens, ends, longest, most, outputs, layers, status, counts)
        done = np.flatnonzero(status != STOPPED)
        rest += [part[row] for row in np.flatnonzero(status == STOPPED)]
        if len(done):
            yield (
                [part[row] for row in done],
                Outcome(
                    outputs=[outputs[ends[row] : ends[row + 1]] for row in done.tolist()],
                    layers=layers[done],
                    halted=status[done] == HALTED,
                    errors={},
                    fired=counts[done] if wanted.fired else None,
                ),
            )
    return rest


@lru_cache(maxsize=16)
def flatten(how: Plan) -> Flat:
    """The plan as arrays."""
    columns, tries = how.columns, how.tries
    starts = [np.zeros(0, np.int32) if c.start is None else c.start.codes for c in columns]
    sources = {"constant": CONSTANT, "token": FROM_TOKEN, "position": FROM_POSITION}
    shifts = {
        head.output: (by, head.value, not columns[head.value].uniform)
        for head in how.heads
        if (by := how.selections[head.selection].shift) is not None and head.mean is None
    }
    members = [np.zeros(0, bool) if s.member is None else s.member.ravel() for s in how.selections]
    nears = [np.array(s.relative or (), np.int64) for s in how.selections]
    steps = [np.array([] if head.mean is None else head.mean.steps, np.int64) for head in how.heads]
    uniform = [column.uniform for column in columns]
    offsets = [sorted({shifts.get(v, (0,))[0] for v in levels if not uniform[v]}) for levels in tries.levels]
    neighbours = {value for _, value, _ in shifts.values()}
    groups, group_ends, grouped = _groups(how)
    return Flat(
        variables=_table(
            (c.undefined, WRITTEN if c.start is None else sources[c.start.source], first, reset, *read)
            for number, (c, first) in enumerate(zip(columns, _firsts(starts), strict=True))
            for reset, read in [(how.first_reset.get(number, -1), shifts.get(number, (0, number, not c.uniform)))]
        ),
        selections=_table(
            (_kind(s), s.query, s.key, len(columns[s.key].values), -1 if s.member is None else member, near, len(part))
            for s, member, near, part in zip(how.selections, _firsts(members), _firsts(nears), nears, strict=True)
        ),
        heads=_table(
            (h.output, h.value, h.selection, -1, 0)
            if h.mean is None
            else (h.output, h.value, h.selection, first, len(h.mean.edges))
            for h, first in zip(how.heads, _firsts(steps), strict=True)
        ),
        tries=_table(
            (root, owner, first, len(levels), sum(uniform[variable] for variable in levels), offset, len(distances))
            for root, owner, first, levels, offset, distances in zip(
                tries.roots, tries.owner, _firsts(tries.levels), tries.levels, _firsts(offsets), offsets, strict=True
            )
        ),
        groups=groups,
        group_ends=group_ends,
        grouped=grouped,
        starts=np.concatenate([np.zeros(0, np.int32), *starts]),
        members=np.concatenate([np.zeros(0, bool), *members]),
        nears=np.concatenate([np.zeros(0, np.int64), *nears]),
        steps=np.concatenate([np.zeros(0, np.int64), *steps]),
        levels=np.array([variable for levels in tries.levels for variable in levels], np.int64),
        offsets=np.array([distance for distances in offsets for distance in distances], np.int64),
        spread=np.array([uniform[variable] and variable in neighbours for variable in range(len(columns))], bool),
        base=tries.base,
        child=tries.child,
        key=tries.key,
        target=tries.target,
        new=how.new,
        in_order=np.array(sorted(range(len(columns)), key=lambda variable: not uniform[variable]), np.int64),
        width=tries.width,
        output=how.output,
        halt=-1 if how.halt is None else how.halt[0],
        halt_code=0 if how.halt is None else how.halt[1],
        causal=how.program.causal,
    )


def _groups(how: Plan) -> tuple[Array, Array, Array]:
    """The plan's `dispatch` as arrays; what begins with the output of a head, which may be due, is in no group."""
    tables = {v: table for v, table in how.dispatch.items() if how.columns[v].start is not None}
    inside = {trie for table in tables.values() for entries in table for trie, _ in entries}
    grouped = [trie for trie in range(len(how.tries.roots)) if trie not in inside]
    groups, ends = [], [len(grouped)]
    for variable, table in tables.items():
        groups.append((variable, len(ends) - 1))
        for entries in table:
            grouped += [trie for trie, _ in entries]
            ends.append(len(grouped))
    pairs = np.array(groups, np.int64) if groups else np.zeros((0, 2), np.int64)
    return pairs, np.array(ends, np.int64), np.array(grouped, np.int64)


def _table(rows: Iterable[tuple[int, ...]]) -> Array:
    found = list(rows)
    return np.array(found, np.int64) if found else np.zeros((0, 7), np.int64)


def _firsts(parts: Sequence[Sized]) -> Array:
    """Where each part begins, one after another."""
    return np.cumsum([0, *map(len, parts)])[:-1].astype(np.int64)


def _kind(selection: Selection) -> int:
    if selection.uniform:
        return EVERYWHERE
    if selection.relative is None:
        return BY_KEY
    return NEAR if selection.shift is None else NEIGHBOUR


def _limits(how: Plan, longest: int) -> tuple[Array, Array]:
    """For each head and number of terms, the limits of `Mean`, one after another, and where each head's begin."""
    means = [head.mean for head in how.heads]
    tables = [
        np.zeros(0, np.int64)
        if mean is None or not mean.edges
        else np.concatenate([mean.limits(count) for count in range(longest + 1)])
        for mean in means
    ]
    return np.concatenate([np.zeros(0, np.int64), *tables]), _firsts(tables)


TRAP = -2
"""A trap was met, or UNDEFINED read."""

STOPPED, HALTED, CUT = range(3)
"""How an input ended: not to the end, halted, or after the most layers."""


@numba.njit(cache=True)
def _sparse_child(key, target, wanted):
    low, high = 0, len(key)
    while low < high:
        middle = (low + high) // 2
        if key[middle] < wanted:
            low = middle + 1
        else:
            high = middle
    if low < len(key) and key[low] == wanted:
        return target[low]
    return NONE


@numba.njit(inline="always")
def _matches(members, first, keys, query, key):
    return query == key if first < 0 else members[first + query * keys + key]


@numba.njit(inline="always")
def _note(changed, account, position):
    if account[CHANGES] < len(changed):
        changed[account[CHANGES]] = position
        account[CHANGES] += 1
    else:
        account[EVERYWHERE_CHANGED] = 1


@numba.njit(cache=True)
def _attend(
    variables,
    selection,
    head,
    members,
    nears,
    steps,
    limits,
    causal,
    state,
    length,
    count,
    place,
    total,
    changed,
    account,
):
    """What a head writes, at each position or once for all. `count`, `place` and `total` are scratch, by key. Positions
    at which it is not what it was in the layer before are noted in `changed`, some perhaps twice."""
    how, query, key, keys = selection[HOW], selection[QUERY], selection[KEY], selection[KEYS]
    member, output, value, mean, edges = selection[MEMBER], head[OUTPUT], head[VALUE], head[MEAN], head[EDGES]
    query_step, key_step, value_step = variables[query, STEP], variables[key, STEP], variables[value, STEP]
    if how == BY_KEY:
        count[:keys] = 0
        total[:keys] = 0
        if not causal:
            for j in range(length):
                k = state[key, j * key_step]
                count[k] += 1
                place[k] = j
                if mean >= 0:
                    total[k] += steps[mean + state[value, j * value_step]]
    for i in range(1 if how == EVERYWHERE else length):
        number, last, sum_ = 0, 0, 0
        q = state[query, i * query_step]
        if how == BY_KEY:
            if causal:
                k = state[key, i * key_step]
                count[k] += 1
                place[k] = i
                if mean >= 0:
                    total[k] += steps[mean + state[value, i * value_step]]
            if member < 0:
                number, last, sum_ = count[q], place[q], total[q]
            else:
                for k in range(keys):
                    if count[k] > 0 and members[member + q * keys + k]:
                        number, last, sum_ = number + count[k], place[k], sum_ + total[k]
        elif how == EVERYWHERE:
            for j in range(length):
                if _matches(members, member, keys, q, state[key, j * key_step]):
                    number, last = number + 1, j
                    if mean >= 0:
                        sum_ += steps[mean + state[value, j * value_step]]
        else:
            for index in range(selection[NEAR_COUNT]):
                j = i + nears[selection[NEAREST] + index]
                seen = 0 <= j < length and (j <= i or not causal)
                if seen and _matches(members, member, keys, q, state[key, j * key_step]):
                    number, last = number + 1, j
                    if mean >= 0:
                        sum_ += steps[mean + state[value, j * value_step]]
        code = variables[output, UNDEFINED]
        if mean < 0:
            if number == 1:
                code = state[value, last * value_step]
        elif number > 0:
            code = np.searchsorted(limits[number * edges : (number + 1) * edges], sum_)
        where = i * variables[output, STEP]
        if state[output, where] != code:
            state[output, where] = code
            _note(changed, account, i)


@numba.njit(cache=True)
def _start_state(variables, starts, state, tokens):
    for variable in range(len(variables)):
        source, first = variables[variable, SOURCE], variables[variable, START]
        for i in range(len(tokens) if variables[variable, STEP] else 1):
            if source == CONSTANT:
                state[variable, i] = starts[first]
            elif source == FROM_TOKEN:
                state[variable, i] = starts[first + tokens[i]]
            elif source == FROM_POSITION:
                state[variable, i] = starts[first + i]


@numba.njit(cache=True)
def _match(
    variables, tries, levels, offsets, base, child, key, target, width,
    state, length, updates, todo, due, at, last, changed, account, stamps, places, nodes,
):  # fmt: skip
    """Collects the updates: for each, the variable, the position (-1 for all) and the rule.

    The tries are those in `todo`, from `at[0]` up to `at[2]`; `at[1]` updates are found already. Returns -1 at the end,
    TRAP, or a head whose output is `due`: the head's number plus 1.

    A trie that comes to positions at the node at which it came there in the layer before (kept in `last`) needs to look
    only where something has changed: where it found a rule, that has changed something, and elsewhere it found none.

    Steps are written out, since Numba counts references to arrays around calls, which takes longer than the steps do.
    """
    found = at[1]
    for index in range(at[0], at[2]):
        trie = todo[index]
        node, owner, first = tries[trie, ROOT], tries[trie, OWNER], tries[trie, LEVEL]
        end, middle = first + tries[trie, DEPTH], first + tries[trie, UNIFORM_DEPTH]
        for level in range(first, middle):
            if due[levels[level]]:
                at[0], at[1] = index, found
                return due[levels[level]]
            code = state[levels[level], 0]
            if base[node] >= 0:
                node = child[base[node] + code]
            else:
                node = _sparse_child(key, target, node * width + code)
            if node < 0:
                break
        if node == NONE:
            continue
        if node == BAD:
            return TRAP
        if node < 0:
            updates[found, 0], updates[found, 1], updates[found, 2] = owner, -1, RULE - node
            found += 1
            continue
        variable = levels[middle]
        row, shift, step = variables[variable, SHIFTED], variables[variable, SHIFT], variables[variable, STEP]
        undefined, children = variables[variable, UNDEFINED], base[node]
        distances, changes = tries[trie, OFFSETS], account[CHANGES]
        again = last[trie, 0] == account[LAYERS] - 1 and last[trie, 1] == node
        last[trie, 0], last[trie, 1] = account[LAYERS], node
        few = again and account[EVERYWHERE_CHANGED] == 0 and changes * distances < length
        account[STAMP] += 1
        left = 0
        if few:
            for number in range(changes * distances):
                i = changed[number // distances] - offsets[tries[trie, OFFSET] + number % distances]
                if 0 <= i < length and stamps[i] != account[STAMP]:
                    stamps[i] = account[STAMP]
                    places[left] = i
                    left += 1
        count = left if few else length
        left = 0
        for number in range(count):
            i = places[number] if few else number
            place = i + shift
            code = state[row, place * step] if 0 <= place < length else undefined
            if children >= 0:
                here = child[children + code]
            else:
                here = _sparse_child(key, target, node * width + code)
            if here != NONE:
                places[left], nodes[left] = i, here
                left += 1
        for number in range(left):
            i, here = places[number], nodes[number]
            for level in range(middle + 1, end):
                if here < 0:
                    break
                variable = levels[level]
                place = i + variables[variable, SHIFT]
                if 0 <= place < length:
                    code = state[variables[variable, SHIFTED], place * variables[variable, STEP]]
                else:
                    code = variables[variable, UNDEFINED]
                if base[here] >= 0:
                    here = child[base[here] + code]
                else:
                    here = _sparse_child(key, target, here * width + code)
            if here == NONE:
                continue
            if here == BAD:
                return TRAP
            updates[found, 0], updates[found, 1], updates[found, 2] = owner, i, RULE - here
            found += 1
    at[1] = found
    return -1


@numba.njit(cache=True)
def _count(variables, state, length, updates, found, counts):
    for update in range(found):
        counts[updates[update, 2]] += length if updates[update, 1] < 0 else 1
    for variable in range(len(variables)):
        first, source = variables[variable, RESET], variables[variable, SHIFTED]
        if first >= 0:
            for i in range(length):
                place = i + variables[variable, SHIFT]
                if 0 <= place < length:
                    code = state[source, place * variables[variable, STEP]]
                    if code < variables[variable, UNDEFINED]:
                        counts[first + code] += 1


@numba.njit(cache=True)
def _same(variables, in_order, state, landmark, length, differs):
    """Whether the state is the one at the landmark. `differs` is a place where it was not when last looked at."""
    if state[differs[0], differs[1]] != landmark[differs[0], differs[1]]:
        return False
    for variable in in_order:
        if variables[variable, SOURCE] != WRITTEN:
            for i in range(length if variables[variable, STEP] else 1):
                if state[variable, i] != landmark[variable, i]:
                    differs[0], differs[1] = variable, i
                    return False
    return True


@numba.njit(cache=True)
def _run(flat, limits, limit, tokens, ends, longest, most, outputs, layers, status, counts):
    """All inputs, one after another."""
    variables, selections, heads, tries, members = flat.variables, flat.selections, flat.heads, flat.tries, flat.members
    starts, nears, steps, levels, in_order = flat.starts, flat.nears, flat.steps, flat.levels, flat.in_order
    offsets, spread, groups, group_ends, grouped = (
        flat.offsets, flat.spread, flat.groups, flat.group_ends, flat.grouped,
    )  # fmt: skip
    base, child, key, target, width, new = flat.base, flat.child, flat.key, flat.target, flat.width, flat.new
    halt, halt_code, causal = flat.halt, flat.halt_code, flat.causal
    state = np.zeros((len(variables), max(longest, 1)), np.int32)
    landmark = np.zeros_like(state)
    scratch = 1
    for selection in range(len(selections)):
        scratch = max(scratch, selections[selection, KEYS])
    count, place, total = np.zeros(scratch, np.int64), np.zeros(scratch, np.int64), np.zeros(scratch, np.int64)
    room = len(variables) * max(longest, 1) + len(tries)
    updates = np.zeros((room, 3), np.int64)
    due, at, differs = np.zeros(len(variables), np.int64), np.zeros(3, np.int64), np.zeros(2, np.int64)
    todo = np.zeros(len(tries), np.int64)
    todo[: group_ends[0]] = grouped[: group_ends[0]]
    last, changed = np.zeros((len(tries), 2), np.int64), np.zeros(max(longest, 1), np.int64)
    places, nodes = np.zeros(max(longest, 1), np.int64), np.zeros(max(longest, 1), np.int64)
    account, stamps = np.zeros(4, np.int64), np.zeros(max(longest, 1), np.int64)
    for row in range(len(ends) - 1):
        given = tokens[ends[row] : ends[row + 1]]
        length = len(given)
        if length == 0:
            status[row] = HALTED
            continue
        _start_state(variables, starts, state, given)
        differs[:] = 0
        account[EVERYWHERE_CHANGED] = 1
        if most < 0:
            landmark[:, :length] = state[:, :length]
        layer = 0
        unfinished = 0  # a position that had not halted when last looked at
        while True:
            if halt >= 0:
                step = variables[halt, STEP]
                if state[halt, unfinished * step] == halt_code:
                    unfinished = -1
                    for i in range(length if step else 1):
                        if state[halt, i] != halt_code:
                            unfinished = i
                            break
                if unfinished < 0:
                    status[row] = HALTED
                    break
            if layer == most:
                status[row] = CUT
                break
            at[0], at[1], at[2] = 0, 0, group_ends[0]
            for group in range(len(groups)):
                entry = groups[group, 1] + state[groups[group, 0], 0]
                for index in range(group_ends[entry], group_ends[entry + 1]):
                    todo[at[2]] = grouped[index]
                    at[2] += 1
            account[LAYERS] += 1
            for number in range(len(heads)):
                output = heads[number, OUTPUT]
                due[output] = number + 1 if variables[output, SHIFTED] == output else 0
            eager, wanted = 0, 0
            while wanted >= 0:
                while eager < len(heads) and wanted == 0:  # what is read at single positions is always wanted
                    output = heads[eager, OUTPUT]
                    eager += 1
                    if due[output] and (variables[output, STEP] or len(counts)):
                        wanted = eager
                if wanted == 0:
                    wanted = _match(
                        variables, tries, levels, offsets, base, child, key, target, width,
                        state, length, updates, todo, due, at, last, changed, account, stamps, places, nodes,
                    )  # fmt: skip
                if wanted > 0:
                    head = heads[wanted - 1]
                    how, own = selections[head[SELECTION]], limits[limit[wanted - 1] :]
                    _attend(
                        variables, how, head, members, nears, steps, own, causal,
                        state, length, count, place, total, changed, account,
                    )  # fmt: skip
                    due[head[OUTPUT]] = 0
                    wanted = 0
            if wanted == TRAP:
                break
            found = at[1]
            if len(counts):
                _count(variables, state, length, updates, found, counts[row])
            account[CHANGES] = account[EVERYWHERE_CHANGED] = 0
            for update in range(found):
                owner, position, code = updates[update, 0], updates[update, 1], new[updates[update, 2]]
                if position >= 0:
                    state[owner, position] = code
                    _note(changed, account, position)
                else:
                    for i in range(length if variables[owner, STEP] else 1):
                        state[owner, i] = code
                    if variables[owner, STEP] or spread[owner]:
                        account[EVERYWHERE_CHANGED] = 1
            layer += 1
            if most < 0:
                if _same(variables, in_order, state, landmark, length, differs):
                    break
                if layer & (layer - 1) == 0:
                    landmark[:, :length] = state[:, :length]
        layers[row] = layer
        if status[row] != STOPPED:
            step = variables[flat.output, STEP]
            for i in range(length):
                outputs[ends[row] + i] = state[flat.output, i * step]
