"""Find the cell that a cell is measured against: the same one but for some changes, such as one rank and no wrapper."""

NEVER_NULL = ("model", "strategy", "nodes", "gpus_per_node")  # of a train_step cell; they make the search short


class Partners:
    """The cells among which partners are looked for, each by its id."""

    def __init__(self, specs: dict[str, dict]) -> None:
        self.specs = specs
        self._flat = {cell: _flat(spec) for cell, spec in specs.items()}
        self._like: dict[tuple, list[str]] = {}
        for cell, flat in self._flat.items():
            self._like.setdefault(_key(flat), []).append(cell)

    def find(self, spec: dict, changes: dict) -> str | None:
        """Return the one cell that equals `spec` but for `changes` (to shape or parameters), or None.

        A parameter that is null in the partner has no effect there, so it need not be equal (bucket size of strategy none).
        """
        wanted = _flat(spec) | changes
        matches = [cell for cell in self._like.get(_key(wanted), []) if _is_like(self._flat[cell], wanted, changes)]
        return matches[0] if len(matches) == 1 else None


def _is_like(found: dict, wanted: dict, changes: dict) -> bool:
    return wanted.keys() == found.keys() and all(
        found[name] == wanted[name] or (found[name] is None and name not in changes) for name in wanted
    )


def _key(flat: dict) -> tuple:
    return tuple(flat.get(name) for name in NEVER_NULL)


def _flat(spec: dict) -> dict:
    return {name: value for name, value in spec.items() if name != "parameters"} | spec["parameters"]
