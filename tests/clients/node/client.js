// kafkajs: node client.js test|produce|consume HOST:PORT ...   (see ../README.md)
'use strict'
const { createHash } = require('crypto')
const { Kafka, CompressionTypes, CompressionCodecs, logLevel } = require('kafkajs')

const TIME_BASE = 1700000000000
const LARGEST_VALUE = 1048588 - 61 - 3 - 8
const LENGTHS = [1, 7, 64, 500, 1500, 20, 9000, 3]
const TYPES = { none: CompressionTypes.None, gzip: CompressionTypes.GZIP, snappy: CompressionTypes.Snappy, lz4: CompressionTypes.LZ4, zstd: CompressionTypes.ZSTD }

const lz4 = require('lz4-napi')
const zstd = require('@bokuweb/zstd-wasm')
CompressionCodecs[CompressionTypes.Snappy] = require('kafkajs-snappy')
CompressionCodecs[CompressionTypes.LZ4] = () => ({
  compress: encoder => lz4.compressFrame(encoder.buffer),
  decompress: buffer => lz4.decompressFrame(buffer)
})
CompressionCodecs[CompressionTypes.ZSTD] = () => ({
  compress: async encoder => Buffer.from(zstd.compress(encoder.buffer, 3)),
  decompress: async buffer => Buffer.from(zstd.decompress(buffer))
})

function filler (i, length) {
  let x = (Math.imul(i, 2654435761) + 1) >>> 0
  const out = Buffer.alloc(length)
  for (let j = 0; j < length; j++) {
    if (j % 2) out[j] = 97 + i % 26
    else {
      x = (Math.imul(x, 1664525) + 1013904223) >>> 0
      out[j] = x >>> 24
    }
  }
  return out
}

// The plain form: headers are a map here.
function record (i) {
  const key = i % 5 === 2 ? null : i % 19 === 7 ? Buffer.alloc(0) : Buffer.from(`key-${i % 17}`)
  const value = i % 9 === 4 && key !== null ? null : i % 9 === 7 ? Buffer.alloc(0) : filler(i, i % 100 === 99 ? 70000 : LENGTHS[i % 8])
  const headers = [
    {},
    { empty: Buffer.alloc(0), trace: Buffer.from(`t-${i}`) },
    { bin: Buffer.from(Array.from({ length: 255 }, (_, j) => j + 1)) },
    { a: Buffer.from('1'), 'naïve': Buffer.from('é') }
  ][i % 4]
  return { key, value, headers, partition: 0, timestamp: String(TIME_BASE + i * 10) }
}
const records = count => Array.from({ length: count }, (_, i) => record(i))

const [, , command, bootstrap, ...rest] = process.argv
const kafka = new Kafka({ clientId: 'test', brokers: [bootstrap], logLevel: logLevel.NOTHING, retry: { retries: 2 } })

async function produce (topic, messages, { codec = 'none', acks = -1, idempotent = false } = {}) {
  const p = kafka.producer({ idempotent, maxInFlightRequests: 1 })
  await p.connect()
  try {
    const answers = []
    for (let i = 0; i < messages.length; i += 100) {
      answers.push(...await p.send({ topic, acks, compression: TYPES[codec], messages: messages.slice(i, i + 100) }))
    }
    return answers.map(a => Number(a.baseOffset))
  } finally {
    await p.disconnect()
  }
}

// It reads only as a member of a group.
async function consume (topic, count) {
  const consumer = kafka.consumer({ groupId: `g-${topic}-${process.pid}-${made++}`, maxWaitTimeInMs: 100 })
  await consumer.connect()
  await consumer.subscribe({ topics: [topic], fromBeginning: true })
  const got = []
  try {
    await new Promise((resolve, reject) => {
      // It ends, and begins anew by itself, when the coordinator is still loading, as it is for the first group of a broker.
      consumer.on(consumer.events.CRASH, ({ payload }) => { if (!payload.restart) reject(payload.error) })
      const eachMessage = async ({ message }) => {
        got.push(message)
        if (got.length === count) resolve()
      }
      consumer.run({ autoCommit: false, eachMessage }).catch(reject)
    })
  } finally {
    await consumer.disconnect()
  }
  return got.slice(0, count)
}

// As every program here: length and bytes of key, value, names and values of headers.
function digest ({ key, value, headers }) {
  const h = createHash('sha256')
  const part = x => {
    const length = Buffer.alloc(4)
    length.writeInt32BE(x === null ? -1 : x.length)
    h.update(length)
    if (x !== null) h.update(x)
  }
  const bytes = x => x === null || x === undefined ? null : Buffer.from(x)
  part(bytes(key))
  part(bytes(value))
  for (const [name, value] of Object.entries(headers || {})) {
    part(Buffer.from(name))
    part(bytes(value))
  }
  return h.digest('hex').slice(0, 16)
}
const shown = (offset, { timestamp, ...m }) => `${offset} ${timestamp} ${digest(m)}`

async function withAdmin (f) {
  const admin = kafka.admin()
  await admin.connect()
  try { return await f(admin) } finally { await admin.disconnect() }
}

let made = 0
async function create (tag, numPartitions = 1, configs = {}) {
  const topic = `t-${tag}-${process.pid}-${Date.now()}-${made++}`
  const configEntries = Object.entries({ 'retention.ms': '-1', ...configs }).map(([name, value]) => ({ name, value }))
  await withAdmin(a => a.createTopics({ waitForLeaders: true, topics: [{ topic, numPartitions, replicationFactor: 1, configEntries }] }))
  return topic
}
const end = async topic => Number((await withAdmin(a => a.fetchTopicOffsets(topic)))[0].high)

function equal (got, want, what) {
  if (JSON.stringify(got) !== JSON.stringify(want)) throw new Error(`${what}: got ${JSON.stringify(got)}, want ${JSON.stringify(want)}`)
}

const cases = []
for (const codec of Object.keys(TYPES)) {
  cases.push([`codec_${codec}`, async () => {
    const t = await create(codec)
    equal(await produce(t, records(300), { codec }), [0, 100, 200], 'base offsets')
    equal((await consume(t, 300)).map(m => shown(m.offset, m)), records(300).map((m, i) => shown(i, m)), 'records')
  }])
}
for (const acks of [0, 1, -1]) {
  cases.push([`acks_${acks}`, async () => {
    const t = await create('acks')
    await produce(t, records(100), { acks })
    for (let i = 0; i < 50 && await end(t) !== 100; i++) await new Promise(resolve => setTimeout(resolve, 100))
    equal(await end(t), 100, 'end of the log')
  }])
}
cases.push(['idempotent', async () => {
  const t = await create('idempotent')
  await produce(t, records(1500), { idempotent: true, codec: 'gzip' })
  equal(await end(t), 1500, 'end of the log')
}])
cases.push(['from_one_byte_to_max_message_bytes', async () => {
  const t = await create('sizes')
  const sizes = [1, 2, 127, 128, 16384, 999999, LARGEST_VALUE]
  for (const [i, n] of sizes.entries()) equal(await produce(t, [{ key: null, value: filler(n, n), partition: 0 }]), [i], `offset of ${n} bytes`)
  let refused = null
  await produce(t, [{ key: null, value: filler(1, LARGEST_VALUE + 1), partition: 0 }]).catch(e => { refused = e })
  equal(refused && refused.type, 'MESSAGE_TOO_LARGE', 'error for one byte too many')
  equal(await end(t), sizes.length, 'end of the log')
}])
cases.push(['offsets_by_time', async () => {
  const t = await create('time')
  await produce(t, records(100))
  for (const [ms, offset] of [[-5, '0'], [495, '50'], [500, '50'], [990, '99']]) {
    equal((await withAdmin(a => a.fetchTopicOffsetsByTimestamp(t, TIME_BASE + ms)))[0].offset, offset, `offset for base${ms}`)
  }
}])
cases.push(['admin', async () => {
  const t = await create('admin', 2, { 'segment.bytes': '2097152' })
  await withAdmin(async a => {
    const described = await a.describeConfigs({ includeSynonyms: false, resources: [{ type: 2, name: t, configNames: ['segment.bytes'] }] })
    equal(described.resources[0].configEntries[0].configValue, '2097152', 'segment.bytes')
    await a.createPartitions({ topicPartitions: [{ topic: t, count: 4 }] })
    const metadata = await a.fetchTopicMetadata({ topics: [t] })
    equal(metadata.topics[0].partitions.length, 4, 'number of partitions')
    await a.alterConfigs({ validateOnly: false, resources: [{ type: 2, name: t, configEntries: [{ name: 'retention.ms', value: '777000' }] }] })
    await produce(t, records(40))
    await a.deleteTopicRecords({ topic: t, partitions: [{ partition: 0, offset: '25' }] })
    const p0 = (await a.fetchTopicOffsets(t)).find(p => p.partition === 0)
    equal([p0.low, p0.high], ['25', '40'], 'offsets after deletion')
    await a.deleteTopics({ topics: [t] })
    for (let i = 0; i < 50 && (await a.listTopics()).includes(t); i++) await new Promise(resolve => setTimeout(resolve, 100))
    equal((await a.listTopics()).includes(t), false, 'listed after its deletion')
  })
}])

async function test () {
  let passed = 0
  let failed = 0
  const only = (process.env.ONLY || '').split(',').filter(w => w)
  for (const [name, run] of cases) {
    if (only.length && !only.some(w => `kafkajs/${name}`.includes(w))) continue
    const start = Date.now()
    let timer
    const limit = new Promise((_resolve, reject) => { timer = setTimeout(() => reject(new Error('took more than 60 s')), 60000) })
    const why = await Promise.race([run(), limit]).then(() => null, e => e)
    clearTimeout(timer)
    why ? failed++ : passed++
    console.log(`${why ? 'FAIL' : 'PASS'} kafkajs/${name}${why ? ': ' + why : ''} [${((Date.now() - start) / 1000).toFixed(1)} s]`)
  }
  console.log(`${passed} passed, ${failed} failed, 0 skipped`)
  return failed ? 1 : 0
}

async function main () {
  await zstd.init()
  if (command === 'test') return test()
  if (command === 'consume') {
    for (const m of await consume(rest[0], Number(rest[1]))) console.log(shown(m.offset, m))
    return 0
  }
  if (command === 'produce') {
    await produce(rest[0], records(Number(rest[2])), { codec: rest[1], idempotent: true })
    return 0
  }
  throw new Error(`unknown command ${command}`)
}
main().then(code => process.exit(code), e => { console.error(e); process.exit(1) })
