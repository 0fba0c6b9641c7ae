"""A library as a retriever or solver of other frameworks; each needs its own extra.

`langchain.ColligateRetriever`, `llamaindex.ColligateLlamaIndexRetriever` and
`inspect.colligate_solver` are not imported here: each imports its framework.
"""
