# A disk that hangs: device-mapper over a memory disk (brd) holds all requests, also those under
# way, and completes them later. As root, so in the lab. Sourced after common.sh.
# shellcheck shell=bash disable=SC2034

disk=/dev/mapper/far

# can_hang MIB: there is a memory disk of this size, and device-mapper.
can_hang() {
    command -v dmsetup >/dev/null && modprobe dm_mod && modprobe brd rd_nr=1 rd_size=$(($1 * 1024))
}

# A disk of which each line of standard input is a part; an earlier one is gone. Nothing listens to
# udev here.
new_disk() {
    ! [ -e $disk ] || dmsetup remove --noudevsync far || return
    dmsetup create far --noudevsync >/dev/null && dmsetup mknodes far && [ -b $disk ]
}
whole_disk() { new_disk <<<"0 $(blockdev --getsz /dev/ram0) linear /dev/ram0 0"; }
hang() { dmsetup suspend --noudevsync --noflush --nolockfs far; }
go_on() { dmsetup resume --noudevsync far; }
hangs_no_more() {
    ! [ -e $disk ] || [ "$(dmsetup info -c --noheadings -o suspended far)" = Active ] || go_on
}
