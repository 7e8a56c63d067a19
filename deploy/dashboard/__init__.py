"""The Grafana dashboard: `rows` says what is on it; `make dashboard` writes it into the chart."""
