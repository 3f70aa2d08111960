"""Self-managed TLS for the webhook: issue, keep in one Secret, serve without restarts."""
