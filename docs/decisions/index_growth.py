"""How full an index is, on average over its growth, under several ways of growing.

`python3 docs/decisions/index_growth.py` (no dependencies). Buckets have 15 slots of 8 bytes and a lock
word. An entry whose bucket is full goes to one of the next seven; a table grows when its fill reaches
`limit`, or when an entry finds no slot. Records arrive with random hashes.
"""

import random

SLOTS, REACH = 15, 7


def place(buckets, hash_):
    """Adds an entry; the distance from its home, or None."""
    n = len(buckets)
    home = int(hash_ * n)
    for d in range(min(REACH, n - 1) + 1):
        i = (home + d) % n
        if buckets[i] < SLOTS:
            buckets[i] += 1
            return d
    return None


def fill(n, hashes):
    """A table of n buckets holding these hashes (of 0..1), or None."""
    buckets = [0] * n
    away = 0
    for h in hashes:
        d = place(buckets, h)
        if d is None:
            return None
        away += d > 0
    return buckets, away


def segment_cycle(steps, limit, rounds=60):
    """Mean bytes a record and share away from home over one doubling of the table.

    A segment has `steps` buckets in turn; grown beyond the last, it splits into two of the first.
    The mean is over the logarithm of the size.
    """
    rng = random.Random(7)
    cost = weight = away_sum = 0.0
    for _ in range(rounds):
        hashes = [rng.random() for _ in range(int(steps[-1] * SLOTS * limit / 2))]
        for n in steps:
            built = fill(n, hashes)
            while built and len(hashes) < n * SLOTS * limit:
                w = 1 / len(hashes)
                cost += w * n * 128 / len(hashes)
                away_sum += w * built[1] / len(hashes)
                weight += w
                h = rng.random()
                d = place(built[0], h)
                if d is None:
                    break
                hashes.append(h)
                built = (built[0], built[1] + (d > 0))
    return cost / weight, away_sum / weight


for name, steps, limit in [
    ("double at 0.75", [48], 0.75),
    ("double at 0.90", [48], 0.90),
    ("3/2 and 4/3 at 0.85", [32, 48], 0.85),
    ("3/2 and 4/3 at 0.90", [32, 48], 0.90),
    ("eighths at 0.90", [32, 36, 40, 44, 48, 56, 62], 0.90),
]:
    cost, away = segment_cycle(steps, limit)
    print(f"{name:22} {cost:6.2f} bytes a record, {100 * away:5.2f} % away from home")
