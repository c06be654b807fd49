"""Train a tiny, randomly initialized GPT-2 with the Trainer of Hugging Face on random tokens. Nothing is downloaded."""

import argparse
import tempfile

import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments


class Tokens(torch.utils.data.Dataset):
    def __init__(self, context_length: int) -> None:
        self.context_length = context_length

    def __len__(self) -> int:
        return 10**6

    def __getitem__(self, index: int) -> dict:
        tokens = torch.randint(1000, (self.context_length,), generator=torch.Generator().manual_seed(index))
        return {"input_ids": tokens, "labels": tokens}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--width", type=int, default=512)
    parser.add_argument("--context-length", type=int, default=256)
    parser.add_argument("--batch-size", type=int, default=16)
    options = parser.parse_args()
    sizes = {"n_embd": options.width, "n_layer": 4, "n_head": 8, "n_positions": options.context_length}
    model = GPT2LMHeadModel(GPT2Config(vocab_size=1000, **sizes, bos_token_id=0, eos_token_id=0))
    arguments = TrainingArguments(
        output_dir=tempfile.mkdtemp(),
        per_device_train_batch_size=options.batch_size,
        gradient_accumulation_steps=2,
        max_steps=10**6,
        save_steps=20,
        save_total_limit=1,
        logging_steps=50,
        report_to="none",
        disable_tqdm=True,
        use_cpu=not torch.cuda.is_available(),
    )
    Trainer(model=model, args=arguments, train_dataset=Tokens(options.context_length)).train()


if __name__ == "__main__":
    main()
