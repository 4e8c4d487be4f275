// Two servers of socket.io that reach each other's clients by its adapter, on channels.
const assert = require('node:assert');
const { createAdapter } = require('@socket.io/redis-adapter');
const { createClient } = require('redis');
const { Server } = require('socket.io');
const { io } = require('socket.io-client');

async function server(port) {
  const publisher = createClient({ url: `redis://127.0.0.1:${port}` });
  const subscriber = publisher.duplicate();
  await Promise.all([publisher.connect(), subscriber.connect()]);
  return new Server(0, { adapter: createAdapter(publisher, subscriber) });
}

async function main(port) {
  const servers = [await server(port), await server(port)];
  const clients = [];
  for (const one of servers) {
    const joined = new Promise((well) => one.on('connection', (socket) => well(socket.join('all'))));
    const client = io(`http://127.0.0.1:${one.httpServer.address().port}`);
    await Promise.all([joined, new Promise((well) => client.on('connect', well))]);
    clients.push(client);
  }
  // Each server answers once its subscription stands.
  while ((await servers[1].in('all').fetchSockets().catch(() => [])).length < 2);
  const got = clients.map((client) => new Promise((well) => client.on('news', well)));
  servers[0].to('all').emit('news', 'hello');
  assert.deepEqual(await Promise.all(got), ['hello', 'hello']);
}

main(process.argv[2]).then(() => process.exit(0), (error) => {
  console.error(error);
  process.exit(1);
});
