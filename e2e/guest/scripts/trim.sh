# trim: deletes the file and gives its blocks back.
rm /mnt/filler && sync && fstrim -v /mnt && umount /mnt
