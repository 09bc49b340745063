"""Watched trainings as data: their steps and findings."""
