"""Count the floating-point operations of a model's forward pass in one untimed run, for the record.

Counted are products: convolutions, matrix products, attention; two operations for a multiply and an add. As usual,
normalization, activations and the optimizer are not. A step counts three forward passes: the backward pass has two
products of the same size for each product, one for the weights and one for the input (Chowdhery et al. 2022, PaLM,
appendix B: 2 N forward, 4 N backward per token). torch's FlopCounterMode is not used for the backward pass: torch 2.12
counts a grouped convolution there as one group, 16 times too much for efficientnet_b7.
"""

from harness import torch_versions

FORWARD_PASSES_OF_A_STEP = 3
TorchDispatchMode, flop_registry, sdpa_flop_count = torch_versions.flop_counting()
# Attention on a CPU has a separate operator, which is missing in torch's table of formulas (2.12).
CPU_ATTENTION = "_scaled_dot_product_flash_attention_for_cpu"


class ForwardFlops(TorchDispatchMode):
    """A context that adds up the operations of every product within it, in `total`."""

    def __init__(self) -> None:
        super().__init__()
        self.total = 0

    def __torch_dispatch__(self, operator, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        result = operator(*args, **kwargs)
        packet = operator._overloadpacket
        if packet in flop_registry:
            self.total += flop_registry[packet](*args, **kwargs, out_val=result)
        elif packet.__name__ == CPU_ATTENTION:
            query, key, value = args[:3]
            self.total += sdpa_flop_count(query.shape, key.shape, value.shape)
        return result
