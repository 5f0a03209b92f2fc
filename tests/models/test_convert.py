from openrl.models.convert import _plain_config


def test_the_traces_of_gguf_are_left_out_of_the_config() -> None:
    config = {"quantization_config": {"quant_method": "gguf"}, "_name_or_path": "x", "vocab_size": 7}
    assert _plain_config(config) == {"vocab_size": 7}


def test_float32_noise_is_rounded_away() -> None:
    assert _plain_config({"rms_norm_eps": 9.999999747378752e-06, "ok": True}) == {"rms_norm_eps": 1e-05, "ok": True}
