"""What the API server makes of the agent's patches, for stand-ins of it."""


def merge(node, patch):
    """Change a node as the API server does by the agent's strategic merge patch of its status."""
    metadata, status = node["metadata"], node["status"]
    assert patch["metadata"]["uid"] == metadata["uid"]
    for key, value in patch["metadata"]["annotations"].items():
        if value is None:
            metadata["annotations"].pop(key, None)
        else:
            metadata["annotations"][key] = value
    changes = dict(patch["status"])
    by_type = {condition["type"]: condition for condition in status["conditions"]}
    by_type |= {condition["type"]: condition for condition in changes.pop("conditions", ())}
    status["conditions"] = list(by_type.values())
    for field, amounts in changes.items():
        status[field] = {**status[field], **amounts}
