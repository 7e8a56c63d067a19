"""The Radixgate gateway: hashes a prompt, finds the worker that holds it, and sends it there."""
