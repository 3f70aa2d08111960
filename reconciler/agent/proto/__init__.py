"""The kubelet's two interfaces, generated from the .proto files here by `make protos`; not to be edited."""
