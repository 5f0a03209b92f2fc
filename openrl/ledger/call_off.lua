-- ARGV[3] batch that was closed  [4] most ops to look at -> how many are left to look at, bells, bodies
return { call_off(ARGV[3], tonumber(ARGV[4])), bells, bodies }
