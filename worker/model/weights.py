"""How the weights of linear layers are kept on a CPU."""

from enum import StrEnum


class WeightFormat(StrEnum):
    """The formats: as they are, or rounded, see `worker.kernels.panels.Linear.rounded`."""

    FLOAT32 = "float32"
    INT8 = "int8"
