"""What can be wrong with a call of the webhook itself, as opposed to the object under review."""


class MalformedReview(Exception):  # noqa: N818 - named for what arrived
    """The body is no AdmissionReview that can be answered; the message says what it lacks. Becomes HTTP 400."""
