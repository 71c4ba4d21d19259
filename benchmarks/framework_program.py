"""Trains a tiny network with a framework on random data, and prints what the framework itself says
of its steps. It knows nothing of torchscale: ``benchmarks/frameworks.py`` watches it.

::

    torchrun --standalone --nproc-per-node 2 benchmarks/framework_program.py lightning /tmp/run
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import json
import os
from pathlib import Path
from time import perf_counter
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

WIDTH, BATCH, LAYERS = 256, 16, 6
SAVE_EVERY, EVALUATE_EVERY = 20, 30
PACKAGES = {
    "transformers": ("transformers", "accelerate"),
    "accelerate": ("accelerate",),
    "lightning": ("lightning",),
    "deepspeed-1": ("deepspeed",),
    "deepspeed-3": ("deepspeed",),
    "megatron": ("megatron.core",),
}
"""Name of a program → what it needs."""


class Network(nn.Module):
    """Square layers; the loss is their distance from the labels."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            *(part for _ in range(LAYERS) for part in (nn.Linear(WIDTH, WIDTH), nn.ReLU()))
        )

    def forward(self, x: Tensor, labels: Tensor) -> dict[str, Tensor]:
        """The loss, under the name that a trainer looks for."""
        return {"loss": (self.layers(x) - labels).square().mean()}


class Rows(torch.utils.data.Dataset[dict[str, Tensor]]):
    """Random samples."""

    def __init__(self, count: int) -> None:
        generator = torch.Generator().manual_seed(0)
        self.x, self.labels = torch.randn(2, count, WIDTH, generator=generator)

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, index: int) -> dict[str, Tensor]:
        return {"x": self.x[index], "labels": self.labels[index]}


def _say(steps: int, seconds: float) -> None:
    if dist.get_rank() == 0:
        print("OWN " + json.dumps({"steps": steps, "seconds": seconds}), flush=True)


def transformers(folder: str, steps: int, accumulated: int) -> None:
    """Its own figure: ``train_runtime`` by steps."""
    module = importlib.import_module("transformers")
    arguments = module.TrainingArguments(
        folder,
        max_steps=steps,
        per_device_train_batch_size=BATCH,
        gradient_accumulation_steps=accumulated,
        save_steps=SAVE_EVERY,
        eval_strategy="steps",
        eval_steps=EVALUATE_EVERY,
        report_to=[],
        use_cpu=True,
        disable_tqdm=True,
    )
    trainer = module.Trainer(
        Network(), arguments, train_dataset=Rows(2048), eval_dataset=Rows(4 * BATCH)
    )
    seconds = trainer.train().metrics["train_runtime"]
    _say(trainer.state.global_step, seconds / trainer.state.global_step)


def accelerate(folder: str, steps: int, accumulated: int) -> None:
    """It has no figure of its own: the loop is timed."""
    accelerator = importlib.import_module("accelerate").Accelerator(
        gradient_accumulation_steps=accumulated, cpu=True
    )
    network = Network()
    optimizer = torch.optim.AdamW(network.parameters(), lr=1e-4)
    loader: Any = torch.utils.data.DataLoader(
        Rows(2 * BATCH * accumulated * steps), batch_size=BATCH
    )
    model, optimizer, loader = accelerator.prepare(network, optimizer, loader)
    done, began = 0, 0.0
    for batch in loader:
        with accelerator.accumulate(model):
            accelerator.backward(model(**batch)["loss"])
            optimizer.step()
            optimizer.zero_grad()
        if accelerator.sync_gradients:
            done += 1
            began = began or perf_counter()
            if done % SAVE_EVERY == 0:
                accelerator.save_state(f"{folder}/{done}")
    _say(done, (perf_counter() - began) / (done - 1))


def lightning(folder: str, steps: int, accumulated: int) -> None:
    """Timed between its callbacks, as its progress bar does."""
    pl = importlib.import_module("lightning.pytorch")

    class Module(pl.LightningModule):  # type: ignore[name-defined, misc]
        def __init__(self) -> None:
            super().__init__()
            self.network = Network()

        def training_step(self, batch: dict[str, Tensor], _: int) -> Any:  # noqa: ANN401 - the loss
            return self.network(**batch)["loss"]

        def validation_step(self, batch: dict[str, Tensor], _: int) -> None:
            self.network(**batch)

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.AdamW(self.parameters(), lr=1e-4)

    class Timer(pl.Callback):  # type: ignore[name-defined, misc]
        began, seconds = 0.0, 0.0

        def on_train_batch_end(self, trainer: Any, *_: object) -> None:  # noqa: ANN401 - its own
            if trainer.global_step:
                self.began = self.began or perf_counter()
                self.seconds = (perf_counter() - self.began) / max(1, trainer.global_step - 1)

    timer = Timer()
    saved = pl.callbacks.ModelCheckpoint(folder, every_n_train_steps=SAVE_EVERY, save_top_k=-1)
    trainer = pl.Trainer(
        accelerator="cpu",
        devices=int(os.environ["WORLD_SIZE"]),
        strategy="ddp",
        max_steps=steps,
        accumulate_grad_batches=accumulated,
        val_check_interval=EVALUATE_EVERY * accumulated,
        check_val_every_n_epoch=None,
        callbacks=[timer, saved],
        logger=False,
        enable_progress_bar=False,
    )
    count = 2 * BATCH * accumulated * steps
    trainer.fit(
        Module(),
        torch.utils.data.DataLoader(Rows(count), batch_size=BATCH),
        torch.utils.data.DataLoader(Rows(4 * BATCH), batch_size=BATCH),
    )
    _say(trainer.global_step, timer.seconds)


def deepspeed(folder: str, steps: int, accumulated: int, stage: int) -> None:
    """Its own figure: samples per second of its timer."""
    network = Network()
    engine, _, loader, _ = importlib.import_module("deepspeed").initialize(
        model=network,
        model_parameters=network.parameters(),
        training_data=Rows(2 * BATCH * accumulated * steps),
        config={
            "train_micro_batch_size_per_gpu": BATCH,
            "gradient_accumulation_steps": accumulated,
            "optimizer": {"type": "AdamW", "params": {"lr": 1e-4, "torch_adam": True}},
            # Parts so small that each step makes several of torch's optimizer.
            "zero_optimization": {"stage": stage, "sub_group_size": WIDTH * WIDTH},
            "zero_allow_untested_optimizer": True,
            "steps_per_print": 1_000_000,
        },
    )
    done = 0
    for batch in loader:
        engine.backward(engine(**batch)["loss"])
        engine.step()
        if engine.global_steps != done:
            done = engine.global_steps
            if done % SAVE_EVERY == 0:
                engine.save_checkpoint(folder, tag=str(done))
    samples = 2 * BATCH * accumulated
    _say(done, samples / engine.tput_timer.avg_samples_per_sec())


def main() -> None:
    """Train."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("framework", choices=tuple(PACKAGES))
    parser.add_argument("folder", type=Path)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--accumulated", type=int, default=2)
    options = parser.parse_args()
    torch.set_num_threads(1)
    name, _, stage = options.framework.partition("-")
    folder, steps, accumulated = str(options.folder), options.steps, options.accumulated
    if name == "deepspeed":
        deepspeed(folder, steps, accumulated, int(stage))
    elif name == "megatron":
        importlib.import_module("framework_megatron").train(folder, steps, accumulated, _say)
    else:
        {"transformers": transformers, "accelerate": accelerate, "lightning": lightning}[name](
            folder, steps, accumulated
        )
    with contextlib.suppress(ValueError, AssertionError):
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
