package smalldisk
