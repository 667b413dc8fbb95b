#!/usr/bin/env python3
"""Trains every backbone class of KerasHub at a tiny size with adapters, resumes and exports it, and prints a table.

    benchmarks/backbones.py [NAME ...] [--json FILE]

Each backbone gets random weights, is saved as a preset, and trains two rounds with clients of ranks 4 and 1
(`hetero_tf.models.functions.preset`). The second round must have equal bits after a checkpoint, and the exported model,
whose adapters are merged, equal logits. Needs keras-hub: pip install 'hetero_tf[hub]'.
"""

import argparse
import functools
import inspect
import json
import sys
import tempfile
import time
import traceback
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import checkout  # noqa: F401  finds hetero_tf and its libraries
import keras
import keras_hub
import numpy as np

from hetero_tf import export
from hetero_tf.base.errors import InputError
from hetero_tf.data import from_arrays
from hetero_tf.models.functions import preset
from hetero_tf.models.state import flatten_state
from hetero_tf.run.learning_process import learning_process
from hetero_tf.run.resume import arrays_of, open_newest
from hetero_tf.runs import checkpoints

RECIPE = {
    "name": "backbones",
    "data": {"name": "synthetic"},
    "input": {"name": "arrays"},
    "partition": {"name": "iid", "clients": 4},
    "levels": {"widths": {"a": 1.0, "c": 0.25}, "mix": "a-c"},
    "round": {"clients": 2},
    "client": {"epochs": 1, "batch_size": 5},
    "optimizer": {"learning_rate": 0.05},
    "rounds": 2,
}
EXAMPLES, LENGTH, WORDS, PIXELS, SAMPLES = 40, 12, 40, 32, 2048
RANK, TOLERANCE = 4, 1e-4
M = keras_hub.models

# Small arguments of constructors by name; a class takes those that it has.
ARGUMENTS = {
    "vocabulary_size": WORDS,
    "vocab_size": WORDS,
    "max_sequence_length": LENGTH,
    "image_shape": (PIXELS, PIXELS, 3),
    "num_layers": 1,
    "num_heads": 2,
    "num_attention_heads": 2,
    "num_query_heads": 2,
    "num_key_value_heads": 1,
    "hidden_dim": 16,
    "intermediate_dim": 32,
    "embedding_dim": 16,
    "mlp_dim": 32,
    "patch_size": 8,
}


def backbone_classes():
    """Return the classes of backbones by name, without base classes and second names."""
    bases = (M.Backbone, M.FeaturePyramidBackbone)
    classes = [value for value in vars(M).values() if inspect.isclass(value) and issubclass(value, M.Backbone)]
    return {cls.__name__: cls for cls in sorted(set(classes) - set(bases), key=lambda cls: cls.__name__)}


def tiny(cls, **options):
    """Return a small backbone of a class with random weights."""
    known = inspect.signature(cls.__init__).parameters
    arguments = {name: value for name, value in ARGUMENTS.items() if name in known}
    return cls(**{**arguments, **SIZES.get(cls.__name__, dict)(), **options})


_QWEN35 = {
    "head_dim": 8,
    "layer_types": ["full_attention"],
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 2,
    "linear_key_head_dim": 4,
    "linear_value_head_dim": 4,
}
_T5GEMMA = {
    f"{side}_{name}": value
    for side in ("encoder", "decoder")
    for name, value in {
        "hidden_dim": 16,
        "intermediate_dim": 32,
        "num_layers": 1,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "head_dim": 8,
        "layer_types": ["full_attention"],
    }.items()
}


def _blip2():
    from keras_hub.src.models.blip2 import blip2_custom_opt, blip2_qformer, blip2_vision_encoder

    common = {"num_layers": 1, "num_heads": 2, "dropout": 0.0, "layer_norm_epsilon": 1e-6}
    return {
        "vision_encoder": blip2_vision_encoder.BLIP2VisionEncoder(
            image_size=16,
            patch_size=8,
            num_layers=1,
            num_heads=2,
            hidden_dim=8,
            intermediate_dim=16,
            use_patch_bias=True,
            use_class_token=True,
            use_mha_bias=True,
            use_mlp_bias=True,
            dropout_rate=0.0,
            layer_norm_epsilon=1e-6,
            initializer_range=0.02,
        ),
        "qformer": blip2_qformer.BLIP2QFormer(
            num_query_tokens=2, hidden_dim=8, intermediate_dim=16, vision_dim=8, cross_attention_frequency=1, **common
        ),
        "language_model": blip2_custom_opt.BLIP2CustomOPT(
            vocabulary_size=WORDS,
            hidden_dim=8,
            intermediate_dim=16,
            num_query_tokens=2,
            qformer_hidden_dim=8,
            max_sequence_length=2 * LENGTH,
            **common,
        ),
    }


def _d_fine():
    return {
        "backbone": tiny(M.HGNetV2Backbone, image_shape=(None, None, 3), out_features=["stage1", "stage2"]),
        "decoder_in_channels": [16, 16],
        "encoder_hidden_dim": 16,
        "num_labels": 4,
        "num_denoising": 0,
        "learn_initial_query": False,
        "num_queries": 8,
        "anchor_image_size": (PIXELS, PIXELS),
        "feat_strides": [4, 8],
        "num_feature_levels": 2,
        "hidden_dim": 16,
        "encoder_in_channels": [16, 16],
        "encode_proj_layers": [1],
        "encoder_ffn_dim": 16,
        "num_encoder_layers": 1,
        "hidden_expansion": 0.5,
        "depth_multiplier": 0.5,
        "eval_idx": -1,
        "num_decoder_layers": 1,
        "decoder_attention_heads": 2,
        "decoder_ffn_dim": 16,
        "decoder_n_points": [2, 2],
        "lqe_hidden_dim": 8,
        "num_lqe_layers": 2,
        "out_features": ["stage1", "stage2"],
        "seed": 0,
    }


def _sam3():
    sizes = {"hidden_dim": 16, "intermediate_dim": 32, "num_heads": 2, "num_layers": 1}
    pictures = {"image_shape": (56, 56, 3), "patch_size": 14}
    layers = keras_hub.layers
    return {
        "vision_encoder": layers.SAM3VisionEncoder(
            **sizes,
            **pictures,
            fpn_hidden_dim=16,
            fpn_scale_factors=[4.0, 2.0, 1.0, 0.5],
            pretrain_image_shape=(56, 56, 3),
            window_size=2,
            global_attn_indexes=[0],
        ),
        "text_encoder": layers.SAM3TextEncoder(vocabulary_size=WORDS, embedding_dim=16, **sizes),
        "geometry_encoder": layers.SAM3GeometryEncoder(**sizes, roi_size=3),
        "detr_encoder": layers.SAM3DetrEncoder(**sizes),
        "detr_decoder": layers.SAM3DetrDecoder(**sizes, **pictures, num_queries=4),
        "mask_decoder": layers.SAM3MaskDecoder(num_upsampling_stages=3, hidden_dim=16, num_heads=2),
    }


def _vae():
    from keras_hub.src.models.vae.vae_backbone import VAEBackbone

    return VAEBackbone([32] * 4, [1] * 4, [32] * 4, [1] * 4, sampler_method="mode", name="vae")


# Further arguments by class; functions, since some contain other backbones.
SIZES = {
    "BASNetBackbone": lambda: {
        "image_encoder": tiny(
            M.ResNetBackbone,
            stackwise_num_filters=[64, 128, 256, 512],
            stackwise_num_blocks=[1] * 4,
            stackwise_num_strides=[1, 2, 2, 2],
            image_shape=(None, None, 3),
        ),
        "num_classes": 1,
        "image_shape": (64, 64, 3),
    },
    "BLIP2Backbone": _blip2,
    "CLIPBackbone": lambda: {
        "vision_encoder": tiny(M.CLIPVisionEncoder),
        "text_encoder": tiny(M.CLIPTextEncoder),
        "projection_dim": 16,
    },
    "CSPNetBackbone": lambda: {
        "stem_filters": 16,
        "stem_kernel_size": 3,
        "stem_strides": 1,
        "stackwise_depth": [1, 1],
        "stackwise_strides": 2,
        "stackwise_num_filters": [16, 24],
        "block_type": "dark_block",
        "stage_type": "csp",
        "stem_padding": "same",
        "down_growth": True,
        "bottle_ratio": (0.5, 1.0),
        "block_ratio": (1.0, 0.5),
        "expand_ratio": (2.0, 1.0),
    },
    "DFineBackbone": _d_fine,
    "DeepLabV3Backbone": lambda: {
        "image_encoder": tiny(M.ResNetBackbone),
        "spatial_pyramid_pooling_key": "P4",
        "low_level_feature_key": "P2",
        "upsampling_size": 4,
        "dilation_rates": [6, 12, 18],
    },
    "DenseNetBackbone": lambda: {"stackwise_num_repeats": [1, 1], "growth_rate": 4},
    "DepthAnythingBackbone": lambda: {
        "image_encoder": tiny(
            M.DINOV2Backbone, patch_size=14, image_shape=(126, 126, 3), apply_layernorm=True, num_layers=4
        ),
        "reassemble_factors": [4, 2, 1, 0.5],
        "neck_hidden_dims": [8, 8, 8, 8],
        "fusion_hidden_dim": 8,
        "head_hidden_dim": 8,
        "head_in_index": -1,
        "feature_keys": ["stage1", "stage2", "stage3", "stage4"],
    },
    "EdRecBackbone": lambda: {"num_layers_enc": 1, "num_layers_dec": 1},
    "EfficientNetBackbone": lambda: {
        "stackwise_kernel_sizes": [3, 3],
        "stackwise_num_repeats": [1, 1],
        "stackwise_input_filters": [8, 8],
        "stackwise_output_filters": [8, 16],
        "stackwise_expansion_ratios": [1, 2],
        "stackwise_squeeze_and_excite_ratios": [0.0, 0.25],
        "stackwise_strides": [1, 2],
        "stackwise_block_types": ["fused", "unfused"],
        "stackwise_force_input_filters": [0, 0],
        "stackwise_nores_option": [False, False],
        "stackwise_width_coefficients": [1.0, 1.0],
        "stackwise_depth_coefficients": [1.0, 1.0],
        "num_features": 16,
        "input_shape": (PIXELS, PIXELS, 3),
    },
    "FluxBackbone": lambda: {
        "input_channels": 8,
        "hidden_size": 32,
        "mlp_ratio": 2.0,
        "depth": 1,
        "depth_single_blocks": 1,
        "axes_dim": [4, 6, 6],
        "theta": 10_000,
        "use_bias": True,
        "image_shape": (4, 8),
        "text_shape": (4, 8),
        "image_ids_shape": (4, 3),
        "text_ids_shape": (4, 3),
        "y_shape": (8,),
    },
    "Gemma3Backbone": lambda: {"head_dim": 8, "image_size": 16},
    "Gemma3nBackbone": lambda: {
        "text_vocab_size": WORDS,
        "text_hidden_size": 8,
        "num_hidden_layers": 1,
        "pad_token_id": 0,
        "num_key_value_heads": 1,
        "head_dim": 4,
        "intermediate_size": [16],
        "hidden_activation": "gelu_approximate",
        "layer_types": ["full_attention"],
        "sliding_window": 4,
        "rope_theta": 10000.0,
        "max_position_embeddings": LENGTH,
        "vocab_size_per_layer_input": WORDS,
        "hidden_size_per_layer_input": 2,
        "altup_num_inputs": 2,
        "laurel_rank": 1,
    },
    "Gemma4Backbone": lambda: {"head_dim": 8, "image_size": 16},
    "GemmaBackbone": lambda: {"head_dim": 8},
    "GptOssBackbone": lambda: {"num_experts": 2, "num_key_value_heads": 2},
    "HGNetV2Backbone": lambda: {
        "depths": [1, 1],
        "embedding_size": 8,
        "hidden_sizes": [16, 16],
        "stem_channels": [3, 8, 8],
        "hidden_act": "relu",
        "use_learnable_affine_block": False,
        "stackwise_stage_filters": [[8, 8, 16, 1, 1, 3], [16, 8, 16, 1, 1, 3]],
        "apply_downsample": [False, True],
        "use_lightweight_conv_block": [False, False],
    },
    "MetaCLIP2Backbone": lambda: {
        "vision_encoder": tiny(M.MetaCLIP2VisionEncoder),
        "text_encoder": tiny(M.MetaCLIP2TextEncoder),
        "projection_dim": 16,
    },
    "MiTBackbone": lambda: {
        "layerwise_depths": [1, 1],
        "num_layers": 2,
        "layerwise_num_heads": [1, 2],
        "layerwise_sr_ratios": [8, 4],
        "max_drop_path_rate": 0.1,
        "layerwise_patch_sizes": [7, 3],
        "layerwise_strides": [4, 2],
        "hidden_dims": [4, 8],
    },
    "MixtralBackbone": lambda: {"num_experts": 2},
    "MobileNetBackbone": lambda: {
        "stackwise_expansion": [[8], [16]],
        "stackwise_num_blocks": [1, 1],
        "stackwise_num_filters": [[8], [16]],
        "stackwise_kernel_size": [[3], [3]],
        "stackwise_num_strides": [[2], [2]],
        "stackwise_se_ratio": [[None], [0.25]],
        "stackwise_activation": [["relu"], ["relu"]],
        "stackwise_padding": [[1], [1]],
        "output_num_filters": 16,
        "depthwise_filters": 16,
        "depthwise_stride": 1,
        "depthwise_residual": False,
        "last_layer_filter": 16,
    },
    "MobileNetV5Backbone": lambda: {
        "stackwise_block_types": [["er"], ["uir"]],
        "stackwise_num_blocks": [1, 1],
        "stackwise_num_filters": [[8], [16]],
        "stackwise_strides": [[2], [2]],
        "stackwise_act_layers": [["relu"], ["relu"]],
        "stackwise_exp_ratios": [[2.0], [2.0]],
        "stackwise_se_ratios": [[0.0], [0.0]],
        "stackwise_dw_kernel_sizes": [[0], [5]],
        "stackwise_dw_start_kernel_sizes": [[0], [0]],
        "stackwise_dw_end_kernel_sizes": [[0], [0]],
        "stackwise_exp_kernel_sizes": [[3], [0]],
        "stackwise_pw_kernel_sizes": [[1], [0]],
        "stackwise_num_heads": [[0], [0]],
        "stackwise_key_dims": [[0], [0]],
        "stackwise_value_dims": [[0], [0]],
        "stackwise_kv_strides": [[0], [0]],
        "stackwise_use_cpe": [[False], [False]],
        "num_features": 16,
        "use_msfa": False,
    },
    "MoonshineBackbone": lambda: {
        "filter_dim": 16,
        "encoder_num_layers": 1,
        "decoder_num_layers": 1,
        "encoder_num_heads": 2,
        "decoder_num_heads": 2,
    },
    "PARSeqBackbone": lambda: {
        "image_encoder": tiny(M.ViTBackbone, use_class_token=False),
        "max_label_length": LENGTH,
        "decoder_hidden_dim": 16,
        "num_decoder_layers": 1,
        "num_decoder_heads": 2,
        "decoder_mlp_dim": 32,
    },
    "PaliGemmaBackbone": lambda: {
        "image_size": 16,
        "head_dim": 8,
        "vit_patch_size": 8,
        "vit_num_heads": 2,
        "vit_hidden_dim": 8,
        "vit_num_layers": 1,
    },
    "Qwen3Backbone": lambda: {"head_dim": 8},
    "Qwen3MoeBackbone": lambda: {"moe_intermediate_dim": 16, "num_experts": 2, "top_k": 1, "head_dim": 8},
    "Qwen3_5Backbone": lambda: _QWEN35,
    "Qwen3_5MoeBackbone": lambda: {
        **_QWEN35,
        "moe_intermediate_dim": 16,
        "shared_expert_intermediate_size": 16,
        "num_experts": 2,
        "top_k": 1,
    },
    "QwenMoeBackbone": lambda: {
        "moe_intermediate_dim": 16,
        "shared_expert_intermediate_dim": 16,
        "num_experts": 2,
        "top_k": 1,
    },
    "RWKV7Backbone": lambda: {
        "hidden_size": 16,
        "head_size": 4,
        "gate_lora": 8,
        "mv_lora": 8,
        "aaa_lora": 8,
        "decay_lora": 8,
    },
    "ResNetBackbone": lambda: {
        "input_conv_filters": [64],
        "input_conv_kernel_sizes": [7],
        "stackwise_num_filters": [64, 64, 64],
        "stackwise_num_blocks": [1, 1, 1],
        "stackwise_num_strides": [1, 2, 2],
        "block_type": "basic_block",
    },
    "RetinaNetBackbone": lambda: {
        "image_encoder": tiny(
            M.ResNetBackbone,
            stackwise_num_filters=[64, 64, 64, 64],
            stackwise_num_blocks=[1] * 4,
            stackwise_num_strides=[1, 2, 2, 2],
        ),
        "min_level": 3,
        "max_level": 5,
        "use_p5": False,
    },
    "RoformerV2Backbone": lambda: {"head_size": 8},
    "SAM3PromptableConceptBackbone": _sam3,
    "SAMBackbone": lambda: {
        "image_encoder": tiny(M.ViTDetBackbone, image_shape=(16, 16, 3), num_output_channels=8),
        "prompt_encoder": keras_hub.layers.SAMPromptEncoder(
            hidden_size=8, image_embedding_size=(8, 8), input_image_size=(16, 16), mask_in_channels=8
        ),
        "mask_decoder": keras_hub.layers.SAMMaskDecoder(
            num_layers=1,
            hidden_size=8,
            intermediate_dim=16,
            num_heads=2,
            embedding_dim=8,
            num_multimask_outputs=3,
            iou_head_depth=2,
            iou_head_hidden_dim=8,
        ),
    },
    "SegFormerBackbone": lambda: {"image_encoder": tiny(M.MiTBackbone), "projection_filters": 8},
    "SigLIPBackbone": lambda: {
        "vision_encoder": tiny(M.SigLIPVisionEncoder),
        "text_encoder": tiny(M.SigLIPTextEncoder, projection_dim=16),
    },
    "SmolLM3Backbone": lambda: {
        "attention_bias": False,
        "attention_dropout": 0.0,
        "rope_layer_enabled_list": [True],
        "layer_types": ["attention"],
        "mlp_bias": False,
        "layer_norm_epsilon": 1e-5,
        "max_position_embeddings": 32,
        "rope_theta": 10000.0,
        "partial_rotary_factor": 1.0,
    },
    "StableDiffusion3Backbone": lambda: {
        "mmdit_patch_size": 2,
        "mmdit_hidden_dim": 32,
        "mmdit_num_layers": 1,
        "mmdit_num_heads": 2,
        "mmdit_position_size": 192,
        "mmdit_qk_norm": None,
        "mmdit_dual_attention_indices": None,
        "vae": _vae(),
        "clip_l": tiny(M.CLIPTextEncoder, intermediate_output_index=-1, name="clip_l"),
        "clip_g": tiny(M.CLIPTextEncoder, intermediate_output_index=-1, name="clip_g"),
    },
    "SwinTransformerBackbone": lambda: {"embed_dim": 8, "depths": [1, 1], "num_heads": [2, 2], "window_size": 4},
    "T5Gemma2Backbone": lambda: _T5GEMMA,
    "T5GemmaBackbone": lambda: _T5GEMMA,
    "VGGBackbone": lambda: {"stackwise_num_repeats": [1, 1], "stackwise_num_filters": [8, 8]},
    "ViTDetBackbone": lambda: {
        "hidden_size": 16,
        "global_attention_layer_indices": [0],
        "window_size": 2,
        "num_output_channels": 8,
    },
    "VideoPrismBackbone": lambda: {
        "num_frames": 2,
        "num_spatial_layers": 1,
        "num_temporal_layers": 1,
        "num_auxiliary_layers": 1,
        "vocabulary_size": 0,
    },
    "WhisperBackbone": lambda: {
        "num_mels": 8,
        "max_encoder_sequence_length": 24,
        "max_decoder_sequence_length": LENGTH,
    },
    "XceptionBackbone": lambda: {"stackwise_conv_filters": [[32, 64], [64, 64]], "stackwise_pooling": [True, False]},
}
# Further options of the head, for backbones with several outputs, or with more positions than ids.
OPTIONS = {
    "BASNetBackbone": {"output": "refine_out"},
    "DFineBackbone": {"output": "last_hidden_state"},
    "HGNetV2Backbone": {"output": "stage2"},
    "BLIP2Backbone": {"pooling": "first"},
    "PaliGemmaBackbone": {"pooling": "first"},
    "RetinaNetBackbone": {"output": "P5"},
    "SAMBackbone": {"output": "image_embeddings"},
}


def draw(backbone, rng):
    """Return random arrays for the inputs of a backbone that the model does not compute from others."""
    wanted = preset.wanted_inputs(backbone)

    def is_sound(name):
        return "encoder_input_values" in wanted and name.startswith("encoder")

    return {
        name: _values(name, (EXAMPLES, *_sizes(tensor, SAMPLES if is_sound(name) else LENGTH)), tensor.dtype, rng)
        for name, tensor in wanted.items()
        if preset.origin(name, wanted) is None
    }


def _sizes(tensor, length):
    return [length if size is None else size for size in tensor.shape[1:]]


def _values(name, shape, dtype, rng):
    if "int" not in str(dtype) and str(dtype) != "bool":
        return rng.normal(size=shape).astype(np.float32)
    if "mask" in name:
        return np.ones(shape, np.int32)
    return rng.integers(1, WORDS, shape).astype(np.int32)


def run(cls, folder):
    """Train, resume and export a backbone; return the entries of its row.

    Raises:
        InputError: hetero_tf refuses the backbone.
    """
    rng = np.random.default_rng(0)
    tiny(cls).save_to_preset(str(folder / "preset"))
    # Keras counts the names of layers in each thread, and models are built in new threads.
    with ThreadPoolExecutor(1) as thread:
        backbone = thread.submit(preset.load_backbone, str(folder / "preset")).result()
    x, y = draw(backbone, rng), rng.integers(0, 2, EXAMPLES).astype(np.int32)
    options = {"preset": str(folder / "preset"), "inputs": tuple(x), **_adapters(backbone)}
    options |= OPTIONS.get(cls.__name__, {})
    model = functools.partial(preset.build, **options)
    processes = [learning_process(RECIPE, from_arrays(x, y, x, y), model=model) for _ in range(2)]
    initial = processes[0].initialize()
    first, row = processes[0].next(initial)
    checkpoints.save(folder / "checkpoints", first.round, arrays_of(first, {}, "a"), {}, 1)
    second, row = processes[0].next(first)
    resumed, _ = processes[1].next(open_newest(folder / "checkpoints", processes[1]).state)
    values, others = flatten_state(second), flatten_state(resumed)
    if any(not np.array_equal(values[name], others[name]) for name in values):
        raise ValueError("the resumed round has other values")
    moved = [path for path, value in second.weights.items() if not np.array_equal(value, initial.weights[path])]
    if not {"logits/kernel"} <= set(moved) or (options["rank"] and not any("lora" in path for path in moved)):
        raise ValueError(f"only these weights were trained: {moved}")
    differences = []
    for level in ("a", "c"):
        path, about = export.export(processes[0], second, {}, folder / "export", {}, level, others=["keras"])
        differences += [
            about["largest_difference_of_logits"],
            about["formats"]["keras"]["largest_difference_of_logits"],
        ]
        merged = keras.models.load_model(path / "model.keras", compile=False)
        if any("lora" in variable.path for variable in merged.variables):
            raise ValueError("the exported model has adapters")
    if max(differences) > TOLERANCE:
        raise ValueError(f"the exported model has other logits: {max(differences):g}")
    return {
        "adapters": "none" if options["rank"] is None else ", ".join(options.get("layers", ("default",))),
        "parameters": backbone.count_params(),
        "bytes_up": int(row["bytes_up"]),
        "loss": float(row["loss"]),
        "difference": f"{max(differences):.1g}",
    }


def _adapters(backbone):
    """Return the options of the adapters: KerasHub's layers, else all layers of one name, else the head alone."""
    names = {
        layer.name
        for layer in backbone._flatten_layers(include_self=False)
        if layer.weights and hasattr(layer, "enable_lora")
    }
    if names & set(backbone.default_lora_layer_names()):
        return {"rank": RANK}
    return {"rank": RANK, "layers": (min(names),)} if names else {"rank": None}


def main():
    """Print a row for each class."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="classes, by default all")
    parser.add_argument("--json", type=Path, help="file for the rows")
    args = parser.parse_args()
    classes, rows = backbone_classes(), {}
    print("| backbone | result | adapters | parameters | bytes up | difference of logits | seconds |")
    print("| --- " * 7 + "|")
    for name in args.names or classes:
        start = time.perf_counter()
        try:
            with tempfile.TemporaryDirectory() as folder:
                row = {"result": "trained, resumed, exported", **run(classes[name], Path(folder))}
        except InputError as error:
            row = {"result": f"refused: {error}"}
        except Exception as error:
            traceback.print_exc()
            row = {"result": f"TRACEBACK {type(error).__name__}: {' '.join(str(error).split())[:300]}"}
        keras.backend.clear_session()
        rows[name] = {**row, "seconds": time.perf_counter() - start}
        cells = [row.get(key, "") for key in ("result", "adapters", "parameters", "bytes_up", "difference")]
        print(f"| {' | '.join(map(str, [name, *cells]))} | {rows[name]['seconds']:.0f} |", flush=True)
        if args.json:
            args.json.write_text(json.dumps(rows, indent=1))
    return int(any("TRACEBACK" in row["result"] for row in rows.values()))


if __name__ == "__main__":
    sys.exit(main())
