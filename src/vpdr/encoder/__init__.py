"""From a sample to its feature and logits: frozen backbone and projection, personal adapters and head."""
