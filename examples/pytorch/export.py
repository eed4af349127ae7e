"""Exports a module with random weights, and prints what PyTorch computes: python export.py FILE.pt2"""

import sys

import torch

torch.manual_seed(0)
model = torch.nn.Sequential(
    torch.nn.Linear(8, 16), torch.nn.BatchNorm1d(16), torch.nn.ReLU(), torch.nn.Linear(16, 3)
).eval()
batch = torch.export.Dim("batch", min=1, max=32)
program = torch.export.export(model, (torch.randn(4, 8),), dynamic_shapes=({0: batch},))
torch.export.save(program, sys.argv[1])

for scores in model(torch.eye(8)[:2]):
    print("{:.4f} {:.4f} {:.4f}".format(*scores))
