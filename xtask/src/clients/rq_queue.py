"""Jobs of rq: queued, done by a worker, failed, scheduled, found again by their results."""

import sys
from datetime import timedelta

import redis
from rq import Queue, SimpleWorker

connection = redis.Redis(port=int(sys.argv[1]))
queue = Queue("numbers", connection=connection)
jobs = [queue.enqueue("operator.add", i, i) for i in range(100)]
last = queue.enqueue("operator.mul", 6, 7, depends_on=jobs)
failed = queue.enqueue("operator.truediv", 1, 0)
later = queue.enqueue_in(timedelta(hours=1), "operator.neg", 1)
assert len(queue) == 101

SimpleWorker([queue], connection=connection).work(burst=True, logging_level="CRITICAL")
assert [job.result for job in jobs] == [2 * i for i in range(100)]
assert last.result == 42
assert failed.get_status(refresh=True) == "failed"
assert len(queue) == 0
assert len(queue.finished_job_registry) == 101
assert len(queue.failed_job_registry) == 1
assert later.id in queue.scheduled_job_registry
