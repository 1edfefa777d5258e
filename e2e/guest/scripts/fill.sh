# fill: a file of 96 MiB that is no zeros, on the disk when it is over.
head -c 100663296 /dev/urandom >/mnt/filler && sync /mnt/filler && rm -f /mnt/verified && sync && df -m /mnt
