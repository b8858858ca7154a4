// A member of a consumer group for ../groups: node member.js HOST:PORT key=value...   (see ../python/member.py)
'use strict'
const { Kafka, PartitionAssigners, logLevel } = require('kafkajs')

const [, , bootstrap, ...rest] = process.argv
const options = Object.fromEntries(rest.map(x => [x.slice(0, x.indexOf('=')), x.slice(x.indexOf('=') + 1)]))
const say = (...words) => process.stdout.write(words.join(' ') + '\n')

async function main () {
  const kafka = new Kafka({ clientId: 'member', brokers: [bootstrap], logLevel: logLevel.NOTHING, retry: { retries: 20, maxRetryTime: 500 } })
  const consumer = kafka.consumer({
    groupId: options.group,
    partitionAssigners: [PartitionAssigners.roundRobin],
    sessionTimeout: Number(options.session || 2000),
    rebalanceTimeout: 10000,
    heartbeatInterval: 300,
    metadataMaxAge: Number(options.metadata || 300000),
    maxWaitTimeInMs: 100
  })
  consumer.on(consumer.events.GROUP_JOIN, ({ payload }) => {
    const all = Object.entries(payload.memberAssignment).flatMap(([topic, partitions]) => partitions.map(p => `${topic}:${p}`))
    say('assigned', ...all.sort())
  })
  consumer.on(consumer.events.CRASH, ({ payload }) => say('note', String(payload.error)))
  await consumer.connect()
  const topics = options.pattern ? [new RegExp(options.pattern)] : options.topics.split(',')
  await consumer.subscribe({ topics, fromBeginning: true })
  require('readline').createInterface({ input: process.stdin }).on('line', async line => {
    if (line !== 'leave') process.exit(1)
    await consumer.disconnect()
    say('left')
    process.exit(0)
  }).on('close', () => process.exit(1))
  await consumer.run({
    autoCommit: false,
    eachBatchAutoResolve: false,
    eachBatch: async ({ batch, resolveOffset, isRunning, isStale }) => {
      if (!isRunning() || isStale() || batch.messages.length === 0) return
      for (const m of batch.messages) {
        say('read', batch.topic, batch.partition, m.offset)
        resolveOffset(m.offset)
      }
      const next = String(BigInt(batch.lastOffset()) + 1n)
      await consumer.commitOffsets([{ topic: batch.topic, partition: batch.partition, offset: next }])
    }
  })
}
main().catch(e => { say('note', e.stack); process.exit(1) })
