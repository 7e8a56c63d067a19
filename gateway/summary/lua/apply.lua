-- Apply a Delta. ARGV: common, seq, stored, removed, count and xor after it, the Delta itself.
local seq, stored, removed = tonumber(ARGV[4]), ARGV[5], ARGV[6]
local claimed_count, claimed_xor, delta = tonumber(ARGV[7]), ARGV[8], ARGV[9]

local refused = fence()
if refused then return refused end
renew_lease()

local record = redis.call('HMGET', record_key, 'seq', 'count', 'xor')
local held_seq = tonumber(record[1])
if seq <= held_seq then return done() end
if seq ~= held_seq + 1 then
  return resync('Delta ' .. seq .. ' where ' .. held_seq + 1 .. ' was expected')
end
if count_held(summary_key, stored) ~= 0 then
  return resync('Delta ' .. seq .. ' stores what is held already')
end
if count_held(summary_key, removed) ~= #removed / HASH then
  return resync('Delta ' .. seq .. ' removes what is not held')
end
local count = tonumber(record[2]) + (#stored - #removed) / HASH
local xor = fold(fold(record[3], stored), removed)
if count ~= claimed_count or xor ~= claimed_xor then
  return resync('the digest after Delta ' .. seq .. ' is not what it says')
end

change('SADD', summary_key, stored)
change('SREM', summary_key, removed)
redis.call('HSET', record_key, 'seq', seq, 'count', count, 'xor', xor)
renew_lease()
publish('changed', 'delta', delta)
return done()
