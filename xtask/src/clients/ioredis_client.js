// All types, transactions, pipelines, channels, blocking and scans by ioredis.
const assert = require('node:assert');
const Redis = require('ioredis');

async function main(port) {
  const [redis, subscriber, waiting] = [new Redis(port), new Redis(port), new Redis(port)];
  await redis.hset('io:user', { name: 'Ada', visits: 1 });
  assert.deepEqual(await redis.hgetall('io:user'), { name: 'Ada', visits: '1' });
  assert.equal(await redis.hincrby('io:user', 'visits', 2), 3);
  await redis.zadd('io:board', 10, 'a', 20, 'b');
  const board = await redis.zrevrange('io:board', 0, -1, 'WITHSCORES');
  assert.deepEqual(board, ['b', '20', 'a', '10']);
  await redis.sadd('io:tags', 'x', 'y');
  assert.equal(await redis.scard('io:tags'), 2);

  const message = new Promise((got) => subscriber.on('message', (...of) => got(of)));
  await subscriber.subscribe('io:news');
  await redis.publish('io:news', 'hello');
  assert.deepEqual(await message, ['io:news', 'hello']);

  const popped = waiting.blpop('io:queue', 60);
  await redis.rpush('io:queue', 'job');
  assert.deepEqual(await popped, ['io:queue', 'job']);

  const done = await redis.multi().set('io:n', 1).incr('io:n').llen('io:queue').exec();
  assert.deepEqual(done, [[null, 'OK'], [null, 2], [null, 0]]);

  const pipeline = redis.pipeline();
  for (let i = 0; i < 1000; i++) pipeline.hset('io:large', `field ${i}`, `value ${i}`);
  assert((await pipeline.exec()).every(([error, reply]) => error === null && reply === 1));
  let fields = 0;
  for await (const some of redis.hscanStream('io:large', { count: 100 })) fields += some.length / 2;
  assert.equal(fields, 1000);
}

main(Number(process.argv[2])).then(() => process.exit(0), (error) => {
  console.error(error);
  process.exit(1);
});
