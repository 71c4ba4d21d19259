"""Lightning's Trainer on a small network and random samples; needs lightning.

torchrun --standalone --nproc-per-node 2 examples/own_scripts/lightning_fit.py --batch-size 32
"""

import argparse
import os

import lightning
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

WIDTH = 256


class Network(lightning.LightningModule):
    """Four layers."""

    def __init__(self) -> None:
        super().__init__()
        layers = [layer for _ in range(4) for layer in (nn.Linear(WIDTH, WIDTH), nn.ReLU())]
        self.layers = nn.Sequential(*layers, nn.Linear(WIDTH, 10))

    def training_step(self, batch: list[torch.Tensor], index: int) -> torch.Tensor:
        """The loss of a batch."""
        del index
        samples, targets = batch
        return nn.functional.cross_entropy(self.layers(samples), targets)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """AdamW."""
        return torch.optim.AdamW(self.parameters(), lr=1e-3)


def main() -> None:
    """Train until the steps are done."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch-size", type=int, default=32, help="samples of each rank")
    parser.add_argument("--steps", type=int, default=100_000)
    options = parser.parse_args()
    data = TensorDataset(torch.randn(4096, WIDTH), torch.randint(10, (4096,)))
    trainer = lightning.Trainer(
        accelerator="gpu" if torch.cuda.is_available() else "cpu",
        devices=int(os.environ.get("LOCAL_WORLD_SIZE", "1")),
        strategy="ddp" if int(os.environ.get("WORLD_SIZE", "1")) > 1 else "auto",
        max_steps=options.steps,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(Network(), DataLoader(data, batch_size=options.batch_size, drop_last=True))


if __name__ == "__main__":
    main()
