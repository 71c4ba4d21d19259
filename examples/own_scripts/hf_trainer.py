"""The Trainer of transformers on a small GPT-2 and random tokens; needs transformers and accelerate.

torchrun --standalone --nproc-per-node 2 examples/own_scripts/hf_trainer.py --batch-size 8
"""

import argparse
import tempfile

import torch
from torch.utils.data import Dataset
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

LENGTH = 64


class Tokens(Dataset[dict[str, torch.Tensor]]):
    """Random sequences."""

    def __len__(self) -> int:
        """Enough for any number of steps."""
        return 1_000_000

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        """A sequence; the same for the same index."""
        tokens = torch.randint(1000, (LENGTH,), generator=torch.Generator().manual_seed(index))
        return {"input_ids": tokens, "labels": tokens}


def main() -> None:
    """Train until the steps are done."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch-size", type=int, default=8, help="sequences of each rank")
    parser.add_argument("--steps", type=int, default=100_000)
    options = parser.parse_args()
    config = GPT2Config(vocab_size=1000, n_positions=LENGTH, n_embd=128, n_layer=2, n_head=4)
    with tempfile.TemporaryDirectory() as directory:
        arguments = TrainingArguments(
            output_dir=directory,
            per_device_train_batch_size=options.batch_size,
            max_steps=options.steps,
            save_strategy="no",
            report_to=[],
            disable_tqdm=True,
            use_cpu=not torch.cuda.is_available(),
        )
        Trainer(GPT2LMHeadModel(config), arguments, train_dataset=Tokens()).train()


if __name__ == "__main__":
    main()
