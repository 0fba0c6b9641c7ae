"""GGUF models in this process, through llama.cpp."""
