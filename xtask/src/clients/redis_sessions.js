// Sessions in hashes and sorted sets, by redis-sessions.
const assert = require('node:assert');
const RedisSessions = require('redis-sessions');

async function main(port) {
  const sessions = new RedisSessions({ port, namespace: 'sessions' });
  const call = (name, options) => new Promise((well, ill) => {
    sessions[name](options, (error, answer) => (error ? ill(error) : well(answer)));
  });
  const of = { app: 'web' };
  const { token } = await call('create',
    { ...of, id: 'ada', ip: '10.0.0.1', ttl: 3600, d: { visits: 1 } });
  const set = await call('set', { ...of, token, d: { visits: 2, name: 'Ada' } });
  assert.equal(set.d.visits, 2);
  assert.deepEqual((await call('get', { ...of, token })).d, { visits: 2, name: 'Ada' });
  await call('create', { ...of, id: 'bob', ip: '10.0.0.2', ttl: 3600 });
  assert.equal((await call('activity', { ...of, dt: 600 })).activity, 2);
  assert.equal((await call('soapp', { ...of, dt: 600 })).sessions.length, 2);
  assert.equal((await call('killsoid', { ...of, id: 'ada' })).kill, 1);
  assert.deepEqual(await call('get', { ...of, token }), {});
}

main(Number(process.argv[2])).then(() => process.exit(0), (error) => {
  console.error(error);
  process.exit(1);
});
