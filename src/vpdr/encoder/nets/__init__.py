"""The architectures of the backbones as plain torch modules: EfficientNet-Lite, ResNet, ViT and BERT.

Each one is a `vpdr.encoder.adapters.Network`: it lists the sites for adapters and returns pooled features.
Its parameters have the names to which `vpdr.encoder.zoo` converts the keys of public checkpoints.
"""
