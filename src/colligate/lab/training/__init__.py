"""Train the small models that strategies ask: curate samples, fit adapters, evaluate them.

`fitting` needs the extra `train`.
"""
