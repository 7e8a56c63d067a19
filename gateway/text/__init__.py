"""Text to token ids, with the tokenizer and chat template that workers describe."""
