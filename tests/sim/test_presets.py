import pytest

from sim.hardware.presets import preset, preset_names
from sim.hardware.step_time import StepWork
from worker.kv.format import NAMES

FORMATS = ("none", "fp8", "int8", "k8v4", "int4")


def test_formats_are_all_that_have_a_name() -> None:
    assert set(FORMATS) == set(NAMES)


@pytest.mark.parametrize("kv_format", FORMATS)
@pytest.mark.parametrize("name", ["h100-llama-8b", "h200-llama-8b"])
def test_memory_is_what_is_left_of_the_card(name: str, kv_format: str) -> None:
    setup = preset(name, kv_format)
    # 32 layers of 8 KV heads of 128: keys and values, and what the docs say of scales.
    bits = {"none": 16, "fp8": 8.25, "int8": 8.25, "k8v4": 6.625, "int4": 5}[kv_format]
    token = 2 * 32 * 8 * 128 * bits / 8
    card = {"h100": 80e9, "h200": 141e9}[name.partition("-")[0]]
    assert setup.kv_tokens == pytest.approx((0.9 * card - 2 * 8.03e9) / token, rel=1e-3)


@pytest.mark.parametrize("model", ["llama-8b", "llama-70b"])
def test_h200_reads_faster_and_computes_no_faster(model: str) -> None:
    small = {"llama-8b": "h100", "llama-70b": "h100x4"}[model]
    large = {"llama-8b": "h200", "llama-70b": "h200x2"}[model]
    one, other = preset(f"{small}-{model}"), preset(f"{large}-{model}")
    per_gpu = one.gpus / other.gpus
    assert other.step_time.context_token < one.step_time.context_token * per_gpu
    assert other.step_time.pair == pytest.approx(one.step_time.pair * per_gpu)


@pytest.mark.parametrize("name", ["h100-llama-8b", "h100x4-llama-70b", "h200-llama-8b"])
def test_a_coarser_format_holds_more_and_is_not_always_faster(name: str) -> None:
    setups = {kv_format: preset(name, kv_format) for kv_format in FORMATS}
    tokens = [setups[each].kv_tokens for each in FORMATS]
    assert tokens == sorted(tokens)
    assert setups["int8"].step_time.context_token < setups["none"].step_time.context_token
    assert setups["int4"].step_time.context_token > setups["int8"].step_time.context_token


def test_weights_in_fp8_are_read_and_multiplied_twice_as_fast() -> None:
    fp8, bf16 = preset("h100x2-llama-70b-fp8"), preset("h200x2-llama-70b")
    assert fp8.step_time.prompt_token == pytest.approx(bf16.step_time.prompt_token / 2, rel=0.1)
    assert fp8.step_time.pair == bf16.step_time.pair
    assert fp8.kv_tokens * 2 * 80 * 8 * 128 * 2 == pytest.approx(0.9 * 160e9 - 70.55e9, rel=1e-3)


@pytest.mark.parametrize("name", preset_names())
def test_a_prompt_is_computed_faster_than_it_is_generated(name: str) -> None:
    step_time = preset(name).step_time
    prompt = step_time.seconds(StepWork(4096, 4096 * 4096 / 2, 0, 0))
    assert prompt < step_time.of_generations(1, 0, 4096) / 10


def test_errors_say_what_there_is() -> None:
    with pytest.raises(ValueError, match=r"'h1' is unknown; there are: h100-llama-8b, "):
        preset("h1")
    with pytest.raises(ValueError, match=r"no speed for KV format 'int8/fp8'; it has for: none, "):
        preset("h100-llama-8b", "int8/fp8")
