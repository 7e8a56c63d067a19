-- A worker says Hello. ARGV: common, hello, shape (what all workers of a pool must share),
-- a random number at which the count of events starts in a Redis that has none: a Redis that came
-- back empty then looks like a gap to every reader.
local hello, shape, first_n = ARGV[4], ARGV[5], ARGV[6]

local newest = redis.call('GET', epoch_key)
if newest and newest > epoch then return {'STALE', '0', newest} end

for _, other in ipairs(redis.call('SMEMBERS', workers_key)) do
  local other_shape = redis.call('HGET', pool .. ':worker:' .. other, 'shape')
  if not other_shape then
    redis.call('SREM', workers_key, other)
  elseif other ~= worker and other_shape ~= shape then
    return {'PARITY', '0', 'worker ' .. other .. ' there has ' .. other_shape}
  end
end

local current = redis.call('HGET', record_key, 'epoch')
if current ~= epoch then
  if current then
    redis.call('UNLINK', record_key, pool .. ':summary:' .. worker .. ':' .. current,
      pool .. ':staging:' .. worker .. ':' .. current)
  end
  redis.call('HSET', record_key, 'epoch', epoch, 'seq', '0', 'count', '0', 'xor', EMPTY_XOR)
end
redis.call('HSET', record_key, 'hello', hello, 'shape', shape, 'synced', '0')
redis.call('SADD', workers_key, worker)
redis.call('SET', epoch_key, epoch, 'PX', EPOCH_MEMORY_MS)
redis.call('SET', pool .. ':events:n', first_n, 'NX')
renew_lease()
publish('registered', 'hello', hello, 'seq', seq_of_summary())
return done()
