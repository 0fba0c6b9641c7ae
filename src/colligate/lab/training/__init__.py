"""Train the small models that strategies ask: curate samples, fit adapters, evaluate them.

`fitting` and `heads` need the extra `train`.
"""
