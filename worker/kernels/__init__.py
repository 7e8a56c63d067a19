"""All code that is compiled for CPUs; nothing but numbers and arrays comes in or goes out."""
