"""Kubernetes manifests (kustomize base and CRDs), shipped in the wheel as package data."""
