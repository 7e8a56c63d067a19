#!lua
-- Put before each of the other scripts. A script changes one worker of one pool, all or nothing:
-- it checks first and writes after, since Redis does not undo a script that fails half way. The
-- first line lets Redis refuse a script before it starts when it may not write: read-only, or full.
--
-- KEYS[1] is the pool, "radixgate:{model}"; all keys of a pool share that hash tag, so they are
-- in one slot. ARGV: worker, epoch as 20 digits (so that text order is number order), lease in ms.
-- Replies: {verdict, seq in the summary, detail}; verdicts are those of store.py.
-- Hashes are 8 bytes each, in strings of any length; an xor is 8 bytes too.

local STREAM_LENGTH = 10000
local EPOCH_MEMORY_MS = 7 * 24 * 3600 * 1000
local HASH = 8
local CHUNK = 4000 -- hashes in one command: Lua cannot unpack more than 8000 values
local EMPTY_XOR = string.rep('\0', HASH)

local pool, worker, epoch, lease = KEYS[1], ARGV[1], ARGV[2], ARGV[3]
local workers_key = pool .. ':workers'
local epoch_key = pool .. ':epoch:' .. worker
local record_key = pool .. ':worker:' .. worker
local summary_key = pool .. ':summary:' .. worker .. ':' .. epoch
local staging_key = pool .. ':staging:' .. worker .. ':' .. epoch

-- A reply when this epoch is not the one registered, else nil.
local function fence()
  if redis.call('HGET', record_key, 'epoch') == epoch then return nil end
  local newest = redis.call('GET', epoch_key)
  if newest and newest > epoch then return {'STALE', '0', newest} end
  return {'UNKNOWN', '0', ''}
end

local function seq_of_summary()
  return redis.call('HGET', record_key, 'seq')
end

local function resync(detail)
  return {'RESYNC', seq_of_summary(), detail}
end

local function done()
  return {'OK', seq_of_summary(), ''}
end

local function renew_lease()
  redis.call('PEXPIRE', record_key, lease)
  redis.call('PEXPIRE', summary_key, lease)
end

-- Append to the pool's stream. `n` numbers its events, so that a reader notices a missing one.
local function publish(kind, ...)
  local n = redis.call('INCR', pool .. ':events:n')
  redis.call('XADD', pool .. ':events', 'MAXLEN', '~', STREAM_LENGTH, '*',
    'n', string.format('%.0f', n), 'kind', kind, 'worker', worker, 'epoch', epoch, ...)
end

local function each_chunk(hashes, visit)
  for first = 1, #hashes, CHUNK * HASH do
    local chunk = {}
    for at = first, math.min(first + CHUNK * HASH, #hashes + 1) - 1, HASH do
      chunk[#chunk + 1] = hashes:sub(at, at + HASH - 1)
    end
    visit(chunk)
  end
end

-- How many of `hashes` are in the set at `key`.
local function count_held(key, hashes)
  local held = 0
  each_chunk(hashes, function(chunk)
    for _, is_member in ipairs(redis.call('SMISMEMBER', key, unpack(chunk))) do
      held = held + is_member
    end
  end)
  return held
end

-- Run SADD or SREM; how many hashes that added or removed.
local function change(command, key, hashes)
  local changed = 0
  each_chunk(hashes, function(chunk)
    changed = changed + redis.call(command, key, unpack(chunk))
  end)
  return changed
end

-- An xor as the number it is, for people.
local function hex(xor)
  local low, high = struct.unpack('<I4I4', xor)
  return string.format('%08x%08x', high, low)
end

-- `xor` with all of `hashes` folded in, 32 bits at a time.
local function fold(xor, hashes)
  local low, high = struct.unpack('<I4I4', xor)
  for at = 1, #hashes, HASH do
    local hash_low, hash_high = struct.unpack('<I4I4', hashes, at)
    low, high = bit.bxor(low, hash_low), bit.bxor(high, hash_high)
  end
  return struct.pack('<I4I4', low % 2 ^ 32, high % 2 ^ 32)
end

