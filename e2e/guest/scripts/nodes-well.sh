# nodes-well: the first node's disk is well again, and somebody says so; waits until the copies are in sync.
table | becomes || exit 1
at 1 pool reopen disks --yes && at 1 pool acknowledge disks || die 'not reopened'
