"""The same model as llama.cpp runs it, when `llama-cpp-python` is installed."""
