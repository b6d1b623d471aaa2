"""A small training program in PyTorch that ends well, or by one of the usual mistakes."""

import logging
import sys

import torch

logging.basicConfig(format="%(asctime)s %(levelname)s train: %(message)s", level=logging.INFO, stream=sys.stdout)
log = logging.getLogger()


def step(number: int) -> None:
    a = torch.randn(512, 512, device="cuda")
    log.info("step %d loss %.4f", number, (a @ a).abs().mean().item())


def main(what: str) -> None:
    for number in range(3):
        step(number)
    if what == "embedding":
        table = torch.nn.Embedding(100, 16).cuda()
        log.info("rows %.3f", table(torch.tensor([1, 250], device="cuda")).sum().item())
    elif what == "memory":
        torch.empty(300 << 30, dtype=torch.uint8, device="cuda")
    elif what == "handled":
        try:
            torch.empty(300 << 30, dtype=torch.uint8, device="cuda")
        except torch.OutOfMemoryError:
            log.exception("the large batch does not fit")
        for number in range(3, 40):
            step(number)
        log.info("saved model")
    elif what == "key":
        log.info("batch %s", {"input_ids": 1}["attention_mask"])
    elif what == "nan":
        print("Loss is nan, stopping training")
        sys.exit(1)


main(sys.argv[1])
