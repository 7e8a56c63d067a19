-- Take a Load and compare the digest in it. ARGV: common, seq, count, xor, the Load itself.
local seq, count, xor, load = ARGV[4], ARGV[5], ARGV[6], ARGV[7]

local refused = fence()
if refused then return refused end

local record = redis.call('HMGET', record_key, 'seq', 'count', 'xor')
local synced = record[1] == seq and record[2] == count and record[3] == xor
redis.call('HSET', record_key, 'load', load, 'synced', synced and '1' or '0')
renew_lease()
publish('loaded', 'load', load, 'synced', synced and '1' or '0')
if synced then return done() end
return resync('the summary is at seq ' .. record[1] .. ' with ' .. record[2]
  .. ' hashes, the worker at seq ' .. seq .. ' with ' .. count)
