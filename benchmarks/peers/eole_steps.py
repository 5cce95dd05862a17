"""Eole's training step: its model, its loss, its optimizer and its own handling of a batch."""

import logging
import tempfile
import warnings

import numpy as np
import torch

warnings.simplefilter("ignore")  # that its CUDA kernels are not there

from eole.config.run import TrainConfig  # noqa: E402
from eole.inputters.inputter import dict_to_vocabs  # noqa: E402
from eole.models.model import get_model_class  # noqa: E402
from eole.trainer import BatchProcessor  # noqa: E402
from eole.utils.loss import LossCompute  # noqa: E402
from eole.utils.optimizers import Optimizer  # noqa: E402
from eole.utils.statistics import Statistics  # noqa: E402

SPECIAL = {
    "pad_token": "<blank>",
    "unk_token": "<unk>",
    "bos_token": "<s>",
    "eos_token": "</s>",
}


def config_of(shape: dict, folder: str) -> TrainConfig:
    """The shape in Eole's words; the files are asked for, but ids are given to it directly."""
    for name in ("vocab", "source", "target"):
        with open(f"{folder}/{name}", "w", encoding="utf-8") as file:
            file.write("one\n")
    d_model = shape["d_model"]
    return TrainConfig(
        src_vocab=f"{folder}/vocab",
        tgt_vocab=f"{folder}/vocab",
        share_vocab=True,
        src_vocab_size=shape["vocab_size"],
        tgt_vocab_size=shape["vocab_size"],
        data={"train": {"path_src": f"{folder}/source", "path_tgt": f"{folder}/target"}},
        save_data=folder,
        overwrite=True,
        training={
            "model_path": f"{folder}/model",
            "world_size": 0,
            "gpu_ranks": [],
            "compute_dtype": "fp32",
            "optim": "adam",
            "learning_rate": shape["learning_rate"],
            "adam_beta2": 0.98,
            "max_grad_norm": 1.0,
            "label_smoothing": shape["label_smoothing"],
            "dropout": [shape["dropout"]],
            "attention_dropout": [0.0],
            "dropout_steps": [0],
            "normalization": "tokens",
            "param_init_method": "xavier_uniform",
        },
        model={
            "architecture": "transformer",
            "layers": shape["layers"],
            "heads": shape["num_heads"],
            "hidden_size": d_model,
            "word_vec_size": d_model,
            "transformer_ff": shape["d_ff"],
            "share_embeddings": True,
            "share_decoder_embeddings": True,
            "embeddings": {
                "word_vec_size": d_model,
                "position_encoding_type": "SinusoidalInterleaved",
            },
        },
    )


class Eole:
    """A model of a shape, and its steps."""

    def __init__(self, shape: dict) -> None:
        logging.disable(logging.INFO)
        tokens = [*SPECIAL.values(), *(f"w{n}" for n in range(4, shape["vocab_size"]))]
        vocabs = dict_to_vocabs(
            {"src": tokens, "tgt": tokens, "decoder_start_token": "<s>", "specials": SPECIAL}
        )
        with tempfile.TemporaryDirectory() as folder:
            config = config_of(shape, folder)
            build = get_model_class(config.model).for_training
            self.model = build(config.model, vocabs, config.training, device_id=-1).train()
            self.optimizer = Optimizer.from_config(self.model, config)
            loss = LossCompute.from_config(config, self.model, vocabs)
        self.processor = BatchProcessor(
            self.model, loss, self.optimizer, n_gpu=0, parallel_mode="data_parallel",
            with_align=False, zero_out_prompt_loss=False, estim_loss_lambda=0.0, accum_count=1,
        )  # fmt: skip

    def step(self, batch) -> int:
        """One step; the number of target tokens."""
        source, target_in, target_out = batch
        # its targets are one piece: the start, the tokens, the end
        lengths = (target_out != 0).sum(1)
        target = np.concatenate([target_in, np.zeros((len(source), 1), np.int64)], axis=1)
        target[np.arange(len(source)), lengths] = 3
        tokens = int(lengths.sum())
        given = {
            "src": torch.from_numpy(source),
            "srclen": torch.from_numpy((source != 0).sum(1)),
            "tgt": torch.from_numpy(target),
            "tgtlen": torch.from_numpy(lengths + 1),
            "images": None,
            "prefix_len": None,
            "cid": ["train"] * len(source),
            "cid_line_number": [0] * len(source),
        }
        self.optimizer.zero_grad()
        assert self.processor.process_batch(given, tokens, 1, Statistics(), Statistics())
        self.optimizer.step()
        return tokens
