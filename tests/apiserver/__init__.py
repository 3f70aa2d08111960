"""An API server that plays scripts of faults, over real TLS; what a real one would not do on demand."""
