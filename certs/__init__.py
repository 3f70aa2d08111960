"""Self-managed TLS of the webhook: issue, keep in one Secret, publish the authority, serve without restarts.

`issue` makes certificates, `rotation` decides what the cluster's state calls for, `store` reads and writes
that state, `keeper` runs the two until they agree, and `sslcontext` serves the outcome to new handshakes.
"""
