"""The model: a Hugging Face directory, how it comes here, and how it runs over paged KV."""
