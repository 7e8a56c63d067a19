"""The work of a prefill, so that prompts of any length compare: tokens, weighed by their context.

A token attends to all tokens before it, so the later it stands the longer it takes. One without
context is a work of 1; one with a context of `attention_tokens`, a number of the model, is 2.
"""


def prefill_work(start: float, stop: float, attention_tokens: int) -> float:
    """Of computing the tokens of a prompt at positions [start, stop).

    Args: `attention_tokens`; 0 stands for a model whose tokens take no longer for their context.
    """
    length = stop - start
    if not attention_tokens:
        return length
    return length * (1 + (start + stop) / 2 / attention_tokens)
