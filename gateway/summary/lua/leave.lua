-- The worker's stream ended; it left for good if ARGV[4], after the common ones, is '1'.
local refused = fence()
if refused then return refused end

if ARGV[4] == '1' then
  redis.call('UNLINK', record_key, summary_key, staging_key)
  redis.call('SREM', workers_key, worker)
  publish('departed')
  return {'OK', '0', ''}
end
redis.call('HSET', record_key, 'synced', '0')
publish('detached')
return done()
