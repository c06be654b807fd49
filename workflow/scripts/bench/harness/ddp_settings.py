"""Settings of DistributedDataParallel in a user's script: arguments of its call, and steps without synchronization."""

import functools
import inspect
import weakref
from collections.abc import Callable, Iterator

from torch.nn.parallel import DistributedDataParallel


class DdpSettings:
    """Sets arguments that the script's calls leave at their defaults, and knows the modules that they make.

    is_needed: otherwise nothing is replaced. on_fault: called if a call sets one of the arguments itself.
    """

    def __init__(self, settings: dict, is_needed: bool, on_fault: Callable[[str], None]):
        self.settings, self.is_needed, self.on_fault = settings, is_needed, on_fault
        self.modules: list[weakref.ref] = []
        self.is_on: bool | None = None  # gradient synchronization, as it was switched last
        self.original = DistributedDataParallel.__init__
        if is_needed:
            DistributedDataParallel.__init__ = self.replacement()

    def replacement(self) -> Callable:
        """Return the constructor to use instead of the original one."""
        original, signature = self.original, inspect.signature(self.original)

        @functools.wraps(original)
        def init(made: DistributedDataParallel, /, *arguments: object, **named: object) -> None:
            given = signature.bind(made, *arguments, **named).arguments
            for name in self.settings:
                if name in given:
                    text = f"ddp.{name}: the script sets {name} = {given[name]!r} itself in DistributedDataParallel"
                    self.on_fault(f"{text}. Remove {name} from ddp, or from the script")
                if name not in signature.parameters:
                    self.on_fault(f"ddp.{name}: this torch's DistributedDataParallel has no such argument")
            original(made, *arguments, **named, **self.settings)
            self.modules.append(weakref.ref(made))

        return init

    def living(self) -> Iterator[DistributedDataParallel]:
        yield from filter(None, (module() for module in self.modules))

    def switch_synchronization(self, is_on: bool) -> None:
        """Switch gradient synchronization of all modules, as their no_sync() does within its context."""
        before, self.is_on = self.is_on, is_on
        for module in self.living():
            if before not in (None, module.require_backward_grad_sync):
                text = "exposed: the script sets require_backward_grad_sync itself, which undoes the switch"
                self.on_fault(f"{text}. Use no_sync() in the script, or remove exposed")
            module.require_backward_grad_sync = is_on

    def remove(self) -> None:
        DistributedDataParallel.__init__ = self.original
