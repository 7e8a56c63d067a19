-- Take a Load and compare the digest in it. ARGV: common, seq, count, xor, the Load itself.
local seq, count, xor, load = ARGV[4], ARGV[5], ARGV[6], ARGV[7]

local refused = fence()
if refused then return refused end

local record = redis.call('HMGET', record_key, 'seq', 'count', 'xor', 'doubt')
local held = redis.call('SCARD', summary_key)
local wrong = record[4]
if not wrong and held ~= tonumber(record[2]) then
  wrong = 'the set in Redis holds ' .. held .. ' hashes, its record says ' .. record[2]
end
if not wrong and (record[1] ~= seq or record[2] ~= count or record[3] ~= xor) then
  wrong = 'the summary is at seq ' .. record[1] .. ' with ' .. record[2] .. ' hashes of xor '
    .. hex(record[3]) .. ', the worker at seq ' .. seq .. ' with ' .. count .. ' of xor ' .. hex(xor)
end

local synced = wrong and '0' or '1'
redis.call('HSET', record_key, 'load', load, 'synced', synced)
renew_lease()
publish('loaded', 'load', load, 'synced', synced)
if wrong then return resync(wrong) end
return done()
