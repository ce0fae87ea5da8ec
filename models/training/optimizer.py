"""AdamW that decays the linear maps and nothing else."""

import torch
from torch import nn

from gaussport.models.training.settings import TrainingSettings


def optimizer_for(classifier: nn.Module, settings: TrainingSettings) -> torch.optim.AdamW:
    """Weight decay pulls a linear map towards doing nothing; biases, norms, positions and Gaussians have no such zero:
    an offset or a log-width of 0 means something."""
    maps = {id(module.weight) for module in classifier.modules() if isinstance(module, nn.Linear)}
    decayed = [parameter for parameter in classifier.parameters() if id(parameter) in maps]
    kept = [parameter for parameter in classifier.parameters() if id(parameter) not in maps]
    groups = [
        {"params": decayed, "weight_decay": settings.weight_decay},
        {"params": kept, "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, lr=settings.learning_rate, betas=(0.9, 0.98))
