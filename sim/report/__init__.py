"""Summaries and runs for people and programs: tables, JSON, pages with plots."""
