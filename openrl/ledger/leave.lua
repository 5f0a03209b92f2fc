-- ARGV[3] holder -> bells: of the ops that anybody may work on now
bury(ARGV[3])
return bells
