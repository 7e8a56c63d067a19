-- The summary was found not to be what its record says: the next Load asks for a snapshot.
-- ARGV: common, why.
local refused = fence()
if refused then return refused end

redis.call('HSET', record_key, 'doubt', ARGV[4], 'synced', '0')
return done()
