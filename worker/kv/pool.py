"""Block ids: which are free. Taking and giving back costs O(1) a block, in any order."""

from array import array


class BlockPool:
    """Hands out the ids [0, num_blocks) of blocks of KV memory.

    Args:
        num_blocks: how many there are.
        block_size: tokens that one block holds.
    """

    def __init__(self, num_blocks: int, block_size: int) -> None:
        if num_blocks < 1 or block_size < 1:
            raise ValueError(f"a pool of {num_blocks} blocks of {block_size} tokens holds nothing")
        self.num_blocks = num_blocks
        self.block_size = block_size
        self._free = array("q", reversed(range(num_blocks)))
        self._taken = bytearray(num_blocks)

    @property
    def num_free(self) -> int:
        """Blocks that `allocate` can hand out now."""
        return len(self._free)

    def allocate(self, count: int) -> "array[int]":
        """Take `count` blocks, the last freed first.

        Raises:
            RuntimeError: fewer are free, or fewer than none are asked; then none is taken.
        """
        kept = len(self._free) - count
        if not 0 <= kept <= len(self._free):
            raise RuntimeError(f"{count} blocks asked, {self.num_free} free of {self.num_blocks}")
        blocks = self._free[kept:][::-1]
        del self._free[kept:]
        taken = self._taken
        for block in blocks:
            taken[block] = 1
        return blocks

    def free(self, blocks: "array[int]") -> None:
        """Give back blocks that `allocate` returned.

        Raises:
            RuntimeError: one of them is free already; those before it are lost.
        """
        taken = self._taken
        for block in blocks:
            if not taken[block]:
                raise RuntimeError(f"block {block} is freed twice")
            taken[block] = 0
        self._free.extend(blocks)

    def blocks_for(self, tokens: int) -> int:
        """Blocks that hold `tokens` tokens."""
        return -(-tokens // self.block_size)

    def check_integrity(self) -> None:
        """Raises AssertionError unless each block is either taken or free exactly once."""
        free = set(self._free)
        assert len(free) == len(self._free), "a block is free twice"
        taken = {block for block in range(self.num_blocks) if self._taken[block]}
        assert taken == {*range(self.num_blocks)} - free, (
            "a block is both taken and free, or neither"
        )
