"""A library as a retriever of other frameworks; each needs its own extra.

`langchain.ColligateRetriever` and `llamaindex.ColligateLlamaIndexRetriever` are not imported here:
each imports its framework.
"""
