-- Stage a chunk of a Snapshot; the last one takes the summary's place, if the digest of all agrees:
-- that alone tells whether a chunk was lost, doubled, or of another snapshot.
-- ARGV: common, seq, index, '1' when last, hashes, count and xor of all (with the last).
local seq, first, last, hashes = ARGV[4], ARGV[5] == '0', ARGV[6] == '1', ARGV[7]
local claimed_count, claimed_xor = tonumber(ARGV[8]), ARGV[9]

local refused = fence()
if refused then return refused end
renew_lease()

if tonumber(seq) < tonumber(seq_of_summary()) then
  return resync('the snapshot is of seq ' .. seq .. ', the summary is later')
end
if first then
  redis.call('UNLINK', staging_key)
  redis.call('HDEL', record_key, 'staged_xor')
end
change('SADD', staging_key, hashes)
local xor = fold(redis.call('HGET', record_key, 'staged_xor') or EMPTY_XOR, hashes)
if not last then
  redis.call('PEXPIRE', staging_key, lease)
  redis.call('HSET', record_key, 'staged_xor', xor)
  return done()
end

redis.call('HDEL', record_key, 'staged_xor')
local count = redis.call('SCARD', staging_key)
if count ~= claimed_count or xor ~= claimed_xor then
  redis.call('UNLINK', staging_key)
  return resync('the digest of the snapshot of seq ' .. seq .. ' is not what it says')
end
redis.call('HDEL', record_key, 'doubt')
redis.call('UNLINK', summary_key)
if count > 0 then redis.call('RENAME', staging_key, summary_key) end
redis.call('HSET', record_key, 'seq', seq, 'count', count, 'xor', xor)
renew_lease()
publish('replaced', 'seq', seq, 'count', count, 'xor', xor)
return done()
