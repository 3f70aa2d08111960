"""The admission webhook: Flask on gunicorn, answering from memory what `policies` decides."""
