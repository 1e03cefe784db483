"""Object stores on this machine, each with a bucket called ``logs``."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import NamedTuple


class Store(NamedTuple):
    """One that runs."""

    env: dict[str, str]
    """What a client must have in its environment."""
    put: Callable[[str, bytes], object]
    """Puts an object into the bucket."""


@contextmanager
def s3() -> Iterator[Store]:
    """Start one that speaks S3 (moto)."""
    import boto3
    from moto.server import ThreadedMotoServer

    logging.getLogger("werkzeug").setLevel(logging.ERROR)  # it tells of every request
    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    keys = {"AWS_ACCESS_KEY_ID": "testing", "AWS_SECRET_ACCESS_KEY": "testing", "AWS_DEFAULT_REGION": "us-east-1"}
    address = f"http://{host}:{port}"
    try:
        client = boto3.client("s3", endpoint_url=address, region_name="us-east-1",
                              aws_access_key_id="testing", aws_secret_access_key="testing")  # fmt: skip
        client.create_bucket(Bucket="logs")
        env = {"AWS_ENDPOINT_URL": address, "AWS_EC2_METADATA_DISABLED": "true", **keys}
        yield Store(env, lambda key, data: client.put_object(Bucket="logs", Key=key, Body=data))
    finally:
        server.stop()


STORES: dict[str, Callable[[], AbstractContextManager[Store]]] = {"s3": s3}
