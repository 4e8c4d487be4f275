// Sessions of Express in strings, by connect-redis.
const assert = require('node:assert');
const { RedisStore } = require('connect-redis');
const express = require('express');
const session = require('express-session');
const { createClient } = require('redis');

async function main(port) {
  const client = createClient({ url: `redis://127.0.0.1:${port}` });
  await client.connect();
  const app = express();
  const store = new RedisStore({ client, prefix: 'express:' });
  app.use(session({ store, secret: 'secret', resave: false, saveUninitialized: false }));
  app.get('/', (request, answer) => {
    request.session.visits = (request.session.visits || 0) + 1;
    answer.send(String(request.session.visits));
  });
  const server = app.listen(0);
  const url = `http://127.0.0.1:${server.address().port}`;
  const headers = {};
  for (const visits of ['1', '2', '3']) {
    const answer = await fetch(url, { headers });
    headers.cookie ||= answer.headers.get('set-cookie').split(';')[0];
    assert.equal(await answer.text(), visits);
  }
  const keys = await client.keys('express:*');
  assert.equal(keys.length, 1);
  assert((await client.ttl(keys[0])) > 0);
}

main(process.argv[2]).then(() => process.exit(0), (error) => {
  console.error(error);
  process.exit(1);
});
